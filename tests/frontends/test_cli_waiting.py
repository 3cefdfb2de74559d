"""Tests of `call --wait`, and of frontends/cli/wait.py."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.approval import Answer, Approval, ApprovalBroker, ApprovalState, Unattended
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.cli.wait import WITHDRAWN, WaitingChannel
from tests.approval.questions import broker_at, question
from tests.extensions.cells.lab import until
from tests.frontends.conftest import Run
from tests.harness import Clock, Screen
from tests.house.coded import best_sandbox, tool, write_code
from tests.signer.places import PASSWORD
from tests.tools.test_gate_signing import VARIABLE, house_with_keys

WRITE = ("call", "write", "--args", '{"path": "notes/a.txt", "content": "text"}')
SIGNS = """
    async def tool(params, context):
        return await context.sign({"key": "main", "type": "message", "data": "hello"})

    tools = {"tool": tool}
"""
SIGN = ("call", "one:tool")


class Silent:
    """A channel on which no person can be asked."""

    async def ask(self, request: Any) -> None:
        return None


class Caller:
    """A `skillhouse call` in a process of its own, without a terminal or with one as stderr."""

    def __init__(self, *arguments: str, screen: bool = False) -> None:
        self.screen, theirs = pty.openpty() if screen else (-1, -1)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "skillhouse", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=theirs if screen else subprocess.PIPE,
            start_new_session=True,
        )
        if screen:
            os.close(theirs)

    def heard(self, text: str) -> str:
        """Return what it writes to stderr up to a text."""
        assert self.process.stderr is not None or self.screen >= 0
        errors = self.process.stderr.fileno() if self.process.stderr else self.screen
        said = b""
        while text.encode() not in said and (part := os.read(errors, 4_096)):
            said += part
        return said.decode()

    def ended(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out.decode(), (err or b"").decode()


@pytest.fixture
def broker(place: Path) -> ApprovalBroker:
    return ApprovalBroker(place / "home/.local/state/skillhouse")


@pytest.fixture
def signing(place: Path, monkeypatch: pytest.MonkeyPatch, need: Any) -> Path:
    """A place with a key and a skill that signs."""
    best_sandbox(need)
    house_with_keys(place).close()
    monkeypatch.setenv(VARIABLE, PASSWORD)
    write_code(place / "home/.config/skillhouse/skills/one", SIGNS, tool(level="sign"))
    file = place / "home/.config/skillhouse/config.toml"
    file.write_text(f'[skill_code]\nenabled = true\n[signer]\npassword = "env:{VARIABLE}"\n')
    return place


def asked(broker: ApprovalBroker, name: str) -> Approval:
    """Wait for the open question of a tool, and return it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for approval in broker.pending():
            if approval.request.tool == name:
                return approval
        time.sleep(0.05)
    raise AssertionError(f"no question of `{name}`")


def say(broker: ApprovalBroker, found: Approval, word: Answer = Answer.ONCE) -> None:
    """Answer as the page does."""
    nonce = found.request.nonce
    broker.answer(found.id, word, by="local", channel="page", nonce=nonce)


@pytest.mark.slow
@pytest.mark.file_state
def test_one_call_waits_for_the_tool_and_for_its_signature(
    signing: Path, broker: ApprovalBroker, run: Run
) -> None:
    caller = Caller(*SIGN, "--json", "--wait")
    for name in ("one__tool", "sign"):
        say(broker, asked(broker, name))
    code, out, err = caller.ended()
    found = json.loads(out)
    assert (code, found["status"]) == (0, "ok"), err
    assert found["data"]["data"]["signature"].startswith("0x")
    assert err.count("waiting for an answer to ") == 2
    entries = json.loads(run("audit", "list", "--json")[1])["records"]
    assert [(e["record"]["tool"], e["status"]) for e in entries] == [
        ("sign", "ok"),
        ("one__tool", "ok"),
    ]


@pytest.mark.slow
@pytest.mark.file_state
def test_without_waiting_a_signature_needs_three_calls_and_two_answers(
    signing: Path, broker: ApprovalBroker, run: Run
) -> None:
    codes = [run(*SIGN)[0]]
    for name in ("one__tool", "sign"):
        say(broker, asked(broker, name))
        code, out, _ = run(*SIGN, "--json")
        codes.append(code)
    assert (codes, json.loads(out)["status"]) == ([1, 1, 0], "ok")
    assert len(broker.latest()) == 2


