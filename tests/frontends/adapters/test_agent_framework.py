"""Microsoft Agent Framework: the example of the guide, and what becomes of questions."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    tool,
)
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from openai import AsyncOpenAI
from tests.frontends.adapters.guide import CALLS, LAST, WRITE, Typing, run_example
from tests.frontends.adapters.houses import FALCONS, answers, open_house, written
from tests.frontends.adapters.loopback import Loopback, listening
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
    outline,
)

from skillhouse.frontends.adapters.agent_framework import skillhouse_provider
from skillhouse.house import Skillhouse
from skillhouse.permission import Effect, Rule

pytestmark = pytest.mark.slow


class Script(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    """Calls tools one after the other, then says `LAST`; keeps what it was offered."""

    def __init__(self, *calls: tuple[str, dict[str, Any]]) -> None:
        super().__init__()
        self.calls = list(calls)
        self.offered: Any = []
        self.heard: Sequence[Message] = []
        self.prompt = ""

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Any, **_: Any
    ) -> Awaitable[ChatResponse[Any]]:
        assert not stream
        self.offered, self.heard = options.get("tools"), messages
        self.prompt = str(options.get("instructions") or "")

        async def answer() -> ChatResponse[Any]:
            content = Content.from_text(LAST)
            if self.calls:
                name, arguments = self.calls.pop(0)
                content = Content.from_function_call(
                    f"call-{len(self.calls)}", name, arguments=arguments
                )
            return ChatResponse(messages=[Message("assistant", [content])])

        return answer()

    def told(self) -> list[str]:
        """Return the text of each result that the model got."""
        contents = [content for message in self.heard for content in message.contents]
        return [str(one.result) for one in contents if one.type == "function_result"]


def agent_of(house: Skillhouse, script: Any, **more: Any) -> Agent[Any]:
    return Agent(script, context_providers=[skillhouse_provider(house, **more)])


@pytest.mark.parametrize(("answer", "expected"), [("y", "Rain.\n"), ("n", None)])
def test_the_example_of_the_guide_runs(
    place: Path,
    capsys: pytest.CaptureFixture[str],
    answer: str,
    expected: str | None,
) -> None:
    script, person = Script(*CALLS), Typing(answer)
    models = {
        'OpenAIChatClient("gpt-5")': "client",
    }
    run_example("Microsoft Agent Framework", models, {"client": script}, person)
    assert capsys.readouterr().out == f"{LAST}\n"
    assert person.asked == ["Yes? "]
    assert written(place) == expected


def test_the_model_is_shown_the_tools_and_each_skill_once(tmp_path: Path) -> None:
    script = Script()
    with open_house(tmp_path) as house:
        anyio.run(agent_of(house, script).run, "hello")
        shown = {tool.name: tool.parameters() for tool in script.offered}
        assert shown == {tool.name: dict(tool.schema) for tool in house.tools()}
        described = "".join(tool.description for tool in script.offered)
        assert (described + script.prompt).count(FALCONS) == 1


@pytest.mark.parametrize("changed", [False, True])
async def test_a_yes_is_one_to_the_question_that_was_asked(tmp_path: Path, changed: bool) -> None:
    call = ("exec", {"command": "sh", "params": ["run.sh"]})
    # A model that hears that its call is pending repeats it.
    script = Script(*[call] * (1 + changed))
    with open_house(tmp_path) as house:
        file = tmp_path / "project/run.sh"
        file.write_text("touch poem.txt\n")
        agent = agent_of(house, script)
        session = agent.create_session()
        said = await agent.run("go", session=session)
        asked = said.user_input_requests[0]
        assert asked.function_call is not None
        assert asked.function_call.additional_properties["skillhouse"]["tool"] == "exec"
        if changed:
            file.write_text("touch poem.txt other.txt\n")
        answer = Message("user", [asked.to_function_approval_response(True)])
        done = await agent.run(answer, session=session)
        assert bool(done.user_input_requests) is changed
        assert (written(tmp_path) is None) is changed
        states = ["open", "open"] if changed else ["used"]
        assert [state for _, state, _, _ in answers(house)] == states


@pytest.mark.parametrize(("approved", "state"), [(True, "used"), (False, "denied")])
async def test_a_restart_between_question_and_answer_loses_nothing(
    tmp_path: Path, approved: bool, state: str
) -> None:
    with open_house(tmp_path) as house:
        agent = agent_of(house, Script(WRITE))
        session = agent.create_session()
        said = await agent.run("go", session=session)
        asked = said.user_input_requests[0].to_dict()
        kept = json.dumps([asked, session.to_dict()])
    with open_house(tmp_path) as house:
        asked, session_kept = json.loads(kept)
        answer = Content.from_dict(asked).to_function_approval_response(approved)
        again = agent_of(house, Script())
        session = AgentSession.from_dict(session_kept)
        done = await again.run(Message("user", [answer]), session=session)
        assert done.text == LAST
        assert [one[1] for one in answers(house)] == [state]
        assert (written(tmp_path) == "Rain.\n") is approved


def test_errors_and_questions_that_are_not_asked_are_texts(tmp_path: Path) -> None:
    script = Script(("skill", {"nam": "x"}), ("read", {"path": "gone.txt"}), WRITE)
    with open_house(tmp_path) as house:
        agent = agent_of(house, script, ask=False)
        assert anyio.run(agent.run, "go").text == LAST
        told = script.told()
        assert "has no argument `nam`" in told[0]
        assert "gone.txt" in told[1]
        assert "ask the user to approve" in told[2]


@each_scenario
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("client", [OpenAIChatClient, OpenAIChatCompletionClient])
def test_the_results_of_parallel_calls_reach_the_model_as_those_of_native_tools(
    tmp_path: Path, scenario: Scenario, client: Any, stream: bool
) -> None:
    def run(url: str, answer: Reaction, house: Skillhouse | None) -> None:
        async def go() -> None:
            async with AsyncOpenAI(api_key="none", base_url=url) as api:
                await talk(client("fake", async_client=api), answer, house, stream)

        anyio.run(go)

    hold_as_native(tmp_path, scenario, run)


async def talk(model: Any, answer: Reaction, house: Skillhouse | None, stream: bool) -> None:
    asking = tool(native_write, name="write", approval_mode="always_require")
    agent = Agent(model, tools=[tool(native_read, name="read"), asking])
    if house is not None:
        agent = agent_of(house, model)
    session = agent.create_session()

    async def say(message: Any) -> Any:
        if not stream:
            return await agent.run(message, session=session)
        return await agent.run(message, session=session, stream=True).get_final_response()

    asked = (await say("go")).user_input_requests
    assert [one.function_call.name for one in asked] == ["write"]
    if answer == "left":
        assert (await say(AFTERWARDS)).text == LAST
        return
    given = [one.to_function_approval_response(answer == "yes") for one in asked]
    assert (await say(Message("user", given))).text == LAST


@pytest.mark.parametrize("client", [OpenAIChatClient, OpenAIChatCompletionClient])
def test_a_cancelled_run_leaves_what_it_leaves_with_native_tools(
    tmp_path: Path, client: Any
) -> None:
    async def go(url: str, waiting: Waiting, house: Skillhouse | None) -> None:
        async with AsyncOpenAI(api_key="none", base_url=url) as api:
            model = client("fake", async_client=api)
            native = [tool(native_read, name="read"), tool(waiting.write, name="write")]
            agent = Agent(model, tools=native) if house is None else agent_of(house, model)
            session = agent.create_session()
            await waiting.cancelled(agent.run("go", session=session))
            assert (await agent.run(AFTERWARDS, session=session)).text == LAST

    hold_cancelled_as_native(tmp_path, lambda *given: anyio.run(go, *given))


def test_calls_of_one_tool_are_asked_about_together_and_each_runs_once(tmp_path: Path) -> None:
    """The framework's mode belongs to a tool; the call without a question needs none."""
    both = [("write", {"path": path, "content": "Rain.\n"}) for path in ("ok.txt", "poem.txt")]
    rule = Rule(effect=Effect.ALLOW, action="write", pattern="*ok.txt")
    model = Loopback(both, LAST)

    async def go(house: Skillhouse) -> None:
        async with AsyncOpenAI(api_key="none", base_url=model.url) as api:
            agent = agent_of(house, OpenAIChatClient("fake", async_client=api))
            session = agent.create_session()
            asked = (await agent.run("go", session=session)).user_input_requests
            calls = [one.function_call for one in asked]
            questions = ["skillhouse" in c.additional_properties for c in calls if c is not None]
            assert questions == [False, True]
            given = [one.to_function_approval_response(True) for one in asked]
            assert (await agent.run(Message("user", given), session=session)).text == LAST

    with listening(model), open_house(tmp_path, rule) as house:
        anyio.run(go, house)
        assert [state for _, state, _, _ in answers(house)] == ["used"]
    assert written(tmp_path) == (tmp_path / "project/ok.txt").read_text() == "Rain.\n"
    sent = [item for item in outline(model.bodies[-1]) if item[0] == "result"]
    assert sent == [("result", "call-0"), ("result", "call-1")]
