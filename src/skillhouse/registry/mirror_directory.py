"""The directory of a mirror: files that any server of files can serve, each of them whole.

INVARIANT: a name appears only when all bytes of its file are on the disk, an archive before the
document that names it. So a mirror works at every moment, also after a process was killed.

Its lists are `.well-known/agent-skills` of each namespace, and pages of all skills.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec import Struct

from skillhouse.floor import (
    DecodeError,
    SkillhouseError,
    decode,
    descriptor,
    digest,
    encode,
    sync_directory,
)
from skillhouse.floor.crash_cleanup import is_left, owner_name
from skillhouse.floor.digests import file_digest
from skillhouse.floor.lock import try_lock
from skillhouse.registry.attestations import ATTESTATIONS
from skillhouse.registry.releases import (
    DEFAULT_NAMESPACE,
    Release,
    SkillReleases,
    blob_path,
    decode_skill,
    index_path,
    strict_document,
)
from skillhouse.registry.repository import LISTS

MIRROR_BYTES_MAX = 50 * 1024**3
"""Bytes of all archives of a mirror, unless its owner says otherwise."""
OWN = ".mirror"
"""The directory of what is not served: the state, the lock, files that are not whole yet."""
_PARTIAL = "partial-"
_STATE = "state"
WELL_KNOWN = ".well-known/agent-skills"
SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
"""Of the index (agent-skills discovery RFC 0.2.0)."""
PAGE = 500
"""Skills of one page."""
DESCRIPTION_MAX = 1024
"""Characters of a description in the index (likewise)."""


class MirrorError(SkillhouseError):
    """A directory cannot be a mirror of that source, or may not grow further."""


class MirrorState(Struct, frozen=True, kw_only=True):
    """What a mirror is of, and how far it has come."""

    source: str
    """The address."""
    name: str = ""
    """What the source calls itself."""
    skills: tuple[str, ...] = ()
    """The names that are mirrored; empty for all."""
    sequence: int | None = None
    """The last change of the source that is here; None where it is not known."""


class MirrorDirectory:
    """A mirror that one process at a time changes, within a `with` block."""

    def __init__(self, directory: Path) -> None:
        self.path = directory
        self._own = directory / OWN
        self._partial = self._own / f"{_PARTIAL}{owner_name()}-{secrets.token_hex(4)}"
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if self.path.is_dir() and not self._own.is_dir() and any(self.path.iterdir()):
            raise MirrorError(f"`{self.path}` has other files: name an empty directory")
        self._own.mkdir(parents=True, exist_ok=True)
        lock = self._stack.enter_context(open(self._own / "lock", "wb"))
        if not try_lock(lock.fileno()):
            self._stack.close()
            raise MirrorError(f"another process is changing `{self.path}`; try again later")
        for entry in list(os.scandir(self._own)):
            if is_left(entry.name, _PARTIAL):
                shutil.rmtree(entry.path)
        self._partial.mkdir()
        return self

    def __exit__(
        self,
        _: type[BaseException] | None,
        __: BaseException | None,
        ___: TracebackType | None,
    ) -> None:
        shutil.rmtree(self._partial, ignore_errors=True)
        self._stack.close()

    def state(self) -> MirrorState | None:
        """Return what this is a mirror of; None for a new one.

        Raises:
            MirrorError: its state cannot be read.
        """
        try:
            return decode((self._own / _STATE).read_bytes(), MirrorState)
        except FileNotFoundError:
            return None
        except DecodeError as error:
            raise MirrorError(f"the state of `{self.path}` cannot be read: {error}") from error

    def keep_state(self, state: MirrorState) -> None:
        self.put(f"{OWN}/{_STATE}", encode(state))

    def read(self, relative: str) -> bytes | None:
        """Return what is at a path that we made; None where nothing is."""
        try:
            return (self.path / relative).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, relative: str, data: bytes) -> bool:
        """Replace a file at once and durably; return whether it was another one."""
        if self.read(relative) == data:
            return False
        target = self.path / relative
        beside = self._partial / secrets.token_hex(8)
        with open(beside, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self._rename(beside, target)
        return True

    def _rename(self, beside: Path, target: Path) -> None:
        missing = [one for one in (target.parent, *target.parents) if not one.is_dir()]
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(beside, target)
        for place in (target.parent, *(one.parent for one in missing)):
            sync_directory(place)

    def has_archive(self, name: str, *, check: bool = False) -> bool:
        """Return whether the archive of a digest is here; with `check`, whether it is whole."""
        path = self.path / blob_path(name)
        if not check:
            return path.is_file()
        with contextlib.suppress(FileNotFoundError):
            return file_digest(path) == name
        return False

    def put_archive(self, data: bytes) -> None:
        """Keep an archive under its digest."""
        self.put(blob_path(digest(data)), data)

    def remove(self, relative: str) -> None:
        (self.path / relative).unlink(missing_ok=True)

    def link(self, existing: str, relative: str) -> None:
        """Let a file have a second name; a copy where the file system has no second names."""
        source, target = self.path / existing, self.path / relative
        if target.exists():
            return
        beside = self._partial / secrets.token_hex(8)
        try:
            os.link(source, beside)
        except OSError:
            shutil.copyfile(source, beside)
            with descriptor(os.open(beside, os.O_RDONLY)) as handle:
                os.fsync(handle)
        self._rename(beside, target)

    def archive_bytes(self) -> int:
        """Return the bytes of all archives and of the bundles beside them."""
        found = (
            path
            for part in ("blobs", ATTESTATIONS)
            for path in (self.path / part).glob("sha256/*/*")
        )
        return sum(path.stat().st_size for path in found)

    def skill(self, namespace: str, skill: str) -> SkillReleases | None:
        """Return the document of a skill here; None without one, or for a damaged one."""
        data = self.read(index_path(namespace, skill))
        if data is None:
            return None
        try:
            return decode_skill(data, namespace=namespace, skill=skill)
        except DecodeError:
            return None

    def skills(self) -> Iterator[SkillReleases]:
        """Yield the documents of all skills, by namespace and name."""
        found = (self.path / "index").glob("??/??/*/*.json")
        for namespace, name in sorted((path.parent.name, path.stem) for path in found):
            document = self.skill(namespace, name)
            if document is not None:
                yield document


def json_bytes(value: object) -> bytes:
    """Return a value as the JSON of a document."""
    return f"{json.dumps(value, sort_keys=True, ensure_ascii=False)}\n".encode()


def write_lists(mirror: MirrorDirectory) -> None:
    """Bring all lists to the documents that are in a mirror."""
    by_namespace: dict[str, list[tuple[SkillReleases, Release]]] = {DEFAULT_NAMESPACE: []}
    lines: list[dict[str, Any]] = []
    for one in mirror.skills():
        newest = next((each for each in one.versions if each.version == one.latest), None)
        lines.append(_line(one, newest))
        if newest is not None and newest.state == "published" and mirror.has_archive(newest.digest):
            by_namespace.setdefault(one.namespace, []).append((one, newest))
    for namespace, found in by_namespace.items():
        _write_well_known(mirror, namespace, found)
    pages = [lines[start : start + PAGE] for start in range(0, len(lines), PAGE)] or [[]]
    for number, page in enumerate(pages, start=1):
        following = str(number + 1) if number < len(pages) else None
        value = {"skills": page, "next_cursor": following}
        mirror.put(f"{LISTS}/{number}.json", json_bytes(value))


def _line(one: SkillReleases, newest: Release | None) -> dict[str, Any]:
    signature = None if newest is None else newest.signature
    return {
        "name": one.name,
        "namespace": one.namespace,
        "skill": one.skill,
        "description": one.description,
        "latest": one.latest,
        "license": one.license,
        "publisher": "" if signature is None else signature.publisher,
        "updated_at": "" if newest is None else newest.published_at,
    }


def _write_well_known(
    mirror: MirrorDirectory, namespace: str, found: Iterable[tuple[SkillReleases, Release]]
) -> None:
    top = WELL_KNOWN if namespace == DEFAULT_NAMESPACE else f"{namespace}/{WELL_KNOWN}"
    entries: list[dict[str, str]] = []
    for one, release in found:
        end = "zip" if release.media_type == "application/zip" else "tar.gz"
        # With an end that says what it is: a server of files may not know more of it.
        url = f"{one.skill}/{release.digest.removeprefix('sha256:')}.{end}"
        mirror.link(blob_path(release.digest), f"{top}/{url}")
        entries.append(
            {
                "name": one.skill,
                "type": "archive",
                "description": one.description[:DESCRIPTION_MAX],
                "url": url,
                "digest": release.digest,
            }
        )
    index = f"{top}/index.json"
    before = _urls(mirror.read(index))
    if not mirror.put(index, json_bytes({"$schema": SCHEMA, "skills": entries})):
        return
    # Who read the list before this one may still ask for what it named; who read an older one
    # will not. What was revoked since is gone at once.
    kept = {url for url in before if mirror.has_archive(_digest_of(url))}
    kept |= {entry["url"] for entry in entries}
    for path in (mirror.path / top).glob("*/*"):
        relative = path.relative_to(mirror.path / top).as_posix()
        if relative not in kept:
            mirror.remove(f"{top}/{relative}")


def _digest_of(url: str) -> str:
    return f"sha256:{url.rpartition('/')[2].partition('.')[0]}"


def _urls(data: bytes | None) -> set[str]:
    """Return the addresses of a list that we wrote; of a damaged one, none."""
    try:
        value = strict_document(data or b"{}", "the list")
    except DecodeError:
        return set()
    skills = value.get("skills") if isinstance(value, dict) else None
    return {str(one.get("url")) for one in skills or () if isinstance(one, dict)}
