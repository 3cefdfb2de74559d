"""Google ADK: the examples of the guide, and what becomes of questions.

ADK wants an older `opentelemetry-api` than the `mcp` package has, so it has an environment of its
own; test_alone.py runs this file there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("google.adk", reason="not in this environment: see test_alone.py")

from google.adk.agents import Agent
from google.adk.events import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.google_llm import Gemini
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.function_tool import FunctionTool
from google.genai import Client
from google.genai.types import Content, FunctionCall, FunctionResponse, Part
from tests.frontends.adapters.guide import CALLS, LAST, WRITE, Typing, run_example
from tests.frontends.adapters.houses import FALCONS, answers, open_house, written
from tests.frontends.adapters.parallel import (
    AFTERWARDS,
    Reaction,
    Scenario,
    Waiting,
    each_scenario,
    hold_as_native,
    hold_cancelled_as_native,
    native_read,
    native_write,
)

from skillhouse.frontends.adapters.google_adk import skillhouse_answers, skillhouse_toolset
from skillhouse.house import Skillhouse

pytestmark = pytest.mark.slow

SCRIPT = ("exec", {"command": "sh", "params": ["run.sh"]})


class Script(BaseLlm):
    """Calls tools one after the other, then says `LAST`; keeps what it was offered."""

    calls: list[tuple[str, dict[str, Any]]]
    requests: list[LlmRequest]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncIterator[LlmResponse]:
        self.requests.append(llm_request)
        part = Part(text=LAST)
        if self.calls:
            name, arguments = self.calls.pop(0)
            part = Part(function_call=FunctionCall(name=name, args=arguments))
        yield LlmResponse(content=Content(role="model", parts=[part]))

    def told(self) -> list[dict[str, Any]]:
        """Return each result that the model got."""
        parts = [part for content in self.requests[-1].contents for part in content.parts or ()]
        return [p.function_response.response or {} for p in parts if p.function_response]


def script_of(*calls: tuple[str, dict[str, Any]]) -> Script:
    return Script(model="script", calls=list(calls), requests=[])


class Talk:
    """One conversation with an agent that has the house."""

    def __init__(
        self,
        house: Skillhouse | None,
        model: BaseLlm,
        native: list[Any] | None = None,
        sessions: InMemorySessionService | None = None,
        **more: Any,
    ) -> None:
        tools = native or native_tools()
        if house is not None:
            tools = [skillhouse_toolset(house, **more)]
        agent = Agent(name="poet", model=model, tools=tools)
        kept = sessions or InMemorySessionService()
        self._runner = Runner(agent=agent, app_name="talk", session_service=kept)

    async def __aenter__(self) -> Talk:
        service = self._runner.session_service
        whose = {"app_name": "talk", "user_id": "u", "session_id": "s"}
        if await service.get_session(**whose) is None:
            await service.create_session(**whose)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.close()

    async def say(self, message: Content | str) -> list[Event]:
        content = message
        if isinstance(message, str):
            content = Content(role="user", parts=[Part(text=message)])
        run = self._runner.run_async(user_id="u", session_id="s", new_message=content)
        return [event async for event in run]


def native_tools() -> list[Any]:
    def read(path: str) -> str:
        return native_read(path)

    def write(path: str, content: str) -> str:
        return native_write(path, content)

    return [FunctionTool(read), FunctionTool(write, require_confirmation=True)]


def questions(events: list[Event]) -> list[FunctionCall]:
    calls = [call for event in events for call in event.get_function_calls()]
    return [call for call in calls if call.name == "adk_request_confirmation"]


def answer(asked: FunctionCall, yes: bool) -> Any:
    event = Event(author="poet", content=Content(parts=[Part(function_call=asked)]))
    return skillhouse_answers([event, event], lambda _: yes)


@pytest.mark.parametrize(("typed", "expected"), [("y", "Rain.\n"), ("n", None)])
def test_the_example_of_the_guide_runs(
    place: Path, capsys: pytest.CaptureFixture[str], typed: str, expected: str | None
) -> None:
    script, person = script_of(*CALLS), Typing(typed)
    run_example("Google ADK", {'"gemini-flash-latest"': "model"}, {"model": script}, person)
    assert LAST in capsys.readouterr().out
    assert person.asked == [f"write: {place / 'project/poem.txt'}? "]
    assert written(place) == expected


def test_confirmations_of_other_tools_are_left_to_the_program() -> None:
    theirs = FunctionCall(
        id="1", name="adk_request_confirmation", args={"toolConfirmation": {"payload": {"a": 1}}}
    )
    assert answer(theirs, True) is None
    assert skillhouse_answers([], lambda _: True) is None


@pytest.mark.parametrize(("approved", "state"), [(True, "used"), (False, "denied")])
def test_a_restart_between_question_and_answer_loses_nothing(
    tmp_path: Path, approved: bool, state: str
) -> None:
    kept = InMemorySessionService()

    async def said(house: Skillhouse, message: Any, *calls: tuple[str, dict[str, Any]]) -> Any:
        async with Talk(house, script_of(*calls), sessions=kept) as talk:
            return await talk.say(message)

    with open_house(tmp_path) as house:
        (asked,) = questions(anyio.run(said, house, "go", WRITE))
    with open_house(tmp_path) as house:
        events = anyio.run(said, house, answer(asked, approved))
        assert events[-1].content.parts[0].text == LAST
        assert [one[1] for one in answers(house)] == [state]
        assert (written(tmp_path) == "Rain.\n") is approved


@pytest.mark.parametrize(("yes", "expected"), [(True, "Rain.\n"), (False, None)])
def test_a_confirmation_is_the_answer(tmp_path: Path, yes: bool, expected: str | None) -> None:
    script = script_of(*CALLS[1:])
    with open_house(tmp_path) as house:

        async def go() -> list[Event]:
            async with Talk(house, script) as talk:
                (asked,) = questions(await talk.say("go"))
                return await talk.say(answer(asked, yes))

        events = anyio.run(go)
        assert events[-1].content.parts[0].text == LAST
        assert written(tmp_path) == expected
        states = ("used", "once") if yes else ("denied", "no")
        assert answers(house) == [("write", *states, "google-adk")]


def test_a_script_that_changed_while_the_person_thought_is_not_run(tmp_path: Path) -> None:
    script = script_of(SCRIPT, SCRIPT)
    with open_house(tmp_path) as house:
        file = tmp_path / "project/run.sh"
        file.write_text("true\n")

        async def go() -> tuple[FunctionCall, FunctionCall]:
            async with Talk(house, script) as talk:
                (first,) = questions(await talk.say("go"))
                file.write_text("touch poem.txt\n")
                # The model hears that the call is pending, and repeats it.
                (second,) = questions(await talk.say(answer(first, True)))
                return first, second

        first, second = [
            (asked.args or {})["toolConfirmation"]["payload"] for asked in anyio.run(go)
        ]
        assert first["approval_id"] != second["approval_id"]
        assert written(tmp_path) is None
        assert [state for _, state, _, _ in answers(house)] == ["open", "open"]


def test_a_confirmation_without_its_payload_is_none(tmp_path: Path) -> None:
    script = script_of(WRITE)
    with open_house(tmp_path) as house:

        async def go() -> None:
            async with Talk(house, script) as talk:
                (asked,) = questions(await talk.say("go"))
                word = answer(asked, True)
                word.parts[0].function_response.response["payload"] = None
                await talk.say(word)

        anyio.run(go)
        assert "not approved yet" in script.told()[-1]["error"]
        assert written(tmp_path) is None


def test_the_model_is_shown_the_tools_and_each_skill_once(tmp_path: Path) -> None:
    script = script_of(("skill", {"nam": "x"}), ("read", {"path": "gone.txt"}), WRITE)
    with open_house(tmp_path) as house:

        async def go() -> list[Event]:
            async with Talk(house, script, ask=False) as talk:
                return await talk.say("go")

        assert anyio.run(go)[-1].content.parts[0].text == LAST
        config = script.requests[0].config
        shown = [one for tool in config.tools or () for one in tool.function_declarations or ()]
        assert {one.name: one.parameters_json_schema for one in shown} == {
            tool.name: dict(tool.schema) for tool in house.tools()
        }
        described = "".join(str(one.description) for one in shown)
        assert (described + str(config.system_instruction)).count(FALCONS) == 1
        told = [answer["error"] for answer in script.told()]
        assert "has no argument `nam`" in told[0]
        assert "gone.txt" in told[1]
        assert "ask the user to approve" in told[2]


@each_scenario
def test_the_results_of_parallel_calls_reach_the_model_as_those_of_native_tools(
    tmp_path: Path, scenario: Scenario
) -> None:
    def run(url: str, answer: Reaction, house: Skillhouse | None) -> None:
        async def go() -> None:
            with Client(api_key="none", http_options={"base_url": url}) as client:
                await talk(Gemini(model="fake", client=client), answer, house)
                await client.aio.aclose()

        anyio.run(go)

    hold_as_native(tmp_path, scenario, run)


async def talk(model: BaseLlm, answer: Reaction, house: Skillhouse | None) -> None:
    async with Talk(house, model) as one:
        (asked,) = questions(await one.say("go"))
        arguments: Any = asked.args
        assert arguments["originalFunctionCall"]["name"] == "write"
        # The question of a native tool has none.
        arguments["toolConfirmation"].setdefault("payload", None)
        message: Any = AFTERWARDS
        if answer != "left":
            payload = arguments["toolConfirmation"]["payload"]
            word = {"confirmed": answer == "yes", "payload": payload}
            response = FunctionResponse(id=asked.id, name=asked.name, response=word)
            message = Content(role="user", parts=[Part(function_response=response)])
        events = await one.say(message)
        assert events[-1].content.parts[0].text == LAST


def test_a_cancelled_run_leaves_what_it_leaves_with_native_tools(tmp_path: Path) -> None:
    async def go(url: str, waiting: Waiting, house: Skillhouse | None) -> None:
        with Client(api_key="none", http_options={"base_url": url}) as client:
            model = Gemini(model="fake", client=client)
            native = [native_tools()[0], FunctionTool(waiting.write)]
            async with Talk(house, model, native=native) as one:
                await waiting.cancelled(one.say("go"))
                events = await one.say(AFTERWARDS)
                assert events[-1].content.parts[0].text == LAST
            await client.aio.aclose()

    hold_cancelled_as_native(tmp_path, lambda *given: anyio.run(go, *given))
