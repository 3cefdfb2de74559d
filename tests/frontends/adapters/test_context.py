"""The examples of docs/guides/context.md, run as they stand but for the model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import ModelMessage, UserPromptPart
from tests.frontends.adapters.guide import LAST, SKILL, lines
from tests.frontends.adapters.houses import open_house
from tests.frontends.adapters.test_langchain import THREAD, Model, model_of
from tests.frontends.adapters.test_pydantic_ai import Script

from skillhouse.floor import ConfigError
from skillhouse.frontends.adapters.langchain import skillhouse_middleware
from skillhouse.frontends.adapters.pydantic_ai import skillhouse_context, skillhouse_toolset
from skillhouse.house import Conversation, Skillhouse

# To read it loads two frameworks, a second of CPU.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("loop")]

GUIDE = Path(__file__).resolve().parents[3] / "docs/guides/context.md"
LINES_MAX = 15
LOST = "The conversation was shortened"
HELD = "skill `weather` is loaded already"
INSTRUCTIONS = "answers plain HTTP requests"
"""Of the builtin skill's body."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a project of their own, for the examples that open the house of this place."""
    for name in ("home", "project"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def run_example(title: str, **names: Any) -> dict[str, Any]:
    section = GUIDE.read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]
    code = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)[0]
    assert lines(code) <= LINES_MAX
    if names:
        assert code.count('"openai:gpt-5"') == 1
        code = code.replace('"openai:gpt-5"', "model")
    place: dict[str, Any] = {"__name__": "__main__", **names}
    exec(compile(code, f"{GUIDE.name}: {title}", "exec"), place)
    return place


def texts_of(messages: list[ModelMessage]) -> list[str]:
    """Return what users say in a request, as the model gets it."""
    parts = [part for message in messages for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, UserPromptPart)]


def humans_of(model: Model, request: int) -> list[str]:
    return [one.text for one in model.seen[request] if isinstance(one, HumanMessage)]


def test_the_example_of_pydantic_ai_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = Script(SKILL)
    run_example("Pydantic AI", model=script.model)
    assert capsys.readouterr().out == f"{LAST}\n"
    requests = [texts_of(messages) for messages, _ in script.seen]
    # The result itself is what is left of the first run's second request.
    assert [[text[: len(LOST)] for text in texts] for texts in requests] == [
        ["Load the weather skill."],
        [],
        [LOST, "And now?"],
    ]
    assert INSTRUCTIONS in requests[2][0]


def test_the_example_of_langchain_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = model_of(SKILL)
    model.responses.append(AIMessage(LAST))
    run_example("LangChain and LangGraph", model=model)
    assert capsys.readouterr().out == f"{LAST}\n"
    found = [humans_of(model, request) for request in range(3)]
    assert [[text[: len(LOST)] for text in texts] for texts in found] == [
        ["Load the weather skill."],
        [LOST, "Load the weather skill."],
        [LOST, "Load the weather skill.", "And now?"],
    ]
    assert INSTRUCTIONS in found[1][0]
    # What is lost is given in the same words, so that a provider's cache holds.
    assert found[1][0] == found[2][0]


def test_the_example_of_an_own_loop_runs(place: Path) -> None:
    found = run_example("Your own loop")
    assert found["lost"].text.startswith(LOST)
    assert INSTRUCTIONS in found["messages"][-1]["content"]


def test_the_example_of_a_subagent_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    settings = [block for block in blocks if "[agents.reviewer]" in block]
    assert len(settings) == 1
    file = place / "home/.config/skillhouse/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(settings[0], encoding="utf-8")
    found = run_example("Skills for a subagent")
    assert capsys.readouterr().out == ""
    assert INSTRUCTIONS in found["first_message"]


def test_pydantic_ai_keeps_conversations_apart_and_its_history_as_it_is(tmp_path: Path) -> None:
    script = Script(SKILL)
    with open_house(tmp_path) as house:
        agent: Agent[None, str] = Agent(
            script.model,
            toolsets=[skillhouse_toolset(house)],
            capabilities=[
                ProcessHistory(lambda messages: messages[-1:]),
                skillhouse_context(house),
            ],
        )
        run = agent.run_sync("go")
        assert [texts_of([message]) for message in run.all_messages()[:1]] != [[LOST]]
        conversation = str(run.conversation_id)
        given = house.conversation(channel="pydantic-ai", session_id=conversation)
        assert [one.name for one in given.activations.newest()] == ["weather"]
        agent.run_sync("something else")
        assert texts_of(script.seen[-1][0]) == ["something else"]


