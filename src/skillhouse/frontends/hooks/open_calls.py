"""Calls that were handed to a client and whose outcome is not known yet: one small file each.

A process that judges may end at any time, and the next one records what came of them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from skillhouse.floor import DecodeError, decode, encode, make_private

KEPT_SECONDS = 7 * 86_400
"""How long a call without an outcome is kept; its record stays, and its outcome is unknown."""


class OpenCall(Struct, frozen=True, kw_only=True):
    """A call with an intent in the log."""

    intent: str
    tool: str
    agent: str
    client: str
    began_ms: int
    is_asked: bool = False
    """Whether the client asks its person about it."""
    subagent: str = ""
    is_background: bool = False
    left: str = ""
    """Why it runs as it is, where others are run in our sandbox."""
    has_ticket: bool = False
    has_begun: bool = False
    """Whether a runner of ours has begun it, which records its end."""
    skills: tuple[str, ...] = ()
    """The SKILL.md files that it gives the client's model."""
    outlasts: bool = False
    """Whether it may go on when the turn has ended, so that its end may come later, or never."""


class OpenCalls:
    """The open calls of a state directory, by the client's session and its id of the call."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, session: str, call: str, opened: OpenCall) -> None:
        place = self._place(session)
        make_private(place)
        name = name_of(call)
        (place / f".{name}").write_bytes(encode(opened))
        os.replace(place / f".{name}", place / name)

    def get(self, session: str, call: str) -> OpenCall | None:
        return self._read(self._place(session) / name_of(call))

    def take(self, session: str, call: str) -> OpenCall | None:
        """Return and forget a call; None for one that is not open."""
        return self._taken(self._place(session) / name_of(call))

    def take_all(
        self, session: str, subagent: str, *, left: Callable[[str], bool] = lambda _: False
    ) -> Iterator[OpenCall]:
        """Return and forget the open calls of an agent of a session, but those of which `left` is
        so, by the names of their files."""
        place = self._place(session)
        with suppress(FileNotFoundError):
            for file in sorted(place.iterdir()):
                found = None if left(file.name) else self._read(file)
                if found is None or found.subagent != subagent:
                    continue
                if not (found.outlasts and not found.is_asked) and self._taken(file):
                    yield found
            with suppress(OSError):  # Calls of subagents are open.
                place.rmdir()

    def sweep(self) -> None:
        """Forget sessions that nothing was heard of for long."""
        oldest = time.time() - KEPT_SECONDS
        with suppress(FileNotFoundError):
            for place in self._directory.iterdir():
                if place.stat().st_mtime < oldest:
                    shutil.rmtree(place, ignore_errors=True)

    def _place(self, session: str) -> Path:
        return self._directory / name_of(session)

    def _taken(self, file: Path) -> OpenCall | None:
        found = self._read(file)
        try:
            # Whoever removes it has it: two events about one call record one outcome.
            file.unlink()
        except FileNotFoundError:
            return None
        return found

    def _read(self, file: Path) -> OpenCall | None:
        if file.name.startswith("."):
            return None
        with suppress(FileNotFoundError, DecodeError):
            return decode(file.read_bytes(), OpenCall)
        return None


def name_of(text: str) -> str:
    """Return the name of a file for a text that a client gives."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
