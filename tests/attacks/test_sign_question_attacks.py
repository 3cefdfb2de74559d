"""Attacks on the approval of a tool whose call waits for a signature."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.approval import Answer, ApprovalState
from skillhouse.house import Skillhouse
from skillhouse.house.config import SignerSettings
from skillhouse.sandbox import SandboxStatus
from skillhouse.tools import ToolResult
from tests.extensions.cells.lab import until
from tests.house.coded import best_sandbox, coded_house, played, recorded, tool, write_code
from tests.signer.places import PASSWORD
from tests.tools.test_gate_approvals import answer
from tests.tools.test_gate_signing import VARIABLE, house_with_keys

# Left out of the fast part: it starts processes.
pytestmark = pytest.mark.slow

READS = """
    async def tool(params, context):
        text = await context.read_file("text.txt")
        return await context.sign({"key": "main", "type": "message", "data": text})

    tools = {"tool": tool}
"""
CALL: tuple[str, dict[str, Any]] = ("one:tool", {"n": 1})


@pytest.fixture(scope="module")
def status(need: Any) -> SandboxStatus:
    return best_sandbox(need)


@pytest.fixture
def house(status: SandboxStatus, tmp_path: Path) -> Skillhouse:
    """A house whose skill signs the text of a file, which another program can change."""
    house_with_keys(tmp_path).close()
    write_code(tmp_path / "skills/one", READS, tool(level="sign"))
    (tmp_path / "project/text.txt").write_text("pay ALICE")
    return coded_house(
        tmp_path, tmp_path / "skills", status=status,
        environment={VARIABLE: PASSWORD}, signer=SignerSettings(password=f"env:{VARIABLE}"),
    )  # fmt: skip


def approve(house: Skillhouse, result: ToolResult) -> None:
    answer(house, result.approval_id, Answer.ONCE, channel="page")


async def waiting_for_signature(house: Skillhouse) -> ToolResult:
    """Approve the tool and return its result, which waits for the signature."""
    approve(house, await house.call(*CALL))
    return await house.call(*CALL)


def runs(house: Skillhouse) -> Counter[str]:
    """Return how often each tool ran."""
    return Counter(e.record.tool for e in recorded(house) if e.record.kind == "intent")


def test_a_message_that_changed_since_it_was_approved_is_asked_about_again(
    house: Skillhouse, tmp_path: Path
) -> None:
    async def scene(house: Skillhouse) -> tuple[ToolResult, ToolResult, ToolResult]:
        first = await waiting_for_signature(house)
        approve(house, first)
        (tmp_path / "project/text.txt").write_text("pay MALLORY")
        changed = await house.call(*CALL)
        again = await house.call(*CALL)
        return first, changed, again

    first, changed, again = played(house, scene)
    assert (changed.status, again.status) == ("pending", "pending")
    assert changed.approval_id not in (None, first.approval_id)
    assert again.approval_id == changed.approval_id
    asked = house.approvals.get(changed.approval_id or "").request
    assert dict(asked.found)["message"] == "pay MALLORY"
    # The second repeat ran nothing; no run signed.
    assert runs(house) == {"one__tool": 2, "read": 2}


def test_nothing_runs_with_a_kept_approval_while_its_signature_is_open(house: Skillhouse) -> None:
    async def scene(house: Skillhouse) -> list[ToolResult]:
        waits = await waiting_for_signature(house)
        return [
            waits,
            await house.call(*CALL),
            await house.call(*CALL, approval_id=waits.approval_id),
            await house.call("one:tool", {"n": 2}),
        ]

    waits, again, given, other = played(house, scene)
    assert {waits.status, again.status, given.status, other.status} == {"pending"}
    assert waits.approval_id == again.approval_id == given.approval_id != other.approval_id
    assert runs(house) == {"one__tool": 1, "read": 1}


@pytest.mark.parametrize("given", [False, True])
def test_of_repeats_at_once_one_runs_and_one_signature_is_made(
    house: Skillhouse, given: bool
) -> None:
    async def scene(house: Skillhouse) -> list[ToolResult]:
        waits = await waiting_for_signature(house)
        approve(house, waits)
        found: list[ToolResult] = []

        async def repeat() -> None:
            named = waits.approval_id if given else None
            found.append(await house.call(*CALL, approval_id=named))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(repeat)
        return found

    found = Counter(result.status for result in played(house, scene))
    assert found["ok"] == 1
    assert runs(house) == {"one__tool": 2, "read": 2, "sign": 1}


def test_changed_code_does_not_run_with_an_approval_kept_for_the_old(
    house: Skillhouse, tmp_path: Path
) -> None:
    async def scene(house: Skillhouse) -> tuple[ToolResult, ToolResult]:
        waits = await waiting_for_signature(house)
        approve(house, waits)
        with (tmp_path / "skills/one/main.py").open("a") as file:
            file.write("# other\n")
        return await house.call(*CALL), await house.call(*CALL, approval_id=waits.approval_id)

    found, named = played(house, scene)
    assert (found.status, house.approvals.get(found.approval_id or "").request.tool) == (
        "pending",
        "one__tool",
    )
    assert (named.status, "not the one that was approved" in named.content) == ("denied", True)
    assert runs(house) == {"one__tool": 1, "read": 1}


def test_a_denied_signature_ends_the_approval_that_waited_for_it(house: Skillhouse) -> None:
    async def scene(house: Skillhouse) -> tuple[ToolResult, ToolResult]:
        waits = await waiting_for_signature(house)
        answer(house, waits.approval_id, Answer.NO, channel="page")
        return await house.call(*CALL), await house.call(*CALL)

    denied, asked = played(house, scene)
    assert (denied.status, asked.status) == ("denied", "pending")
    assert house.approvals.get(asked.approval_id or "").request.tool == "one__tool"
    assert runs(house) == {"one__tool": 1, "read": 1}


async def stopped_while(house: Skillhouse, wait: Callable[[], Awaitable[None]]) -> ToolResult:
    """Stop everything while a call waits for its signature, and return the call's result."""
    found: list[ToolResult] = []

    async def call() -> None:
        found.append(await house.call(*CALL))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await wait()
        house.services.enforcement.stop("local", "a test")
    return found[0]


