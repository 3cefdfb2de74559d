"""One file of the configuration, read and checked by itself, before anything follows from it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from skillhouse import approval, net, permission
from skillhouse.approval import ApprovalSettings
from skillhouse.floor import (
    ConfigError,
    DecodeError,
    SkillhouseError,
    file_problem,
    nearest,
    read_regular,
    shaped,
)
from skillhouse.floor.documents import DocumentError, toml_table
from skillhouse.floor.machine import SERVER_NAME
from skillhouse.floor.regex import regex
from skillhouse.floor.structs import field_names, replace
from skillhouse.house.config.config_keys import (
    CONFIG_KEYS,
    refuse_unknown_keys,
    section_value,
    values_of,
)
from skillhouse.house.config.config_lines import CONFIG_FILE_MAX, with_line
from skillhouse.house.config.config_values import (
    NetSettings,
    OAuthSettings,
    SearchSettings,
    Settings,
)
from skillhouse.house.config.repositories import SkillsSettings, check_repositories
from skillhouse.house.config.rule_tables import (
    RULED,
    TriedExamples,
    try_examples,
    with_each_pattern,
)
from skillhouse.house.config.state_settings import StateSettings
from skillhouse.permission import Effect, Rule, matches
from skillhouse.registry import passwords
from skillhouse.remote import RemoteSource

APPROVAL_NUMBER_MAX = 86_400
"""Most of any number about approvals: a day's seconds, and more questions than anybody answers."""

# The published design: such variables are not handed on even when they are listed.
_SECRET_NAME = regex(
    "api[_-]?key|token|secret|pass(word)?|private|mnemonic|seed|session", re.IGNORECASE
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
    if not table:
        # Most homes have no file, and what reads one takes time to make.
        return Settings()
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


def check_exec_environment(
    names: Sequence[str], path: Path | None, *, secret: frozenset[str] = frozenset()
) -> None:
    """Raise ConfigError for a variable for commands that is named like a secret, or is in `secret`.

    Args:
        names: The variables.
        path: The file that names them, for the error.
        secret: Variables that hold a secret of the configuration, whatever they are called.
    """
    for name in names:
        if name in secret or _SECRET_NAME.search(name):
            said = "holds a secret" if name in secret else "looks like a secret"
            message = f"`{name}` {said} and is not given to commands"
            raise ConfigError(message, path=path, key="exec_environment")


def check_server_name(name: str | None) -> None:
    """Refuse what is no name of a server: it is in each record, and in rows of the state."""
    if name and not SERVER_NAME.fullmatch(name):
        message = "expected 1 to 63 letters, digits, `.`, `_` and `-` in `server_name`"
        message = f"{message}, got {name[:80]!r}"
        raise ConfigError(message, key="server_name")


def check_approvals(settings: ApprovalSettings, path: Path | None) -> None:
    """Refuse bounds out of range, and an unusable webhook."""
    for name in field_names(settings):
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if not 0 < value <= APPROVAL_NUMBER_MAX:
            raise ConfigError(
                f"expected a number above 0 and at most {APPROVAL_NUMBER_MAX}, got {value}",
                path=path,
                key=f"approvals.{name}",
            )
    if settings.webhook_url:
        approval.checked_url(settings.webhook_url)
    if bool(settings.webhook_url) != bool(settings.webhook_secret_env):
        message = "expected `webhook_url` and `webhook_secret_env` together"
        raise ConfigError(message, path=path, key="approvals.webhook_url")


def check_rules(rules: Sequence[Rule], path: Path | None) -> None:
    """Raise ConfigError for a rule with `unbound` or `scripts` that allows no command."""
    for index, rule in enumerate(rules):
        for key in ("unbound", "scripts"):
            allows = rule.effect is Effect.ALLOW and rule.action == "exec"
            if getattr(rule, key) and not allows:
                said = f'`{key}` is for rules with effect "allow" of "exec" only'
                raise ConfigError(f"rule {index + 1}: {said}", path=path, key=key)


KNOWN_ACTIONS = (*permission.ACTIONS, *permission.TOOL_ACTIONS)


def check_actions(rules: Sequence[Rule], path: Path | None) -> None:
    """Raise ConfigError for an action that is close to a known one and is none.

    Any other word may be the action of a tool that a program brings (decision 0266); `config check`
    and `policy lint` mention it.
    """
    for index, rule in enumerate(rules):
        if any(matches(rule.action, known) for known in KNOWN_ACTIONS):
            continue
        close = nearest(rule.action, KNOWN_ACTIONS, limit=1)
        if close:
            known = ", ".join(KNOWN_ACTIONS)
            message = f"rule {index + 1}: unknown action `{rule.action}`, known are {known}"
            raise ConfigError(message, path=path, key="action", suggestion=close[0])


_ENUM_VALUE = regex(r"^invalid enum value '(.*)' - at ", re.DOTALL)
_PLACE = regex(r" - at `\$\.?(.*?)`$")
_WRONG_TYPE = regex(r"^expected `([a-z |]+)`, got `([a-z]+)`")
_MISSING = regex(r"^object missing required field `(.+?)`")
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text in quotes",
    "array": "a list",
    "object": "a table",
}
"""What the decoder calls a type, in the words of the file."""
VALUE_SHOWN_MAX = 40
"""Characters of a wrong value that are repeated."""


