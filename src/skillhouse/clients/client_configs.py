"""Registers our server in clients' configurations, removes it, and reports its state."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skillhouse.audit import AuditError, AuditLog
from skillhouse.audit.log import recorded
from skillhouse.clients.allow_list import RECORD, AllowList, is_unattended
from skillhouse.clients.client_table import (
    ClientConfig,
    known_clients,
    server_config,
    server_configs,
)
from skillhouse.clients.config_file import (
    Change,
    ConfigFile,
    ConfigFileError,
    Entries,
    ServerEntry,
    Standing,
    difference,
    parsed,
    replaced_part,
    snippet_of,
    with_entry,
    with_values,
    without_entry,
)
from skillhouse.clients.jsonc import NotEditableError
from skillhouse.clients.program import are_plain, arguments_of, fault_of, own_program
from skillhouse.floor import ConfigError, Locations, SkillhouseError, isolated
from skillhouse.floor.regex import regex
from skillhouse.floor.structs import replace

SERVER_NAME = "skills"
"""Default name of our server in a client (docs/guides/agents.md)."""
_NAME = regex(r"[A-Za-z0-9_-]{1,64}")

_MODES = {"user": 0o600, "project": 0o644}


def register(
    client: str, *, places: Locations, project: Path, state_directory: Path, audit: AuditLog
) -> Change:
    """Add the server to the user's file of a client; raises as `ClientConfigs.install`."""
    configs = ClientConfigs(
        places=places, project=project, state_directory=state_directory, audit=audit
    )
    return configs.install(client)


