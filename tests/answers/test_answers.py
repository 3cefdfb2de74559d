"""An answer becomes JSON by its fields; what is no answer is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import UNSET, UnsetType

from skillhouse.answers.json_form import JsonAnswer, members, plain
from skillhouse.approval import Grant
from skillhouse.approval.devices import Device
from skillhouse.extensions.server.api import routes
from skillhouse.extensions.server.api.schemas import components
from skillhouse.floor import structs


class InnerAnswer(JsonAnswer, frozen=True, kw_only=True):
    a: int
    list_of: tuple[str, ...]


class OuterAnswer(JsonAnswer, frozen=True, kw_only=True):
    flat_members = ("inner", "absent")
    first: str | UnsetType = UNSET
    inner: InnerAnswer
    absent: InnerAnswer | UnsetType = UNSET
    nested: InnerAnswer | None


def test_flat_members_are_in_their_place_and_unset_ones_are_left_out() -> None:
    inner = InnerAnswer(a=1, list_of=("x",))
    answer = OuterAnswer(inner=inner, nested=inner)
    text = json.dumps(answer, default=members)
    assert text == '{"a": 1, "list_of": ["x"], "nested": {"a": 1, "list_of": ["x"]}}'
    assert json.loads(text) == plain(answer)


def test_a_value_of_the_core_is_an_answer_only_if_it_is_listed() -> None:
    grant = Grant(action="exec", pattern="ls", place="/work")
    assert members(grant) == structs.asdict(grant) | {"granted": None, "expires": None}
    device = Device(id="1", name="phone", user="local", paired_ms=1, secret="s3cret")
    for value in (device, Path("/etc"), object()):
        with pytest.raises(TypeError, match="is no answer"):
            json.dumps({"value": value}, default=members)


def test_schemas_name_every_member_and_require_what_is_always_written() -> None:
    assert routes.__doc__, "the answers are known once the routes that give them are loaded"
    found = components()
    # These two lacked members when they were written by hand.
    assert "python" in found["Tool"]["required"]
    assert {"client", "place", "level", "answered_by", "device", "message"} <= set(
        found["Approval"]["required"]
    )
    # A default of the core is no reason to lack a member, and UNSET is one.
    assert "device_name" in found["Grant"]["required"]
    assert "shadowed_by" in found["SkillHit"]["properties"]
    assert "shadowed_by" not in found["SkillHit"]["required"]
    assert {"id", "score"} <= set(found["SkillHit"]["required"])
    assert "skill" not in found["SkillHit"]["properties"]
