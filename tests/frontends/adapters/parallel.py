"""Several calls in one turn, one of them asked about: what the model is sent afterwards.

Each framework runs a scenario twice, with our tools and with native ones of the same names, one of
which needs approval. Both times the model must be sent the same items in the same order.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from tests.frontends.adapters.guide import LAST
from tests.frontends.adapters.houses import open_house, written
from tests.frontends.adapters.loopback import Call, Json, Loopback, listening

from skillhouse.approval import Answer, ApprovalRequest, Channel
from skillhouse.audit import read_records
from skillhouse.house import Skillhouse

Reaction = Literal["yes", "no", "left"]
"""What becomes of the question; `left` is a user who says something else."""

READ: Call = ("read", {"path": "note.txt"})
WRITE: Call = ("write", {"path": "poem.txt", "content": "Rain.\n"})
AFTERWARDS = "Never mind."
"""What the user says who leaves a question unanswered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The calls of one turn, and the user's answer to the question about one of them."""

    calls: tuple[Call, ...]
    answer: Reaction

    def __str__(self) -> str:
        names = "-".join(name for name, _ in self.calls[:3])
        return f"{names}-{len(self.calls)}-{self.answer}"


REACTIONS: tuple[Reaction, ...] = ("yes", "no", "left")
SCENARIOS = [
    *(
        Scenario(calls=calls, answer=answer)
        for calls in ((READ, WRITE), (WRITE, READ))
        for answer in REACTIONS
    ),
    Scenario(calls=(READ,) * 60 + (WRITE,) + (READ,) * 39, answer="yes"),
]
each_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=str)


def native_read(path: str) -> str:
    """Read a file."""
    return f"the text of {path}"


def native_write(path: str, content: str) -> str:
    """Write a file."""
    return f"{len(content)} characters in {path}"


Run = Callable[[str, Reaction, Skillhouse | None], None]
"""Runs an agent before the model at an address until it has said its last word, or has been left;
without a house, with native tools."""


@dataclass(frozen=True, slots=True)
class Reacting:
    """The channel of a program that asks its user itself."""

    reaction: Reaction

    async def ask(self, request: ApprovalRequest) -> Answer | None:
        if self.reaction == "left":
            return None
        return Answer.ONCE if self.reaction == "yes" else Answer.NO


def hold_as_native(
    tmp_path: Path, scenario: Scenario, run: Run, *, channel: Channel | None = None
) -> tuple[list[Json], list[Json]]:
    """Run a scenario with our tools and with native ones, and compare what the model was sent.

    Returns:
        The requests with our tools and those with native ones.
    """
    with open_house(tmp_path, channel=channel) as house:
        (tmp_path / "project/note.txt").write_text("A note.\n")
        ours = requests_of(scenario, run, house)
    assert written(tmp_path) == ("Rain.\n" if scenario.answer == "yes" else None)
    native = requests_of(scenario, run, None)
    assert [outline(body) for body in ours] == [outline(body) for body in native]
    if scenario.answer != "left":  # The last call is answered by nobody then.
        answered = [item[1] for body in ours for item in outline(body) if item[0] == "result"]
        assert set(answered) == {f"call-{at}" for at in range(len(scenario.calls))}
        for body in ours:
            counts = Counter(item[1] for item in outline(body) if item[0] == "result")
            assert set(counts.values()) <= {1}
    return ours, native


@dataclass(frozen=True, slots=True)
class Waiting:
    """A channel that never answers, and a native tool that never ends."""

    begun: threading.Event = field(default_factory=threading.Event)

    async def ask(self, request: ApprovalRequest) -> Answer:
        self.begun.set()
        await anyio.sleep_forever()
        raise AssertionError

    async def write(self, path: str, content: str) -> str:
        """Write a file."""
        self.begun.set()
        await anyio.sleep_forever()
        raise AssertionError

    async def cancelled(self, run: Awaitable[Any]) -> None:
        """Cancel a run once one of its calls waits."""
        task = asyncio.ensure_future(run)
        # The call may wait on another loop than the run.
        assert await anyio.to_thread.run_sync(self.begun.wait, 30)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


CancelledRun = Callable[[str, Waiting, Skillhouse | None], None]
"""Runs an agent at an address, cancels the run while a call waits, and says `AFTERWARDS`."""


def hold_cancelled_as_native(tmp_path: Path, run: CancelledRun) -> None:
    """Cancel a run with our tools and one with native tools; the next requests must be alike."""
    bodies = []
    for native in (False, True):
        waiting, model = Waiting(), Loopback((READ, WRITE), LAST)
        with listening(model), open_house(tmp_path, channel=waiting) as house:
            run(model.url, waiting, None if native else house)
            assert [one.state.value for one in house.approvals.latest()] == ["open"]
        bodies.append(model.bodies)
    ours, native_bodies = bodies
    assert len(ours) == 2
    assert [outline(body) for body in ours] == [outline(body) for body in native_bodies]
    assert written(tmp_path) is None


def requests_of(scenario: Scenario, run: Run, house: Skillhouse | None) -> list[Json]:
    """Return the requests that a model gets from an agent."""
    with listening(Loopback(scenario.calls, LAST)) as model:
        run(model.url, scenario.answer, house)
    return model.bodies


def outline(body: Json) -> list[tuple[str, str]]:
    """Return the items of a request in order: calls and results with their ids, roles of texts."""
    return [item for part in _parts(body) for item in part]


def _parts(body: Json) -> Iterator[Iterator[tuple[str, str]]]:
    """Yield the items of each message of any protocol."""
    said = body.get("input") or body.get("messages") or body.get("contents") or ()
    for one in [said] if isinstance(said, str) else said:
        yield _items(one)


def _items(one: Any) -> Iterator[tuple[str, str]]:
    if isinstance(one, str):
        yield "text", "user"
        return
    if one.get("type") == "function_call":
        yield "call", one["call_id"]
    elif one.get("type") == "function_call_output":
        yield "result", one["call_id"]
    elif one.get("role") == "tool":
        yield "result", one["tool_call_id"]
    elif isinstance(one.get("content"), list) or "parts" in one:
        for block in one.get("content") or one["parts"]:
            yield _block(block, one["role"])
    elif one.get("content"):
        yield "text", one["role"]
    for call in one.get("tool_calls") or ():
        yield "call", call["id"]


def _block(block: Json, role: str) -> tuple[str, str]:
    if block.get("type") == "tool_use":
        return "call", block["id"]
    if block.get("type") == "tool_result":
        return "result", block["tool_use_id"]
    if "functionCall" in block:
        return "call", block["functionCall"].get("id") or block["functionCall"]["name"]
    if "functionResponse" in block:
        return "result", block["functionResponse"].get("id") or block["functionResponse"]["name"]
    return "text", role


def hold_cancelled_outputs(tmp_path: Path, run: Callable[[Skillhouse], Awaitable[Any]]) -> None:
    """Cancel what runs the calls of a message, `write` first: it ends, and no other begins."""
    waiting = Waiting()
    with open_house(tmp_path, channel=waiting) as house:
        (tmp_path / "project/note.txt").write_text("A note.\n")

        async def go() -> None:
            await waiting.cancelled(run(house))

        asyncio.run(go())
        assert [one.state.value for one in house.approvals.latest()] == ["open"]
        records = list(read_records(house.audit_log.path, limit=9))
        assert {one.record.tool for one in records} <= {"write"}
    assert written(tmp_path) is None
