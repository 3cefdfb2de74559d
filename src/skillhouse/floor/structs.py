"""What the standard library does to dataclasses, done to `msgspec.Struct` too.

mypy checks the arguments of `dataclasses.replace` and not those of `msgspec.structs.replace`, and
msgspec's `asdict` does not enter what it holds. msgspec is loaded when a value of it comes.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

__all__ = ["asdict", "astuple", "field_names", "is_struct", "replace"]

if TYPE_CHECKING:
    from dataclasses import asdict, replace
else:

    def replace(value, /, **changes):
        """Return a copy of a value with some fields changed; TypeError for one it has not."""
        if hasattr(value, "__struct_fields__"):
            from msgspec.structs import replace as replaced  # noqa: PLC0415 - see above.

            return replaced(value, **changes)
        return dataclasses.replace(value, **changes)

    def asdict(value):
        """Return the fields of a value, and of the values in it, as new dicts, lists and tuples."""
        return {name: _plain(getattr(value, name)) for name in field_names(value)}


def field_names(value: object) -> tuple[str, ...]:
    """Return the names of the fields of a value or of its class, in their order.

    Raises:
        TypeError: it is neither a dataclass nor a Struct.
    """
    found: tuple[str, ...] | None = getattr(value, "__struct_fields__", None)
    if found is None:
        kind: Any = value
        return tuple(field.name for field in dataclasses.fields(kind))
    return found


def astuple(value: object) -> tuple[Any, ...]:
    """Return the fields of a value in their order, without entering what it holds."""
    return tuple(getattr(value, name) for name in field_names(value))


def is_struct(value: object) -> bool:
    """Whether a value, or a class, has named fields."""
    return hasattr(value, "__struct_fields__") or dataclasses.is_dataclass(value)


def _plain(value: Any) -> Any:
    if is_struct(value) and not isinstance(value, type):
        return {name: _plain(getattr(value, name)) for name in field_names(value)}
    if isinstance(value, dict):
        return type(value)((_plain(key), _plain(one)) for key, one in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_plain, value))
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    return value
