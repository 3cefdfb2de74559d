"""CrewAI: the example of the guide, and what becomes of questions.

CrewAI wants `mcp` 1 and older `openai`, so it has an environment of its own; test_alone.py runs
this file there.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import threading
import time
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if find_spec("crewai") is None:
    pytest.skip("not in this environment: see test_alone.py", allow_module_level=True)
# Only where it is: other tests of a process need the SDK of OpenTelemetry.
os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")
os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")
os.environ.setdefault("OTEL_SDK_DISABLED", "true")

with warnings.catch_warnings():
    # On Python 3.11 the import of its own packages warns.
    warnings.simplefilter("ignore", ImportWarning)
    from crewai import LLM, Agent

from tests.frontends.adapters.guide import CALLS, LAST, WRITE, Typing, run_example
from tests.frontends.adapters.houses import FALCONS, answers, open_house, written
from tests.frontends.adapters.loopback import Call, Json, Loopback, listening

from skillhouse import tool
from skillhouse.approval import OWNER, Answer
from skillhouse.audit import read_records
from skillhouse.frontends.adapters.crewai import skillhouse_tools
from skillhouse.house import Skillhouse

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CrewAI keeps its files below the home of the user."""
    monkeypatch.setenv("CREWAI_STORAGE_DIR", "crewai-test")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def agent_of(house: Skillhouse, url: str, **more: Any) -> Agent:
    """Return an agent whose model is at an address."""
    llm = LLM(model="openai/fake", base_url=url, api_key="none")
    tools = skillhouse_tools(house, **more)
    return Agent(role="Poet", goal="Write.", backstory="Short.", llm=llm, tools=tools)


def worked(house: Skillhouse, *calls: Call, **more: Any) -> list[Json]:
    """Have an agent make its calls in one turn, and return the requests that the model got."""
    with listening(Loopback(calls, LAST)) as model:
        assert str(agent_of(house, model.url, **more).kickoff("go")) == LAST
    return model.bodies


def told(bodies: list[Json]) -> list[str]:
    """Return the text of each result that the model got."""
    return [str(one["content"]) for one in bodies[-1]["messages"] if one["role"] == "tool"]


@pytest.mark.parametrize(("answer", "expected"), [("y", "Rain.\n"), ("n", None)])
def test_the_example_of_the_guide_runs(
    place: Path, capsys: pytest.CaptureFixture[str], answer: str, expected: str | None
) -> None:
    person = Typing(answer)
    with listening(Loopback(CALLS, LAST)) as model:
        llm = LLM(model="openai/fake", base_url=model.url, api_key="none")
        run_example("CrewAI", {'"openai/gpt-5"': "model"}, {"model": llm}, person)
    assert LAST in capsys.readouterr().out
    assert person.asked == [f"write: {place / 'project/poem.txt'}? "]
    assert written(place) == expected


def test_the_model_is_shown_the_tools_and_each_skill_once(tmp_path: Path) -> None:
    with open_house(tmp_path) as house:
        (first, *_) = worked(house, ("skill", {"name": "kestrel"}))
        shown = {one["function"]["name"]: one["function"] for one in first["tools"]}
        assert shown.keys() == {one.name for one in house.tools()}
        for one in house.tools():
            assert (
                shown[one.name]["parameters"]["properties"].keys()
                == one.schema["properties"].keys()
            )
        assert json.dumps(first).count(FALCONS) == 1


@pytest.mark.parametrize("yes", [True, False])
def test_the_program_is_asked_about_exactly_this_call(tmp_path: Path, yes: bool) -> None:
    asked: list[Mapping[str, Any]] = []

    def approve(question: Mapping[str, Any]) -> bool:
        asked.append(question)
        return yes

    with open_house(tmp_path) as house:
        bodies = worked(house, WRITE, approve=approve)
        (question,) = asked
        assert (question["tool"], question["title"].partition(":")[0]) == ("write", "write")
        assert (written(tmp_path) == "Rain.\n") is yes
        assert ("not approved" in told(bodies)[0]) is not yes
        state = ("used", "once") if yes else ("denied", "no")
        assert answers(house) == [("write", *state, "crewai")]