def wrong_value(error: DecodeError, table: Mapping[str, Any], path: Path | None) -> ConfigError:
    """Return the error about a value, with its place, what was found and what may be written."""
    text = str(error)
    place = _PLACE.search(text)
    keys = re.findall(r"[^.\[\]\d][^.\[\]]*", place[1]) if place else []
    value = _ENUM_VALUE.search(text)
    last = keys[-1] if keys else ""
    allowed = values_of(keys) if value is not None else ()
    if value is not None and allowed:
        close = nearest(value[1], allowed, limit=1)
        message = f"wrong value: `{last}` is one of {', '.join(allowed)}, got {value[1]!r}"
        message += f" - at `$.{place[1]}`" if place else ""
        suggestion = close[0] if close else ""
        return ConfigError(message, path=path, key=last, suggestion=suggestion)
    where = f" - at `$.{place[1]}`" if place else ""
    wrong, missing = _WRONG_TYPE.search(text), _MISSING.search(text)
    if missing is not None:
        return ConfigError(f"`{missing[1]}` is missing{where}", path=path, key=missing[1])
    if wrong is not None and place is not None:
        name = re.sub(r"^.*\.(?=\w)", "", place[1]).replace("[...]", ".NAME")
        kinds = [_KINDS[kind] for kind in wrong[1].split(" | ") if kind in _KINDS]
        seen = _seen(table, place[1]) or _KINDS.get(wrong[2], wrong[2])
        expected = f"`{name}` must be {' or '.join(kinds)}, got {seen}"
        return ConfigError(f"wrong value: {expected}{where}", path=path, key=last)
    return ConfigError(f"wrong value: {text}", path=path, key=last)


def _seen(table: Mapping[str, Any], place: str) -> str:
    """Return a short value as the file has it; nothing for a list, a table and a long text."""
    value: Any = table
    for key in re.findall(r"[^.\[\]]+", place):
        try:
            value = value[int(key)] if isinstance(value, list) else value[key]
        except (KeyError, IndexError, TypeError, ValueError):
            # The decoder does not name the keys of every table.
            return ""
    if isinstance(value, list | Mapping) or len(str(value)) > VALUE_SHOWN_MAX:
        return ""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def check_signer(password: str, path: Path | None) -> None:
    """Raise ConfigError for a place of the password that `SignerSettings` does not name."""
    try:
        passwords.PasswordSource.parse(password)
    except passwords.SignerError:
        # What was written may be the password itself, so it is not repeated.
        message = "expected `terminal`, `keyring`, `fd:NUMBER` (from 3) or `env:NAME`"
        raise ConfigError(message, path=path, key="signer.password") from None


_SCOPE = regex(r"[!#-\[\]-~]{1,128}")
"""One scope (RFC 6749, 3.3)."""


