"""LangChain and LangGraph: the example of the guide, and what becomes of questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatResult
from langchain_core.tools import BaseTool, StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from pydantic import SecretStr
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

from skillhouse.frontends.adapters.langchain import skillhouse_middleware, skillhouse_tools
from skillhouse.house import Skillhouse

pytestmark = pytest.mark.slow

THREAD: Any = {"configurable": {"thread_id": "1"}}


class Model(FakeMessagesListChatModel):
    """The framework's fake model, which also takes tools, and keeps what it was offered."""

    offered: list[BaseTool]
    seen: list[list[BaseMessage]]

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        self.offered[:] = tools
        return self

    def _generate(self, messages: list[BaseMessage], *rest: Any, **more: Any) -> ChatResult:
        self.seen.append(messages)
        return super()._generate(messages, *rest, **more)

    def told(self) -> list[tuple[str, str]]:
        """Return status and text of each result that the model got."""
        return [(m.status, m.text) for m in self.seen[-1] if isinstance(m, ToolMessage)]


def model_of(*calls: tuple[str, dict[str, Any]]) -> Model:
    said = [
        AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": str(number)}])
        for number, (name, arguments) in enumerate(calls)
    ]
    return Model(responses=[*said, AIMessage(LAST)], offered=[], seen=[])


def agent_of(house: Skillhouse, model: Any, **more: Any) -> Any:
    return create_agent(
        model, middleware=[skillhouse_middleware(house, **more)], checkpointer=InMemorySaver()
    )


@pytest.mark.parametrize(("answer", "expected"), [("y", "Rain.\n"), ("n", None)])
def test_the_example_of_the_guide_runs(
    place: Path, capsys: pytest.CaptureFixture[str], answer: str, expected: str | None
) -> None:
    model, person = model_of(*CALLS), Typing(answer)
    run_example("LangChain and LangGraph", {'"openai:gpt-5"': "model"}, {"model": model}, person)
    assert capsys.readouterr().out == f"{LAST}\n"
    assert person.asked == [f"write: {place / 'project/poem.txt'}? "]
    assert written(place) == expected
    assert [status for status, _ in model.told()] == ["success", "success" if expected else "error"]


def test_the_model_is_shown_the_tools_and_each_skill_once(tmp_path: Path) -> None:
    model = model_of()
    with open_house(tmp_path) as house:
        agent_of(house, model).invoke({"messages": "hello"}, THREAD)
        shown = {tool.name: tool.args_schema for tool in model.offered}
        assert shown == {tool.name: dict(tool.schema) for tool in house.tools()}
        described = "".join(tool.description for tool in model.offered)
        prompts = [m.text for m in model.seen[0] if isinstance(m, SystemMessage)]
        assert "".join([described, *prompts]).count(FALCONS) == 1


def test_a_skill_is_listed_in_the_prompt_where_its_tool_is_not_offered(tmp_path: Path) -> None:
    @wrap_model_call
    def without(request: Any, handler: Any) -> Any:
        return handler(request.override(tools=[t for t in request.tools if t.name != "skill"]))

    model = model_of()
    with open_house(tmp_path) as house:
        middleware = [without, skillhouse_middleware(house)]
        agent: Any = create_agent(model, middleware=middleware, system_prompt="Be brief.")
        agent.invoke({"messages": "hello"})
        prompt = model.seen[0][0]
        assert isinstance(prompt, SystemMessage)
        assert prompt.text.startswith("Be brief.\n\n")
        assert (prompt.text + "".join(t.description for t in model.offered)).count(FALCONS) == 1


@pytest.mark.parametrize(
    ("word", "state", "expected"),
    [
        ({"approval_id": "ID", "approved": True}, "used", "Rain.\n"),
        ({"approval_id": "ID", "approved": False, "message": "not that"}, "denied", None),
        ({"approval_id": "ID", "approved": "yes"}, "denied", None),
        ({"approval_id": "ID"}, "denied", None),
        ({"approved": True}, "denied", None),
        (True, "denied", None),
        ("yes", "denied", None),
    ],
)
async def test_only_a_word_on_the_question_is_a_yes(
    tmp_path: Path, word: Any, state: str, expected: str | None
) -> None:
    model = model_of(WRITE)
    with open_house(tmp_path) as house:
        agent = agent_of(house, model)
        said = await agent.ainvoke({"messages": "go"}, THREAD)
        asked = said["__interrupt__"][0].value["approval_id"]
        answer = word
        if isinstance(word, dict):
            answer = {key: asked if text == "ID" else text for key, text in word.items()}
        assert (
            str((await agent.ainvoke(Command(resume=answer), THREAD))["messages"][-1].text) == LAST
        )
        assert written(tmp_path) == expected
        assert [found[1] for found in answers(house)] == [state]


def test_a_yes_to_an_earlier_question_is_passed_over(tmp_path: Path) -> None:
    """The script changed while the person thought: the yes is not one to what it says now."""
    model = model_of(("exec", {"command": "sh", "params": ["run.sh"]}))
    with open_house(tmp_path) as house:
        script = tmp_path / "project/run.sh"
        script.write_text("true\n")
        agent = agent_of(house, model)
        first = agent.invoke({"messages": "go"}, THREAD)["__interrupt__"][0].value
        script.write_text("touch poem.txt\n")
        said = agent.invoke(Command(resume={**first, "approved": True}), THREAD)
        second = said["__interrupt__"][0].value
        assert second["approval_id"] != first["approval_id"]
        done = agent.invoke(Command(resume={**second, "approved": False}), THREAD)
        assert done["messages"][-1].text == LAST
        assert written(tmp_path) is None
        assert [state for _, state, _, _ in answers(house)] == ["open", "denied"]


