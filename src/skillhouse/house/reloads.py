"""The reload signal between processes, and the declared tools that no code exports."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path

from skillhouse.floor import DecodeError, dataclass, decode, encode, file_stamp, make_private
from skillhouse.floor.lock import lock
from skillhouse.floor.paths import sendable

RELOADS_FILE = "reloads"
LOCK_FILE = "reloads.lock"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """What one tree of code does not export, although its manifest declares it."""

    digest: str
    """Of the tree: other code may have it."""
    tools: tuple[str, ...]
    """Empty: it was looked at, and exports all that is declared, where it loads."""
    error: str = ""
    """Why it did not load; empty where it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SharedReloads:
    """The file that the processes share."""

    version: int = VERSION
    count: int = 0
    lacking: Mapping[str, Lacking] = field(default_factory=dict)
    """By the skill's directory, see `_key`."""


ERROR_MAX = 1_000
"""Characters of an error that is kept: it is the skill's own text."""


_OF_THE_SKILL = frozenset(
    "skill-failed dependencies-lock dependencies-unhashed dependencies-source "
    "dependencies-line dependencies-many dependencies-overrides".split()
)
"""Codes of errors that the same bytes give again; others are of the machine or the moment."""


def failed_load(digest: str, code: str, message: str) -> Lacking | None:
    """Return what is remembered of code that did not load; None where the skill is not to blame."""
    if code not in _OF_THE_SKILL:
        return None
    text = " ".join(message.split())
    text = "".join(c if c.isprintable() else "?" for c in text)[:ERROR_MAX]
    return Lacking(digest=digest, tools=(), error=text)


class Reloads:
    """A file in the state directory; each process sees by its date that it is another one.

    It is a cache: one that is lost, broken or newer counts as empty, and what code lacks is found
    out again.
    """

    def __init__(self, state_directory: Path) -> None:
        self._directory = state_directory
        self._path = state_directory / RELOADS_FILE
        self._seen = file_stamp(self._path)

    def is_new(self) -> bool:
        """Whether a signal was written since the last call; costs one `stat`."""
        before, self._seen = self._seen, file_stamp(self._path)
        return self._seen != before

    def lacking(self) -> Callable[[Path], Lacking | None]:
        """Return a lookup by skill directory, from one reading of the file."""
        found = self._read().lacking
        return lambda directory: found.get(_key(directory))

    def signal_all(self) -> None:
        """Signal each process to reload, and forget missing tools; complete skills are kept."""
        with self._locked() as kept:
            is_whole = {place: not (one.tools or one.error) for place, one in kept.lacking.items()}
            whole = {place: one for place, one in kept.lacking.items() if is_whole[place]}
            self._write(_SharedReloads(count=kept.count + 1, lacking=whole))

    def note(self, lacking: Mapping[Path, Lacking]) -> None:
        """Add findings; signal each process to reload if they change anything."""
        with self._locked() as kept:
            found = {place: one for place, one in kept.lacking.items() if os.path.isdir(place)}
            found.update({_key(place): one for place, one in lacking.items()})
            if found != kept.lacking:
                self._write(_SharedReloads(count=kept.count + 1, lacking=found))

    @contextmanager
    def _locked(self) -> Iterator[_SharedReloads]:
        make_private(self._directory)
        handle = os.open(self._directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            lock(handle)
            yield self._read()
        finally:
            os.close(handle)

    def _read(self) -> _SharedReloads:
        try:
            found = decode(self._path.read_bytes(), _SharedReloads)
        except (OSError, DecodeError):
            return _SharedReloads()
        return found if found.version == VERSION else _SharedReloads()

    def _write(self, kept: _SharedReloads) -> None:
        # Replaced as a whole, so that a reader never meets half of it, and its inode is another.
        new = self._directory / f"{RELOADS_FILE}.{os.getpid()}"
        new.touch(0o600)
        new.write_bytes(encode(kept))
        os.replace(new, self._path)


def _key(directory: Path) -> str:
    """Return a directory as a text that can be written, whatever bytes its name has."""
    return sendable(os.fspath(directory))