def check_oauth(settings: OAuthSettings, path: Path | None) -> None:
    """Refuse addresses that are not https, unless they are here, and a table without users."""
    addresses = {"issuer": settings.issuer, "resource": settings.resource}
    if settings.jwks and not settings.jwks.startswith("/"):
        addresses["jwks"] = settings.jwks
    for key, address in addresses.items():
        try:
            approval.checked_url(address)
        except ConfigError as error:
            message = "expected an https address without a password, or http on this machine"
            raise ConfigError(message, path=path, key=f"oauth.{key}") from error
        if "#" in address or "?" in address:
            message = "expected an address without `?` and `#`"
            raise ConfigError(message, path=path, key=f"oauth.{key}")
    if urlsplit(settings.resource).path != "/mcp":
        message = f"expected the address of /mcp, got `{settings.resource[:200]}`"
        raise ConfigError(message, path=path, key="oauth.resource")
    if not settings.users:
        message = 'expected who may log in, or ["*"] for everyone whom the issuer lets'
        raise ConfigError(message, path=path, key="oauth.users")
    if not _SCOPE.fullmatch(settings.scope):
        raise ConfigError("expected one scope", path=path, key="oauth.scope")
    if not settings.user_claim or not settings.agent:
        message = "expected texts in `user_claim` and `agent`"
        raise ConfigError(message, path=path, key="oauth.user_claim")


REMOTES_MAX = 50
"""Servers of one configuration: each is a root that is scanned."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def secret_variables(
    settings: NetSettings,
    approvals: ApprovalSettings | None,
    skills: SkillsSettings | None = None,
    search: SearchSettings | None = None,
    state: StateSettings | None = None,
) -> frozenset[str]:
    """Return the variables of this process that hold a secret of the configuration."""
    named = (secret.env for secret in settings.secrets)
    webhook = approvals.webhook_secret_env if approvals is not None else ""
    places = []
    if skills is not None:
        places += [one.token for one in skills.repositories]
        places += [skills.source_access_key, skills.source_secret_key]
    if search is not None:
        places.append(search.database)
    if state is not None:
        places += [state.url, state.listen_url]
    variables = (place[4:] for place in places if place.startswith("env:"))
    return frozenset(filter(None, (*named, settings.brave_key_env, webhook, *variables)))


def check_net(settings: NetSettings, path: Path | None) -> None:
    """Raise ConfigError for a host, network, secret or URL that cannot be read."""
    names = [secret.name for secret in settings.secrets]
    if len(set(names)) < len(names):
        raise ConfigError("two secrets have one name", path=path, key="net.secrets")
    for secret in settings.secrets:
        if not secret.env or not secret.hosts:
            message = f"expected a variable and at least one host for the secret `{secret.name}`"
            raise ConfigError(message, path=path, key="net.secrets")
    try:
        for host in settings.hosts:
            net.host_rule(host)
        # The names and hosts are what is checked; the values are looked up when they are needed.
        stand_ins = (
            net.SecretBinding(name=secret.name, value="x" * 32, hosts=secret.hosts)
            for secret in settings.secrets
        )
        net.NetPolicy(private=settings.private, secrets=tuple(stand_ins))
        if settings.searxng_url:
            net.parse_url(settings.searxng_url)
    except net.NetError as error:
        raise ConfigError(f"wrong value: {error}", path=path, key="net") from error


def check_remotes(remotes: tuple[RemoteSource, ...], path: Path | None) -> None:
    """Raise ConfigError for too many remotes, one listed twice or reached without encryption."""
    if len(remotes) > REMOTES_MAX:
        message = f"expected at most {REMOTES_MAX} remotes, got {len(remotes)}"
        raise ConfigError(message, path=path, key="remotes")
    if len(set(remotes)) < len(remotes):
        raise ConfigError("a remote is listed twice", path=path, key="remotes")
    for source in remotes:
        parts = urlsplit(source.url)
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            message = f"expected https, or http on this machine, got `{source.url}`"
            raise ConfigError(message, path=path, key="remotes")
        try:
            net.parse_url(source.url)
        except SkillhouseError as error:
            raise ConfigError(f"wrong value: {error}", path=path, key="remotes") from error
