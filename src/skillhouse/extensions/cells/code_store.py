"""The code that cores have sent to an executor: by its digest, and nothing else."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from skillhouse.extensions.cells.code_archive import unpack
from skillhouse.extensions.cells.served_call import ServedCall
from skillhouse.extensions.cells.served_tools import ServedTool, served_tools
from skillhouse.floor import Severity, TreeError, make_private, tree_digest
from skillhouse.sandbox import SandboxError
from skillhouse.skill import find_manifests

CODE_BYTES = 50_000_000
"""Most bytes of one skill's code, as `floor.tree_digest` takes."""
PACKAGES_BYTES = 512 << 20
"""Most bytes of one skill's packages."""
STORE_BYTES = 2 << 30
"""Beyond it what was used longest ago is removed."""
YOUNG_SECONDS = 120.0
"""What was used within this time stays: a call may be about to use it."""
_DIGEST = re.compile("skilltree1:[0-9a-f]{64}")


class CodeStore:
    """Trees of skills and of their packages below one directory, which nothing else writes."""

    def __init__(
        self,
        base: Path,
        *,
        shared: Mapping[str, tuple[Path, ...]],
        max_bytes: int | None = None,
    ) -> None:
        """Begin empty: what an earlier process left there is removed.

        Args:
            shared: Directories of packages for all skills, by language.
            max_bytes: None takes STORE_BYTES, or half of what is free there where that is less.
        """
        self._base = base
        self._shared = shared
        self._lock = threading.Lock()
        self._tools: dict[str, tuple[ServedTool, ...]] = {}
        self._sizes: dict[Path, int] = {}
        shutil.rmtree(base, ignore_errors=True)
        for name in ("code", "packages", "sent"):
            make_private(base / name)
        half = shutil.disk_usage(base).free // 2
        self._max_bytes = min(STORE_BYTES, half) if max_bytes is None else max_bytes

    @property
    def sent(self) -> Path:
        """Where archives are kept while they arrive."""
        return self._base / "sent"

    def has(self, digests: Iterable[str]) -> bool:
        """Whether all of this code is here."""
        with self._lock:
            here = {place.name for place in self._sizes}
        return all(one.rpartition(":")[2] in here for one in digests)

    def tools(self, digest: str) -> tuple[ServedTool, ...]:
        """Return the tools of the code with that digest; none where it is not here."""
        with self._lock:
            found = self._tools.get(digest, ())
        return found if found and self._use(found[0].spec.directory.parent) else ()

    def packages(self, call: ServedCall) -> Path | None:
        """Return the packages of a call; None where they are not here."""
        place = self._base / "packages" / call.packages_digest.rpartition(":")[2]
        if not call.packages_digest or not place.is_dir() or not self._use(place):
            return None
        return place / "packages"

    def take(self, archives: Path, call: ServedCall) -> None:
        """Keep what was sent with a call, if it has the digests that the call names.

        Raises:
            SandboxError: "code-refused", it has not, or it holds no skill.
        """
        if not _DIGEST.fullmatch(call.digest):
            raise SandboxError("code-refused", "expected a digest as skilltree1:…")
        staging = self.sent / f"new-{secrets.token_hex(8)}"
        code, packages = staging / "code" / "skill", staging / "packages" / "packages"
        try:
            with archives.open("rb") as file:
                code.mkdir(parents=True)
                unpack(file, code, max_bytes=CODE_BYTES)
                _check_digest("code", call.digest, _tree_digest(code))
                self._publish(code.parent, "code", call.digest)
                if call.packages_digest:
                    packages.mkdir(parents=True)
                    found = unpack(file, packages, max_bytes=PACKAGES_BYTES)
                    _check_digest("packages", call.packages_digest, found)
                    self._publish(packages.parent, "packages", call.packages_digest)
            self._read(call.digest)
            self._collect()
        except OSError as error:
            message = f"the code that was sent could not be kept: {error.strerror}"
            raise SandboxError("code-refused", message) from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _publish(self, made: Path, kind: str, digest: str) -> None:
        place = self._base / kind / digest.rpartition(":")[2]
        with self._lock:
            # INVARIANT: what has a digest as its name is whole and was compared with it.
            if not place.is_dir():
                made.rename(place)
            self._sizes[place] = sum(one.stat().st_size for one in place.rglob("*"))

    def _read(self, digest: str) -> None:
        place = self._base / "code" / digest.rpartition(":")[2]
        results = find_manifests(place)
        manifest = results[0].manifest if len(results) == 1 else None
        if manifest is None:
            said = [
                finding.message
                for result in results
                for finding in result.diagnostics
                if finding.severity is Severity.ERROR
            ]
            raise SandboxError("code-refused", "; ".join(said) or "it holds no executable skill")
        found = served_tools(results[0], manifest, digest, shared=self._shared)
        with self._lock:
            self._tools[digest] = tuple(found)

    def _use(self, place: Path) -> bool:
        """Note that a call uses it; False where it was removed meanwhile: it is sent again."""
        try:
            os.utime(place)
        except FileNotFoundError:
            return False
        return True

    def _collect(self) -> None:
        """Remove the least recently used until `max_bytes` are left."""
        with self._lock:
            total = sum(self._sizes.values())
            used = sorted((place.stat().st_mtime, place) for place in self._sizes)
            for at, place in used:
                if total <= self._max_bytes or at > time.time() - YOUNG_SECONDS:
                    return
                total -= self._sizes.pop(place)
                for digest, tools in tuple(self._tools.items()):
                    if tools[0].spec.directory.parent == place:
                        del self._tools[digest]
                gone = self.sent / f"old-{secrets.token_hex(8)}"
                place.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)


def _tree_digest(directory: Path) -> str:
    try:
        return tree_digest(directory)
    except TreeError as error:
        raise SandboxError("code-refused", f"what was sent is no skill: {error}") from error


def _check_digest(what: str, wanted: str, found: str) -> None:
    if found != wanted:
        message = f"what was sent as {what} is not what the call names: expected {wanted}"
        raise SandboxError("code-refused", f"{message}, got {found}")
