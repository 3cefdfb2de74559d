"""Tests of house/wait_for_call.py and of `Skillhouse.open`: what a program waits for."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse import Answer, Layer, Skillhouse, SkillhouseError, ToolResult, tool
from skillhouse.approval import OWNER
from skillhouse.audit import read_records
from skillhouse.house import configured
from tests.house.places import make_places

WRITE = ("write", {"path": "a.txt", "content": "Rain.\n"})


def options(base: Path) -> dict[str, Any]:
    return {"layers": (Layer(name="user", rules=()),), "roots": [base / "skills"]}


def house_of(base: Path, **more: Any) -> Skillhouse:
    return Skillhouse(configured(make_places(base)), **options(base), **more)


def answering(house: Skillhouse, *answers: Answer, first: Callable[[], object] = lambda: None):
    """Answer the open questions of a house on a thread, as another process would."""

    def work() -> None:
        ends = time.monotonic() + 60
        for number, answer in enumerate(answers):
            while not (found := house.approvals.pending()):
                assert time.monotonic() < ends, "no question came"
                time.sleep(0.01)
            time.sleep(0.3)  # Until the call waits: no person is faster.
            if number == 0:
                first()
            nonce = found[0].request.nonce
            house.approvals.answer(found[0].id, answer, by=OWNER, channel="cli", nonce=nonce)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def statuses(house: Skillhouse) -> list[str]:
    house.audit_log.flush()
    found = read_records(house.audit_log.path, newest_first=False)
    return [one.status for one in found]


@pytest.mark.parametrize(
    ("answer", "status", "recorded"),
    [(Answer.ONCE, "ok", ["pending", "ok"]), (Answer.NO, "denied", ["pending", "denied"])],
)
def test_a_call_waits_for_its_answer(
    tmp_path: Path, answer: Answer, status: str, recorded: list[str]
) -> None:
    with house_of(tmp_path) as house:
        thread = answering(house, answer)
        assert house.call_sync(*WRITE, wait=30).status == status
        thread.join()
        assert (tmp_path / "project/a.txt").exists() is (answer is Answer.ONCE)
        assert statuses(house) == recorded


def test_without_an_answer_the_question_stays_open(tmp_path: Path) -> None:
    with house_of(tmp_path) as house:
        result = house.call_sync(*WRITE, wait=0.2)
        assert result.status == "pending"
        (asked,) = house.approvals.pending()
        answering(house, Answer.ONCE).join()
        assert asked.id == result.approval_id
        assert house.call_sync(*WRITE).status == "ok"


def test_what_changed_meanwhile_is_asked_about_again_in_the_same_wait(tmp_path: Path) -> None:
    file = tmp_path / "project/run.sh"
    file.parent.mkdir(parents=True)
    file.write_text("touch first\n")
    with house_of(tmp_path) as house:
        thread = answering(
            house, Answer.ONCE, Answer.ONCE, first=lambda: file.write_text("touch second\n")
        )
        call = {"command": "sh", "params": ["run.sh"]}
        house.call_sync("exec", call, wait=30)
        thread.join()
        assert not (tmp_path / "project/first").exists()
        asked = [one.request for one in house.approvals.latest()]
        assert len({one.content_digest for one in asked}) == 2


def test_a_repeated_call_adds_no_record_while_its_question_is_open(tmp_path: Path) -> None:
    with house_of(tmp_path) as house:
        for _ in range(3):
            assert house.call_sync(*WRITE).status == "pending"
        assert statuses(house) == ["pending"]
        other = {"path": "a.txt", "content": "Snow.\n"}
        assert house.call_sync("write", other).status == "pending"
        assert statuses(house) == ["pending", "pending"]


async def test_a_house_is_opened_and_closed_by_async_with(tmp_path: Path) -> None:
    place = configured(make_places(tmp_path))
    async with Skillhouse.open(place, **options(tmp_path)) as house:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, answering(house, Answer.ONCE).join)
            result = await house.call(*WRITE, wait=30)
        assert result.status == "ok"
        connection = house.services.connection
        assert house.approvals.connections.is_live(connection)
    assert not house.approvals.connections.is_live(connection)


def split(text: str) -> list[str]:
    """Split a text."""
    return text.split()


parts = tool(name="parts", level="read")(split)


@tool(level="read")
async def count(text: str, times: int = 1) -> int:
    """Count the words of a text."""
    return len(text.split()) * times


def test_a_result_has_what_the_function_returned(tmp_path: Path) -> None:
    with house_of(tmp_path, tools=[parts, count]) as house:
        found: ToolResult[list[str]] = house.call_sync(parts, {"text": "a b"})
        assert found.value == ["a", "b"]
        assert found.data == {"result": ["a", "b"]}
        assert "returned" not in repr(found)
        assert house.call_sync(count, {"text": "a b", "times": 2}).value == 4
        listed = house.call_sync("list", {"path": "."})
        assert listed.value == listed.data
        refused = house.call_sync(parts, {"text": 1})
        with pytest.raises(SkillhouseError, match="no value, the call is `error`: "):
            _ = refused.value


async def test_a_tool_is_called_as_its_function_is() -> None:
    assert parts("a b") == ["a", "b"]
    assert await count("a b", times=3) == 6
    assert (inspect.signature(parts), parts.__doc__) == (inspect.signature(split), "Split a text.")
    with pytest.raises(TypeError, match="text"):
        parts()  # type: ignore[call-arg]
