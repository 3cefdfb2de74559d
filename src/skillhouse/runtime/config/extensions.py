"""What the user says about additions to the format and about code that skills bring."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from skillhouse.floor import ConfigError
from skillhouse.skill import Extensions

DIGEST = r"skilltree1:[0-9a-f]{64}"
PACKAGES_MAX = 2
"""Directories of packages beside those of a skill: for all skills, and of the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionSettings:
    """Which of the profile's extensions are turned on or off; None is as the profile has it."""

    invocation: bool | None = None
    substitution: bool | None = None
    when_to_use: bool | None = None
    paths: bool | None = None
    commands: bool | None = None

    def over(self, extensions: Extensions) -> Extensions:
        """Return the profile's extensions with these in their place."""
        return replace(extensions, **self._set())

    def before(self, weaker: ExtensionSettings) -> ExtensionSettings:
        """Return both, each value from this one where it is set here."""
        return replace(weaker, **self._set())

    def _set(self) -> dict[str, Any]:
        values = {known.name: getattr(self, known.name) for known in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillCodeSettings:
    """Whether skills' own code runs, and what the operator hands to it."""

    enabled: bool | None = None
    """None is as the profile has it."""
    env: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of this process's variables that a skill gets, by the skill's name: of those that it
    declares. A variable that is not named here is not handed over, whatever a skill declares."""
    unhashed: bool = False
    """Take dependencies without digests."""
    builds: bool = False
    """Build dependencies from source, which runs their code outside of any sandbox."""
    python_packages: tuple[str, ...] = ()
    """Absolute directories in which skills in Python look for modules after their own, nearest
    first: what `site-packages` would hold, for all skills, then of the host (S002-63)."""
    node_packages: tuple[str, ...] = ()
    """Likewise for skills in JavaScript: what `node_modules` would hold."""
    executor: str = ""
    """Address of an executor elsewhere, http://HOST:PORT/rpc; "" runs code on this machine."""
    executor_token: str = ""
    """Where the token is by which both know each other, file:PATH or env:NAME; never itself."""
    callback: str = "127.0.0.1:0"
    """Where this process listens for host calls from there, ADDRESS:PORT; port 0 is a free one."""
    levels: Mapping[str, Literal["read", "write", "sign"]] = field(default_factory=dict)
    """The least level of a skill's tools, by SKILL, or of one tool, by SKILL:TOOL: what a manifest
    says of itself counts only where it is stricter (S002-98)."""
    in_process: tuple[str, ...] = ()
    """Digests of the trees of skills in Python that run in this process, without a sandbox."""

    def __post_init__(self) -> None:
        """Refuse what is no place for packages, no digest, or no executor.

        Raises:
            ConfigError: a directory is relative, there are too many, or a digest, an address or the
                place of the token is none.
        """
        for key in ("python_packages", "node_packages"):
            found = getattr(self, key)
            if len(found) > PACKAGES_MAX or not all(os.path.isabs(path) for path in found):
                message = f"expected at most {PACKAGES_MAX} absolute directories in `{key}`"
                raise ConfigError(f"{message}, got {list(found)}", key=key)
        for found in self.in_process:
            if not re.fullmatch(DIGEST, found):
                message = f"expected digests as skilltree1:… in `in_process`, got {found!r}"
                raise ConfigError(message, key="in_process")
        self._check_executor()

    def _check_executor(self) -> None:
        kind, _, name = self.executor_token.partition(":")
        if self.executor_token and (kind not in ("file", "env") or not name):
            # What was written may be the token itself, so it is not repeated.
            message = "expected `file:PATH` or `env:NAME` in `executor_token`"
            raise ConfigError(message, key="executor_token")
        if bool(self.executor) != bool(self.executor_token):
            raise ConfigError("expected `executor` and `executor_token` together", key="executor")
        try:
            callback_of(self.callback)
        except ValueError:
            message = f"expected ADDRESS:PORT in `callback`, got {self.callback!r}"
            raise ConfigError(message, key="callback") from None


def callback_of(text: str) -> tuple[str, int]:
    """Return the address and the port of ADDRESS:PORT.

    >>> callback_of("0.0.0.0:8701"), callback_of("[::1]:0")
    (('0.0.0.0', 8701), ('::1', 0))

    Raises:
        ValueError: it is none.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdecimal() and int(port) < 65_536):
        raise ValueError(f"expected ADDRESS:PORT, got {text!r}")
    return host, int(port)
