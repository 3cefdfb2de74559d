"""The providers' protocols through the real clients: whole answers, and streams that break off."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.chat.providers import Request, provider
from tests.extensions.chat.recorded import (
    KEYS,
    MODELS,
    RECORDINGS,
    TEXT,
    address,
    broken,
    events,
    recorded,
    whole,
)
from tests.frontends.conftest import Run

from skillhouse.extensions.chat import failures

# Left out of the fast part: the packages of all providers are loaded.
pytestmark = pytest.mark.slow

PROTOCOLS = sorted(MODELS)
PART = "The tide turns at **six**."
CUT_AT = {"openai-chat": 4, "openai-responses": 7, "anthropic": 6, "gemini": 3}
"""Events of `text` that bring PART."""
END = {"openai-chat": 2, "openai-responses": 1, "anthropic": 1, "gemini": 0}
"""Events after the finish reason, which a whole answer does not need."""
Ask = Run


@pytest.fixture
def ask(run: Run, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Ask a provider once by the command line."""
    pytest.importorskip("anthropic")
    pytest.importorskip("google.genai")
    for name in KEYS:
        monkeypatch.setenv(name, "k-0123456789abcdef")
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))

    def asked(protocol: str, answer: Callable[[Request], None], *more: str) -> tuple[int, str, str]:
        with provider(answer) as server:
            options = ("--model", MODELS[protocol], "--base-url", address(protocol, server))
            return run("chat", *options, "--print", "when?", *more)

    return asked


def last_record(place: Path) -> dict[str, Any]:
    (file,) = place.rglob("chats/*.jsonl")
    records: list[dict[str, Any]] = [json.loads(line) for line in file.read_text().splitlines()]
    return [one for one in records if one["kind"] in ("messages", "replaced")][-1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", ["text", "thinking"])
def test_a_whole_answer(ask: Ask, place: Path, protocol: str, name: str) -> None:
    code, out, err = ask(protocol, whole(events(protocol, name)), "--json")
    value = json.loads(out)
    assert (code, err, value["answer"], value["status"]) == (0, "", TEXT, "ok")
    assert value["usage"]["input_tokens"] == 812
    assert value["usage"]["output_tokens"] > 0
    (answer,) = (one for one in last_record(place)["messages"] if one["kind"] == "response")
    thoughts = [part["content"] for part in answer["parts"] if part["part_kind"] == "thinking"]
    assert thoughts == (["The user asks; tides are known."] if name == "thinking" else [])
    assert answer["state"] == "complete"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_parallel_calls_get_their_results_in_order(
    run: Run, ask: Ask, place: Path, protocol: str
) -> None:
    for name in ("one", "two"):
        (place / f"project/{name}.md").write_text(f"This is {name}.\n")
    with recorded(protocol, "calls", "text") as server:
        options = ("--model", MODELS[protocol], "--base-url", address(protocol, server))
        code, out, err = run("chat", *options, "--print", "read both")
    assert (code, out.endswith(f"{TEXT}\n"), err) == (0, True, "")
    second = server.requests[1][1].decode()
    places = [second.index(text) for text in ("one.md", "This is one.", "This is two.")]
    assert places == sorted(places)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("how", ["closed", "cut", "reset"])
def test_an_answer_that_breaks_off_is_an_error_and_its_part_is_kept(
    ask: Ask, run: Run, place: Path, protocol: str, how: str
) -> None:
    part = events(protocol, "text")[: CUT_AT[protocol]]
    code, out, err = ask(protocol, broken(part, how=how))
    assert code == 1
    assert out == f"{PART}\n\n[this answer is not whole]\n"
    assert "the answer broke off" in err
    assert "`go on` asks for the rest" in err
    (answer,) = (one for one in last_record(place)["messages"] if one["kind"] == "response")
    assert answer["state"] == "interrupted"
    assert answer["parts"][-1]["content"].strip() == PART
    # The conversation goes on from the part.
    with recorded(protocol, "text") as server:
        options = ("--base-url", address(protocol, server), "--print", "go on")
        assert run("chat", "--resume", *options)[0] == 0
    assert PART in server.requests[0][1].decode()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", ["text", "thinking", "calls"])
def test_a_stream_that_ends_before_its_finish_reason_is_never_a_whole_answer(
    ask: Ask, place: Path, protocol: str, name: str
) -> None:
    every = events(protocol, name)
    for count in range(len(every) - END[protocol]):
        code, out, _ = ask(protocol, whole(every[:count]), "--json", "--no-save")
        value = json.loads(out)
        assert (count, code, value["status"]) == (count, 1, "broken" if count else "failed")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_call_of_an_answer_that_breaks_off_is_made(
    ask: Ask, run: Run, place: Path, protocol: str
) -> None:
    (place / "project/one.md").write_text("This is one.\n")
    every = events(protocol, "calls")
    part = every[: len(every) - END[protocol] - 1]
    assert ask(protocol, broken(part, how="closed"))[0] == 1
    assert "This is one." not in json.dumps(last_record(place))
    # What is sent next has a result for each call that the provider knows of.
    with recorded(protocol, "text") as server:
        options = ("--base-url", address(protocol, server), "--print", "go on")
        assert run("chat", "--resume", *options)[0] == 0
    assert "This is one." not in server.requests[0][1].decode()


ENDINGS = {
    "length": "cut off at the model's limit of output tokens",
    "refusal": "the provider refused to answer, or to go on",
    "filter": "the provider refused to answer, or to go on: content_filter",
    "blocked": "the provider refused to answer, or to go on: PROHIBITED_CONTENT",
    "error": "the answer broke off: ",
    "error-event": "the answer broke off: The server had an error",
}


@pytest.mark.parametrize(
    ("protocol", "name"),
    [
        (protocol, name)
        for protocol in PROTOCOLS
        for name in ENDINGS
        if (RECORDINGS / protocol / f"{name}.sse").exists()
    ],
)
def test_what_the_provider_ends_is_an_error_that_says_why(
    ask: Ask, protocol: str, name: str
) -> None:
    code, out, err = ask(protocol, whole(events(protocol, name)))
    assert code == 1
    assert ENDINGS[name] in err
    assert not out or out.endswith("\n[this answer is not whole]\n")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_no_stream_is_an_error(ask: Ask, protocol: str) -> None:
    def refuse(request: Request) -> None:
        body = json.dumps({"error": {"message": "no such model"}})
        request.status(200, body=body, **{"Content-Type": "application/json"})

    code, out, err = ask(protocol, refuse)
    assert (code, out) == (1, "")
    assert err.startswith("skillhouse: the ")
    every = events(protocol, "text")
    torn = [*every[: CUT_AT[protocol]], every[CUT_AT[protocol]][:20]]
    code, out, err = ask(protocol, whole(torn))
    assert (code, out) == (1, f"{PART}\n\n[this answer is not whole]\n")
    assert "Traceback" not in err


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_silence_within_an_answer_ends_it(
    ask: Ask, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Beside other tests the first event may take a second.
    monkeypatch.setattr(failures, "TIMEOUT_SECONDS", 1.5)
    part = events(protocol, "text")[: CUT_AT[protocol]]
    code, out, err = ask(protocol, broken(part, how="silent"))
    assert (code, out) == (1, f"{PART}\n\n[this answer is not whole]\n")
    assert "nothing more of the answer came for 1.5 seconds" in err
