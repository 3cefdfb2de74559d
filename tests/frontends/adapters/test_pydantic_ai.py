"""Pydantic AI: the example of the guide, and what becomes of questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from openai import AsyncOpenAI
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    Tool,
    ToolApproved,
    capture_run_messages,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider
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

from skillhouse.audit import read_records
from skillhouse.frontends.adapters.framework_bridge import FrameworkBridge
from skillhouse.frontends.adapters.pydantic_ai import skillhouse_toolset
from skillhouse.house import Skillhouse

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("loop")]


class Script:
    """Calls tools one after the other, then says `LAST`; keeps what it was offered."""

    def __init__(self, *calls: tuple[str, dict[str, Any]]) -> None:
        self.calls = list(calls)
        self.seen: list[tuple[list[ModelMessage], AgentInfo]] = []
        self.model = FunctionModel(self.answer)

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.seen.append((messages, info))
        if not self.calls:
            return ModelResponse(parts=[TextPart(LAST)])
        name, arguments = self.calls.pop(0)
        return ModelResponse(parts=[ToolCallPart(name, arguments)])

    def told(self) -> list[tuple[str, str]]:
        """Return outcome and text of each result that the model got."""
        messages = self.seen[-1][0]
        parts = [part for message in messages for part in message.parts]
        return [
            (part.outcome, str(part.content)) for part in parts if isinstance(part, ToolReturnPart)
        ]


def agent_of(house: Skillhouse, script: Script, **more: Any) -> Agent[None, Any]:
    return Agent(
        script.model,
        toolsets=[skillhouse_toolset(house, **more)],
        output_type=[str, DeferredToolRequests],
    )


@pytest.mark.parametrize(("answer", "expected"), [("y", "Rain.\n"), ("n", None)])
def test_the_example_of_the_guide_runs(
    place: Path, capsys: pytest.CaptureFixture[str], answer: str, expected: str | None
) -> None:
    script, person = Script(*CALLS), Typing(answer)
    models = {'"openai:gpt-5"': "model"}
    run_example("Pydantic AI", models, {"model": script.model}, person)
    assert capsys.readouterr().out == f"{LAST}\n"
    assert person.asked == [f"write: {place / 'project/poem.txt'}? "]
    assert written(place) == expected
    outcomes = [outcome for outcome, _ in script.told()]
    assert outcomes == ["success", "success" if expected else "denied"]


def test_the_model_is_shown_the_tools_and_each_skill_once(tmp_path: Path) -> None:
    script = Script()
    with open_house(tmp_path) as house:
        agent_of(house, script).run_sync("hello")
        info = script.seen[0][1]
        shown = {tool.name: tool.parameters_json_schema for tool in info.function_tools}
        assert shown == {tool.name: dict(tool.schema) for tool in house.tools()}
        described = "".join(tool.description or "" for tool in info.function_tools)
        assert (described + str(info.instructions)).count(FALCONS) == 1


@pytest.mark.parametrize("with_metadata", [True, False])
def test_a_restart_between_question_and_answer_loses_nothing(
    tmp_path: Path, with_metadata: bool
) -> None:
    with open_house(tmp_path) as house:
        first = agent_of(house, Script(WRITE)).run_sync("go")
        kept = ModelMessagesTypeAdapter.dump_json(first.all_messages())
        metadata = first.output.metadata if with_metadata else {}
        calls = [call.tool_call_id for call in first.output.approvals]
    for done_before in (False, True):
        with open_house(tmp_path) as house:
            results = DeferredToolResults(approvals=dict.fromkeys(calls, True), metadata=metadata)
            history = ModelMessagesTypeAdapter.validate_json(kept)
            again = agent_of(house, Script())
            done = again.run_sync(message_history=history, deferred_tool_results=results)
            # The approval is used once: the same answer again is asked about.
            assert isinstance(done.output, DeferredToolRequests) is done_before
            assert done_before or done.output == LAST
            assert (written(tmp_path) is None) is done_before
            assert answers(house)[0] == ("write", "used", "once", "pydantic-ai")
        (tmp_path / "project/poem.txt").unlink(missing_ok=True)


async def test_a_yes_to_a_call_that_was_not_asked_about_is_asked_again(tmp_path: Path) -> None:
    with open_house(tmp_path) as house:
        first = await agent_of(house, Script(WRITE)).run("go")
        call = first.output.approvals[0].tool_call_id
        # An id that the model used twice, in another conversation: two questions have it now.
        other = FrameworkBridge(house=house, channel="pydantic-ai")
        changed = {**WRITE[1], "content": "Snow.\n"}
        await other.call("write", changed, call_id=call)
        results = DeferredToolResults(approvals={call: True})
        again = await agent_of(house, Script()).run(
            message_history=first.all_messages(), deferred_tool_results=results
        )
        assert isinstance(again.output, DeferredToolRequests)
        assert written(tmp_path) is None


def test_arguments_that_the_program_puts_in_are_asked_about_anew(tmp_path: Path) -> None:
    with open_house(tmp_path) as house:
        agent = agent_of(house, Script(WRITE))
        first = agent.run_sync("go")
        call = first.output.approvals[0].tool_call_id
        other = ToolApproved(override_args={"path": "poem.txt", "content": "Snow.\n"})
        results = DeferredToolResults(approvals={call: other}, metadata=first.output.metadata)
        again = agent.run_sync(message_history=first.all_messages(), deferred_tool_results=results)
        assert isinstance(again.output, DeferredToolRequests)
        assert written(tmp_path) is None


async def test_errors_and_questions_that_are_not_asked_are_texts(tmp_path: Path) -> None:
    script = Script(("skill", {"nam": "x"}), ("read", {"path": "gone.txt"}), WRITE)
    with open_house(tmp_path) as house:
        agent = Agent(script.model, toolsets=[skillhouse_toolset(house, ask=False)])
        assert (await agent.run("go")).output == LAST
        told = script.told()
        assert [outcome for outcome, _ in told] == ["failed"] * 3
        for words, (_, text) in zip(
            ("has no argument `nam`", "gone.txt", "ask the user to approve"), told, strict=True
        ):
            assert words in text


def test_the_frameworks_own_test_model_gets_through_every_reading_tool(tmp_path: Path) -> None:
    with open_house(tmp_path) as house:
        model = TestModel(call_tools=["skill", "search_skills", "list"])
        agent = Agent(model, toolsets=[skillhouse_toolset(house)])
        assert "kestrel" in agent.run_sync("go").output
        records = [one.record for one in read_records(house.audit_log.path)]
        assert {one.model for one in records} == {"test:test"}
        assert len(records) == 3


@each_scenario
@pytest.mark.parametrize("model", [OpenAIResponsesModel, OpenAIChatModel])
def test_the_results_of_parallel_calls_reach_the_model_as_those_of_native_tools(
    tmp_path: Path, scenario: Scenario, model: Any
) -> None:
    def run(url: str, answer: Reaction, house: Skillhouse | None) -> None:
        async def go() -> None:
            async with AsyncOpenAI(api_key="none", base_url=url) as api:
                provider = OpenAIProvider(openai_client=api)
                await talk(model("fake", provider=provider), answer, house)

        anyio.run(go)

    hold_as_native(tmp_path, scenario, run)


async def talk(model: Any, answer: Reaction, house: Skillhouse | None) -> None:
    native: list[Tool[None]] = [
        Tool(native_read, name="read"),
        Tool(native_write, name="write", requires_approval=True),
    ]
    toolsets = [] if house is None else [skillhouse_toolset(house)]
    agent: Agent[None, Any] = Agent(
        model,
        tools=native if house is None else [],
        toolsets=toolsets,
        output_type=[str, DeferredToolRequests],
    )
    first = await agent.run("go")
    (asked,) = first.output.approvals
    assert asked.tool_name == "write"
    history = first.all_messages()
    if answer == "left":
        assert (await agent.run(AFTERWARDS, message_history=history)).output == LAST
        return
    given = DeferredToolResults(
        approvals={asked.tool_call_id: answer == "yes"}, metadata=first.output.metadata
    )
    last = await agent.run(message_history=history, deferred_tool_results=given)
    assert last.output == LAST


def test_a_cancelled_run_leaves_what_it_leaves_with_native_tools(tmp_path: Path) -> None:
    async def go(url: str, waiting: Waiting, house: Skillhouse | None) -> None:
        async with AsyncOpenAI(api_key="none", base_url=url) as api:
            model = OpenAIResponsesModel("fake", provider=OpenAIProvider(openai_client=api))
            native = [Tool(native_read, name="read"), Tool(waiting.write, name="write")]
            toolsets = [] if house is None else [skillhouse_toolset(house, ask=False)]
            agent: Agent[None, str] = Agent(
                model, tools=native if house is None else [], toolsets=toolsets
            )
            with capture_run_messages() as history:
                await waiting.cancelled(agent.run("go"))
            assert (await agent.run(AFTERWARDS, message_history=history)).output == LAST

    hold_cancelled_as_native(tmp_path, lambda *given: anyio.run(go, *given))
