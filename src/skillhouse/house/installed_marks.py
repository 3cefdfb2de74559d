"""How the installed skills are now, for lists: known from the marks of their files where these are
the same as when the files were last read.

Only what is shown goes by this. Whether a skill is loaded is decided by its bytes, each time.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from skillhouse.discovery.watcher import survey
from skillhouse.floor import (
    SkillhouseError,
    dataclass,
    decode,
    encode,
    isolated,
    write_atomically,
)

if TYPE_CHECKING:
    from skillhouse.registry import LockEntry

MARKS_FILE = "installed-marks"
"""Below the cache directory."""
MARKS_MAX = 16 * 1024 * 1024
"""Bytes of that file."""
STEADY_NANOSECONDS = 2_000_000_000
"""A file that changed more recently may change again without another time stamp."""

MarkState = Literal["ok", "accepted", "edited", "refused", "missing"]
Judge = Callable[[Path, "LockEntry"], tuple[MarkState, str]]
"""Reads a directory and says how it compares with its entry, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledMark:
    """One installed skill."""

    scope: str
    name: str
    directory: Path
    """Its real path."""
    state: MarkState
    reason: str = ""

    @property
    def is_well(self) -> bool:
        return self.state in ("ok", "accepted")

    @property
    def mend(self) -> str:
        """What a person can do about it."""
        verify = f"`skillhouse verify {self.scope}:{self.name}"
        back = f"{verify} --restore` puts back what was installed"
        if self.state == "edited":
            return f"{verify}` shows the edits, {verify} --accept` keeps them, {back}"
        if self.state == "missing":
            return f"{back}, `skillhouse uninstall {self.scope}:{self.name}` forgets it"
        if self.state == "refused":
            update, remove = (f"`skillhouse {verb} {self.scope}:{self.name}`" for verb in _AFTER)
            return f"{update} if there is a newer one, or {remove}"
        return ""


_AFTER = ("update", "uninstall")


@dataclass(frozen=True, slots=True)
class _LastFound:
    """What was found when the files were last read."""

    key: str
    """Of the marks, the entry and what is trusted."""
    state: str
    reason: str


class InstalledMarks:
    """The installed skills of one user and project."""

    def __init__(
        self,
        judge: Judge,
        entries: Callable[[str], Mapping[str, LockEntry]],
        bases: Mapping[str, Path],
        *,
        trusted: Path,
        cache: Path | None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """Take what judges files that differ, and what the locks say.

        Args:
            entries: Gives the entries of a scope by their paths, which are relative to its base.
            trusted: The directory of what is trusted: after a change all signatures are read again.
            cache: Where the marks are kept; None reads every file each time.
        """
        self._judge = judge
        self._entries = entries
        self._bases = bases
        self._trusted = trusted
        self._file = None if cache is None else cache / MARKS_FILE
        self._clock = clock

    def of(self, scopes: Iterable[str]) -> tuple[InstalledMark, ...]:
        """Return the installed skills of some scopes, by scope and path.

        Raises:
            StateError: a lock cannot be used.
        """
        known = self._known()
        kept = dict(known)
        # A certificate may end any day; signatures are judged again on each.
        day = self._clock() // 86_400_000_000_000
        around = f"{day} {_marks_of(self._trusted)[0]}"
        found = tuple(
            mark
            for scope in scopes
            if scope in self._bases
            for mark in self._of(scope, around, kept)
        )
        if kept != known:
            self._keep(kept, {str(mark.directory) for mark in found})
        return found

    def _of(self, scope: str, around: str, kept: dict[str, _LastFound]) -> Iterator[InstalledMark]:
        base = Path(os.path.realpath(self._bases[scope]))
        for path, entry in sorted(self._entries(scope).items()):
            name = path.rpartition("/")[2]
            # A project's lock may have any path; only directories below the project are read.
            real = Path(os.path.realpath(base / path))
            if not real.is_relative_to(base) or not real.is_dir():
                reason = f"no directory `{path}`"
                yield InstalledMark(
                    scope=scope, name=name, directory=real, state="missing", reason=reason
                )
                continue
            marks, newest = _marks_of(real)
            signer = "" if entry.signature is None else entry.signature.cert_sha256
            key = f"{around} {marks} {entry.tree_digest} {entry.accepted} {signer}"
            last = kept.get(str(real))
            if last is not None and last.key == key and last.state in _STATES:
                state, reason = _STATES[last.state], last.reason
            else:
                state, reason = self._judged(real, entry)
                kept.pop(str(real), None)
                if newest < self._clock() - STEADY_NANOSECONDS:
                    kept[str(real)] = _LastFound(key, state, reason)
            yield InstalledMark(scope=scope, name=name, directory=real, state=state, reason=reason)

    def _judged(self, real: Path, entry: LockEntry) -> tuple[MarkState, str]:
        with isolated() as failed:
            return self._judge(real, entry)
        # INVARIANT: what cannot be judged is refused.
        return "refused", str(failed[0])

    def _known(self) -> dict[str, _LastFound]:
        if self._file is None:
            return {}
        try:
            with open(self._file, "rb") as file:
                return decode(file.read(MARKS_MAX), dict[str, _LastFound])
        except (OSError, SkillhouseError):
            return {}

    def _keep(self, kept: Mapping[str, _LastFound], seen: set[str]) -> None:
        if self._file is None:
            return
        # Of other projects those that are still there.
        left = {path: one for path, one in kept.items() if path in seen or os.path.isdir(path)}
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with write_atomically(self._file) as file:
                file.write(encode(left))
        except OSError:
            # The next list reads the files again.
            return


_STATES: Mapping[str, MarkState] = {
    "ok": "ok",
    "accepted": "accepted",
    "edited": "edited",
    "refused": "refused",
}


def _marks_of(directory: Path) -> tuple[str, int]:
    """Return a digest of the marks of all files, and the newest change in nanoseconds."""
    entries = survey([str(directory)]).entries
    text = repr(sorted(entries.items())).encode("utf-8", "surrogateescape")
    newest = max((max(mark[1:3]) for mark in entries.values() if len(mark) > 2), default=0)
    return hashlib.sha256(text).hexdigest()[:32], newest
