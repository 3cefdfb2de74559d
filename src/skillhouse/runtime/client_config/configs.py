"""Adds our server to clients' configurations, takes it out again, and says how it stands."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from skillhouse.audit import AuditLog
from skillhouse.floor import ConfigError, nearest
from skillhouse.runtime.client_config import jsonc, toml_text
from skillhouse.runtime.client_config.clients import CLIENTS, ClientConfig, server_command
from skillhouse.runtime.client_config.entries import Entries
from skillhouse.runtime.client_config.file import ConfigFile, ConfigFileError
from skillhouse.runtime.client_config.jsonc import NotEditableError
from skillhouse.runtime.client_config.values import Change, Entry, Standing
from skillhouse.runtime.config import Places
from skillhouse.runtime.recording import recorded

SERVER_NAME = "skills"
"""What our server is called in a client, unless a person says otherwise (docs/guides/agents.md)."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

_MODES = {"user": 0o600, "project": 0o644}


class ClientConfigs:
    """The configurations of the clients of a place; every change is recorded."""

    def __init__(
        self, *, places: Places, project: Path, state_directory: Path, audit: AuditLog
    ) -> None:
        """Take the place, and where what we wrote is kept."""
        self._places = places
        self._project = project
        self._state = state_directory
        self._entries = Entries(state_directory)
        self._audit = audit

    def install(
        self,
        client: str,
        *,
        where: str = "user",
        name: str = SERVER_NAME,
        arguments: Sequence[str] = ("mcp",),
        force: bool = False,
        dry_run: bool = False,
    ) -> Change:
        """Add the server; what we did not write is never overwritten.

        Args:
            client: Its name.
            where: user or project.
            name: What the server is called there.
            arguments: What follows our program's name.
            force: Also write over an entry of ours that somebody changed.
            dry_run: Change nothing.

        Raises:
            ConfigError: no client has that name, or the server cannot be called so.
            StateError: what was written before cannot be read.
            AuditError: the log cannot be written; nothing was changed.
        """
        config = config_of(client)
        _refuse_bad(name)
        command = (*server_command(self._places, where=where), *arguments)
        wanted = config.entry(command)
        change, file, text = self._looked(config, where, name, wanted)
        change = replace(change, snippet=_snippet(config, name, wanted))
        writes = {Standing.MISSING, Standing.OUTDATED} | ({Standing.CHANGED} if force else set())
        if file is None or change.standing not in writes:
            return replace(change, reason=change.reason or _REASONS.get(change.standing, ""))
        try:
            before = text
            had_table = config.table in _parsed(config, text)
            if change.standing is not Standing.MISSING:
                text = _without(config, text, name)
            text = _with(config, text, name, wanted)
        except NotEditableError as error:
            return replace(change, reason=f"not edited, paste the entry yourself: {error}")
        lines = _difference(before, text, change.file)
        change = replace(change, action="install", difference=lines, note=config.note)
        if dry_run:
            return change
        kept = self._entries.get(str(file.real), name)
        entry = Entry(
            file=str(file.real),
            client=config.client,
            name=name,
            text=json.dumps(wanted),
            made_file=kept.made_file if kept else not file.exists,
            made_table=kept.made_table if kept else not had_table,
        )
        return self._changed(change, file, text, entry, _MODES[where])

    def uninstall(
        self,
        client: str,
        *,
        where: str = "user",
        name: str = SERVER_NAME,
        force: bool = False,
        dry_run: bool = False,
    ) -> Change:
        """Take the server out; an entry that somebody else wrote or changed stays.

        With `force` one that starts skillhouse goes, whoever wrote it; no other ever does.

        Raises:
            ConfigError, StateError, AuditError: as `install`.
        """
        config = config_of(client)
        change, file, text = self._looked(config, where, name, None)
        ours = {Standing.INSTALLED, Standing.OUTDATED}
        if force:
            ours |= {Standing.CHANGED, Standing.BY_HAND}
        if file is None or change.standing not in ours:
            if change.standing is Standing.MISSING and file is not None and not dry_run:
                self._entries.forget(str(file.real), name)
            return replace(change, reason=change.reason or _STAYS.get(change.standing, ""))
        kept = self._entries.get(str(file.real), name)
        try:
            after = _without(config, text, name, with_table=kept is not None and kept.made_table)
        except NotEditableError as error:
            return replace(change, reason=f"not edited, take it out yourself: {error}")
        lines = _difference(text, after, change.file)
        change = replace(change, action="uninstall", difference=lines, note=config.note)
        if dry_run:
            return change
        if kept is not None and kept.made_file and after.strip() in ("", "{}"):
            after = ""
        return self._changed(change, file, after, None, _MODES[where])

    def status(self, *, name: str = SERVER_NAME) -> tuple[Change, ...]:
        """Return how the server stands in the user's and the project's file of each client."""
        found = []
        for config in CLIENTS:
            for where in ("user", "project"):
                wanted = config.entry((*server_command(self._places, where=where), "mcp"))
                found.append(self._looked(config, where, name, wanted)[0])
        return tuple(found)

    def _changed(
        self, change: Change, file: ConfigFile, text: str, entry: Entry | None, mode: int
    ) -> Change:
        """Write a file, or remove it when nothing is left, and keep what we wrote."""
        arguments = {"client": change.client, "path": str(file.real), "name": change.name}
        try:
            with recorded(self._audit, f"mcp-{change.action}", arguments):
                # A file that we made has nothing in it that was there before us.
                kept = entry or self._entries.get(str(file.real), change.name)
                made = kept is not None and kept.made_file
                backup = None if made else file.back_up(self._state / "backups")
                if entry is not None:
                    # INVARIANT: kept first, so an entry that a crash leaves is known to be ours.
                    self._entries.put(entry)
                if text or entry is not None:
                    file.write(text, mode=mode)
                else:
                    file.remove()
                if entry is None:
                    self._entries.forget(str(file.real), change.name)
        except ConfigFileError as error:
            return replace(change, action="", reason=str(error))
        return replace(change, done=True, backup="" if backup is None else str(backup))

    def _looked(
        self, config: ClientConfig, where: str, name: str, wanted: dict[str, Any] | None
    ) -> tuple[Change, ConfigFile | None, str]:
        """Return how the entry stands, with the file it is in or is to be in, and its text."""
        files = config.files(self._places, self._project, where)
        path = files[-1]
        change = Change(
            client=config.client, file=str(path), name=name, standing=Standing.UNREADABLE
        )
        chosen: tuple[ConfigFile, str, dict[str, Any]] | None = None
        try:
            for path in files:
                change = replace(change, file=str(path))
                bound = self._project if where == "project" else self._places.home
                file = ConfigFile(path, bound=bound, may_be_outside=where == "user")
                servers = _parsed(config, file.text).get(config.table, {})
                if not isinstance(servers, dict):
                    raise NotEditableError(f"expected a table in `{config.table}`")
                if name in servers:
                    chosen = (file, file.text, servers[name])
                    break
                if file.exists and chosen is None:
                    chosen = (file, file.text, {})
        except (NotEditableError, ConfigFileError) as error:
            return replace(change, reason=str(error)), None, ""
        if chosen is None:
            chosen = (file, "", {})
        file, text, entry = chosen
        standing = self._standing(config, file, name, entry, wanted)
        return replace(change, file=str(file.path), standing=standing), file, text

    def _standing(
        self,
        config: ClientConfig,
        file: ConfigFile,
        name: str,
        entry: Any,
        wanted: dict[str, Any] | None,
    ) -> Standing:
        if entry == {}:
            return Standing.MISSING
        kept = self._entries.get(str(file.real), name)
        if kept is not None and json.loads(kept.text) == entry:
            return Standing.OUTDATED if wanted not in (None, entry) else Standing.INSTALLED
        if kept is not None and _starts_us(config, entry):
            return Standing.CHANGED
        return Standing.BY_HAND if _starts_us(config, entry) else Standing.FOREIGN


