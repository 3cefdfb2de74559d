"""Reads what a configuration names by its place, env:NAME or file:PATH, and never holds itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from skillhouse.floor import ConfigError, ExposedError, open_own, read_opened

SECRET_MAX = 4_096
"""Bytes of a secret."""


def is_place(text: str) -> bool:
    """Return whether a text names a place.

    >>> is_place("env:NAME"), is_place("file:~/.token"), is_place("postgresql://u:p@h/d")
    (True, True, False)
    """
    kind, _, name = text.partition(":")
    return kind in ("env", "file") and bool(name)


def check_place(place: str, *, key: str) -> None:
    """Raise ConfigError for a secret that is not named by its place."""
    if not is_place(place):
        # What was written may be the secret, so it is not repeated.
        raise ConfigError(f"expected `file:PATH` or `env:NAME` in `{key}`", key=key)


def read_secret(place: str, what: str, environment: Mapping[str, str], *, key: str) -> str:
    """Return what is at a place, empty where none is named.

    Args:
        place: `env:NAME` or `file:PATH`.
        what: What it is, for messages.
        key: The key of the configuration that names the place.

    Raises:
        ConfigError: it is not there, or others can read or replace the file.
    """
    kind, _, name = place.partition(":")
    if not kind:
        return ""
    if kind == "env":
        found = environment.get(name, "").strip()
        if not found:
            raise ConfigError(f"expected {what} in the variable `{name}`", key=key)
        return found
    path = Path(name).expanduser()
    try:
        data = read_opened(open_own(path, secret=True), path, SECRET_MAX)
    except ExposedError as error:
        message = f"{what} is not used: {error.problem}"
        raise ConfigError(message, path=path, key=key) from error
    except OSError as error:
        raise ConfigError(f"cannot read {what}: {error.strerror}", path=path, key=key) from error
    found = data.decode("ascii", "replace").strip()
    if not found:
        raise ConfigError(f"expected {what}", path=path, key=key)
    return found
