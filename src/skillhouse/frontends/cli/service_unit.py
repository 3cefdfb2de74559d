"""The systemd user unit of `skillhouse bot`: written, compared and removed, and never started here.

Its first line has the digest of the rest, so that a unit that a person edited is known as theirs.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from skillhouse.answers.json_form import JsonAnswer
from skillhouse.audit import AuditLog
from skillhouse.audit.log import recorded
from skillhouse.clients.config_file import ConfigFile, ConfigFileError, difference
from skillhouse.floor import ConfigError, Locations, digest, file_problem
from skillhouse.floor.structs import replace
from skillhouse.house.config.carried_variables import deciding_variables

UNIT = "skillhouse-bot.service"
VARIABLES_FILE = "bot.env"
"""Beside the configuration: what the unit starts with that is secret, such as a model's key."""
_MARK = "# Written by `skillhouse bot --install-service`, which also removes it: "
_KEPT_VARIABLES = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
_ENABLED = "default.target.wants"

_TEXT = """[Unit]
Description=skillhouse bot: people talk with an assistant in chat services

[Service]
Type=exec
ExecStart={command}
WorkingDirectory={directory}
{variables}
# Keys go in here, as NAME=value, in a file that only you can read; none is in this unit.
EnvironmentFile=-{secrets}
Restart=on-failure
RestartSec=10
# What the configuration lacks is not there after a restart either.
RestartPreventExitStatus=2
TimeoutStopSec=30

UMask=0077
LimitCORE=0
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=~@clock @cpu-emulation @module @obsolete @raw-io @reboot @swap
SystemCallErrorNumber=EPERM
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
# Commands run in a bubblewrap sandbox, which makes namespaces and mounts a /proc of its own. So
# there is no RestrictNamespaces, no filter of @mount, and none of what puts the bot itself into
# namespaces: PrivateTmp, PrivateUsers, ProtectSystem, ProtectHome, ProtectProc, ProtectKernel….

[Install]
WantedBy=default.target
"""


class UnitStanding(enum.StrEnum):
    INSTALLED = "installed"
    OUTDATED = "outdated"
    """As we wrote it, and we would write another one now."""
    CHANGED = "changed"
    """Edited since we wrote it, or not ours."""
    MISSING = "missing"


class UnitAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The unit, and what is done with it."""

    path: str
    standing: UnitStanding
    action: str = ""
    """install or remove; empty where nothing is to be done."""
    done: bool = False
    reason: str = ""
    difference: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    """Commands that a person runs then."""


class ServiceUnit:
    """The unit of one user."""

    def __init__(self, places: Locations) -> None:
        given = places.environment.get("XDG_CONFIG_HOME", "")
        base = Path(given) if os.path.isabs(given) else places.home / ".config"
        self._places = places
        self._path = base / "systemd/user" / UNIT

    def text(self, words: Sequence[str], directory: Path, path: str) -> str:
        """Return the unit that runs a command in a directory, with this `PATH`."""
        environment: Mapping[str, str] = self._places.environment
        kept = {name: environment[name] for name in _KEPT_VARIABLES if environment.get(name)}
        kept |= deciding_variables(environment)
        kept["PATH"] = path
        secrets = self.variables_file
        text = _TEXT.format(
            command=" ".join(_quoted(word, is_command=True) for word in words),
            directory=_specified(str(directory)),
            variables="\n".join(
                f"Environment={_quoted(f'{name}={value}')}" for name, value in kept.items()
            ),
            secrets=_specified(str(secrets)),
        )
        return f"{_MARK}{digest(text.encode())}\n{text}"

    @property
    def variables_file(self) -> Path:
        return self._places.user_file.with_name(VARIABLES_FILE)

    def secret_variables(self) -> tuple[str, ...]:
        """Return the names that have a value in the file of secret variables; ConfigError if others
        can read it."""
        path = self.variables_file
        if not path.exists():
            return ()
        if problem := file_problem(path, secret=True):
            raise ConfigError(f"the variables of the unit are not used: {problem}", path=path)
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        parts = (line.partition("=") for line in lines)
        return tuple(name.strip() for name, _, value in parts if value.strip(" \t\"'"))

    def install(self, wanted: str, *, force: bool, audit: AuditLog | None) -> UnitAnswer:
        """Write the unit; without `audit` return what would be done. `force` is over an edit."""
        file = self._file()
        standing = _standing(file.text, wanted)
        answer = self._answer(standing)
        if standing is UnitStanding.INSTALLED:
            return replace(answer, next=_STARTING)
        if standing is UnitStanding.CHANGED and not force:
            reason = "it was edited, or is not ours: --force replaces it"
            return replace(
                answer, reason=reason, difference=difference(file.text, wanted, answer.path)
            )
        lines = difference(file.text, wanted, answer.path)
        again = () if standing is UnitStanding.MISSING else _RESTARTING
        answer = replace(answer, action="install", difference=lines, next=again or _STARTING)
        if audit is None:
            return answer
        with recorded(audit, "service-install", {"path": answer.path}):
            file.write(wanted, mode=0o644)
        return replace(answer, done=True, standing=UnitStanding.INSTALLED)

    def remove(self, *, force: bool, audit: AuditLog | None) -> UnitAnswer:
        """Take the unit away, and the link that enables it; as of `install`."""
        file = self._file()
        answer = self._answer(_standing(file.text, file.text))
        if answer.standing is UnitStanding.MISSING:
            return replace(answer, reason="there is no unit of ours")
        if answer.standing is UnitStanding.CHANGED and not force:
            reason = "it was edited, or is not ours: --force removes it all the same"
            return replace(answer, reason=reason)
        answer = replace(answer, action="remove", next=_ENDING)
        if audit is None:
            return answer
        with recorded(audit, "service-remove", {"path": answer.path}):
            file.remove()
            link = self._path.parent / _ENABLED / UNIT
            # `systemctl disable` finds nothing once the unit is gone.
            with suppress(FileNotFoundError):
                if link.is_symlink():
                    link.unlink()
        return replace(answer, done=True, standing=UnitStanding.MISSING)

    def _file(self) -> ConfigFile:
        return ConfigFile(self._path, bound=self._places.home, may_be_outside=True)

    def _answer(self, standing: UnitStanding) -> UnitAnswer:
        return UnitAnswer(path=str(self._path), standing=standing)


_STARTING = (
    "systemctl --user daemon-reload",
    f"systemctl --user enable --now {UNIT}",
    "loginctl enable-linger",
)
_RESTARTING = (
    "systemctl --user daemon-reload",
    f"systemctl --user restart {UNIT}",
)
_ENDING = (f"systemctl --user stop {UNIT}", "systemctl --user daemon-reload")


def removable_unit(places: Locations) -> UnitAnswer | None:
    """Return what `remove` would do; None where there is no unit or it cannot be read."""
    try:
        found = ServiceUnit(places).remove(force=False, audit=None)
    except ConfigFileError as error:
        return UnitAnswer(path=str(error.path), standing=UnitStanding.CHANGED, reason=str(error))
    return None if found.standing is UnitStanding.MISSING else found


def _standing(text: str, wanted: str) -> UnitStanding:
    if not text:
        return UnitStanding.MISSING
    head, _, rest = text.partition("\n")
    if head != f"{_MARK}{digest(rest.encode())}":
        return UnitStanding.CHANGED
    return UnitStanding.INSTALLED if text == wanted else UnitStanding.OUTDATED


def _specified(text: str) -> str:
    """Return a path as systemd.unit(5) reads it: `%` begins a specifier, and a line ends it."""
    if not text.isprintable():
        raise ConfigError(f"a unit cannot name `{text!a}`", key="service")
    return text.replace("%", "%%")


def _quoted(word: str, *, is_command: bool = False) -> str:
    """Return a word as systemd.syntax(7) reads it.

    >>> _quoted("/home/a b/100%"), _quoted("$HOME", is_command=True)
    ('"/home/a b/100%%"', '"$$HOME"')
    """
    text = _specified(word).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text.replace("$", "$$") if is_command else text}"'
