"""`skillhouse chat` at a real terminal, with a model that answers over HTTP."""

from __future__ import annotations

import json
import os
import pty
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.extensions.chat.providers import Request, provider
from tests.extensions.chat.recorded import broken, events, whole
from tests.extensions.postgres.started import with_state
from tests.frontends.conftest import Run

# Left out of the fast part: each starts a process.
pytestmark = pytest.mark.slow


class Seat:
    """A user at a terminal: waits for a text, types another."""

    def __init__(self, *options: str, place: Path, term: str = "xterm", argv: str = "") -> None:
        program = [sys.executable, "-m", "skillhouse", "chat", *options]
        given = with_state({**os.environ, "TERM": term, "HOME": str(place / "home")}) or {}
        self.pid, self.handle = pty.fork()
        if self.pid == 0:
            os.environ.update(given)
            os.environ.pop("OPENAI_API_KEY", None)
            os.chdir(place / "project")
            os.execv(program[0], program)
        self.unread = b""
        self.seen = b""

    def until(self, mark: str) -> str:
        """Read until a text has come, and return what came before it."""
        while mark.encode() not in self.unread:
            piece = os.read(self.handle, 65_536)
            self.unread += piece
            self.seen += piece
        before, _, self.unread = self.unread.partition(mark.encode())
        return before.decode()

    def type(self, text: str) -> None:
        os.write(self.handle, text.encode())

    def interrupt(self, typed: str = "") -> None:
        """Press Ctrl-C at a prompt. Python's readline notices no signal between its prompt and its
        wait for a key, so this gives it a moment."""
        if typed:
            self.type(typed)
            self.until(typed)
        time.sleep(0.2)
        self.type("\x03")

    def exit_code(self) -> int:
        """Read to the end, and return the exit code."""
        try:
            while piece := os.read(self.handle, 65_536):
                self.unread += piece
        except OSError:  # EIO: the other side is closed.
            pass
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


