"""One file of the configuration, read and checked by itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from skillhouse.floor import ConfigError, DecodeError, file_problem, read_regular, shaped
from skillhouse.floor.documents import DocumentError, toml_table
from skillhouse.floor.structs import replace
from skillhouse.house.config.checks import (
    check_actions,
    check_approvals,
    check_exec_environment,
    check_net,
    check_oauth,
    check_remotes,
    check_rules,
    check_signer,
    wrong_value,
)
from skillhouse.house.config.config_keys import CONFIG_KEYS, refuse_unknown_keys, section_value
from skillhouse.house.config.config_lines import CONFIG_FILE_MAX, with_line
from skillhouse.house.config.config_values import Settings
from skillhouse.house.config.repositories import check_repositories
from skillhouse.house.config.rule_tables import (
    RULED,
    TriedExamples,
    try_examples,
    with_each_pattern,
)


class SettingsFile:
    """One file of the configuration; one that is missing sets nothing."""

    def __init__(
        self,
        path: Path,
        *,
        only: frozenset[str] | None = None,
        rules_only: bool = False,
        is_empty: bool = False,
        by: str = "a project",
        content: bytes | None = None,
    ) -> None:
        """Read a file; `only` has the keys that one may set which is not the user's.

        Whose a project's file is does not matter: it only makes things stricter, and a project may
        be worked on by several people. Of a bundle the `content` is given, whose digest fits.
        """
        if only is None and not is_empty and (problem := file_problem(path)):
            raise ConfigError(f"the configuration is not used: {problem}", path=path)
        self._path = path
        self._content, self._table = (b"", {}) if is_empty else _read_table(path, content)
        self._settings = Settings()
        if rules_only:
            self._table = {"rules": self._table.get("rules", [])}
        self._sections: dict[str, object] = {}
        for key in self._table.keys() - (CONFIG_KEYS if only is None else only):
            if only is None:
                # No project sets one: an extension is not judged by what a project says.
                self._take_section(key)
            elif key in CONFIG_KEYS:
                message = f"key `{key}` cannot be set by {by}"
                with self._lines():
                    raise ConfigError(message, path=path, key=key)

    def _take_section(self, key: str) -> None:
        """Read a table that belongs to an extension; an unknown key stays, and is refused."""
        found = section_value(key, self._table[key], self._path)
        if found is not None:
            del self._table[key]
            with self._lines():
                self._sections[key] = found()

    def settings(self) -> Settings:
        path = self._path
        with self._lines():
            settings = _settings(self._table, path)
        if self._sections:
            settings = replace(settings, sections=self._sections)
        if settings.roots is not None:
            roots = tuple(str(path.parent / os.path.expanduser(root)) for root in settings.roots)
            settings = replace(settings, roots=roots)
        self._settings = settings
        return settings

    def faults(self) -> Iterator[ConfigError]:
        """Yield what is wrong with each key by itself."""
        for key, value in self._table.items():
            try:
                with self._lines():
                    _settings({key: value}, self._path)
            except ConfigError as error:
                yield error

    @contextmanager
    def _lines(self) -> Iterator[None]:
        """Give an error about this file the line that it is about."""
        try:
            yield
        except ConfigError as error:
            if error.path != self._path:
                raise
            raise with_line(error, self._content.decode("utf-8", "replace")) from error.__cause__

    def try_examples(self, cache: Path | None) -> None:
        """Try the examples of the rules, unless those of the same bytes have held."""
        agents = self._settings.agents or {}
        rules = [*(self._settings.rules or ()), *(r for a in agents.values() for r in a.rules)]
        if not any(rule.match or rule.not_match for rule in rules):
            return
        tried = TriedExamples(cache)
        if tried.holds(self._content):
            return
        with self._lines():
            try_examples(self._table.get("rules"), self._settings.rules or (), self._path)
            for name, agent in agents.items():
                try_examples(self._table["agents"][name].get("rules"), agent.rules, self._path)
        tried.remember(self._content)


def faults_of_keys(path: Path) -> tuple[ConfigError, ...]:
    """Return a fault of each key of a managed or user file; none where it cannot be read at all."""
    try:
        file = SettingsFile(path)
    except ConfigError:
        return ()
    return tuple(file.faults())


def _read_table(path: Path, given: bytes | None = None) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes of a TOML file and what they say; a missing one is empty."""
    try:
        content = read_regular(path, CONFIG_FILE_MAX) if given is None else given
        return content, toml_table(content)
    except (FileNotFoundError, NotADirectoryError):
        return b"", {}
    except OSError as error:
        raise ConfigError(f"cannot read the configuration: {error.strerror}", path=path) from error
    except DocumentError as error:
        raise ConfigError(error.reason, path=path, line=error.line) from error


def _settings(table: Mapping[str, Any], path: Path | None) -> Settings:
    refuse_unknown_keys(table, path)
    try:
        written = with_each_pattern(table, path) if table.keys() & RULED else table
        settings = shaped(dict(written), Settings)
    except DecodeError as error:
        raise wrong_value(error, table, path) from error
    except ConfigError as error:
        raise ConfigError(f"wrong value: {error.message}", path=path, key=error.key) from error
    if settings.approvals is not None:
        check_approvals(settings.approvals, path)
    for rules in (settings.rules or (), *(a.rules for a in (settings.agents or {}).values())):
        check_rules(rules, path)
        check_actions(rules, path)
    check_exec_environment(settings.exec_environment or (), path)
    if settings.net is not None:
        check_net(settings.net, path)
    check_remotes(settings.remotes or (), path)
    if settings.skills is not None:
        check_repositories(settings.skills.repositories, path)
    if settings.signer is not None:
        check_signer(settings.signer.password, path)
    if settings.oauth is not None:
        check_oauth(settings.oauth, path)
    return settings
