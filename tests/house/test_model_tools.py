"""What a model's API takes of an agent's tools, and what a person sees who prints them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skillhouse import Skillhouse
from skillhouse.frontends.adapters import anthropic, openai
from skillhouse.house import ModelTools, configured
from tests.house.places import make_places


@pytest.fixture
def tools(tmp_path: Path) -> ModelTools:
    with Skillhouse(configured(make_places(tmp_path))) as house:
        return house.tools()


def test_the_forms_are_what_the_apis_take(tools: ModelTools) -> None:
    names = [tool.name for tool in tools]
    assert "skill" in names
    for made in (tools.openai(), tools.openai(api="chat"), tools.anthropic()):
        assert json.loads(json.dumps(made)) == made
    responses, chat, messages = tools.openai(), tools.openai(api="chat"), tools.anthropic()
    assert [tool["name"] for tool in responses] == names
    assert {tuple(tool) for tool in responses} == {
        ("type", "name", "description", "parameters", "strict")
    }
    assert [tool["function"]["name"] for tool in chat] == names
    assert {tool["type"] for tool in chat} == {"function"}
    assert [tool["name"] for tool in messages] == names
    assert {tuple(tool) for tool in messages} == {("name", "description", "input_schema")}
    # More than 1,024 characters are refused by OpenAI.
    assert max(len(tool["description"]) for tool in responses) <= 1_000


def test_the_adapters_give_the_same(tmp_path: Path) -> None:
    with Skillhouse(configured(make_places(tmp_path))) as house:
        assert openai.skillhouse_tools(house) == house.tools().openai()
        assert openai.skillhouse_tools(house, api="chat") == house.tools().openai(api="chat")
        assert anthropic.skillhouse_tools(house) == house.tools().anthropic()


def test_a_schema_that_a_framework_changes_is_its_own(tools: ModelTools) -> None:
    made: list[Any] = tools.anthropic()
    made[0]["input_schema"]["properties"].clear()
    assert tools.anthropic()[0]["input_schema"]["properties"]


def test_what_is_printed_names_each_tool_in_a_line(tools: ModelTools) -> None:
    first, *lines, last = repr(tools).splitlines()
    assert (first, last) == ("[", "]")
    for line, tool in zip(lines, tools, strict=True):
        assert line.startswith(f"  <{type(tool).__name__} {tool.name}: ")
        assert " object at 0x" not in line
        assert len(line) <= 130
    assert "  <ReadTool read: " in repr(tools)
