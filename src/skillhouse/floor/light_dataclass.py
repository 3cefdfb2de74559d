"""Dataclasses whose methods are compiled when they are first used.

The standard decorator compiles six functions for each class, which takes 0.4 ms; a start loads
hundreds of classes, makes values of some and compares few. `dataclass` makes a class with its slots
only, and each method at its first use. All methods but `__init__` come from the standard decorator,
and a class that needs more than `_is_plain` allows is left to it altogether.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from typing import TYPE_CHECKING, Any, NoReturn


class _Absent:
    """An argument that was not given, where a function makes the default."""

    def __repr__(self) -> str:
        return "<factory>"


_OWN = frozenset(
    ("__init__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__getstate__", "__slots__")
)
"""A class that defines one of these is left to the standard decorator."""
_MARKERS = ("ClassVar", "InitVar", "KW_ONLY")
"""Words of annotations that are no fields, or change the fields after them."""


class _Late:
    """An attribute of a class that is made when it is first read."""

    __slots__ = ("_make", "_name", "_owner")

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, value: object, owner: type | None = None) -> Any:
        made = self._make()
        # Later reads, those of subclasses too, find it in the class.
        setattr(self._owner, self._name, made)
        return made.__get__(value, owner) if hasattr(made, "__get__") else made


class _Recipe:
    """Makes what one class has besides its own attributes."""

    __slots__ = ("_body", "_cls", "_frozen", "_kw_only", "names")

    def __init__(self, cls: type, *, frozen: bool, kw_only: bool) -> None:
        self._cls, self._frozen, self._kw_only = cls, frozen, kw_only
        own = vars(cls)
        self.names = tuple(cls.__annotations__)
        self._body = {name: own[name] for name in self.names if name in own}
        for name, value in self._body.items():
            default = value.default if isinstance(value, Field) else value
            if type(default).__hash__ is None:
                raise ValueError(f"mutable default for field `{name}` of `{cls.__qualname__}`")

    def attributes(self, *, eq: bool) -> dict[str, Any]:
        own = vars(self._cls)
        frozen = self._frozen
        late: dict[str, Callable[[], Any]] = {
            "__init__": self._init,
            "__dataclass_fields__": lambda: self._standard("__dataclass_fields__"),
            "__dataclass_params__": lambda: self._standard(
                "__dataclass_params__",
                init=True,
                repr=True,
                eq=eq,
                frozen=frozen,
                match_args=True,
                slots=True,
            ),
        }
        if "__repr__" not in own:
            late["__repr__"] = lambda: self._standard("__repr__", repr=True)
        if eq:
            late["__eq__"] = lambda: self._standard("__eq__", eq=True)
        if eq and frozen:
            late["__hash__"] = lambda: self._standard("__hash__", unsafe_hash=True)
        positional = () if self._kw_only else tuple(filter(self._is_given, self.names))
        added: dict[str, Any] = {"__match_args__": positional, "__replace__": _replace}
        if frozen:
            added |= _FROZEN
        return added | {name: _Late(make) for name, make in late.items()}

    def _is_given(self, name: str) -> bool:
        value = self._body.get(name)
        return value.init if isinstance(value, Field) else True

    def _standard(self, attribute: str, **parts: bool) -> Any:
        """Return what the standard decorator makes when it is asked for `parts` only."""
        asked = {"init": False, "repr": False, "eq": False, "match_args": False} | parts
        cls = self._cls
        # With a docstring, or `dataclasses` would make one from the signature.
        body = {"__annotations__": cls.__annotations__, "__doc__": "", **self._body}
        body |= {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
        twin = type(cls.__name__, (), body)
        return vars(dataclasses.dataclass(kw_only=self._kw_only, **asked)(twin))[attribute]

    def _init(self) -> Any:
        """Return the `__init__`, with the order and the defaults of the standard one."""
        given: list[str] = []
        lines: list[str] = []
        bound: dict[str, Any] = {"_absent": _Absent(), "_set": object.__setattr__}
        for place, name in enumerate(self.names):
            default: Any = self._body.get(name, MISSING)
            make: Any = MISSING
            if isinstance(default, Field):
                default, make = default.default, default.default_factory
            parameter = value = name
            if make is not MISSING:
                bound[f"_make{place}"] = make
                parameter = f"{name}=_absent"
                value = f"_make{place}() if {name} is _absent else {name}"
            elif default is not MISSING:
                bound[f"_default{place}"] = default
                parameter = f"{name}=_default{place}"
            if self._is_given(name):
                given.append(parameter)
            elif make is not MISSING:
                value = f"_make{place}()"
            elif default is not MISSING:
                value = f"_default{place}"
            else:
                continue
            lines.append(
                f"  _set(self, {name!r}, {value})" if self._frozen else f"  self.{name} = {value}"
            )
        if hasattr(self._cls, "__post_init__"):
            lines.append("  self.__post_init__()")
        star = "*, " if self._kw_only and given else ""
        text = "\n".join(
            (
                f"def make({', '.join(bound)}):",
                f" def __init__(self, {star}{', '.join(given)}):",
                *(lines or ["  pass"]),
                " return __init__",
            )
        )
        found: dict[str, Any] = {}
        module = sys.modules.get(self._cls.__module__)
        # The source has names of fields only, which are Python's own words.
        exec(text, vars(module) if module else {}, found)  # noqa: S102
        made = found["make"](**bound)
        made.__qualname__ = f"{self._cls.__qualname__}.__init__"
        types = self._cls.__annotations__
        made.__annotations__ = {name: types[name] for name in self.names if self._is_given(name)}
        made.__annotations__["return"] = None
        return made


def _refuse_set(self: object, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


def _replace(self: Any, /, **changes: Any) -> Any:
    return dataclasses.replace(self, **changes)


_FROZEN = {
    "__setattr__": _refuse_set,
    "__delattr__": _refuse_delete,
    "__getstate__": _state,
    "__setstate__": _set_state,
}


def _is_plain(cls: type) -> bool:
    """Whether a class has fields of its own only, and none of the methods that we make."""
    own = vars(cls)
    if not _OWN.isdisjoint(own):
        return False
    for kind in cls.__annotations__.values():
        if not isinstance(kind, str) or any(word in kind for word in _MARKERS):
            return False
    if any(isinstance(value, Field) and value.kw_only is not MISSING for value in own.values()):
        return False
    bases = map(vars, cls.__mro__[1:-1])
    return not any("__dataclass_fields__" in base or base.get("__slots__") for base in bases)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414
else:

    def dataclass(
        *, frozen: bool = False, slots: bool = False, kw_only: bool = False, eq: bool = True
    ) -> Callable[[type], type]:
        """Do as the standard decorator does for classes with slots."""

        def decorated(cls: type) -> type:
            if not slots or not _is_plain(cls):
                standard = dataclasses.dataclass(frozen=frozen, slots=slots, kw_only=kw_only, eq=eq)
                return standard(cls)
            recipe = _Recipe(cls, frozen=frozen, kw_only=kw_only)
            body = recipe.attributes(eq=eq)
            if eq and not frozen:
                body["__hash__"] = None
            left = {*recipe.names, "__dict__", "__weakref__"}
            body |= {name: value for name, value in vars(cls).items() if name not in left}
            body |= {"__slots__": recipe.names, "__qualname__": cls.__qualname__}
            return type(cls)(cls.__name__, cls.__bases__, body)

        return decorated
