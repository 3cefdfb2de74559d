"""Tools of skills for which a request has no room, in the forms of APIs and frameworks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from tests.house.coded import coded_house
from tests.house.deferred import kinds_house, write_kinds

from skillhouse.floor import tree_digest
from skillhouse.frontends.adapters import anthropic, openai
from skillhouse.frontends.adapters.pydantic_ai import skillhouse_toolset
from skillhouse.house import Skillhouse

pytestmark = [pytest.mark.usefixtures("loop")]


def names(tools: list[Any]) -> list[str]:
    return [tool.get("name") or tool.get("function", tool)["type"] for tool in tools]


def test_a_request_has_at_most_as_many_tools_as_the_api_takes(tmp_path: Path) -> None:
    with kinds_house(tmp_path, count=200, tool_count=None) as house:
        for made in (
            openai.skillhouse_tools(house),
            openai.skillhouse_tools(house, api="chat"),
            anthropic.skillhouse_tools(house),
        ):
            assert len(made) < 20
            assert len(json.dumps(made)) < 20_000


def test_the_apis_own_search_has_all_tools_and_not_ours(tmp_path: Path) -> None:
    with kinds_house(tmp_path) as house:
        for made, search in (
            (openai.skillhouse_tools(house, tool_search=True), "tool_search"),
            (anthropic.skillhouse_tools(house, tool_search=True), "tool_search_tool_bm25"),
        ):
            found = names(made)
            assert {f"kind-{n}__add" for n in range(6)} <= set(found)
            assert "call_skill_tool" not in found
            assert found[-1] == search
            deferred = [tool["name"] for tool in made if tool.get("defer_loading")]
            assert deferred == [f"kind-{n}__add" for n in range(6)]
            assert json.loads(json.dumps(made)) == made


def test_below_the_budget_the_apis_search_nothing(tmp_path: Path) -> None:
    with kinds_house(tmp_path, tool_count=128) as house:
        assert openai.skillhouse_tools(house, tool_search=True) == openai.skillhouse_tools(house)
        made = anthropic.skillhouse_tools(house, tool_search=True)
        assert made == anthropic.skillhouse_tools(house)


class Model(FunctionModel):
    """A model of a provider, which notes the tools of each request and makes these calls."""

    def __init__(self, provider: str, *calls: tuple[str, dict[str, Any]]) -> None:
        super().__init__(self.answer)
        self.named, self.calls = provider, list(calls)
        self.offered: list[list[str]] = []
        self.results: list[str] = []

    @classmethod
    def supported_native_tools(cls) -> frozenset[Any]:
        """Have the framework search by itself."""
        return frozenset()

    @property
    def system(self) -> str:
        return self.named

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.offered.append([tool.name for tool in info.function_tools])
        parts = [part for message in messages for part in message.parts]
        self.results = [str(one.content) for one in parts if isinstance(one, ToolReturnPart)]
        if not self.calls:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart(*self.calls.pop(0))])


def runs(tmp_path: Path) -> Skillhouse:
    root = write_kinds(tmp_path / "kinds", 6)
    trusted = (tree_digest(root / "kind-3"),)
    return coded_house(tmp_path, root, tool_count=20, in_process=trusted)


def test_a_framework_that_finds_tools_by_itself_gets_them_all(tmp_path: Path) -> None:
    numbers = {"a": 2, "b": 3}
    with runs(tmp_path) as house:
        model = Model(
            "anthropic",
            ("search_tools", {"queries": ["adds numbers of kind 3"]}),
            ("kind-3__add", numbers),
        )
        Agent(model, toolsets=[skillhouse_toolset(house)]).run_sync("add")
        first, *_, last = model.offered
        assert "search_tools" in first
        assert not {"call_skill_tool", "kind-3__add"} & set(first)
        assert "kind-3__add" in last
        assert model.results[-1] == "5"


def test_another_provider_gets_ours_and_those_of_loaded_skills(tmp_path: Path) -> None:
    with runs(tmp_path) as house:
        call = {"name": "kind-3__add", "arguments": {"a": 2, "b": 3}}
        model = Model(
            "openai",
            ("call_skill_tool", call),
            ("skill", {"name": "kind-3"}),
            ("kind-3__add", {"a": 4, "b": 3}),
        )
        Agent(model, toolsets=[skillhouse_toolset(house)]).run_sync("add")
        first, _, after, _ = model.offered
        assert "call_skill_tool" in first
        assert "kind-3__add" not in first
        assert "kind-3__add" in after
        assert [model.results[0], model.results[2]] == ["5", "7"]