@pytest.mark.slow
def test_a_denial_ends_the_wait(place: Path, broker: ApprovalBroker) -> None:
    caller = Caller(*WRITE, "--wait", "--json")
    say(broker, asked(broker, "write"), Answer.NO)
    code, out, _ = caller.ended()
    assert (code, json.loads(out)["status"]) == (1, "denied")


@pytest.mark.slow
@pytest.mark.parametrize("screen", [False, True])
def test_ctrl_c_withdraws_the_question(place: Path, broker: ApprovalBroker, screen: bool) -> None:
    caller = Caller(*WRITE, "--wait", screen=screen)
    found = asked(broker, "write")
    said = caller.heard("withdraws it")
    caller.process.send_signal(signal.SIGINT)
    said += caller.heard("stopped")
    code, out, _ = caller.ended()
    assert (code, out) == (128 + signal.SIGINT, "")
    assert "1 question withdrawn" in said
    assert "Traceback" not in said
    closed = broker.get(found.id)
    assert (closed.state, closed.message) == (ApprovalState.EXPIRED, WITHDRAWN)
    assert not (place / "project/notes").exists()


@pytest.mark.slow
@pytest.mark.file_state
def test_a_killed_waiter_leaves_no_approval_to_use(
    signing: Path, broker: ApprovalBroker, run: Run
) -> None:
    caller = Caller(*SIGN, "--wait")
    say(broker, asked(broker, "one__tool"))
    signature = asked(broker, "sign")
    caller.process.kill()
    caller.ended()
    say(broker, signature)
    # The tool's approval was used; its call is not repeated without a new one.
    found = json.loads(run(*SIGN, "--json")[1])
    assert (found["status"], broker.get(found["approval_id"]).request.tool) == (
        "pending",
        "one__tool",
    )
    entries = json.loads(run("audit", "list", "--json")[1])["records"]
    assert [e["record"]["tool"] for e in entries if e["status"] == "ok"] == []


@pytest.mark.slow
def test_a_question_whose_time_is_over_stays_open(place: Path, run: Run) -> None:
    code, out, err = run(*WRITE, "--json", "--wait-seconds", "0.2")
    found = json.loads(out)
    assert (code, found["status"]) == (1, "pending")
    assert f"waiting for an answer to {found['approval_id']}: write" in err
    assert found["approval_id"] in run("approvals", "list")[1]


@pytest.mark.parametrize("seconds", ["-1", "inf", "nan", "soon"])
def test_a_wait_must_be_a_number_of_seconds(run: Run, seconds: str) -> None:
    code, _, err = run(*WRITE, "--wait-seconds", seconds)
    assert (code, "--wait-seconds" in err) == (2, True)


@pytest.mark.slow
async def test_a_terminal_has_a_line_that_goes_away(tmp_path: Path) -> None:
    screen = Screen()
    times = iter([0.0, 0.0, 7.0])
    terminal = Terminal(io.StringIO(), screen, {})
    waiting = WaitingChannel(Silent(), terminal, None, clock=lambda: next(times, 7.0))
    broker = broker_at(tmp_path, waiting, clock=Clock())
    waiting.attach(broker)
    async with anyio.create_task_group() as tasks:

        async def answer() -> None:
            await until(lambda: "7 s" in screen.getvalue())
            (found,) = broker.pending()
            say(broker, found)

        tasks.start_soon(answer)
        outcome = await broker.request_approval(question())
    assert outcome.status == "approved"
    assert screen.getvalue().endswith("\r  7 s\x1b[K\r\x1b[K")


def test_the_time_is_for_all_questions_together(tmp_path: Path) -> None:
    now = [0.0]
    waiting = WaitingChannel(
        Silent(), Terminal(io.StringIO(), io.StringIO(), {}), 5, clock=lambda: now[0]
    )
    broker = broker_at(tmp_path, waiting)
    waiting.attach(broker)
    now[0] = 5.0
    outcome = anyio.run(broker.request_approval, question())
    assert outcome.status == "pending"


def test_an_answer_at_the_terminal_is_not_waited_for_elsewhere(tmp_path: Path) -> None:
    errors = io.StringIO()
    waiting = WaitingChannel(Unattended(), Terminal(io.StringIO(), errors, {}), None)
    outcome = anyio.run(broker_at(tmp_path, waiting).request_approval, question())
    assert (outcome.status, errors.getvalue()) == ("denied", "")
