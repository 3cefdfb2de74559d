"""Which values of the configuration and the environment no log may hold."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.audit import is_secret_name

if TYPE_CHECKING:
    from skillhouse.runtime.config import Config

TOKEN_BYTES = 4_096
"""Bytes of a file with a token that are read."""
_WORD_MAX = 16
"""Letters of a word; a longer row of letters is no word of any configuration."""

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[A-Za-z0-9.-]+(:[0-9]+)?/?")


def hidden_values(config: Config) -> tuple[str, ...]:
    """Return the values that no record, log line or transcript may hold.

    These are the variables that are named as secrets, the variables that skills get, what servers
    of skills are started with, and the tokens and passwords that the configuration points at.
    `KnownSecrets` leaves out what has fewer than 8 characters.
    """
    return tuple(dict.fromkeys(value for value in _values(config) if value))


def is_plain(value: str) -> bool:
    """Whether a value without a telling name is a setting and no secret.

    Hiding a word, an origin or a place of this machine would take it out of every record.

    >>> [is_plain(value) for value in ("production", "https://api.example.org", "k7-xTq9-aa")]
    [True, True, False]
    """
    is_word = value.isalpha() and len(value) < _WORD_MAX and value[1:].islower() | value.isupper()
    if is_word or _ORIGIN.fullmatch(value):
        return True
    try:
        return os.path.isabs(value) and os.path.lexists(value)
    except ValueError:
        # A NUL is in no path.
        return False


def _values(config: Config) -> Iterator[str]:
    environment = config.places.environment
    yield from (value for name, value in environment.items() if is_secret_name(name))
    handed = {name for names in config.skill_code.env.values() for name in names}
    yield from _without_settings({name: environment.get(name, "") for name in sorted(handed)})
    for server in config.mcp_servers:
        yield from _without_settings(server.environment)
        yield from _named_arguments(server.command)
    for place in (config.signer.password, config.skill_code.executor_token):
        kind, _, name = place.partition(":")
        if kind == "env":
            yield environment.get(name, "")
        elif kind == "file":
            yield _token(Path(name))


def _without_settings(values: Mapping[str, str]) -> Iterator[str]:
    return (value for name, value in values.items() if is_secret_name(name) or not is_plain(value))


def _named_arguments(command: Sequence[str]) -> Iterator[str]:
    """Yield the values of options that are named as secrets: `--token x` and `--token=x`."""
    for before, word in zip(("", *command), command, strict=False):
        name, equals, value = word.partition("=")
        if equals and is_secret_name(name):
            yield value
        elif before.startswith("-") and "=" not in before and is_secret_name(before):
            yield word


def _token(path: Path) -> str:
    try:
        # A pipe would be waited for.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            return (file.read(TOKEN_BYTES) or b"").decode("ascii", "replace").strip()
    except OSError:
        # The code that uses it looks again, and reports that it is missing.
        return ""
