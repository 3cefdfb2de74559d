"""Tests of tools/deferred_tools.py, in houses with more tools of skills than there is room for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skillhouse.floor import tree_digest
from skillhouse.house import Skillhouse
from skillhouse.presentation.library import library_lines
from skillhouse.tools import Caller, ToolBudget, UnknownToolError
from tests.house.coded import coded_house, recorded, tool, write_code
from tests.house.deferred import ADD, NUMBERS, inside, kinds_house, write_kinds

SCHEMA = json.dumps({"properties": NUMBERS["properties"]}, separators=(",", ":"))[1:-1]


def listed(house: Skillhouse, **more: object) -> list[str]:
    return [one.name for one in house.tools(**more)]  # type: ignore[arg-type]


def test_below_the_budget_nothing_is_left_out(tmp_path: Path) -> None:
    with kinds_house(tmp_path, tool_count=128) as house:
        assert house.tools().openai() == house.tools(every=True).openai()
        assert "call_skill_tool" not in listed(house)
        assert "kind-1" not in house.catalog(style="compact").text
        found = house.call_sync("search_skills", {"query": "numbers of kind 3"})
        assert "kind-3" not in found.content


@pytest.mark.parametrize("bound", [{"tool_count": 20}, {"tool_list_chars": 1_000}])
def test_beyond_a_bound_all_tools_of_skills_are_lines_of_the_catalog(
    tmp_path: Path, bound: dict[str, int]
) -> None:
    with kinds_house(tmp_path, **bound) as house:
        names = listed(house)
        assert "call_skill_tool" in names
        assert [name for name in names if name.startswith("kind")] == []
        text = next(one.description for one in house.tools() if one.name == "skill")
        assert "kind-5: Adds numbers of kind 5" in text
        every = listed(house, every=True)
        assert [name for name in every if name.startswith("kind")] == [
            f"kind-{n}__add" for n in range(6)
        ]


@pytest.mark.parametrize("value", ["none", 27])
def test_a_setting_says_how_many_there_may_be(tmp_path: Path, value: object) -> None:
    with kinds_house(tmp_path, tool_count=value) as house:
        assert "kind-1__add" in listed(house)


def test_a_tool_that_is_large_by_itself_is_the_first_that_is_left_out(tmp_path: Path) -> None:
    root = write_kinds(tmp_path / "kinds", 4)
    large = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(200)}}
    write_code(root / "large", ADD, tool("add", parameters=large))
    with coded_house(tmp_path, root, tool_list_chars=4_000) as house:
        names = listed(house)
        assert "kind-1__add" in names
        assert "large__add" not in names
        assert "call_skill_tool" in names


def test_a_search_gives_the_parameters_of_the_right_tool_first(tmp_path: Path) -> None:
    with kinds_house(tmp_path, count=40) as house:
        found = house.call_sync("search_skills", {"query": "add numbers of kind 33"})
        assert found.content.splitlines()[0].startswith("kind-33: Adds numbers of kind 33")
        assert SCHEMA in found.content
        assert found.data is not None
        assert found.data["tools"][0]["name"] == "kind-33__add"
        assert found.data["tools"][0]["parameters"]["required"] == ["a", "b"]
        assert "weak" not in found.data


def test_loading_a_skill_brings_its_tools_into_its_conversation(tmp_path: Path) -> None:
    with kinds_house(tmp_path) as house:
        mine, other = Caller(session_id="a"), Caller(session_id="b")
        loaded = house.call_sync("skill", {"name": "kind-2"}, caller=mine)
        assert SCHEMA in loaded.content
        assert "kind-2__add" in listed(house, caller=mine)
        assert "kind-2__add" not in listed(house, caller=other)
        assert "kind-3__add" not in listed(house, caller=mine)


def test_the_tools_of_loaded_skills_have_a_bound_too(tmp_path: Path) -> None:
    with kinds_house(tmp_path, tool_list_chars=1_000) as house:
        caller = Caller(session_id="a")
        for number in range(6):
            house.call_sync("skill", {"name": f"kind-{number}"}, caller=caller)
        brought = [name for name in listed(house, caller=caller) if name.startswith("kind")]
        assert 0 < len(brought) < 6
        # The latest are there.
        assert brought[0] == "kind-5__add"


def test_a_skill_with_instructions_brings_its_tools_when_it_is_loaded(tmp_path: Path) -> None:
    root = write_kinds(tmp_path / "kinds", 4)
    text = "---\nname: kind-1\ndescription: Adds well.\n---\nAdd with care.\n"
    (root / "kind-1/SKILL.md").write_text(text)
    with coded_house(tmp_path, root, tool_count=18) as house:
        caller = Caller(session_id="a")
        loaded = house.call_sync("skill", {"name": "kind-1"}, caller=caller)
        assert "Add with care." in loaded.content
        assert "`kind-1__add`" in loaded.content
        assert "kind-1__add" in listed(house, caller=caller)
        found = house.call_sync("search_skills", {"query": "add well"})
        assert found.content.splitlines()[0].startswith("kind-1: Adds well.")
        assert SCHEMA in found.content
        house.conversation(caller=caller).unload("kind-1")
        assert "kind-1__add" not in listed(house, caller=caller)


def test_a_call_inside_is_the_call_of_the_tool_that_it_names(tmp_path: Path) -> None:
    root = write_kinds(tmp_path / "kinds", 2)
    trusted = (tree_digest(root / "kind-1"),)
    with coded_house(tmp_path, root, tool_count=0, in_process=trusted) as house:
        assert inside(house, "kind-1__add", {"a": 2, "b": 3}).content == "5"
        assert inside(house, "kind-1:add", {"a": 2, "b": 4}).content == "6"
        assert {entry.record.tool for entry in recorded(house)} == {"kind-1__add"}


def test_wrong_arguments_are_answered_with_the_parameters(tmp_path: Path) -> None:
    with kinds_house(tmp_path) as house:
        result = inside(house, "kind-1__add", {"a": "x"})
        assert result.is_error
        assert result.content.startswith("wrong argument")
        assert SCHEMA in result.content
        # Nothing was decided, and so nothing is recorded.
        assert recorded(house) == []


def test_an_unknown_name_gets_the_nearest(tmp_path: Path) -> None:
    with kinds_house(tmp_path) as house:
        said = inside(house, "kind-1__ad").content
        assert said == "no skill has a tool `kind-1__ad`; did you mean `kind-1__add`"
        with pytest.raises(UnknownToolError) as caught:
            house.call_sync("kind_1__add", {})
        assert caught.value.suggestion == "kind-1__add"
        # The names of all tools are no answer to one that is far from each.
        with pytest.raises(UnknownToolError) as caught:
            house.call_sync("something else", {})
        assert "kind-1" not in str(caught.value)


def test_without_a_tool_that_finds_them_they_are_named(tmp_path: Path) -> None:
    with kinds_house(tmp_path, agent_tools={"default": ("kind-*",)}) as house:
        (only,) = house.tools()
        assert only.name == "call_skill_tool"
        assert "They are: kind-0__add, kind-1__add" in only.description


def test_a_budget_without_bounds_holds_all() -> None:
    assert ToolBudget().holds(10**6, 10**9)
    assert not ToolBudget(count=1).holds(2, 0)
    assert not ToolBudget(chars=1).holds(0, 2)


def test_a_person_is_shown_how_a_model_hears_of_them(tmp_path: Path) -> None:
    with kinds_house(tmp_path) as house:
        marks = {line.path: line.mark for line in library_lines(house) if line.code is not None}
        assert marks[str(tmp_path / "kinds/kind-1")] == "listed"
    with coded_house(tmp_path, tmp_path / "kinds", tool_count=128) as house:
        assert house.view().code_mark(tmp_path / "kinds/kind-1") == "offered as tools"
    with coded_house(tmp_path, tmp_path / "kinds", tool_count=0, catalog_budget_tokens=0) as house:
        assert house.view().code_mark(tmp_path / "kinds/kind-1") == "found by search only"
