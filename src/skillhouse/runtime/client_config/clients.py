"""Where clients keep their MCP servers, and what an entry looks like there: values, no branches.

Measured on 2026-11-22 with `mcp add` and `mcp list` of Claude Code 2.1.197, Codex 0.169.0, Gemini
CLI 0.61.0 and opencode 1.18.33, offline.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from skillhouse.runtime.config import Places


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The configuration of one client, as far as its MCP servers go."""

    client: str
    """Name of its profile."""
    format: Literal["json", "toml"] = "json"
    table: str
    """The key that holds the servers by name."""
    variable: str = ""
    """Environment variable that stands for the directory of the user's files."""
    unset: str
    """That directory, relative to home, without the variable."""
    below: str = ""
    """What follows the directory."""
    user_files: tuple[str, ...]
    """Names of the user's file; the first that is there, or else the last, is written to."""
    project_files: tuple[str, ...]
    """The same, relative to the project."""
    command_is_list: bool = False
    """Whether `command` holds the arguments too."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """What else an entry has."""
    comments: bool = False
    """Whether the client reads a JSON file with comments."""
    trailing_commas: bool = False
    note: str = ""
    """What a person should know."""

    def files(self, places: Places, project: Path, where: str) -> tuple[Path, ...]:
        """Return the files that can hold the entry."""
        if where == "project":
            return tuple(project / name for name in self.project_files)
        given = places.environment.get(self.variable, "") if self.variable else ""
        base = Path(given) if given else places.home / self.unset
        return tuple(Path(os.path.abspath(base / self.below / name)) for name in self.user_files)

    def entry(self, command: Sequence[str]) -> dict[str, Any]:
        """Return the entry that starts a command."""
        if self.command_is_list:
            return {**self.fixed, "command": list(command), "enabled": True}
        return {**self.fixed, "command": command[0], "args": list(command[1:])}


CLIENTS = (
    ClientConfig(
        client="claude-code",
        table="mcpServers",
        variable="CLAUDE_CONFIG_DIR",
        unset=".",
        user_files=(".claude.json",),
        project_files=(".mcp.json",),
        fixed={"type": "stdio"},
        note="Claude Code writes ~/.claude.json itself: let no session run meanwhile",
    ),
    ClientConfig(
        client="codex",
        format="toml",
        table="mcp_servers",
        variable="CODEX_HOME",
        unset=".codex",
        user_files=("config.toml",),
        project_files=(".codex/config.toml",),
        note="Codex reads a project's file only where it trusts the project",
    ),
    ClientConfig(
        client="gemini-cli",
        table="mcpServers",
        unset=".gemini",
        user_files=("settings.json",),
        project_files=(".gemini/settings.json",),
        comments=True,
        note="Gemini CLI starts servers only in folders that it trusts",
    ),
    ClientConfig(
        client="opencode-cli",
        table="mcp",
        variable="XDG_CONFIG_HOME",
        unset=".config",
        below="opencode",
        user_files=("opencode.jsonc", "opencode.json"),
        project_files=("opencode.jsonc", "opencode.json"),
        command_is_list=True,
        fixed={"type": "local"},
        comments=True,
        trailing_commas=True,
    ),
)
"""The clients whose configuration can be written."""


def server_command(places: Places, *, where: str) -> tuple[str, ...]:
    """Return the words that start this program.

    In a project's file, which other people share, it is looked up by name; in the user's it is the
    whole path, because a client that was started from a menu has another search path.
    """
    if where == "project":
        return ("skillhouse",)
    found = shutil.which("skillhouse", path=places.environment.get("PATH", os.defpath))
    if found and os.path.isabs(found):
        return (found,)
    return (sys.executable, "-m", "skillhouse")
