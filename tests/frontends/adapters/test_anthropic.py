"""The plain Anthropic API: the example of the guide, and odd calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anthropic import Anthropic
from tests.frontends.adapters.guide import CALLS, LAST, Typing, run_example
from tests.frontends.adapters.houses import FALCONS, open_house, written
from tests.frontends.adapters.parallel import (
    READ,
    WRITE,
    Reacting,
    Reaction,
    Scenario,
    each_scenario,
    hold_as_native,
    hold_cancelled_outputs,
    native_read,
    native_write,
)

from skillhouse.frontends.adapters.anthropic import (
    skillhouse_outputs,
    skillhouse_outputs_async,
    skillhouse_tools,
)
from skillhouse.house import Skillhouse

pytestmark = pytest.mark.slow


def client_of(*turns: list[tuple[str, Any]]) -> tuple[Anthropic, list[dict[str, Any]]]:
    """Return the package's client before a server of this test's, and the requests it gets."""
    left, requests = list(turns), []

    def answer(request: httpx2.Request) -> httpx2.Response:
        requests.append(json.loads(request.content))
        content: list[dict[str, Any]] = [{"type": "text", "text": LAST}]
        if left:
            content = [
                {"type": "tool_use", "id": f"t{number}", "name": name, "input": arguments}
                for number, (name, arguments) in enumerate(left.pop(0))
            ]
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": "m", "type": "message", "role": "assistant", "model": "m"}
        return httpx2.Response(
            200, json={**message, "content": content, "stop_reason": "end_turn", "usage": usage}
        )

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    return Anthropic(api_key="none", http_client=http), requests


@pytest.mark.parametrize(("answer", "expected"), [("y", "Rain.\n"), ("n", None)])
def test_the_example_of_the_guide_runs(
    place: Path, capsys: pytest.CaptureFixture[str], answer: str, expected: str | None
) -> None:
    client, requests = client_of(*[[call] for call in CALLS])
    person = Typing(answer)
    run_example("Anthropic API", {"Anthropic()": "client"}, {"client": client}, person)
    assert capsys.readouterr().out == f"{LAST}\n"
    assert person.asked == [f"write: {place / 'project/poem.txt'}? "]
    results = [m["content"][0] for m in requests[-1]["messages"][2::2]]
    assert [result["is_error"] for result in results] == [False, expected is None]
    assert "<skill_content" in results[0]["content"]
    assert written(place) == expected


def test_all_calls_of_a_message_are_answered_in_one_message(tmp_path: Path) -> None:
    calls = [("skill", {"name": "kestrel"}), ("skil", {}), ("skill", {"nam": "x"})]
    client, requests = client_of(calls)
    with open_house(tmp_path) as house:
        tools = skillhouse_tools(house)
        assert {tool["name"]: tool["input_schema"] for tool in tools} == {
            tool.name: dict(tool.schema) for tool in house.tools()
        }
        assert "".join(tool["description"] for tool in tools).count(FALCONS) == 1
        said: list[Any] = [{"role": "user", "content": "go"}]
        more: dict[str, Any] = {"model": "m", "max_tokens": 9, "tools": tools, "messages": said}
        said += anyio.run(skillhouse_outputs_async, house, client.messages.create(**more))
        answers = said[2]["content"]
        assert [answer["tool_use_id"] for answer in answers] == ["t0", "t1", "t2"]
        assert [answer["is_error"] for answer in answers] == [False, True, True]
        assert skillhouse_outputs(house, client.messages.create(**more)) == []
        assert requests[1]["messages"][1]["content"][0]["name"] == "skill"


@each_scenario
def test_the_results_of_parallel_calls_reach_the_model_as_those_of_native_tools(
    tmp_path: Path, scenario: Scenario
) -> None:
    def run(url: str, answer: Reaction, house: Skillhouse | None) -> None:
        with Anthropic(api_key="none", base_url=url) as client:
            talk(client, house)

    hold_as_native(tmp_path, scenario, run, channel=Reacting(scenario.answer))


def talk(client: Anthropic, house: Skillhouse | None) -> None:
    said: list[Any] = [{"role": "user", "content": "go"}]
    names = [{"name": name, "input_schema": {"type": "object"}} for name in ("read", "write")]
    tools = names if house is None else skillhouse_tools(house)
    more: dict[str, Any] = {"model": "m", "max_tokens": 9, "tools": tools, "messages": said}
    answer = client.messages.create(**more)
    said += native_outputs(answer) if house is None else skillhouse_outputs(house, answer)
    assert client.messages.create(**more).content[-1].text == LAST


def native_outputs(answer: Any) -> list[Any]:
    """Return what the documentation of the API appends for native tools."""
    functions: dict[str, Callable[..., str]] = {"read": native_read, "write": native_write}
    results = [
        {
            "type": "tool_result",
            "tool_use_id": call.id,
            "content": functions[call.name](**call.input),
        }
        for call in answer.content
    ]
    calls = [call.model_dump(exclude_none=True) for call in answer.content]
    return [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]


def test_a_cancelled_turn_ends_its_call_and_begins_no_other(tmp_path: Path) -> None:
    client, _ = client_of([WRITE, READ])
    said: list[Any] = [{"role": "user", "content": "go"}]
    message = client.messages.create(model="m", max_tokens=9, messages=said)
    hold_cancelled_outputs(tmp_path, lambda house: skillhouse_outputs_async(house, message))
