"""Profiles as files: TOML tables to values, with the line of whatever is wrong."""

from __future__ import annotations

import dataclasses
import re
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from skillhouse.floor import ConfigError, DecodeError, nearest, read_regular, shaped
from skillhouse.skill.profile import Profile

PROFILE_FILE_MAX = 262_144
"""Bytes of a profile file."""


def read_profile(path: Path) -> Profile:
    """Return the profile in a file; what it does not set is as in `default`.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or has a key or value that no profile
            has; the message has the line and the key.
    """
    try:
        text = read_regular(path, PROFILE_FILE_MAX).decode()
        table = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"cannot read the profile: {error.strerror}", path=path) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not TOML: {error}", path=path) from error
    for keys, key, known in _unknown(table, Profile, ()):
        close = nearest(key, known)
        raise ConfigError(
            f"line {line_of_key(text, (*keys, key))}: unknown key `{key}`",
            path=path,
            key=key,
            suggestion=close[0] if close else "",
        )
    if table.setdefault("name", path.stem) != path.stem:
        line = line_of_key(text, ("name",))
        message = f"line {line}: expected the name of the file, `{path.stem}`"
        raise ConfigError(message, path=path, key="name")
    try:
        profile = shaped(table, Profile)
    except DecodeError as error:
        message, _, place = str(error).partition(" - at `$")
        at = tuple(re.findall(r"\w+", place))
        key = next((word for word in reversed(at) if not word.isdecimal()), "")
        where = f"line {line_of_key(text, at)}: `{key}`: " if key else ""
        raise ConfigError(f"{where}{message}", path=path, key=key) from error
    for number, root in enumerate(profile.roots):
        if all(rule.name != root.scope for rule in profile.scopes):
            line = line_of_key(text, ("roots", str(number), "scope"))
            message = f"line {line}: no scope is called `{root.scope}`"
            raise ConfigError(message, path=path, key="scope")
    return profile


def _unknown(
    value: Any, shape: Any, keys: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str, tuple[str, ...]]]:
    """Yield the place of each key that `shape` does not have, and which it has."""
    if isinstance(shape, types.UnionType):
        shape = typing.get_args(shape)[0]
    if typing.get_origin(shape) is tuple and isinstance(value, list):
        for place, item in enumerate(value):
            yield from _unknown(item, typing.get_args(shape)[0], (*keys, str(place)))
    elif dataclasses.is_dataclass(shape) and isinstance(value, Mapping):
        hints = typing.get_type_hints(shape)
        for key, item in value.items():
            if key in hints:
                yield from _unknown(item, hints[key], (*keys, key))
            else:
                yield keys, key, tuple(hints)


def line_of_key(text: str, keys: tuple[str, ...]) -> int:
    """Return the line of the value at `keys`, or of the nearest table above it that is found."""
    lines = text.splitlines()
    found = 0
    for at, key in enumerate(keys):
        if key.isdecimal():
            continue
        table = re.compile(rf"\s*\[+\s*(\w+\.)*{re.escape(key)}\s*\]|\s*\"?{re.escape(key)}\"?\s*=")
        # In an array of tables the nth header begins the nth item.
        skip = int(keys[at + 1]) if at + 1 < len(keys) and keys[at + 1].isdecimal() else 0
        places = [n for n, line in enumerate(lines) if n >= found and table.match(line)]
        if places:
            found = places[min(skip, len(places) - 1)]
    return found + 1
