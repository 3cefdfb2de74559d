"""The list of another file than the server's entry by which a client calls our tools unasked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from skillhouse.clients import jsonc, toml_text
from skillhouse.clients.client_table import ClientConfig, UnattendedRule, server_config
from skillhouse.clients.config_file import (
    Change,
    ConfigFile,
    ConfigFileError,
    ServerEntry,
    Standing,
    difference,
    replaced_part,
)
from skillhouse.clients.jsonc import NotEditableError
from skillhouse.floor import Locations
from skillhouse.floor.structs import replace

RECORD = "allow "
"""What the record of an element is called, before the server's name; no server is called so."""


def own_list_of(client: str) -> str:
    """Return what keeps a client's own list of skills from its model; empty if nothing is known."""
    return server_config(client).own_list


def unattended_of(client: str) -> UnattendedRule | None:
    """Return what lets a client call our tools unasked; None where it does so, or none is known.

    `ConfigError` for one whose configuration is not known.
    """
    return server_config(client).unattended


class AllowList:
    """The list in which our server is named, and how the text of its file changes.

    All methods that take a text raise `NotEditableError` if it cannot be edited safely.
    """

    def __init__(self, config: ClientConfig, rule: UnattendedRule, name: str) -> None:
        self._config = config
        self._rule = rule
        self._name = name
        self._element: Any = json.loads(rule.element.replace("{name}", name))

    @property
    def record_name(self) -> str:
        return RECORD + self._name

    def path(self, places: Locations) -> Path:
        for variable, below in (self._rule.variables or {self._config.variable: ""}).items():
            if given := places.environment.get(variable, ""):
                return Path(given) / below / self._rule.file
        return places.home / self._rule.unset / self._rule.file

    def has_it(self, text: str) -> bool:
        rule = self._rule
        tables = self._parsed(text).get(rule.table, {})
        found = tables.get(rule.list, []) if isinstance(tables, dict) else None
        if not isinstance(found, list):
            raise NotEditableError(f"expected a list `{rule.list}` in the table `{rule.table}`")
        return self._element in found

    def added(self, text: str) -> str:
        self._parsed(text)
        rule = self._rule
        if rule.format == "toml":
            return toml_text.with_element(text, rule.table, rule.list, self._element)
        changed = jsonc.with_element(text, rule.table, rule.list, self._element)
        return changed if changed.endswith("\n") or text.strip() else f"{changed}\n"

    def removed(self, text: str, kept: ServerEntry) -> str:
        """Return the text without what we added: as it was, where nothing else changed there."""
        if text.count(kept.became) == 1:
            back = text.replace(kept.became, kept.was)
            if self.added(back) == text:
                return back
        rule = self._rule
        if rule.format == "toml":
            raise NotEditableError("the file was changed around it")
        return jsonc.without_elements(
            text, rule.table, rule.list, lambda one: bool(one == self._element)
        )

    def planned(
        self, file: ConfigFile, kept: ServerEntry | None, *, wanted: bool
    ) -> tuple[Change, str]:
        """Return what is to be done so that the list names our server or does not, and the text.

        What a person wrote there, of which no record is `kept`, stays.
        """
        text = after = file.text
        change = Change(
            client=self._config.client,
            file=str(file.path),
            name=self.record_name,
            standing=Standing.MISSING,
        )
        if self.has_it(text):
            there = Standing.BY_HAND if kept is None else Standing.INSTALLED
            change = replace(change, standing=there)
            if wanted:
                return change, text
            if kept is None:
                return replace(change, reason="skillhouse did not write it; it stays"), text
            after = self.removed(text, kept)
            if kept.made_file and after.strip() in ("", "{}"):
                after = ""
        elif wanted:
            after = self.added(text)
        else:
            return change, text
        lines = difference(text, after, change.file)
        action = "install" if wanted else "uninstall"
        return replace(change, action=action, difference=lines), after

    def refused(self, path: Path, why: str, *, wanted: bool) -> Change:
        """Return the change of a file that cannot be edited, with what to paste."""
        do = "add" if wanted else "remove"
        return Change(
            client=self._config.client,
            file=str(path),
            name=self.record_name,
            standing=Standing.UNREADABLE,
            reason=f"not edited, {do} the line yourself: {why}",
            snippet=self.added(""),
        )

    def record(self, file: ConfigFile, after: str) -> ServerEntry:
        was, became = replaced_part(file.text, after)
        return ServerEntry(
            file=str(file.real),
            client=self._config.client,
            name=self.record_name,
            text=json.dumps(self._element),
            made_file=not file.exists,
            made_folders=file.missing_folders(),
            was=was,
            became=became,
        )

    def _parsed(self, text: str) -> Mapping[str, Any]:
        if self._rule.format == "toml":
            return toml_text.parse(text)
        document = jsonc.parse(text)
        if document.comments and not self._rule.comments:
            raise NotEditableError("the client is not known to read its comments")
        if document.has_trailing_commas and not self._rule.trailing_commas:
            raise NotEditableError("the client is not known to read a comma behind the last value")
        value: Mapping[str, Any] = document.value
        return value


def is_unattended(
    config: ClientConfig,
    name: str,
    entry: Any,
    places: Locations,
    read: Callable[[Path, str], ConfigFile],
) -> bool:
    """Whether a client calls the tools of an entry unasked, as far as its files say so."""
    rule = config.unattended
    if rule is None or not rule.is_written or not isinstance(entry, dict) or not entry:
        return False
    if not rule.entry.items() <= entry.items():
        return False
    if not rule.file:
        return True
    listed = AllowList(config, rule, name)
    try:
        return listed.has_it(read(listed.path(places), "user").text)
    except (NotEditableError, ConfigFileError):
        # What is to be written there reports it.
        return False
