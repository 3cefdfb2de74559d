"""Where clients configure their MCP servers, and how an entry is read and written there.

Measured on 2026-11-22 with `mcp add` and `mcp list` of Claude Code 2.1.197, Codex 0.169.0, Gemini
CLI 0.61.0 and opencode 1.18.33, offline.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, TypeVar

from skillhouse.clients import jsonc, toml_text
from skillhouse.clients.jsonc import NotEditableError
from skillhouse.floor import ConfigError, Locations, dataclass, nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Where and how one client configures its MCP servers."""

    client: str
    """Name of its profile."""
    format: Literal["json", "toml"] = "json"
    table: str
    """The key that holds the servers by name."""
    variable: str = ""
    """Environment variable that names the directory of the user's files."""
    unset: str
    """That directory relative to home, when the variable is not set."""
    below: str = ""
    """Path below that directory."""
    user_files: tuple[str, ...]
    """Names of the user's file: the first that exists is written, or else the last."""
    project_files: tuple[str, ...]
    """The same, relative to the project."""
    command_is_list: bool = False
    """Whether `command` includes the arguments."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Other values of an entry."""
    comments: bool = False
    """Whether the client reads a JSON file with comments."""
    trailing_commas: bool = False
    nested: str = ""
    """Key of the user's file with such tables for single projects, by folder."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Shown after a change, by whose file it is: "user" or "project"."""

    def files(self, places: Locations, project: Path, where: str) -> tuple[Path, ...]:
        if where == "project":
            return tuple(project / name for name in self.project_files)
        given = places.environment.get(self.variable, "") if self.variable else ""
        base = Path(given) if given else places.home / self.unset
        return tuple(Path(os.path.abspath(base / self.below / name)) for name in self.user_files)

    def entry(self, command: Sequence[str]) -> dict[str, Any]:
        more = {"enabled": True} if self.command_is_list else {}
        return {**self.fixed, **self.command(command), **more}

    def command(self, words: Sequence[str]) -> dict[str, Any]:
        if self.command_is_list:
            return {"command": list(words)}
        return {"command": words[0], "args": list(words[1:])}

    def words(self, entry: Any) -> list[str] | None:
        """Return the program and arguments of an entry; None when it has none."""
        if not isinstance(entry, dict):
            return None
        command, arguments = entry.get("command"), entry.get("args", [])
        if not self.command_is_list:
            command = [command, *(arguments if isinstance(arguments, list) else [])]
        if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
            return None
        return command if command and command[0] else None


CLIENTS = (
    ClientConfig(
        client="claude-code",
        table="mcpServers",
        variable="CLAUDE_CONFIG_DIR",
        unset=".",
        user_files=(".claude.json",),
        project_files=(".mcp.json",),
        # Without `alwaysLoad`, 2.1.330 starts before a slow server is up, and defers its tools.
        fixed={"type": "stdio", "alwaysLoad": True},
        nested="projects",
        notes={"user": "Claude Code writes ~/.claude.json itself: quit Claude Code first"},
    ),
    ClientConfig(
        client="codex",
        format="toml",
        table="mcp_servers",
        variable="CODEX_HOME",
        unset=".codex",
        user_files=("config.toml",),
        project_files=(".codex/config.toml",),
        notes={"project": "Codex reads a project's file only where it trusts the project"},
    ),
    ClientConfig(
        client="gemini-cli",
        table="mcpServers",
        unset=".gemini",
        user_files=("settings.json",),
        project_files=(".gemini/settings.json",),
        comments=True,
        notes=dict.fromkeys(
            ("user", "project"), "Gemini CLI starts servers only in folders that it trusts"
        ),
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


_T = TypeVar("_T")


def client_of(name: str, known: Mapping[str, _T]) -> _T:
    """Return what is known by the name of a client, or raise `ConfigError`.

    Where a design has the name of its program, the program's profile is called `NAME-cli`.
    """
    for each in (name, f"{name}-cli"):
        if each in known:
            return known[each]
    close = next(iter(nearest(name, known)), "")
    message = f"unknown client `{name}`, expected one of: {', '.join(known)}"
    raise ConfigError(message, key=name, suggestion=close)


def parsed(config: ClientConfig, text: str) -> dict[str, Any]:
    """Return the value of a text; `NotEditableError` if the client itself cannot read it."""
    if config.format == "toml":
        return toml_text.parse(text)
    document = jsonc.parse(text)
    if document.comments and not config.comments:
        raise NotEditableError(f"{config.client} does not read comments, and this file has some")
    if document.has_trailing_commas and not config.trailing_commas:
        raise NotEditableError(
            f"{config.client} does not read a comma behind the last value, and this file has one"
        )
    value: dict[str, Any] = document.value
    return value


def with_entry(config: ClientConfig, text: str, name: str, entry: dict[str, Any]) -> str:
    if config.format == "toml":
        return toml_text.with_entry(text, config.table, name, entry)
    changed = jsonc.with_entry(text, config.table, name, entry)
    return changed if changed.endswith("\n") or text.strip() else f"{changed}\n"


def without_entry(config: ClientConfig, text: str, name: str, *, with_table: bool = False) -> str:
    if config.format == "toml":
        return toml_text.without_entry(text, config.table, name)
    return jsonc.without_entry(text, config.table, name, with_table=with_table)


def snippet_of(config: ClientConfig, name: str, entry: dict[str, Any]) -> str:
    """Return the text of a file with this entry alone, to be pasted."""
    if config.format == "toml":
        return toml_text.rendered(config.table, name, entry)
    return json.dumps({config.table: {name: entry}}, indent=2, ensure_ascii=False) + "\n"


def difference(before: str, after: str, label: str) -> tuple[str, ...]:
    old, new = before.splitlines(), after.splitlines()
    return tuple(difflib.unified_diff(old, new, label, label, lineterm="", n=2))


def with_values(config: ClientConfig, text: str, name: str, values: Mapping[str, Any]) -> str:
    """Return a text with these values in an entry, whose other values stay."""
    write = toml_text.with_values if config.format == "toml" else jsonc.with_values
    return write(text, config.table, name, values)
