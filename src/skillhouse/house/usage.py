"""What agents used lately, which changes what lists hold and how they begin: skills and files.

The skills that were loaded change an order and nothing else, so they are kept in the cache: a file
of one line for each, which several processes add to. What is lost or damaged costs the order alone.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.floor import make_private
from skillhouse.skill import relative_file

if TYPE_CHECKING:
    from skillhouse import tools as toolbox

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


FILES_MAX = 1_000
"""Files of one agent that are remembered, the latest."""

WORKING = frozenset({"read", "write", "edit"})
"""Tools whose calls are work on a file; listing a directory is looking around."""


class TouchedFiles:
    """The files of the project that each agent has read, written or edited by tool calls.

    They are kept as long as the process runs, whatever conversation of the agent it was in: what is
    listed is the same for all of them.
    """

    def __init__(self, start: Path, project: Path) -> None:
        self._start = os.path.realpath(start)
        self._project = Path(os.path.realpath(project))
        self._files: dict[str, dict[str, None]] = {}

    def of(self, agent: str) -> tuple[str, ...]:
        return tuple(self._files.get(agent, ()))

    def add(self, call: toolbox.ToolCall, result: toolbox.ToolResult) -> bool:
        """Note a finished call; whether it touched a new file."""
        path = (result.data or {}).get("path")
        if call.name not in WORKING or result.is_error or not isinstance(path, str):
            return False
        file = relative_file(os.path.join(self._start, path), self._project)
        files = self._files.setdefault(call.agent, {})
        if file is None or file in files:
            return False
        files[file] = None
        if len(files) > FILES_MAX:
            del files[next(iter(files))]
        return True