def test_a_stop_during_the_wait_leaves_nothing_that_can_be_used(house: Skillhouse) -> None:
    async def scene(house: Skillhouse) -> tuple[ToolResult, ToolResult]:
        approve(house, await house.call(*CALL))
        unsubscribe = house.approvals.subscribe(lambda event: None)

        async def wait() -> None:
            await until(lambda: any(a.request.tool == "sign" for a in house.approvals.pending()))

        stopped = await stopped_while(house, wait)
        unsubscribe()
        house.services.enforcement.resume("local", "terminal")
        return stopped, await house.call(*CALL)

    stopped, after = played(house, scene)
    assert (stopped.status, "a test" in stopped.content) == ("error", True)
    assert (after.status, house.approvals.get(after.approval_id or "").request.tool) == (
        "pending",
        "one__tool",
    )
    assert runs(house) == {"one__tool": 1, "read": 1}


def test_a_stop_between_the_calls_ends_the_kept_approval(house: Skillhouse) -> None:
    async def scene(house: Skillhouse) -> ToolResult:
        approve(house, await waiting_for_signature(house))
        house.services.enforcement.stop("local", "a test")
        house.services.enforcement.resume("local", "terminal")
        return await house.call(*CALL)

    after = played(house, scene)
    assert house.approvals.get(after.approval_id or "").request.tool == "one__tool"
    states = {a.state for a in house.approvals.latest() if a.id != after.approval_id}
    assert states == {ApprovalState.EXPIRED}
    assert runs(house) == {"one__tool": 1, "read": 1}
