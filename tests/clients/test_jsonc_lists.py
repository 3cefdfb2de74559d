"""Lists in JSON with comments: one element comes or goes, and all else stays."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.clients import jsonc
from skillhouse.clients.jsonc import NotEditableError, with_element, without_elements

OURS = {"ours": ["x", 1]}


def is_ours(element: object) -> bool:
    return element == OURS


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"hooks": {}}',
        '{"hooks": {"A": []}}',
        '{"hooks": {"A": [ ]}}\n',
        '{"hooks": {"A": [\n  // none yet\n]}}',
        '{"hooks": {"A": [1, {"b": []}]}, "c": 2}',
        '{\n\t"hooks": {\n\t\t"A": [\n\t\t\t1,\n\t\t\t2\n\t\t],\n\t\t"B": [3]\n\t}\n}',
        '{"hooks": {"A": [1, // one\n 2 /* two */ ]}}',
        '{\r\n  "hooks": {\r\n    "A": [1]\r\n  }\r\n}\r\n',
        '{"hooks": {"A": [1, 2,]}}',
    ],
)
def test_an_element_comes_and_goes(text: str) -> None:
    before = jsonc.parse(text)
    changed = with_element(text, "hooks", "A", OURS)
    after = jsonc.parse(changed)
    assert after.value["hooks"]["A"][-1] == OURS
    assert [one.text for one in after.comments] == [one.text for one in before.comments]
    back = jsonc.parse(without_elements(changed, "hooks", "A", is_ours))
    known = dict(before.value.get("hooks", {}))
    if not known.get("A"):
        known.pop("A", None)
    assert back.value.get("hooks", {}) == known


@given(
    value=st.dictionaries(
        st.sampled_from(("A", "B", "C")),
        st.lists(st.one_of(st.integers(), st.text(max_size=5), st.just(OURS)), max_size=4),
    ),
    indent=st.sampled_from((None, 1, 4)),
)
def test_whatever_the_lists_hold_only_ours_changes(
    value: dict[str, list[object]], indent: int | None
) -> None:
    text = json.dumps({"x": 1, "hooks": value}, indent=indent)
    there = {name: [one for one in found if one != OURS] for name, found in value.items()}
    left = without_elements(text, "hooks", "A", is_ours)
    found = json.loads(left).get("hooks", {})
    if there.get("A") or OURS not in value.get("A", []):
        assert found.get("A", []) == there.get("A", [])
    else:
        assert "A" not in found
    added = json.loads(with_element(text, "hooks", "A", OURS))
    assert added == {"x": 1, "hooks": {**value, "A": [*value.get("A", []), OURS]}}


@pytest.mark.parametrize("text", ['{"hooks": []}', '{"hooks": {"A": {}}}', "[1]", "{"])
def test_what_has_another_shape_is_not_edited(text: str) -> None:
    with pytest.raises(NotEditableError):
        with_element(text, "hooks", "A", OURS)


def test_a_comment_beside_a_removed_element_is_not_lost() -> None:
    text = '{"hooks": {"A": [{"ours": ["x", 1]}, // mine\n 2]}}'
    with pytest.raises(NotEditableError, match="a comment"):
        without_elements(text, "hooks", "A", is_ours)
