"""Dataclasses whose methods are made when they are first used.

The standard decorator compiles six functions for each class, which takes 0.4 ms; a start loads
hundreds of classes, makes values of some and compares few. `dataclass` makes a class with its slots
only, and each method at its first use. An `__init__` is the code of one that was compiled for as
many fields, with other names. A class that needs more than `_is_plain` allows is left to the
standard decorator.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

_OWN = frozenset(
    ("__init__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__getstate__", "__slots__")
)
"""A class that defines one of these is left to the standard decorator."""
_MARKERS = ("ClassVar", "InitVar", "KW_ONLY")
"""Words of annotations that are no fields, or change the fields after them."""


class _Absent:
    """An argument that was not given, where a function makes the default."""

    def __repr__(self) -> str:
        return "<factory>"


_ABSENT = _Absent()


@dataclasses.dataclass(slots=True)
class _Sample:
    field: int


# Only the library's own attribute says it; typeshed lists the public ones.
_KIND: Any = dataclasses.fields(_Sample)[0]._field_type  # type: ignore[attr-defined] # noqa: SLF001
"""What marks a field of the instance for `dataclasses`."""


class _Late:
    """An attribute of a class that is made when it is first read."""

    __slots__ = ("_make", "_name", "_owner")

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, value: object, owner: type | None = None) -> Any:
        made = self._make()
        if isinstance(made, FunctionType):
            made.__name__ = self._name
            made.__qualname__ = f"{self._owner.__qualname__}.{self._name}"
            made.__module__ = self._owner.__module__
        # Later reads, those of subclasses too, find it in the class.
        setattr(self._owner, self._name, made)
        return made.__get__(value, owner) if hasattr(made, "__get__") else made


class _Recipe:
    """Makes what one class has besides its own attributes."""

    __slots__ = ("_cls", "_frozen", "_kw_only", "_values", "names")

    def __init__(self, cls: type, *, frozen: bool, kw_only: bool) -> None:
        self._cls, self._frozen, self._kw_only = cls, frozen, kw_only
        own = vars(cls)
        self.names = tuple(cls.__annotations__)
        self._values = {name: own[name] for name in self.names if name in own}
        last = ""
        for name in self.names:
            default = self._values.get(name, MISSING)
            made = default.default_factory if isinstance(default, Field) else MISSING
            default = default.default if isinstance(default, Field) else default
            if type(default).__hash__ is None:
                raise ValueError(f"mutable default for field `{name}` of `{cls.__qualname__}`")
            if default is not MISSING or made is not MISSING:
                last = name
            elif last and not kw_only and self._is_given(name):
                raise TypeError(f"non-default argument `{name}` follows default argument `{last}`")

    def attributes(self, *, eq: bool) -> dict[str, Any]:
        frozen = self._frozen
        late: dict[str, Callable[[], Any]] = {
            "__init__": self._init,
            "__dataclass_fields__": self._fields,
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
        if "__repr__" not in vars(self._cls):
            late["__repr__"] = lambda: self._standard("__repr__", repr=True)
        if eq:
            late["__eq__"] = self._eq
        if eq and frozen:
            late["__hash__"] = self._hash
        positional = () if self._kw_only else tuple(filter(self._is_given, self.names))
        added: dict[str, Any] = {"__match_args__": positional, "__replace__": _replace}
        if frozen:
            added |= _FROZEN
        return added | {name: _Late(make) for name, make in late.items()}

    def _is_given(self, name: str) -> bool:
        value = self._values.get(name)
        return value.init if isinstance(value, Field) else True

    def _fields(self) -> dict[str, Field[Any]]:
        types, found = self._cls.__annotations__, {}
        for name in self.names:
            value = self._values.get(name, MISSING)
            one: Any = value if isinstance(value, Field) else dataclasses.field(default=value)
            one.name, one.type, one.kw_only = name, types[name], self._kw_only
            one._field_type = _KIND  # noqa: SLF001 - no public name sets it.
            found[name] = one
        return found

    def _standard(self, attribute: str, **parts: bool) -> Any:
        """Return what the standard decorator makes when it is asked for `parts` only."""
        asked = {"init": False, "repr": False, "eq": False, "match_args": False} | parts
        cls = self._cls
        # With a docstring, or `dataclasses` would make one from the signature, in 2 ms.
        body = {"__annotations__": cls.__annotations__, "__doc__": "twin", **self._values}
        body |= {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
        twin = type(cls.__name__, (), body)
        return vars(dataclasses.dataclass(kw_only=self._kw_only, **asked)(twin))[attribute]

    def _eq(self) -> Any:
        values = _getter([name for name in self.names if self._option(name, "compare")])

        def equal(self: object, other: object) -> Any:
            if other.__class__ is not self.__class__:
                return NotImplemented
            return bool(values(self) == values(other))

        return equal

    def _hash(self) -> Any:
        chosen = []
        for name in self.names:
            is_hashed = self._option(name, "hash")
            if self._option(name, "compare") if is_hashed is None else is_hashed:
                chosen.append(name)
        values = _getter(chosen)
        return lambda self: hash(values(self))

    def _option(self, name: str, option: str) -> Any:
        value = self._values.get(name)
        known = {"compare": True, "hash": None}
        return getattr(value, option) if isinstance(value, Field) else known[option]

    def _init(self) -> Any:
        """Return the `__init__`, with the order and the defaults of the standard one."""
        given = tuple(filter(self._is_given, self.names))
        defaults: dict[str, Any] = {}
        late: list[tuple[str, Callable[[], Any]]] = []
        for name, value in self._values.items():
            default: Any = value
            make: Any = MISSING
            if isinstance(value, Field):
                default, make = value.default, value.default_factory
            if make is not MISSING:
                defaults[name] = _ABSENT
                late.append((name, make))
            elif default is not MISSING:
                defaults[name] = default
                if name not in given:
                    late.append((name, functools.partial(_same, default)))
        finish = _finishing(late, is_followed=hasattr(self._cls, "__post_init__"))
        code = _renamed(
            _template(len(given), frozen=self._frozen, finishes=finish is not None),
            given,
            kw_only=self._kw_only,
        )
        bound = {"_set": object.__setattr__, "_finish": finish}
        module = sys.modules.get(self._cls.__module__)
        made = FunctionType(
            code,
            vars(module) if module else {},
            closure=tuple(CellType(bound[name]) for name in code.co_freevars),
        )
        if self._kw_only:
            made.__kwdefaults__ = {name: defaults[name] for name in given if name in defaults}
        else:
            made.__defaults__ = tuple(defaults[name] for name in given if name in defaults)
        types = self._cls.__annotations__
        made.__annotations__ = {name: types[name] for name in given} | {"return": None}
        return made


def _getter(names: list[str]) -> Callable[[object], Any]:
    """Return a function from a value to the tuple of some of its fields."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def _same(value: Any) -> Any:
    return value