_REASONS = {
    Standing.CHANGED: "somebody changed the entry since; --force writes it anew",
    Standing.BY_HAND: "an entry that starts skillhouse is there already; it stays as it is",
    Standing.FOREIGN: "another server has this name; give ours another one with --name",
}
_STAYS = {
    Standing.CHANGED: "somebody changed the entry since; --force takes it out",
    Standing.BY_HAND: "skillhouse did not write this entry; --force takes it out",
    Standing.FOREIGN: "another server has this name; it stays",
    Standing.MISSING: "there is no such entry",
}


def config_of(client: str) -> ClientConfig:
    """Return what is known of a client's configuration.

    Raises:
        ConfigError: no client has that name.
    """
    known = {config.client: config for config in CLIENTS}
    for name in (client, f"{client}-cli"):
        if name in known:
            return known[name]
    close = next(iter(nearest(client, known)), "")
    message = f"unknown client `{client}`, expected one of: {', '.join(known)}"
    raise ConfigError(message, key=client, suggestion=close)


def _refuse_bad(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"expected a server's name of letters, digits, `-` and `_`, got `{name}`", key=name
        )


def _starts_us(config: ClientConfig, entry: Any) -> bool:
    """Whether an entry starts this program's server, wherever it lies."""
    if not isinstance(entry, dict):
        return False
    command, arguments = entry.get("command"), entry.get("args", [])
    words = command if config.command_is_list else [command, *_list(arguments)]
    if not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words):
        return False
    if os.path.basename(words[0]) == "skillhouse":
        return words[1:2] == ["mcp"]
    return words[1:4] == ["-m", "skillhouse", "mcp"]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _parsed(config: ClientConfig, text: str) -> dict[str, Any]:
    if config.format == "toml":
        return toml_text.parse(text)
    document = jsonc.parse(text)
    if document.comments and not config.comments:
        raise NotEditableError(f"{config.client} reads no file with comments, and there are some")
    if document.has_trailing_commas and not config.trailing_commas:
        raise NotEditableError(f"{config.client} reads no file with a comma behind the last value")
    value: dict[str, Any] = document.value
    return value


def _with(config: ClientConfig, text: str, name: str, entry: dict[str, Any]) -> str:
    if config.format == "toml":
        return toml_text.with_entry(text, config.table, name, entry)
    changed = jsonc.with_entry(text, config.table, name, entry)
    return changed if changed.endswith("\n") or text.strip() else f"{changed}\n"


def _without(config: ClientConfig, text: str, name: str, *, with_table: bool = False) -> str:
    if config.format == "toml":
        return toml_text.without_entry(text, config.table, name)
    return jsonc.without_entry(text, config.table, name, with_table=with_table)


def _snippet(config: ClientConfig, name: str, entry: dict[str, Any]) -> str:
    if config.format == "toml":
        return toml_text.rendered(config.table, name, entry)
    return json.dumps({config.table: {name: entry}}, indent=2, ensure_ascii=False) + "\n"


def _difference(before: str, after: str, label: str) -> tuple[str, ...]:
    old, new = before.splitlines(), after.splitlines()
    return tuple(difflib.unified_diff(old, new, label, label, lineterm="", n=2))
