"""What values show, what encoders write, and what counts when two of them are compared."""

import copy
import pickle  # noqa: TID251 - a value of our own, made here.
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct

from skillhouse.approval.devices import Device
from skillhouse.approval.grants import ApprovedScript, Grant
from skillhouse.discovery.roots import LinkPlaces, Root
from skillhouse.floor.structs import (
    PartialStruct,
    asdict,
    astuple,
    field_names,
    is_struct,
    replace,
)
from skillhouse.floor.trees import Tree
from skillhouse.net.search import BraveSearch
from skillhouse.net.secret import SecretBinding
from skillhouse.sandbox import Limits, SandboxProfile
from skillhouse.skill import Skill
from skillhouse.skill.model import LOADING_POLICY

SECRET = "whsec_do-not-show"
SECRET_VALUES = [
    (Device(id="d", name="phone", user="me", secret=SECRET, paired_ms=1), "secret"),
    (SecretBinding(name="KEY", value=SECRET, hosts=("a.example",)), "value"),
    (BraveSearch(key=SECRET), "key"),
]
GRANT = Grant(action="read", pattern="a", place="")
SCRIPT = ApprovedScript(workspace="/w", path="a.sh", digest="0")
SKILL = Skill(
    name="a", description="b", scope="user", file="/a/SKILL.md", root="/", packed_fields=b"packed"
)
SHOWN = "Skill(name='a', description='b', scope='user', file='/a/SKILL.md', root='/', "
UNCOMPARED = [
    (GRANT, {"device_name": "x", "id": "x", "granted_ms": 5, "expires_ms": 5}),
    (SCRIPT, {"id": "x", "approved_ms": 5}),
    (Tree(files=()), {"left": ("x",)}),
    (Root(Path("/a")), {"places": LinkPlaces(targets=frozenset({"/b"}))}),
    (
        SKILL,
        {
            "policy": LOADING_POLICY,
            "signature": (1, 2, 3, 4),
            "follows": True,
            "link_bound": "/b",
        },
    ),
]


@dataclass(frozen=True)
class _Plain:
    inner: tuple[Grant, ...]


@pytest.mark.parametrize(("value", "name"), SECRET_VALUES)
def test_a_secret_is_neither_shown_nor_encoded(value: PartialStruct, name: str) -> None:
    # As a text it is used like any other.
    assert getattr(value, name) == SECRET
    copies = [value, replace(value), copy.copy(value), copy.deepcopy(value)]
    for each in (*copies, pickle.loads(pickle.dumps(value))):
        shown = f"{each!r} {each} {[each]} {each.__rich_repr__()} {getattr(each, name)!r}"
        assert "whsec" not in shown
        assert f"{name}=" not in shown
        assert each == value
        assert hash(each) == hash(value)
        for encode in (msgspec.json.encode, msgspec.msgpack.encode, msgspec.to_builtins):
            with pytest.raises(TypeError, match="unsupported"):
                encode(each)
    other = replace(value, **{name: f"{SECRET}2"})
    assert other != value
    assert "whsec" not in repr(other)


@pytest.mark.parametrize(("value", "changes"), UNCOMPARED)
def test_a_field_that_does_not_count_is_encoded_and_not_compared(
    value: PartialStruct, changes: dict[str, object]
) -> None:
    assert set(changes) == type(value).UNCOMPARED
    for name, changed in changes.items():
        other = replace(value, **{name: changed})
        assert getattr(other, name) == changed != getattr(value, name)
        assert (other, hash(other)) == (value, hash(value))
        assert asdict(other) != asdict(value)
    counted = set(field_names(value)) - set(changes)
    for name in counted:
        assert replace(value, **{name: "another"}) != value, name
    assert value != object()


def test_what_a_value_hides_is_absent_from_its_text() -> None:
    assert repr(SKILL) == (
        f"{SHOWN}variant='', link='', follows=False, link_bound='', link_targets=frozenset())"
    )
    assert repr(Root(Path("a"))).endswith("symlinks=None, note='')")
    assert repr(GRANT).endswith("granted_ms=0, expires_ms=0, session='')")
    assert b"packed" not in repr(SKILL).encode()
    assert msgspec.json.decode(msgspec.json.encode(GRANT), type=Grant) == GRANT


def test_a_profile_of_a_run_takes_its_workspace_alone_without_a_name() -> None:
    profile = SandboxProfile(Path("/w"), read_only=True)
    assert field_names(profile)[:2] == ("workspace", "readable")
    assert (profile.workspace, profile.read_only, profile.limits) == (Path("/w"), True, Limits())
    make: Callable[..., object] = SandboxProfile
    with pytest.raises(TypeError):
        make(Path("/w"), ())
    with pytest.raises(TypeError):
        make(readable=())


def test_a_value_cannot_be_changed_and_a_copy_with_an_unknown_field_cannot_be_made() -> None:
    for value in (GRANT, _Plain(())):
        with pytest.raises(AttributeError):
            setattr(value, field_names(value)[0], "b")
        with pytest.raises(TypeError):
            replace(value, unknown=1)  # type: ignore[call-arg] # It has none.


def test_dataclasses_and_structs_are_read_alike() -> None:
    plain = _Plain((GRANT,))
    assert asdict(plain) == {"inner": (asdict(GRANT),)}
    assert astuple(plain) == ((GRANT,),)
    assert astuple(Tree(files=())) == ((), ())
    assert [is_struct(one) for one in (plain, _Plain, GRANT, Struct, 1)] == [True] * 4 + [False]
    assert replace(plain, inner=()) == _Plain(())
    assert asdict(replace(GRANT, id="x"))["id"] == "x"
    with pytest.raises(TypeError):
        field_names(1)