class ClientConfigs:
    """The configuration files of all clients; every change is in the audit log."""

    def __init__(
        self, *, places: Locations, project: Path, state_directory: Path, audit: AuditLog
    ) -> None:
        self._places = places
        self._project = project
        self._state = state_directory
        self._entries = Entries(state_directory)
        self._audit = audit
        self._program: tuple[str, ...] = ()

    def install(
        self,
        client: str,
        *,
        where: str = "user",
        name: str = SERVER_NAME,
        arguments: Sequence[str] = ("mcp",),
        force: bool = False,
        dry_run: bool = False,
        alone: bool | None = None,
    ) -> Change:
        """Add the server; entries that skillhouse did not write are never overwritten.

        A changed entry stays, except for a program that is not safe to start.

        Args:
            client: Name of its profile.
            where: user or project.
            name: Name of the server in the client.
            arguments: Arguments of our program.
            force: Also overwrite an entry of ours that was changed.
            dry_run: Change nothing.
            alone: Whether the client calls the tools without asking its user; None is as it is now.

        Raises:
            ConfigError: the client is unknown, the server's name is invalid, no entry can start
                this program, or `alone` is about a project, whose files others use too.
            StateError: the records of earlier changes cannot be read.
            AuditError: the log cannot be written; nothing was changed.
        """
        config = self._config(client, where)
        if not _NAME.fullmatch(name):
            message = f"expected a server's name of letters, digits, `-` and `_`, got `{name}`"
            raise ConfigError(message, key=name)
        if alone and where == "project":
            message = "each person decides for their own client: leave out --project"
            raise ConfigError(message, key="decide_alone")
        alone = self.decides_alone(client, where=where, name=name) if alone is None else alone
        wanted = config.entry((*self._own_program(), *arguments), alone=alone)
        change = self._installed(config, where, name, wanted, force=force, dry_run=dry_run)
        if change.standing is not Standing.INSTALLED and not change.action:
            return change
        also = self._allow(config, where, name, wanted=alone, dry_run=dry_run)
        return replace(change, also=also)

    def _installed(
        self,
        config: ClientConfig,
        where: str,
        name: str,
        wanted: dict[str, Any],
        *,
        force: bool,
        dry_run: bool,
    ) -> Change:
        """Write the entry alone."""
        change, file, text = self._inspect(config, where, name, wanted)
        change = replace(change, snippet=snippet_of(config, name, wanted))
        writes = {Standing.MISSING, Standing.OUTDATED} | ({Standing.CHANGED} if force else set())
        if change.fault and change.standing is Standing.CHANGED and not force:
            return self._fix(config, where, change, dry_run=dry_run)
        if file is None or change.standing not in writes:
            return replace(change, reason=change.reason or _REASONS.get(change.standing, ""))
        kept = self._entries.get(str(file.real), name)
        try:
            before = bare = text
            if change.standing is not Standing.MISSING:
                bare = without_entry(config, text, name, kept)
            had_table = config.table in parsed(config, bare)
            text = with_entry(config, bare, name, wanted)
        except NotEditableError as error:
            return replace(change, reason=f"not edited, paste the entry yourself: {error}")
        change = _edited(change, "install", (before, text), config.notes.get(where, ""))
        if dry_run:
            return change
        was, became = replaced_part(bare, text)
        entry = ServerEntry(
            file=str(file.real),
            client=config.client,
            name=name,
            text=json.dumps(wanted),
            made_file=kept.made_file if kept else not file.exists,
            made_table=not had_table,
            made_folders=kept.made_folders if kept else file.missing_folders(),
            was=was,
            became=became,
        )
        return self._write(change, file, text, entry, _MODES[where])

    def arguments(
        self, client: str, *, where: str = "user", name: str = SERVER_NAME
    ) -> tuple[str, ...]:
        """Return what follows our program in an entry, from `mcp` on; empty without one."""
        config = self._config(client, where)
        try:
            for path in config.files(self._places, self._project, where):
                servers = parsed(config, self._file(path, where).text).get(config.table)
                if isinstance(servers, dict) and name in servers:
                    return tuple(_arguments(config, servers[name]) or ())
        except (NotEditableError, ConfigFileError):
            # What is to be written reports it.
            return ()
        return ()

    def decides_alone(self, client: str, *, where: str = "user", name: str = SERVER_NAME) -> bool:
        """Whether a client calls the tools of an entry without asking, as far as its files say."""
        return self._inspect(self._config(client, where), where, name, None)[0].decides_alone

    def _allow(
        self, config: ClientConfig, where: str, name: str, *, wanted: bool, dry_run: bool
    ) -> tuple[Change, ...]:
        """Name the server in the client's list of what it calls unasked, or take our name out."""
        rule = config.unattended
        if where == "project" or rule is None or not rule.file:
            return ()
        listed = AllowList(config, rule, name)
        path = listed.path(self._places)
        try:
            file = self._file(path, "user")
            kept = self._entries.get(str(file.real), listed.record_name)
            change, after = listed.planned(file, kept, wanted=wanted)
        except (NotEditableError, ConfigFileError) as error:
            return (listed.refused(path, str(error), wanted=wanted),)
        if change.action and not dry_run:
            entry = listed.record(file, after) if wanted else None
            change = self._write(change, file, after, entry, _MODES["user"])
        elif change.standing is Standing.MISSING and kept is not None and not dry_run:
            self._entries.forget(str(file.real), listed.record_name)
        return (change,) if change.action or change.reason else ()

    def uninstall(
        self,
        client: str,
        *,
        where: str = "user",
        name: str = SERVER_NAME,
        force: bool = False,
        dry_run: bool = False,
    ) -> Change:
        """Remove the server; an entry that skillhouse did not write, or that was changed, stays.

        With `force` every entry that starts skillhouse goes; no other ever does.
        """
        config = self._config(client, where)
        change = self._uninstalled(config, where, name, force=force, dry_run=dry_run)
        if not change.action and change.standing is not Standing.MISSING:
            return change
        also = self._allow(config, where, name, wanted=False, dry_run=dry_run)
        return replace(change, also=also)

    def _uninstalled(
        self, config: ClientConfig, where: str, name: str, *, force: bool, dry_run: bool
    ) -> Change:
        change, file, text = self._inspect(config, where, name, None)
        ours = {Standing.INSTALLED, Standing.OUTDATED}
        if force:
            ours |= {Standing.CHANGED, Standing.BY_HAND}
        if file is None or change.standing not in ours:
            if change.standing is Standing.MISSING and file is not None and not dry_run:
                self._entries.forget(str(file.real), name)
            return replace(change, reason=change.reason or _STAYS.get(change.standing, ""))
        kept = self._entries.get(str(file.real), name)
        try:
            after = without_entry(config, text, name, kept)
        except NotEditableError as error:
            return replace(change, reason=f"not edited, remove the entry yourself: {error}")
        change = _edited(change, "uninstall", (text, after), config.notes.get(where, ""))
        if dry_run:
            return change
        if kept is not None and kept.made_file and after.strip() in ("", "{}"):
            after = ""
        return self._write(change, file, after, None, _MODES[where])

    def removable(self) -> tuple[tuple[Change, str], ...]:
        """Return what `uninstall` with `force` would do of every entry here, each with its where.

        Entries that were written for another project follow, as they are, with no where.
        """
        found = []
        ours = (Standing.INSTALLED, Standing.OUTDATED, Standing.CHANGED, Standing.BY_HAND)
        for change in self.status():
            places = known_clients()[change.client].mcp
            for where in places.places if places and change.standing in ours else ():
                planned = self.uninstall(
                    change.client, where=where, name=change.name, force=True, dry_run=True
                )
                if planned.file == change.file:
                    found.append((planned, where))
                    break
        here = {(os.path.realpath(change.file), change.name) for change, _ in found}
        goes = {(one.client, RECORD + one.name) for one, where in found if where}
        for file, name, client in self._entries.files():
            if (file, name) not in here and (client, name) not in goes and os.path.exists(file):
                where = "" if name.startswith(RECORD) else " --project"
                reason = f"there: `skillhouse mcp uninstall {client}{where}`"
                change = Change(client=client, file=file, name=name, standing=Standing.INSTALLED)
                found.append((replace(change, reason=reason), ""))
        return tuple(found)

    def status(
        self, *, name: str = SERVER_NAME, fix: bool = False, dry_run: bool = False
    ) -> tuple[Change, ...]:
        """Return the server's state in the user's and the project's file of each client.

        Entries of a file that start it under other names follow. With `fix`, unsafe and outdated
        entries are made to start this program, unless `dry_run`; their other values stay.
        """
        changes: list[Change] = []
        for config in server_configs():
            for where in config.places:
                with isolated(passing=(AuditError,)) as failed:
                    changes += self._status_of(config, where, name, fix=fix, dry_run=dry_run)
                changes += [self._unreadable(config, where, name, error) for error in failed]
        return tuple(changes)

    def _unreadable(
        self, config: ClientConfig, where: str, name: str, error: SkillhouseError
    ) -> Change:
        file = str(config.files(self._places, self._project, where)[-1])
        found = Change(client=config.client, file=file, name=name, standing=Standing.UNREADABLE)
        return replace(found, reason=str(error))

    def _status_of(
        self, config: ClientConfig, where: str, name: str, *, fix: bool, dry_run: bool
    ) -> list[Change]:
        first = self._inspect(config, where, name, None)[0]
        names = self._other_names(config, where, first)
        more = [self._inspect(config, where, one, None)[0] for one in names]
        changes = [
            self._fix(config, where, change, dry_run=dry_run)
            if fix and (change.fault or change.standing is Standing.OUTDATED)
            else change
            for change in (first, *more)
        ]
        if where == "user" and config.nested:
            changes += self._of_projects(config, first)
        return changes

    def _other_names(self, config: ClientConfig, where: str, first: Change) -> list[str]:
        names: list[str] = []
        try:
            for path in config.files(self._places, self._project, where):
                servers = parsed(config, self._file(path, where).text).get(config.table)
                for name, entry in servers.items() if isinstance(servers, dict) else ():
                    names += [name] if _arguments(config, entry) else []
        except (NotEditableError, ConfigFileError):
            # The change of the first entry reports it.
            return []
        return [name for name in dict.fromkeys(names) if name != first.name]

    def _of_projects(self, config: ClientConfig, first: Change) -> list[Change]:
        """Return unsafe entries that the user's file keeps for single projects."""
        if first.standing is Standing.UNREADABLE:
            return []
        text = self._file(Path(first.file), "user").text
        folders = parsed(config, text).get(config.nested)
        changes = []
        for folder, kept in folders.items() if isinstance(folders, dict) else ():
            servers = kept.get(config.table) if isinstance(kept, dict) else None
            for name, entry in servers.items() if isinstance(servers, dict) else ():
                words = config.words(entry) if _arguments(config, entry) else None
                if words and (fault := fault_of(words, self._project)):
                    reason = f"for `{folder}` alone: run `claude mcp remove {name}` there"
                    change = replace(first, name=name, standing=Standing.BY_HAND, fault=fault)
                    changes.append(replace(change, reason=reason))
        return changes

    def _fix(self, config: ClientConfig, where: str, change: Change, *, dry_run: bool) -> Change:
        """Make an entry start this program safely; its other values stay."""
        again, file, text = self._inspect(config, where, change.name, None)
        servers = parsed(config, text).get(config.table, {})
        entry = servers.get(change.name)
        arguments = _arguments(config, entry)
        if file is None or arguments is None:
            return again
        if not are_plain(arguments, config.words(entry) or ()):
            return replace(change, reason="its arguments are a shell's: edit it yourself")
        program = self._own_program()
        values = config.command((*program, *arguments))
        snippet = snippet_of(config, change.name, {**entry, **values})
        try:
            after = with_values(config, text, change.name, values)
        except NotEditableError as error:
            return replace(change, snippet=snippet, reason=f"edit it yourself: {error}")
        change = _edited(change, "fix", (text, after), config.notes.get(where, ""))
        if dry_run:
            return change
        kept = self._entries.get(str(file.real), change.name)
        if kept is not None and json.loads(kept.text) == entry:
            # Not changed since we wrote it, so the fixed entry is ours too.
            kept = replace(kept, text=json.dumps({**entry, **values}))
        return self._write(change, file, after, kept, _MODES[where])

    def _write(
        self, change: Change, file: ConfigFile, text: str, entry: ServerEntry | None, mode: int
    ) -> Change:
        """Write a file, or remove it when nothing is left; record `entry`, or forget a removed."""
        arguments = {"client": change.client, "path": str(file.real), "name": change.name}
        try:
            with recorded(self._audit, f"mcp-{change.action}", arguments):
                # A file that we made has no earlier content to back up.
                kept = entry or self._entries.get(str(file.real), change.name)
                made = kept is not None and kept.made_file
                backup = None if made else file.back_up(self._state / "backups")
                # What is refused leaves the record of what is there.
                file.refuse_if_changed()
                if entry is not None:
                    # INVARIANT: recorded first, so an entry that a crash leaves is known as ours.
                    self._entries.put(entry)
                if text or not (made and change.action == "uninstall"):
                    file.write(text, mode=mode)
                else:
                    file.remove()
                if change.action == "uninstall":
                    self._entries.hand_over(str(file.real), change.name)
        except ConfigFileError as error:
            return replace(change, action="", reason=str(error))
        return replace(change, done=True, backup="" if backup is None else str(backup))

    def _inspect(
        self, config: ClientConfig, where: str, name: str, wanted: dict[str, Any] | None
    ) -> tuple[Change, ConfigFile | None, str]:
        """Return the state of an entry, with its file, also when it is missing, and its text."""
        files = config.files(self._places, self._project, where)
        path = files[-1]
        change = Change(
            client=config.client, file=str(path), name=name, standing=Standing.UNREADABLE
        )
        chosen: tuple[ConfigFile, str, dict[str, Any]] | None = None
        try:
            for path in files:
                change = replace(change, file=str(path))
                file = self._file(path, where)
                servers = parsed(config, file.text).get(config.table, {})
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
        arguments, words = _arguments(config, entry), config.words(entry)
        fault = fault_of(words, self._project) if arguments and words else ""
        if arguments and wanted is None:
            wanted = self._wanted(config, entry, arguments)
        standing = self._standing(config, file, name, entry, wanted)
        alone = is_unattended(config, name, entry, self._places, self._file)
        change = replace(change, standing=standing, fault=fault, decides_alone=alone)
        return replace(change, file=str(file.path)), file, text

    def _wanted(
        self, config: ClientConfig, entry: dict[str, Any], arguments: Sequence[str]
    ) -> dict[str, Any] | None:
        try:
            return {**entry, **config.command((*self._own_program(), *arguments))}
        except ConfigError:
            return None

    def _config(self, client: str, where: str) -> ClientConfig:
        config = server_config(client)
        if where not in config.places:
            message = f"{config.client} has no file of its own in a project; leave out --project"
            raise ConfigError(message, key=client)
        return config

    def _own_program(self) -> tuple[str, ...]:
        self._program = self._program or own_program(self._project)
        return self._program

    def _file(self, path: Path, where: str) -> ConfigFile:
        bound = self._project if where == "project" else self._places.home
        return ConfigFile(path, bound=bound, may_be_outside=where == "user")

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
        if kept is not None and _arguments(config, entry) is not None:
            return Standing.CHANGED
        return Standing.BY_HAND if _arguments(config, entry) is not None else Standing.FOREIGN


_REASONS = {
    Standing.CHANGED: "the entry was changed since; --force overwrites it",
    Standing.BY_HAND: "another entry already starts skillhouse; it stays as it is",
    Standing.FOREIGN: "another server has this name; give ours another one with --name",
}
_STAYS = {
    Standing.CHANGED: "the entry was changed since; --force removes it",
    Standing.BY_HAND: "skillhouse did not write this entry; --force removes it",
    Standing.FOREIGN: "another server has this name; it stays",
    Standing.MISSING: "there is no such entry",
}


def _edited(change: Change, action: str, texts: tuple[str, str], note: str) -> Change:
    """Return the change with what it does to its file, of which `texts` are before and after."""
    lines = difference(*texts, change.file)
    return replace(change, action=action, reason="", difference=lines, note=note)


def _arguments(config: ClientConfig, entry: Any) -> list[str] | None:
    words = config.words(entry)
    return arguments_of(words) if words else None
