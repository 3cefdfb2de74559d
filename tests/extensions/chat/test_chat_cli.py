"""`skillhouse chat` as a program: the loopback model over HTTP, stdin, errors."""

from __future__ import annotations

import io
import json
import os
import pty
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from tests.extensions.postgres.started import with_state
from tests.frontends.conftest import Run

pytestmark = pytest.mark.slow

FAKE = Path(__file__).resolve().parents[4] / "shared/interop/fakellm.py"


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Callable[..., list[str]]]:
    """Start the fake model; what is returned are the options that name it."""
    started = []

    def start(match: str, arguments: dict[str, object]) -> list[str]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, str(FAKE), "--port", str(port), "--match", match]
        command += ["--arguments", json.dumps(arguments), "--log", str(tmp_path / "sent.jsonl")]
        started.append(subprocess.Popen(command))
        url = f"http://127.0.0.1:{port}/v1"
        for _ in range(200):
            try:
                with urlopen(f"{url}/models"):
                    break
            except URLError:
                started[-1].poll()
        return ["--model", "fake", "--base-url", url]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.skipif(not FAKE.exists(), reason="the fake model is not here")
def test_one_answer_over_http_is_streamed_kept_and_resumed(
    run: Run, model: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    options = model("skill", {"name": "web-search"})
    code, out, err = run("chat", *options, "--print", "hello")
    assert (code, err) == (0, "")
    assert out.startswith("FINAL: <skill_content")
    requests = [json.loads(line) for line in (tmp_path / "sent.jsonl").read_text().splitlines()]
    assert [one["stream"] for one in requests if "POST" in one] == [True, True]
    code, out, _ = run("chat", "--resume", "--print", "and now", "--json")
    assert code == 0
    assert json.loads(out)["skills"] == ["builtin:web-search"]
    found = json.loads(run("chat", "--list", "--json")[1])["conversations"]
    assert [(one["first"], one["model"]) for one in found] == [("hello", "fake")]


@pytest.mark.skipif(not FAKE.exists(), reason="the fake model is not here")
def test_what_needs_a_yes_waits_and_says_how(
    run: Run, model: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    monkeypatch.setattr("skillhouse.frontends.cli.person.TERMINAL", place / "none")
    options = model("write", {"path": "a.txt", "content": "x"})
    code, out, err = run("chat", *options, "--print", "write it")
    assert code == 1
    assert "FINAL: " in out
    assert "waits for approval: skillhouse approvals approve " in err
    assert not (place / "project/a.txt").exists()


@pytest.mark.skipif(not FAKE.exists(), reason="the fake model is not here")
def test_what_is_piped_in_is_no_command(
    run: Run, model: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that begins with `/stop` or the name of a skill must not act for the person."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("/stop"))
    options = model("nothing", {})
    run("chat", *options, "--print")
    assert run("stop", "--status")[1] == "not stopped\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--model", "opnai:x"), 2, "unknown provider `opnai`; did you mean `openai`"),
        (("--model", "openai:x"), 2, "the provider `openai` needs `OPENAI_API_KEY`"),
        (("--model", "groq:x"), 3, "'pydantic-ai-slim[groq]'`"),
        (("--model", "x"), 2, "expected `provider:name`"),
        ((), 2, "name a model"),
        (("--model", "x", "--base-url", "ftp://a"), 2, "expected an address such as"),
        pytest.param(
            ("--model", "x", "--base-url", "http://127.0.0.1:9/v1"),
            3,
            "the model cannot be reached",
            marks=pytest.mark.slow,
        ),
        (("--resume",), 1, "no conversation was begun here"),
    ],
)
def test_errors_say_what_to_do(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    got, out, err = run("chat", *arguments, "--print", "hello")
    assert (got, out) == (code, "")
    assert message in err


def test_a_chat_in_which_nothing_was_said_is_not_kept(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    options = ("--model", "x", "--base-url", "http://127.0.0.1:9/v1")
    assert run("chat", *options, "--print", "hello")[0] == 3
    assert run("chat", "--list")[1] == ""


def test_without_a_terminal_there_is_no_chat(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert run("chat", "--model", "x")[0] == 2


@pytest.mark.skipif(not FAKE.exists(), reason="the fake model is not here")
def test_at_a_real_terminal_ctrl_c_ends_an_answer_and_ctrl_d_the_chat(
    model: Callable[..., list[str]], place: Path
) -> None:
    options = model("write", {"path": "a.txt", "content": "x"})
    program = [sys.executable, "-m", "skillhouse", "chat", *options]
    given = with_state({**os.environ, "TERM": "dumb", "HOME": str(place / "home")}) or {}
    pid, handle = pty.fork()
    if pid == 0:
        os.environ.update(given)
        os.chdir(place / "project")
        os.execv(program[0], program)
    seen = b""

    def until(mark: bytes) -> None:
        nonlocal seen
        while mark not in seen:
            seen += os.read(handle, 65_536)
        seen = seen.split(mark, 1)[1]

    until(b"Ctrl-D ends the chat")
    until(b"> ")
    os.write(handle, b"write it\n")
    until(b"Allow?")
    os.write(handle, b"\x03")
    until(b"stopped; the conversation goes on")
    assert not (place / "project/a.txt").exists()
    until(b"> ")
    os.write(handle, b"\x04")
    _, status = os.waitpid(pid, 0)
    os.close(handle)
    assert os.waitstatus_to_exitcode(status) == 0