@pytest.mark.parametrize(("approved", "state"), [(True, "used"), (False, "denied")])
def test_a_restart_between_question_and_answer_loses_nothing(
    tmp_path: Path, approved: bool, state: str
) -> None:
    kept = InMemorySaver()

    def agent(house: Skillhouse, *calls: tuple[str, dict[str, Any]]) -> Any:
        middleware = [skillhouse_middleware(house)]
        return create_agent(model_of(*calls), middleware=middleware, checkpointer=kept)

    with open_house(tmp_path) as house:
        question = agent(house, WRITE).invoke({"messages": "go"}, THREAD)["__interrupt__"][0].value
    with open_house(tmp_path) as house:
        word: Any = Command(resume={**question, "approved": approved})
        assert agent(house).invoke(word, THREAD)["messages"][-1].text == LAST
        assert [one[1] for one in answers(house)] == [state]
        assert (written(tmp_path) == "Rain.\n") is approved


def test_questions_of_one_turn_are_answered_each_for_itself(tmp_path: Path) -> None:
    both = [
        {"name": "write", "args": {"path": path, "content": "Rain.\n"}, "id": path}
        for path in ("poem.txt", "other.txt")
    ]
    model = Model(responses=[AIMessage("", tool_calls=both), AIMessage(LAST)], offered=[], seen=[])
    with open_house(tmp_path) as house:
        agent = agent_of(house, model)
        asked = agent.invoke({"messages": "go"}, THREAD)["__interrupt__"]
        words = {
            one.id: {**one.value, "approved": ["path", "poem.txt"] in one.value["facts"]["sent"]}
            for one in asked
        }
        done = agent.invoke(Command(resume=words), THREAD)
        assert done["messages"][-1].text == LAST
        assert written(tmp_path) == "Rain.\n"
        assert not (tmp_path / "project/other.txt").exists()
        assert sorted(state for _, state, _, _ in answers(house)) == ["denied", "used"]


def test_errors_are_texts(tmp_path: Path) -> None:
    # An argument named like Python's own first one must not end the run.
    model = model_of(("skill", {"self": "x"}), ("read", {"path": "gone.txt"}), WRITE)
    with open_house(tmp_path) as house:
        agent_of(house, model, ask=False).invoke({"messages": "go"}, THREAD)
        told = model.told()
        assert [status for status, _ in told] == ["error"] * 3
        assert "has no argument `self`" in told[0][1]
        assert "ask the user to approve" in told[2][1]


def test_a_tool_outside_a_graph_tells_that_it_waits(tmp_path: Path) -> None:
    with open_house(tmp_path) as house:
        tools = {tool.name: tool for tool in skillhouse_tools(house)}
        assert "ask the user to approve" in tools["write"].invoke(WRITE[1])
        assert "Body." in anyio.run(tools["skill"].ainvoke, {"name": "kestrel"})


@each_scenario
@pytest.mark.parametrize("responses", [True, False])
def test_the_results_of_parallel_calls_reach_the_model_as_those_of_native_tools(
    tmp_path: Path, scenario: Scenario, responses: bool
) -> None:
    def run(url: str, answer: Reaction, house: Skillhouse | None) -> None:
        with httpx2.Client() as http:
            model = ChatOpenAI(
                model="fake",
                api_key=SecretStr("none"),
                base_url=url,
                use_responses_api=responses,
                http_client=http,
            )
            talk(model, answer, house)

    hold_as_native(tmp_path, scenario, run)


def asking_write(path: str, content: str) -> str:
    """Write a file, after an interrupt."""
    return native_write(path, content) if interrupt("write?")["approved"] else "not approved"


def talk(model: ChatOpenAI, answer: Reaction, house: Skillhouse | None) -> None:
    native = [
        StructuredTool.from_function(native_read, name="read"),
        StructuredTool.from_function(asking_write, name="write"),
    ]
    agent: Any = create_agent(model, native, checkpointer=InMemorySaver())
    if house is not None:
        middleware = [skillhouse_middleware(house)]
        agent = create_agent(model, middleware=middleware, checkpointer=InMemorySaver())
    (asked,) = agent.invoke({"messages": "go"}, THREAD)["__interrupt__"]
    message: Any = {"messages": AFTERWARDS}
    if answer != "left":
        question = {} if house is None else asked.value
        message = Command(resume={asked.id: {**question, "approved": answer == "yes"}})
    assert agent.invoke(message, THREAD)["messages"][-1].text == LAST


def test_a_cancelled_run_leaves_what_it_leaves_with_native_tools(tmp_path: Path) -> None:
    async def go(url: str, waiting: Waiting, house: Skillhouse | None) -> None:
        async with httpx2.AsyncClient() as http:
            model = ChatOpenAI(
                model="fake", api_key=SecretStr("none"), base_url=url, http_async_client=http
            )
            native = [
                StructuredTool.from_function(native_read, name="read"),
                StructuredTool.from_function(coroutine=waiting.write, name="write"),
            ]
            agent: Any = create_agent(model, native, checkpointer=InMemorySaver())
            if house is not None:
                agent = agent_of(house, model)
            await waiting.cancelled(agent.ainvoke({"messages": "go"}, THREAD))
            done = await agent.ainvoke({"messages": AFTERWARDS}, THREAD)
            assert done["messages"][-1].text == LAST

    hold_cancelled_as_native(tmp_path, lambda *given: anyio.run(go, *given))
