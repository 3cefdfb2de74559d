"""A profile as TOML, for people to read and to begin their own with."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skillhouse.skill import Profile

_LAST = ("parse_policy", "rules", "catalog", "extensions", "messages")
"""Tables, which in TOML come after the plain values; lists of tables come last of all."""


def as_toml(profile: Profile, *, unlike: Profile | None = None) -> str:
    """Return a profile as a file that `read_profile` takes.

    Args:
        profile: What to write.
        unlike: Leave out the values that this profile has, too, and what only people need; such a
            text is to be read and is no file.
    """
    values = {field.name: getattr(profile, field.name) for field in dataclasses.fields(profile)}
    if unlike is None:
        # The file's name is the profile's: a copy under another name must not hold the old one.
        del values["name"]
    else:
        told = {"name", "title", "facts", "client", "checked"}
        values = {
            key: value
            for key, value in values.items()
            if key not in told and value != getattr(unlike, key)
        }
    plain = {key: value for key, value in values.items() if not _is_table(value)}
    lines = [f"{key} = {_written(value)}" for key, value in plain.items() if value is not None]
    for key, value in values.items():
        if key in plain:
            continue
        if isinstance(value, tuple):
            for item in value:
                lines += ["", f"[[{key}]]", *_fields(item, None)]
        else:
            base = None if unlike is None else getattr(unlike, key)
            lines += ["", f"[{key}]", *_fields(value, base)]
    return "\n".join(lines).strip("\n") + "\n"


def _is_table(value: Any) -> bool:
    if isinstance(value, tuple):
        return bool(value) and dataclasses.is_dataclass(value[0])
    return dataclasses.is_dataclass(value) or isinstance(value, Mapping)


def _fields(value: Any, base: Any) -> Iterator[str]:
    """Yield the lines of a table; None has no form in TOML and is what it is when left out."""
    if isinstance(value, Mapping):
        yield from (f"{json.dumps(key)} = {_written(item)}" for key, item in value.items())
        return
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if item is not None and (base is None or item != getattr(base, field.name)):
            yield f"{field.name} = {_written(item)}"


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, frozenset):
        return _written(sorted(value))
    if isinstance(value, tuple | list):
        items = [_written(item) for item in value]
        line = f"[{', '.join(items)}]"
        return (
            line if len(line) <= 70 else "[\n" + "".join(f"    {item},\n" for item in items) + "]"
        )
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(k)} = {_written(v)}" for k, v in value.items()) + " }"
    if isinstance(value, str):
        # A basic string of TOML takes JSON's escapes; it has none for DEL, which JSON leaves.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)