def test_four_calls_of_one_turn_each_have_their_result(tmp_path: Path) -> None:
    with open_house(tmp_path) as house:
        (tmp_path / "project/note.txt").write_text("A note.\n")
        calls = [
            ("read", {"path": "note.txt"}),
            WRITE,
            ("read", {"path": "gone.txt"}),
            ("skill", {"name": "kestrel"}),
        ]
        found = told(worked(house, *calls, approve=lambda _: True))
        assert len(found) == 4
        assert ("A note." in found[0], "gone.txt" in found[2], "Body." in found[3]) == (True,) * 3
        assert written(tmp_path) == "Rain.\n"


@tool(level="read")
def boom(text: str) -> str:
    """Fail."""
    raise ValueError(text)


def test_a_tool_that_raises_is_a_result(tmp_path: Path) -> None:
    with open_house(tmp_path, tools=[boom]) as house:
        (result,) = told(worked(house, ("boom", {"text": "no luck"})))
        assert "`boom` failed: ValueError: no luck" in result


def test_a_restart_between_question_and_answer_loses_nothing(tmp_path: Path) -> None:
    with open_house(tmp_path) as house:
        assert "ask the user to approve" in told(worked(house, WRITE))[0]
        (found,) = house.approvals.pending()
    with open_house(tmp_path) as house:
        nonce = found.request.nonce
        house.approvals.answer(found.id, Answer.ONCE, by=OWNER, channel="cli", nonce=nonce)
        worked(house, WRITE)
        assert written(tmp_path) == "Rain.\n"
        assert answers(house) == [("write", "used", "once", "cli")]


def test_a_call_waits_for_an_answer_that_is_given_elsewhere(tmp_path: Path) -> None:
    with open_house(tmp_path) as house:

        def answer() -> None:
            while not (found := house.approvals.pending()):
                time.sleep(0.01)
            nonce = found[0].request.nonce
            house.approvals.answer(found[0].id, Answer.ONCE, by=OWNER, channel="cli", nonce=nonce)

        thread = threading.Thread(target=answer)
        thread.start()
        worked(house, WRITE, wait=30)
        thread.join()
        assert written(tmp_path) == "Rain.\n"


@pytest.mark.parametrize("way", ["task", "thread"])
def test_a_cancelled_crew_ends_its_call_and_begins_no_other(tmp_path: Path, way: str) -> None:
    begun, ended, cancel = threading.Event(), threading.Event(), threading.Event()

    @tool(level="read")
    async def hang(text: str) -> str:
        """Take long."""
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()
        return text

    with open_house(tmp_path, tools=[hang]) as house:
        (tmp_path / "project/note.txt").write_text("A note.\n")
        calls = [("hang", {"text": "x"})]
        with listening(Loopback(calls, LAST)) as model:
            agent = agent_of(house, model.url, cancel=cancel)

            async def cancelled() -> None:
                run = asyncio.ensure_future(asyncio.to_thread(agent.kickoff, "go"))
                assert await asyncio.to_thread(begun.wait, 30)
                # As the program does where its own task is cancelled.
                cancel.set()
                if way == "task":
                    run.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await run

            asyncio.run(cancelled())
            assert ended.wait(30)
            assert len(model.bodies) == 1
            read = next(one for one in agent.tools or () if one.name == "read")
            with pytest.raises(asyncio.CancelledError):
                read.run(path="note.txt")
        records = list(read_records(house.audit_log.path, limit=9))
        intents = [one for one in records if one.record.kind == "intent"]
        assert [(one.record.tool, one.outcome and one.outcome.error) for one in intents] == [
            ("hang", "cancelled")
        ]
    # CrewAI leaves the connection to the model open: it is collected where that is a warning.
    agent = read = None
    gc.collect()


def test_an_approve_that_raises_has_approved_nothing(tmp_path: Path) -> None:
    def approve(_: Mapping[str, Any]) -> bool:
        raise KeyboardInterrupt

    with open_house(tmp_path) as house:
        with pytest.raises(KeyboardInterrupt):
            worked(house, WRITE, approve=approve)
        assert written(tmp_path) is None
        assert [one[1] for one in answers(house)] == ["open"]