@pytest.fixture
def sit(place: Path) -> Iterator[Callable[..., Seat]]:
    seats = []

    def start(*options: str, **more: str) -> Seat:
        seats.append(Seat(*options, place=place, **more))
        return seats[-1]

    yield start
    for seat in seats:
        os.close(seat.handle)
        try:
            os.kill(seat.pid, signal.SIGKILL)
            os.waitpid(seat.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def chunk(delta: dict[str, object], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return f"data: {json.dumps({**head, 'choices': [choice]})}\n\n".encode()


def says(text: str) -> list[bytes]:
    return [chunk({"content": text}), chunk({}, "stop")]


def writes(path: str) -> list[bytes]:
    function = {"name": "write", "arguments": json.dumps({"path": path, "content": "x"})}
    call = {"index": 0, "id": f"call-{path}", "type": "function", "function": function}
    return [chunk({"tool_calls": [call]}), chunk({}, "tool_calls")]


def test_a_line_typed_before_the_package_is_loaded_is_sent(sit: Callable[..., Seat]) -> None:
    with provider(whole(events("openai-chat", "text"))) as server:
        seat = sit("--model", "m", "--base-url", server.url)
        # Typed at once, even before the prompt.
        seat.type("typed early\n")
        seat.until("at five.")
        seat.until("> ")
        seat.type("\x04")
        assert seat.exit_code() == 0
    assert "typed early" in server.requests[0][1].decode()
    shown = seat.seen.decode()
    assert "\x1b[1msix\x1b[0m." in shown
    assert "• Boats" in shown


def test_what_is_wrong_with_the_provider_ends_the_prompt(sit: Callable[..., Seat]) -> None:
    seat = sit("--model", "openai:gpt-5")
    seat.until("> ")
    seat.until("needs `OPENAI_API_KEY` in the environment")
    assert seat.exit_code() == 2


def test_a_sign_of_life_goes_away_and_ctrl_c_ends_the_answer_then_the_prompt(
    sit: Callable[..., Seat],
) -> None:
    is_asked = threading.Event()

    def silent(request: Request) -> None:
        request.stream()
        is_asked.set()
        request.rfile.read(1)

    with provider(silent) as server:
        seat = sit("--model", "m", "--base-url", server.url)
        seat.until("> ")
        seat.type("hello\n")
        is_asked.wait()
        seat.until("thinking, ")
        seat.type("\x03")
        before = seat.until("stopped; the conversation goes on")
        assert before.endswith("\r\x1b[K")
        seat.until("> ")
        seat.interrupt()
        assert seat.exit_code() == 0


def test_one_ctrl_c_at_the_prompt_ends_nothing(sit: Callable[..., Seat]) -> None:
    seat = sit("--model", "m", "--base-url", "http://127.0.0.1:9/v1")
    seat.until("> ")
    seat.interrupt("half a line")
    seat.until("Ctrl-C again, `/quit` or Ctrl-D ends the chat")
    seat.until("> ")
    seat.type("/help\n")
    seat.until("start a skill yourself")
    seat.until("> ")
    seat.interrupt()
    seat.until("Ctrl-C again")
    seat.until("> ")
    seat.interrupt()
    assert seat.exit_code() == 0


def test_a_dumb_terminal_gets_no_control_sequences(sit: Callable[..., Seat]) -> None:
    with provider(whole(events("openai-chat", "text"))) as server:
        seat = sit("--model", "m", "--base-url", server.url, term="dumb")
        seat.until("> ")
        seat.type("hello\n")
        seat.until("**six**")
        seat.until("> ")
        seat.type("/quit\n")
        assert seat.exit_code() == 0
    assert "\x1b[1m" not in seat.seen.decode()
    assert "thinking" not in seat.seen.decode()


def test_other_text_at_a_question_is_kept_and_the_question_asked_again(
    sit: Callable[..., Seat], place: Path
) -> None:
    answers = (writes("a.txt"), says("written"), says("a poem"), says("sure"))
    with provider(whole(*answers)) as server:
        seat = sit("--model", "m", "--base-url", server.url)
        seat.until("> ")
        seat.type("write it\n")
        seat.until("Allow?")
        # The second line of a paste is no answer either.
        seat.type("what is it for?\ny\n")
        seat.until("kept as your next message")
        seat.until("Allow?")
        seat.type("a different file please\n")
        seat.until("kept as your next message")
        seat.until("Allow?")
        seat.type("\n")
        seat.until("Allow?")
        assert not (place / "project/a.txt").exists()
        seat.type("y\n")
        seat.until("written")
        seat.until("> what is it for?")
        seat.until("a poem")
        seat.until("> a different file please")
        seat.until("sure")
        seat.until("> ")
        seat.type("\x04")
        assert seat.exit_code() == 0
    assert (place / "project/a.txt").read_text() == "x"
    sent = [json.loads(body)["messages"][-1]["content"] for _, body in server.requests]
    assert [sent[2], sent[3]] == ["what is it for?\ny", "a different file please"]


def test_a_stop_command_at_a_question_stops_at_once(
    sit: Callable[..., Seat], run: Run, place: Path
) -> None:
    with provider(whole(writes("a.txt"), says("denied"))) as server:
        seat = sit("--model", "m", "--base-url", server.url)
        seat.until("> ")
        seat.type("write it\n")
        seat.until("Allow?")
        seat.type("/stop\n")
        seat.until("everything is stopped")
        seat.until("> ")
        seat.type("\x04")
        assert seat.exit_code() == 0
    assert not (place / "project/a.txt").exists()
    assert "stopped" in run("stop", "--status")[1]


def test_a_broken_answer_is_shown_as_far_as_it_came_and_resumed(sit: Callable[..., Seat]) -> None:
    part = events("openai-chat", "text")[:4]
    with provider(broken(part, how="cut")) as server:
        options = ("--model", "m", "--base-url", server.url)
        seat = sit(*options)
        seat.until("> ")
        seat.type("hello\n")
        seat.until("The tide turns at")
        seat.until("the answer broke off: the connection ended")
        seat.until("> ")
        seat.type("/quit\n")
        assert seat.exit_code() == 0
        again = sit(*options, "--resume")
        again.until("its last answer is not whole")
        again.until("> ")
        again.type("/quit\n")
        assert again.exit_code() == 0