def _finishing(
    late: list[tuple[str, Callable[[], Any]]], *, is_followed: bool
) -> Callable[[Any], None] | None:
    """Return what sets the fields that no argument gave, and calls `__post_init__`."""
    if not late and not is_followed:
        return None

    def finish(value: Any) -> None:
        for name, make in late:
            if getattr(value, name, _ABSENT) is _ABSENT:
                object.__setattr__(value, name, make())
        if is_followed:
            value.__post_init__()

    return finish


@functools.cache
def _template(count: int, *, frozen: bool, finishes: bool) -> CodeType:
    """Return the code of an `__init__` with so many arguments, `a0` and so on."""
    names = [f"a{place}" for place in range(count)]
    lines = [
        f"_set(self, {name!r}, {name})" if frozen else f"self.{name} = {name}" for name in names
    ]
    if finishes:
        lines.append("_finish(self)")
    text = "\n  ".join(
        (
            f"def make(_set, _finish):\n def __init__({', '.join(('self', *names))}):",
            *(lines or ["pass"]),
        )
    )
    found: dict[str, Any] = {}
    exec(f"{text}\n return __init__", found)  # noqa: S102 - of a number, and nothing else.
    code: CodeType = found["make"](None, None).__code__
    return code


def _renamed(code: CodeType, names: tuple[str, ...], *, kw_only: bool) -> CodeType:
    """Return the code of a template with other names of its arguments, and of what it sets."""
    renamed = {f"a{place}": name for place, name in enumerate(names)}
    return code.replace(
        co_argcount=1 if kw_only else 1 + len(names),
        co_kwonlyargcount=len(names) if kw_only else 0,
        co_varnames=("self", *names),
        co_consts=tuple(
            renamed.get(one, one) if isinstance(one, str) else one for one in code.co_consts
        ),
        co_names=tuple(renamed.get(one, one) for one in code.co_names),
    )


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
    try:
        kinds = " ".join(cls.__annotations__.values())
    except TypeError:
        return False
    if any(word in kinds for word in _MARKERS):
        return False
    for value in own.values():
        if isinstance(value, Field) and value.kw_only is not MISSING:
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
