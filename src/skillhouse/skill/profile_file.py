"""Finds profiles by name and reads them: TOML to values, with the line of whatever is wrong."""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from skillhouse.floor import ConfigError, DecodeError, file_problem, nearest, read_regular, shaped
from skillhouse.floor.documents import toml_table
from skillhouse.skill.profile import DEFAULT_PROFILE, Profile

PROFILE_FILE_MAX = 262_144
"""Bytes of a profile file."""


def read_profile(path: Path) -> Profile:
    """Return the profile in a file; what it does not set is as in `default`.

    ConfigError: the file cannot be read, is not TOML, or has a key or value that no profile has;
    the message has the line and the key.
    """
    try:
        data = read_regular(path, PROFILE_FILE_MAX)
        table = toml_table(data)
        text = data.decode()
    except OSError as error:
        raise ConfigError(f"cannot read the profile: {error.strerror}", path=path) from error
    except DecodeError as error:
        raise ConfigError(str(error), path=path) from error
    # It is for the table of clients: what is known of the program besides its skills.
    table.pop("program", None)
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
        hints = _hints(typing.cast("type", shape))
        for key, item in value.items():
            if key in hints:
                yield from _unknown(item, hints[key], (*keys, key))
            else:
                yield keys, key, tuple(hints)


_hints = functools.cache(typing.get_type_hints)


def line_of_key(text: str, keys: tuple[str, ...]) -> int:
    """Return the line of the value at `keys`, or of the nearest table above it that is found."""
    lines = text.splitlines()
    place = 0
    for at, key in enumerate(keys):
        if key.isdecimal():
            continue
        table = re.compile(rf"\s*\[+\s*(\w+\.)*{re.escape(key)}\s*\]|\s*\"?{re.escape(key)}\"?\s*=")
        # In an array of tables the nth header begins the nth item.
        skip = int(keys[at + 1]) if at + 1 < len(keys) and keys[at + 1].isdecimal() else 0
        places = [n for n, line in enumerate(lines) if n >= place and table.match(line)]
        if places:
            place = places[min(skip, len(places) - 1)]
    return place + 1


SHIPPED_DIRECTORY = Path(__file__).with_name("profiles")
"""One TOML file a profile; its name is the profile's."""


def profile_names(own: Path | None = None) -> tuple[str, ...]:
    """Return the names of all profiles, sorted; `own` is the user's directory of profiles."""
    names = {file.stem for place in _places(own) for file in place.glob("*.toml")}
    return tuple(sorted(names))


def load_profile(profile: str | Profile, own: Path | None = None) -> Profile:
    """Return the profile of that name; a `Profile` is returned as it is.

    `own` is the user's directory of profiles: a file there goes before a shipped one of its name.
    ConfigError: no profile has that name, or its file is broken; the message has the line.
    """
    if isinstance(profile, Profile):
        return profile
    for place in _places(own):
        if place == SHIPPED_DIRECTORY and profile == DEFAULT_PROFILE.name:
            # Its file holds the same values (a test compares them) and takes longer to read.
            return DEFAULT_PROFILE
        path = place / f"{profile}.toml"
        # INVARIANT: a name never leads out of these directories.
        if path.parent == place and (path.exists() or path.is_symlink()):
            # An installer may link the shipped ones to its cache.
            if place == own and (problem := file_problem(path)):
                raise ConfigError(f"the profile is not used: {problem}", path=path)
            return read_profile(path) if place == own else _shipped(path)
    known = profile_names(own)
    close = nearest(profile, known)
    message = f"unknown profile `{profile}`"
    if not close:
        message += f", known are {', '.join(sorted(known))}"
    raise ConfigError(message, key=profile, suggestion=close[0] if close else "")


@functools.cache
def _shipped(path: Path) -> Profile:
    """Return a profile of the program, whose files stay as they are while it runs."""
    return read_profile(path)


def _places(own: Path | None) -> tuple[Path, ...]:
    return (SHIPPED_DIRECTORY,) if own is None else (own, SHIPPED_DIRECTORY)