def test_pydantic_ai_gives_no_skill_twice(tmp_path: Path) -> None:
    script = Script(SKILL, SKILL)
    with open_house(tmp_path) as house:
        agent: Agent[None, str] = Agent(
            script.model,
            toolsets=[skillhouse_toolset(house)],
            capabilities=[skillhouse_context(house)],
        )
        agent.run_sync("go")
    told = [text for _, text in script.told()]
    assert (INSTRUCTIONS in told[0], told[1].startswith(HELD)) == (True, True)


@pytest.mark.parametrize("is_async", [False, True])
def test_langchain_gives_no_skill_twice_and_keeps_threads_apart(
    tmp_path: Path, is_async: bool
) -> None:
    model = model_of(SKILL, SKILL)
    with open_house(tmp_path) as house:
        agent: Any = create_agent(
            model, middleware=[skillhouse_middleware(house)], checkpointer=InMemorySaver()
        )
        if is_async:
            anyio.run(lambda: agent.ainvoke({"messages": "go"}, THREAD))
        else:
            agent.invoke({"messages": "go"}, THREAD)
        told = [text for _, text in model.told()]
        assert (INSTRUCTIONS in told[0], told[1].startswith(HELD)) == (True, True)

        def names(thread: str) -> list[str]:
            talk: Conversation = house.conversation(channel="langchain", session_id=thread)
            return [one.name for one in talk.activations.newest()]

        assert (names("1"), names("2"), names("")) == (["weather"], [], [])


def test_a_house_that_cannot_attach_leaves_the_request_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(SKILL)
    model.responses.append(AIMessage(LAST))
    shorten = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=0, keep=0)])
    with open_house(tmp_path) as house:
        agent: Any = create_agent(
            model,
            middleware=[shorten, skillhouse_middleware(house)],
            checkpointer=InMemorySaver(),
        )
        monkeypatch.setattr(Skillhouse, "conversation", _refused)
        agent.invoke({"messages": "go"}, THREAD)
        assert humans_of(model, 1) == ["go"]
        anyio.run(lambda: agent.ainvoke({"messages": "once more"}, THREAD))
    assert humans_of(model, 2) == ["go", "once more"]


def test_langchain_without_a_thread_mixes_no_conversations(tmp_path: Path) -> None:
    model = model_of(SKILL)
    model.responses += [AIMessage(LAST), model.responses[0], AIMessage(LAST)]
    with open_house(tmp_path) as house:
        agent: Any = create_agent(model, middleware=[skillhouse_middleware(house)])
        agent.invoke({"messages": "go"})
        agent.invoke({"messages": "something else"})
        assert humans_of(model, 2) == ["something else"]
        agent.invoke({"messages": "go"})
        assert INSTRUCTIONS in model.told()[0][1]


def test_an_agent_inside_another_has_a_context_of_its_own(tmp_path: Path) -> None:
    inner, outer = model_of(SKILL), model_of(SKILL, ("delegate", {"task": "look"}), SKILL)
    with open_house(tmp_path) as house:
        sub: Any = create_agent(inner, middleware=[skillhouse_middleware(house)])

        @tool
        def delegate(task: str) -> str:
            """Have somebody else do it."""
            return str(sub.invoke({"messages": task})["messages"][-1].text)

        agent: Any = create_agent(
            outer,
            tools=[delegate],
            middleware=[skillhouse_middleware(house)],
            checkpointer=InMemorySaver(),
        )
        agent.invoke({"messages": "go"}, THREAD)
    assert [humans_of(inner, request) for request in range(2)] == [["look"], ["look"]]
    assert INSTRUCTIONS in inner.told()[0][1]
    told = [text for _, text in outer.told()]
    assert (INSTRUCTIONS in told[0], told[1], told[2].startswith(HELD)) == (True, LAST, True)


def _refused(self: Skillhouse, **who: str) -> Conversation:
    raise ConfigError("no agent has that name", key="agent")
