from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle  # noqa: TID251 - a value of our own, made here.
import sys
import types
import typing

import pytest

from skillhouse.floor.light_dataclass import dataclass as light

SOURCE = '''
from __future__ import annotations
from collections.abc import Sequence
from dataclasses import KW_ONLY, InitVar, field
from typing import ClassVar, Generic, Protocol, TypeVar

Item = TypeVar("Item")

class Named(Protocol):
    name: str

@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value."""
    name: str
    """Its name."""
    size: int = 3
    words: Sequence[str] = field(default_factory=tuple)
    secret: str = field(default="s", repr=False)
    note: str = field(default="n", compare=False)
    fixed: int = field(default=4, init=False)

    @property
    def twice(self) -> int:
        return self.size * 2

@dataclass(frozen=True, slots=True)
class Pair(Generic[Item]):
    """Two."""
    first: Item
    second: int = 2

@dataclass(slots=True)
class Count:
    """Changes."""
    name: str
    seen: list[str] = field(default_factory=list)
    total: int = field(init=False)
    made: list[int] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.total = len(self.name)

@dataclass(slots=True, eq=False)
class Handle(Named):
    """Is equal to itself only."""
    name: str

@dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    """Nothing."""

@dataclass(frozen=True, slots=True)
class Shown:
    """Has a text of its own."""
    name: str

    def __repr__(self) -> str:
        return f"<{self.name}>"

@dataclass(frozen=True, slots=True)
class Marked:
    """Has what is no field."""
    known: ClassVar[int] = 1
    name: str
    _: KW_ONLY
    start: InitVar[int] = 0
    other: int = 7

@dataclass(frozen=True, slots=True)
class Below(Pair[int]):
    """Has the fields of another one."""
    third: int = 3

@dataclass(frozen=True, slots=True)
class Hashed:
    """Is compared in its own way."""
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hashed)

    def __hash__(self) -> int:
        return 1
'''
CASES: dict[str, tuple[tuple[object, ...], dict[str, object]]] = {
    "Value": ((), {"name": "a", "words": ("b",)}),
    "Pair": (("a",), {}),
    "Count": (("abc",), {}),
    "Handle": (("a",), {}),
    "Empty": ((), {}),
    "Shown": (("a",), {}),
    "Marked": (("a",), {"other": 1}),
    "Below": ((1,), {"third": 2}),
    "Hashed": (("a",), {}),
}


def module_of(decorator: object, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    made = types.ModuleType("made_here")
    monkeypatch.setitem(sys.modules, "made_here", made)
    vars(made)["dataclass"] = decorator
    exec(SOURCE, vars(made))
    return made


def tried(action: typing.Callable[[], object]) -> str:
    """Return the result's text, or the error's."""
    try:
        return repr(action())
    except (TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"


def seen(module: types.ModuleType, name: str) -> list[object]:
    """Return all that a program sees of a class."""
    cls = getattr(module, name)
    words, named = CASES[name]
    value, other = cls(*words, **named), cls(*words, **named)
    stored = copy.deepcopy(value)
    first = dataclasses.fields(cls)[0].name if dataclasses.fields(cls) else "name"
    # Of what is no field the standard one with slots says something that Python 3.11 got wrong.
    frozen = cls.__dataclass_params__.frozen and name != "Empty"
    return [
        str(inspect.signature(cls)),
        inspect.signature(cls.__init__).return_annotation,
        typing.get_type_hints(cls.__init__, vars(module)).keys(),
        (cls.__doc__, cls.__name__, cls.__qualname__, cls.__module__, cls.__init__.__qualname__),
        [base.__name__ for base in cls.__mro__],
        (cls.__slots__, cls.__match_args__, cls.__annotations__),
        str(dataclasses.fields(cls)),
        str(cls.__dataclass_params__),
        (dataclasses.is_dataclass(cls), dataclasses.is_dataclass(value)),
        repr(value) if name != "Handle" else "",
        (value == other, value != other, value == stored, value == 1),
        cls.__hash__ is None or (hash(value) == hash(other)),
        tried(lambda: dataclasses.asdict(value)),
        tried(lambda: dataclasses.replace(value, **{first: "z"})),
        tried(lambda: dataclasses.replace(value, unknown=1)),
        tried(cls),
        tried(lambda: cls(1, 2, 3, 4, 5, 6, 7)),
        tried(lambda: setattr(value, first, 1)) if frozen else "",
        tried(lambda: delattr(value, first)) if frozen else "",
        [getattr(stored, field.name) for field in dataclasses.fields(cls)],
        getattr(value, "twice", None),
    ]


@pytest.mark.parametrize("name", CASES)
def test_a_light_dataclass_is_what_the_standard_decorator_makes(name, monkeypatch):
    standard = seen(module_of(dataclasses.dataclass, monkeypatch), name)
    assert seen(module_of(light, monkeypatch), name) == standard


@pytest.mark.parametrize("name", CASES)
def test_a_light_value_is_stored_and_read(name, monkeypatch):
    cls = getattr(module_of(light, monkeypatch), name)
    words, named = CASES[name]
    value = cls(*words, **named)
    again = pickle.loads(pickle.dumps(value))
    fields = [field.name for field in dataclasses.fields(cls)]
    assert [getattr(again, key) for key in fields] == [getattr(value, key) for key in fields]
    if sys.version_info >= (3, 13):
        assert copy.replace(value) == value or name == "Handle"


def test_a_method_is_made_when_it_is_first_used(monkeypatch):
    cls = module_of(light, monkeypatch).Value
    late = {name for name, value in vars(cls).items() if type(value).__name__ == "_Late"}
    assert late == {
        *("__init__", "__eq__", "__hash__", "__repr__"),
        *("__dataclass_fields__", "__dataclass_params__"),
    }
    value = cls(name="a")
    assert inspect.isfunction(vars(cls)["__init__"])
    assert not inspect.isfunction(vars(cls)["__eq__"])
    assert value == cls(name="a")
    assert inspect.isfunction(vars(cls)["__eq__"])


def test_a_subclass_uses_what_its_base_makes_late(monkeypatch):
    pair = module_of(light, monkeypatch).Pair
    Named = type("Named", (pair,), {"__slots__": ()})  # noqa: N806
    assert repr(Named(1)) == "Named(first=1, second=2)"
    assert Named(1) == Named(1)
    assert "__init__" not in vars(Named)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Named(1).first = 2


def test_a_field_without_a_default_behind_one_with_a_default_is_refused():
    with pytest.raises(TypeError, match="non-default argument `second` follows"):

        @light(slots=True)
        class Mixed:
            first: int = 1
            second: int  # type: ignore[misc]


@pytest.mark.parametrize("default", [[], {}, set()])
def test_a_default_that_values_would_share_is_refused(default):
    with pytest.raises(ValueError, match="mutable default"):

        @light(slots=True)
        class Shared:
            words: object = default


def test_without_slots_the_standard_decorator_makes_the_class():
    @light(frozen=True)
    class Plain:
        name: str = "a"

    assert vars(Plain()) == {"name": "a"}
