"""Which files an agent works on, for skills that are listed only then."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.skill import relative_file

if TYPE_CHECKING:
    from skillhouse import tools as toolbox

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
