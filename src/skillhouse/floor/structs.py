"""What the standard library does to dataclasses, done to `msgspec.Struct` too.

mypy checks the arguments of `dataclasses.replace` and not those of `msgspec.structs.replace`, and
msgspec's `asdict` does not enter what it holds. `dataclasses` is loaded when a value of it comes.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct
from msgspec.structs import force_setattr
from msgspec.structs import replace as replaced

__all__ = ["PartialStruct", "asdict", "astuple", "field_names", "is_struct", "replace"]

if TYPE_CHECKING:
    from dataclasses import asdict, replace
else:

    def replace(value, /, **changes):
        """Return a copy of a value with some fields changed; TypeError for one it has not."""
        if hasattr(value, "__struct_fields__"):
            return replaced(value, **changes)
        from dataclasses import replace as replaced_standard  # noqa: PLC0415 - see above.

        return replaced_standard(value, **changes)

    def asdict(value):
        """Return the fields of a value, and of the values in it, as new dicts, lists and tuples."""
        return {name: _plain(getattr(value, name)) for name in field_names(value)}


class _Secret(str):
    """A text that shows nothing; msgspec refuses to encode a subclass of `str`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'…'"


class PartialStruct(Struct, frozen=True):
    """A frozen Struct of which some fields are not shown, or do not count when two are compared.

    >>> class Key(PartialStruct, frozen=True):
    ...     SECRET = frozenset({"text"})
    ...     UNCOMPARED = frozenset({"made"})
    ...     name: str
    ...     text: str
    ...     made: int = 0
    >>> Key("a", "xyz", 1), Key("a", "xyz", 1) == Key("a", "xyz", 2)
    (Key(name='a', made=1), True)
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset()
    """Fields that `repr` leaves out."""
    SECRET: ClassVar[frozenset[str]] = frozenset()
    """Texts that `repr` leaves out too, and that msgspec refuses to encode."""
    UNCOMPARED: ClassVar[frozenset[str]] = frozenset()
    """Fields that `==` and `hash` leave out."""

    def __post_init__(self) -> None:
        for name in self.SECRET:
            force_setattr(self, name, _Secret(getattr(self, name)))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__qualname__}({shown})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        left = self.HIDDEN | self.SECRET
        return [(name, getattr(self, name)) for name in self.__struct_fields__ if name not in left]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(self._compared() == type(self)._compared(other))

    def __hash__(self) -> int:
        return hash(self._compared())

    def _compared(self) -> Any:
        names = [name for name in self.__struct_fields__ if name not in self.UNCOMPARED]
        return attrgetter(*names)(self)


def field_names(value: object) -> tuple[str, ...]:
    """Return the names of the fields of a value or of its class, in their order.

    Raises:
        TypeError: it is neither a dataclass nor a Struct.
    """
    found: tuple[str, ...] | None = getattr(value, "__struct_fields__", None)
    if found is None:
        from dataclasses import fields  # noqa: PLC0415 - see above.

        kind: Any = value
        return tuple(field.name for field in fields(kind))
    return found


def astuple(value: object) -> tuple[Any, ...]:
    """Return the fields of a value in their order, without entering what it holds."""
    return tuple(getattr(value, name) for name in field_names(value))


def is_struct(value: object) -> bool:
    """Whether a value, or a class, has named fields."""
    return hasattr(value, "__struct_fields__") or hasattr(value, "__dataclass_fields__")


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
