"""Which skills were loaded lately, so that lists that have room for few begin with them.

It changes an order and nothing else, so it is kept in the cache: a file of one line for each skill
that was loaded, which several processes add to. What is lost or damaged costs the order alone.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from skillhouse.floor import make_private

RECENT_FILE = "recent-skills.jsonl"
READ_BYTES = 65_536
"""Bytes of the file's end that are read, some hundred skills."""
FILE_MAX = 262_144
"""Bytes above which the file is rewritten with its readable end."""

logger = logging.getLogger(__name__)


class RecentSkills:
    """The skills that anybody loaded here, newest last."""

    def __init__(self, directory: Path | None) -> None:
        self._path = None if directory is None else directory / RECENT_FILE

    def ranks(self) -> Mapping[str, int]:
        """Return the files of skills with their ranks, the newest has the lowest."""
        if self._path is None:
            return {}
        try:
            newest = dict.fromkeys(reversed(self._files(self._path)))
        except OSError:
            return {}
        return {file: rank for rank, file in enumerate(newest)}

    def note(self, file: str) -> None:
        """Remember that the skill with this SKILL.md was loaded; a load never fails for it."""
        if self._path is None:
            return
        try:
            make_private(self._path.parent)
            if self._append(self._path, file) > FILE_MAX:
                self._tidy(self._path)
        except OSError:
            logger.debug("the order of recent skills is not kept", exc_info=True)

    def _append(self, path: Path, file: str) -> int:
        """Add one line in one write, which other processes' lines do not mix with."""
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NO_LINK, 0o600)
        try:
            os.write(descriptor, f"{json.dumps(file)}\n".encode())
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def _tidy(self, path: Path) -> None:
        """Keep the newest line of each skill; a concurrent line may be lost."""
        newest = [*dict.fromkeys(reversed(self._files(path)))]
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NO_LINK, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(found)}\n" for found in reversed(newest))
        os.replace(beside, path)

    def _files(self, path: Path) -> list[str]:
        """Return the files in the order of their lines; other lines are skipped."""
        descriptor = os.open(path, os.O_RDONLY | _NO_LINK | _NO_WAIT)
        with open(descriptor, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - READ_BYTES))
            lines = file.read(READ_BYTES).split(b"\n")
        found = []
        for line in lines[1:] if size > READ_BYTES else lines:
            with suppress(ValueError, RecursionError):
                value = json.loads(line)
                if isinstance(value, str):
                    found.append(value)
        return found


_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
"""Opening a pipe in the file's place does not block."""
