"""OpenAI Agents SDK: the example of the guide, and what becomes of questions."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from agents import (
    Agent,
    Model,
    ModelResponse,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    RunResult,
    RunState,
    SQLiteSession,
    Tool,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
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
from tests.harness import ran
from tests.own_environments import ROOT

from skillhouse.approval import OWNER, Answer
from skillhouse.frontends.adapters.openai_agents import skillhouse_tools
from skillhouse.house import Skillhouse

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("loop"),
    # `Runner.run_sync` takes one loop for all its runs, and ends that loop's generators after each.
    pytest.mark.filterwarnings("ignore:asynchronous generator:ResourceWarning"),
]
# The SDK would send its traces to OpenAI.
set_tracing_disabled(True)


class Script(Model):
    """Calls tools one after the other, then says `LAST`; keeps what it was offered."""

    def __init__(self, *calls: tuple[str, Any]) -> None:
        self.calls = list(calls)
        self.offered: list[Tool] = []
        self.heard: Any = []
        self.prompt: str | None = None

    async def get_response(self, *arguments: Any, **more: Any) -> ModelResponse:
        named = dict(zip(("system_instructions", "input", "_", "tools"), arguments, strict=False))
        named |= more
        self.prompt, self.heard = named["system_instructions"], named["input"]
        self.offered = named["tools"]
        said: Any = ResponseOutputMessage(
            id="m",
            content=[ResponseOutputText(text=LAST, type="output_text", annotations=[])],
            role="assistant",
            status="completed",
            type="message",
        )
        if self.calls:
            name, wanted = self.calls.pop(0)
            text = wanted if isinstance(wanted, str) else json.dumps(wanted)
            said = ResponseFunctionToolCall(
                name=name, arguments=text, call_id=f"call-{len(self.calls)}", type="function_call"
            )
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def told(self) -> list[str]:
        """Return the text of each result that the model got."""
        return [
            str(item["output"]) for item in self.heard if item.get("type") == "function_call_output"
        ]


def agent_of(house: Skillhouse, script: Script, **more: Any) -> Agent[None]:
    return Agent("poet", tools=skillhouse_tools(house, **more), model=script)


@pytest.mark.parametrize(("answer", "expected"), [("y", "Rain.\n"), ("n", None)])
def test_the_example_of_the_guide_runs(
    place: Path, capsys: pytest.CaptureFixture[str], answer: str, expected: str | None
) -> None:
    script, person = Script(*CALLS), Typing(answer)
    run_example("OpenAI Agents SDK", {'"gpt-5"': "model"}, {"model": script}, person)
    assert capsys.readouterr().out == f"{LAST}\n"
    assert person.asked == [f"write {json.dumps(WRITE[1])}? "]
    assert written(place) == expected


def test_the_model_is_shown_the_tools_and_each_skill_once(tmp_path: Path) -> None:
    script = Script()
    with open_house(tmp_path) as house:
        Runner.run_sync(agent_of(house, script), "hello")
        offered: Any = script.offered
        shown = {tool.name: tool.params_json_schema for tool in offered}
        assert shown == {tool.name: dict(tool.schema) for tool in house.tools()}
        described = "".join(tool.description for tool in offered)
        assert (described + (script.prompt or "")).count(FALCONS) == 1


async def test_the_yes_is_kept_by_the_house(tmp_path: Path) -> None:
    script = Script(WRITE)
    with open_house(tmp_path) as house:
        agent = agent_of(house, script)
        run = await Runner.run(agent, "go")
        state = run.to_state()
        state.approve(run.interruptions[0])
        assert str((await Runner.run(agent, state)).final_output) == LAST
        assert answers(house) == [("write", "used", "once", "openai-agents")]


def test_a_script_that_changed_while_the_person_thought_is_not_run(tmp_path: Path) -> None:
    script = Script(("exec", {"command": "sh", "params": ["run.sh"]}))
    with open_house(tmp_path) as house:
        file = tmp_path / "project/run.sh"
        file.write_text("true\n")
        agent = agent_of(house, script)
        run = Runner.run_sync(agent, "go")
        file.write_text("touch poem.txt\n")
        state = run.to_state()
        state.approve(run.interruptions[0])
        assert Runner.run_sync(agent, state).final_output == LAST
        assert "not approved yet" in script.told()[0]
        assert written(tmp_path) is None
        assert [state for _, state, _, _ in answers(house)] == ["open", "open"]


ASKS_AND_IS_KILLED = """
import os, pathlib, signal, sys
from agents import Runner
from tests.frontends.adapters import test_openai_agents as here
house = here.open_house(pathlib.Path(sys.argv[1]))
run = Runner.run_sync(here.agent_of(house, here.Script(here.WRITE)), "go")
print(run.to_state().to_string(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def resumed(house: Skillhouse, script: Script, kept: str) -> RunResult:
    """Approve what a state asks, and continue with a fresh list of tools."""
    agent = agent_of(house, script)

    async def go() -> RunResult:
        state: Any = await RunState.from_string(agent, kept)
        state.approve(state.get_interruptions()[0])
        return await Runner.run(agent, state)

    return anyio.run(go)


@pytest.fixture
def kept(tmp_path: Path) -> str:
    """The state of a run whose process asked and was killed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", "."])}
    code = [sys.executable, "-c", ASKS_AND_IS_KILLED, str(tmp_path)]
    return ran(code, cwd=ROOT, env=environment).stdout


def test_a_yes_after_a_restart_is_used_exactly_once(tmp_path: Path, kept: str) -> None:
    with open_house(tmp_path) as house:
        script = Script()
        assert resumed(house, script, kept).final_output == LAST
        assert written(tmp_path) == "Rain.\n"
        assert answers(house) == [("write", "used", "once", "openai-agents")]
        (tmp_path / "project/poem.txt").unlink()
    # The same state again, as of a program that is started twice.
    with open_house(tmp_path) as house:
        script = Script()
        assert resumed(house, script, kept).final_output == LAST
        assert "ask the user to approve" in script.told()[0]
        assert written(tmp_path) is None
        assert [state for _, state, _, _ in answers(house)] == ["used", "open"]


def test_a_yes_after_a_restart_is_about_what_was_there_when_it_was_asked(
    tmp_path: Path, kept: str
) -> None:
    (tmp_path / "project/poem.txt").write_text("Mine.\n")
    with open_house(tmp_path) as house:
        script = Script()
        assert resumed(house, script, kept).final_output == LAST
        assert "ask the user to approve" in script.told()[0]
        assert written(tmp_path) == "Mine.\n"


def test_a_yes_to_a_run_of_another_user_is_none(tmp_path: Path, kept: str) -> None:
    with open_house(tmp_path) as house:
        agent = agent_of(house, script := Script(), user="other")

        async def go() -> None:
            state: Any = await RunState.from_string(agent, kept)
            state.approve(state.get_interruptions()[0])
            await Runner.run(agent, state)

        anyio.run(go)
        assert "ask the user to approve" in script.told()[0]
        assert written(tmp_path) is None


def test_a_call_that_was_answered_elsewhere_runs_once(tmp_path: Path) -> None:
    script = Script(WRITE, ("read", {"path": "poem.txt"}))
    with open_house(tmp_path) as house:
        run = Runner.run_sync(agent_of(house, Script(WRITE)), "go")
        assert len(run.interruptions) == 1
        found = house.approvals.pending()[0]
        nonce = found.request.nonce
        house.approvals.answer(found.id, Answer.ONCE, by=OWNER, channel="cli", nonce=nonce)
        done = Runner.run_sync(agent_of(house, script), "go")
        assert (done.final_output, done.interruptions) == (LAST, [])
        assert written(tmp_path) == "Rain.\n"
        assert [state for _, state, _, _ in answers(house)] == ["used"]


def test_errors_and_questions_that_are_not_asked_are_texts(tmp_path: Path) -> None:
    script = Script(("skill", {"nam": "x"}), ("read", "{nothing"), WRITE)
    with open_house(tmp_path) as house:
        agent = agent_of(house, script, ask=False)
        assert Runner.run_sync(agent, "go").final_output == LAST
        told = script.told()
        assert "has no argument `nam`" in told[0]
        assert "has no argument `arguments`" in told[1]
        assert "ask the user to approve" in told[2]


@each_scenario
@pytest.mark.parametrize("model", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
def test_the_results_of_parallel_calls_reach_the_model_as_those_of_native_tools(
    tmp_path: Path, scenario: Scenario, model: Any
) -> None:
    def run(url: str, answer: Reaction, house: Skillhouse | None) -> None:
        async def go() -> None:
            async with AsyncOpenAI(api_key="none", base_url=url) as api:
                await talk(model("fake", api), answer, house)

        anyio.run(go)

    hold_as_native(tmp_path, scenario, run)


async def talk(model: Model, answer: Reaction, house: Skillhouse | None) -> None:
    asking = function_tool(native_write, name_override="write", needs_approval=True)
    tools: list[Tool] = [function_tool(native_read, name_override="read"), asking]
    agent = Agent("poet", tools=tools if house is None else skillhouse_tools(house), model=model)
    first = await Runner.run(agent, "go")
    (asked,) = first.interruptions
    assert asked.name == "write"
    if answer == "left":
        said: list[Any] = [*first.to_input_list(), {"role": "user", "content": AFTERWARDS}]
        assert (await Runner.run(agent, said)).final_output == LAST
        return
    state = first.to_state()
    state.approve(asked) if answer == "yes" else state.reject(asked)
    assert (await Runner.run(agent, state)).final_output == LAST


def test_a_cancelled_run_leaves_what_it_leaves_with_native_tools(tmp_path: Path) -> None:
    async def go(url: str, waiting: Waiting, house: Skillhouse | None) -> None:
        async with AsyncOpenAI(api_key="none", base_url=url) as api:
            native: list[Tool] = [
                function_tool(native_read, name_override="read"),
                function_tool(waiting.write, name_override="write"),
            ]
            tools = native if house is None else skillhouse_tools(house)
            agent = Agent("poet", tools=tools, model=OpenAIResponsesModel("fake", api))
            session = SQLiteSession("1")
            await waiting.cancelled(Runner.run(agent, "go", session=session))
            assert (await Runner.run(agent, AFTERWARDS, session=session)).final_output == LAST
            session.close()

    hold_cancelled_as_native(tmp_path, lambda *given: anyio.run(go, *given))
