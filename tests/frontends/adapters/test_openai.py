"""The plain OpenAI API: the example of the guide, both kinds of answer, and odd calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from openai import OpenAI
from tests.frontends.adapters.guide import CALLS, LAST, WRITE, Typing, run_example
from tests.frontends.adapters.houses import FALCONS, open_house, written
from tests.frontends.adapters.parallel import (
    Reacting,
    Reaction,
    Scenario,
    each_scenario,
    hold_as_native,
    hold_cancelled_outputs,
    native_read,
    native_write,
)

from skillhouse.approval import OWNER, Answer
from skillhouse.frontends.adapters.openai import (
    skillhouse_outputs,
    skillhouse_outputs_async,
    skillhouse_tools,
)
from skillhouse.house import Skillhouse

pytestmark = pytest.mark.slow


def client_of(*calls: tuple[str, Any], chat: bool = False) -> tuple[OpenAI, list[dict[str, Any]]]:
    """Return the package's client before a server of this test's, and the requests it gets."""
    left, requests = list(calls), []

    def answer(request: httpx2.Request) -> httpx2.Response:
        requests.append(json.loads(request.content))
        name, arguments = left.pop(0) if left else ("", None)
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return httpx2.Response(200, json=(_chat if chat else _response)(name, text))

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    return OpenAI(api_key="none", http_client=http), requests


def _response(name: str, arguments: str) -> dict[str, Any]:
    said: dict[str, Any] = {"type": "function_call", "call_id": "c", "name": name}
    said |= {"arguments": arguments, "id": "f", "status": "completed"}
    if not name:
        content = [{"type": "output_text", "text": LAST, "annotations": []}]
        said = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
        said |= {"content": content}
    rest = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {
        "id": "r",
        "object": "response",
        "created_at": 0,
        "model": "m",
        "output": [said],
        **rest,
    }


def _chat(name: str, arguments: str) -> dict[str, Any]:
    said: dict[str, Any] = {"role": "assistant", "content": LAST}
    if name:
        function = {"name": name, "arguments": arguments}
        call = {"id": "c", "type": "function", "function": function}
        said = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "finish_reason": "stop", "message": said}
    return {"id": "r", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}


@pytest.mark.parametrize(("answer", "expected"), [("y", "Rain.\n"), ("n", None)])
def test_the_example_of_the_guide_runs(
    place: Path, capsys: pytest.CaptureFixture[str], answer: str, expected: str | None
) -> None:
    client, requests = client_of(*CALLS)
    person = Typing(answer)
    run_example("OpenAI API", {"OpenAI()": "client"}, {"client": client}, person)
    assert capsys.readouterr().out == f"{LAST}\n"
    assert person.asked == [f"write: {place / 'project/poem.txt'}? "]
    last = requests[-1]["input"]
    assert [item.get("type", "message") for item in last] == [
        "message",
        *("function_call", "function_call_output") * 2,
    ]
    assert last[1]["name"] == "skill"
    assert "<skill_content" in last[2]["output"]
    assert ("not approved" in last[4]["output"]) is (expected is None)
    assert written(place) == expected


@pytest.mark.parametrize("chat", [False, True])
def test_a_call_that_was_approved_elsewhere_runs_when_it_is_repeated(
    tmp_path: Path, chat: bool
) -> None:
    client, requests = client_of(WRITE, WRITE, chat=chat)
    create: Callable[..., Any] = client.responses.create
    said: list[Any] = [{"role": "user", "content": "go"}]
    with open_house(tmp_path) as house:
        more: dict[str, Any] = {"model": "m", "input": said, "tools": skillhouse_tools(house)}
        if chat:
            create = client.chat.completions.create
            more = {"model": "m", "messages": said, "tools": skillhouse_tools(house, api="chat")}
        said += skillhouse_outputs(house, create(**more))
        found = house.approvals.pending()[0]
        nonce = found.request.nonce
        house.approvals.answer(found.id, Answer.ONCE, by=OWNER, channel="cli", nonce=nonce)
        said += anyio.run(skillhouse_outputs_async, house, create(**more))
        assert written(tmp_path) == "Rain.\n"
        assert skillhouse_outputs(house, create(**more)) == []
        tools = requests[0]["tools"]
        functions = [tool["function"] if chat else tool for tool in tools]
        shown = {function["name"]: function["parameters"] for function in functions}
        assert shown == {tool.name: dict(tool.schema) for tool in house.tools()}
        described = "".join(function["description"] for function in functions)
        assert described.count(FALCONS) == 1
        assert not any(function["strict"] for function in functions)


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("arguments", ["{nothing", "[1]", "[" * 100_000, '{"name": "a\\ud800"}'])
def test_arguments_that_are_no_object_are_refused_in_words(
    tmp_path: Path, arguments: str, chat: bool
) -> None:
    client, _ = client_of(("skill", arguments), chat=chat)
    with open_house(tmp_path) as house:
        if chat:
            answer: Any = client.chat.completions.create(model="m", messages=[])
        else:
            answer = client.responses.create(model="m", input=[])
        *_, last = skillhouse_outputs(house, answer)
        text = last["content" if chat else "output"]
        assert "argument" in text
        assert len(text) < 2_000


@each_scenario
@pytest.mark.parametrize("chat", [False, True])
def test_the_results_of_parallel_calls_reach_the_model_as_those_of_native_tools(
    tmp_path: Path, scenario: Scenario, chat: bool
) -> None:
    def run(url: str, answer: Reaction, house: Skillhouse | None) -> None:
        with OpenAI(api_key="none", base_url=url) as client:
            talk(client, house, chat)

    hold_as_native(tmp_path, scenario, run, channel=Reacting(scenario.answer))


def talk(client: OpenAI, house: Skillhouse | None, chat: bool) -> None:
    said: list[Any] = [{"role": "user", "content": "go"}]
    names: list[Any] = [{"type": "function", "name": name} for name in ("read", "write")]
    if chat:
        names = [{"type": "function", "function": tool} for tool in names]
    tools = names if house is None else skillhouse_tools(house, api="chat" if chat else "responses")
    create: Callable[..., Any] = client.responses.create
    if chat:
        create = client.chat.completions.create
    more: dict[str, Any] = {"model": "m", "messages" if chat else "input": said, "tools": tools}
    answer = create(**more)
    said += native_outputs(answer) if house is None else skillhouse_outputs(house, answer)
    assert LAST in create(**more).model_dump_json()


def native_outputs(answer: Any) -> list[Any]:
    """Return what the documentation of the API appends for native functions."""
    functions: dict[str, Callable[..., str]] = {"read": native_read, "write": native_write}
    if hasattr(answer, "choices"):
        message = answer.choices[0].message
        texts = [
            functions[call.function.name](**json.loads(call.function.arguments))
            for call in message.tool_calls
        ]
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": text}
            for call, text in zip(message.tool_calls, texts, strict=True)
        ]
        return [message.model_dump(exclude_none=True), *results]
    texts = [functions[call.name](**json.loads(call.arguments)) for call in answer.output]
    return [call.model_dump(exclude_none=True) for call in answer.output] + [
        {"type": "function_call_output", "call_id": call.call_id, "output": text}
        for call, text in zip(answer.output, texts, strict=True)
    ]


@pytest.mark.parametrize("chat", [False, True])
def test_a_cancelled_turn_ends_its_call(tmp_path: Path, chat: bool) -> None:
    client, _ = client_of(WRITE, chat=chat)
    said: list[Any] = [{"role": "user", "content": "go"}]
    create: Callable[..., Any] = client.responses.create
    more: dict[str, Any] = {"input": said}
    if chat:
        create, more = client.chat.completions.create, {"messages": said}
    response = create(model="m", **more)
    hold_cancelled_outputs(tmp_path, lambda house: skillhouse_outputs_async(house, response))
