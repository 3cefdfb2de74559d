"""What the chat says and keeps when something is missing, full or down."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from genai_prices.types import PriceCalculation
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UsageLimitExceeded
from pydantic_ai.messages import ModelResponse, TextPart, ToolReturnPart
from tests.extensions.chat.providers import Request, provider
from tests.extensions.chat.test_conversation import LOAD, Script, parts_of, run, talk
from tests.frontends.adapters.houses import open_house
from tests.frontends.conftest import Run
from tests.net.certificates import contexts
from tests.net.servers import ok, secure, serving
from tests.net.test_proxy_settings import tunnel_to

from skillhouse.extensions.chat.chat_tools import described
from skillhouse.extensions.chat.compaction import UNLOADED, Spent
from skillhouse.extensions.chat.failures import failure_reason
from skillhouse.extensions.chat.model_choice import Wanted
from skillhouse.extensions.chat.models import bounded_client, model_of
from skillhouse.extensions.chat.transcript import Transcripts
from skillhouse.tools import Progress, ToolResult


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    return lambda text: monkeypatch.setattr(sys, "stdin", io.StringIO(text))


@pytest.mark.parametrize("missing", ["pydantic_ai", "openai"])
def test_without_its_packages_the_error_names_the_extra(
    run: Run, stdin: object, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    ours = ("skillhouse.extensions.chat.", "skillhouse.frontends.adapters.pydantic_ai")
    users = ("pydantic_ai.models.openai", "pydantic_ai.providers.openai")
    for name in [missing, *sys.modules]:
        if name == missing or name.startswith(f"{missing}."):
            monkeypatch.setitem(sys.modules, name, None)
        elif name.startswith((*ours, *users)):
            monkeypatch.delitem(sys.modules, name)
    code, out, err = run("chat", "--model", "m", "--base-url", "http://127.0.0.1:9", "--print", "x")
    assert (code, out) == (3, "")
    assert "[chat]'`" in err
    assert run("chat", "--list")[0] == 0


def full(monkeypatch: pytest.MonkeyPatch, *, after: int) -> None:
    """Have the disk be full in the middle of a record."""
    real = os.write
    left = after

    def write(handle: int, data: bytes) -> int:
        nonlocal left
        if left <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = real(handle, bytes(data)[:left])
        left -= done
        return done

    monkeypatch.setattr("skillhouse.extensions.chat.transcript.os.write", write)


@pytest.mark.parametrize("after", [0, 1, 200, 900])
def test_on_a_full_disk_the_chat_goes_on_and_loses_nothing_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    kept = Transcripts(tmp_path / "state")
    made = kept.begin(place="/p", agent="default", model="m")
    with open_house(tmp_path) as house:
        conversation, out = talk(house, Script("one", "two", "three"), transcript=made)
        with monkeypatch.context() as patch:
            full(patch, after=after)
            assert run(conversation, "first").text == "one"
        assert "cannot be written: no space left on device; the chat goes on" in out.getvalue()
        run(conversation, "second")
        made.close()
        again, found = kept.resume(made.path)
        other, _ = talk(house, Script("four"), transcript=again)
        other.restore(found)
        again.close()
        said = "first one second two"
        assert " ".join(str(p.content) for m in other.history for p in m.parts) == said  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_prompt_that_got_no_answer_is_taken_back(tmp_path: Path, is_resumed: bool) -> None:
    is_down = [False]

    def answer(request: Request) -> None:
        if is_down[0]:
            request.status(404, body=json.dumps({"error": {"message": "no such model"}}))
        else:
            request.stream()
            request.say("ok", finish="stop")

    kept = Transcripts(tmp_path / "state")
    made = kept.begin(place="/p", agent="default", model="m")
    with provider(answer) as server, open_house(tmp_path) as house:
        found = model_of(Wanted(model="m", base_url=server.url), {})

        def begin(transcript: Any) -> Any:
            return talk(house, found, transcript=transcript)[0]

        conversation = begin(made)
        run(conversation, "first")
        if is_resumed:
            made.close()
            made, before = kept.resume(made.path)
            conversation = begin(made)
            conversation.restore(before)
        is_down[0] = True
        answered = run(conversation, "lost")
        assert answered.status == "unreachable"
        assert answered.reason == (
            "the model's address answered 404: no such model; there is no such model or address; "
            "check `--model` and `--base-url`"
        )
        is_down[0] = False
        assert run(conversation, "third").text == "ok"
        made.close()
        again, after = kept.resume(made.path)
        again.close()
        assert "lost" not in json.dumps(after.messages)
        assert len(after.messages) == len(conversation.history) == 4


@pytest.mark.slow
def test_without_a_summary_the_older_part_is_left_out_and_said_so(tmp_path: Path) -> None:
    class Silent(Script):
        async def whole(self, messages: Any, info: Any) -> ModelResponse:
            raise ModelAPIError("m", "down")

    script = Silent(*(f"{'long ' * 900}{n}" for n in range(9)), "ok")
    with open_house(tmp_path) as house:
        conversation, out = talk(house, script, context_tokens=9_000)
        assert run(conversation, *(f"prompt {n}" for n in range(10))).status == "ok"
    assert "left out, without a summary" in out.getvalue()
    assert "could not be summarised" in str(script.sent[-1])


def test_progress_of_a_call_is_shown_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_house(tmp_path) as house:
        conversation, out = talk(house, Script(LOAD, "ok"))
        real = conversation.bridge.house.call

        async def call(name: str, given: Any, *, listener: Any, **ids: Any) -> ToolResult:
            await listener(Progress(progress=1, total=2, message="half\nway\x1b[2J"))
            await listener(Progress(progress=3, total=None, message=""))
            return await real(name, given, listener=listener, **ids)

        monkeypatch.setattr(house, "call", call)
        run(conversation, "go")
    assert "· skill name=kestrel\n·   1 of 2 half way\\x1b[2J\n·   3\n" in out.getvalue()


def test_what_was_spent_is_told_with_a_price_where_one_is_known() -> None:
    spent = Spent()
    assert str(spent) == "no requests yet"
    known = ModelResponse(parts=[TextPart("a")], model_name="gpt-4o", provider_name="openai")
    known.usage.input_tokens, known.usage.output_tokens = 1_000, 100
    spent.add(known)
    price = known.cost()
    assert isinstance(price, PriceCalculation)
    assert str(spent) == f"1 request: 1,000 tokens in, 100 out, about ${price.total_price:.4f}"
    spent.add(ModelResponse(parts=[], model_name="unheard-of"))
    assert spent.unpriced == 1
    assert str(spent).startswith("2 requests: 1,000 tokens in, 100 out, about $")
    assert str(spent).endswith(" (1 without a known price)")


@pytest.mark.slow
async def test_an_unloaded_skill_leaves_the_history_with_all_its_texts(tmp_path: Path) -> None:
    with open_house(tmp_path) as house:
        script = Script(LOAD, "ok", "started", LOAD, "ok")
        conversation, _ = talk(house, script)
        await conversation.ask("go")
        (tmp_path / "skills/kestrel/SKILL.md").write_text(
            "---\nname: kestrel\ndescription: Finds nests.\n---\nBody. Anew.\n"
        )
        house.refresh()
        await conversation.start("kestrel", "with words")
        await house.services.release_loop()
        assert str(conversation.history).count("Body.") == 2
        assert len(conversation.unload("kestrel")) == 1
        assert "Body." not in str(conversation.history)
        assert "/kestrel with words" in str(conversation.history)
        (result,) = parts_of(conversation.history, ToolReturnPart)
        assert result.content == UNLOADED


@pytest.mark.slow
def test_a_skill_that_is_started_for_piped_text_gets_it_and_no_command_does(
    run: Run, stdin: Callable[[str], None]
) -> None:
    def answer(request: Request) -> None:
        request.stream()
        request.say("ok", finish="stop")

    with provider(answer) as server:
        options = ("--model", "m", "--base-url", server.url, "--no-save")
        stdin("piped words\n/stop")
        assert run("chat", *options, "--print", "/web-search typed")[:2] == (0, "ok\n")
        users = [m for m in json.loads(server.requests[0][1])["messages"] if m["role"] == "user"]
        assert "/web-search typed\n\n" in str(users[0]["content"]) or "skill" in str(users)
        assert "piped words\n/stop" in json.dumps(users).replace("\\n", "\n")
        for line in ("/stop", "/cost", "/nosuch"):
            stdin("piped words")
            code, _, err = run("chat", *options, "--print", line)
            assert code == 2
            assert "only text and `/SKILL` go together with what stdin holds" in err
        assert len(server.requests) == 1
    assert run("stop", "--status")[1] == "not stopped\n"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModelHTTPError(401, "m", {"error": {"message": "bad"}}), "401: bad; the key is not taken"),
        (ModelHTTPError(429, "m", None), "answered 429; too many requests"),
        (ModelHTTPError(503, "m", "<html>"), "503: <html>; the provider has a fault"),
        (ModelHTTPError(418, "m", {"detail": [1]}), "answered 418"),
        (ModelAPIError("m", "Connection error."), "the model cannot be reached; check"),
        (ModelAPIError("m", "Error code: 302"), "answered 302; it leads to another address"),
        (ModelAPIError("m", "odd"), "odd"),
        (UsageLimitExceeded("x"), "say `go on`"),
    ],
)
def test_each_fault_says_what_to_do(error: Any, message: str) -> None:
    assert message in failure_reason(error)


def test_a_call_is_described_in_one_line() -> None:
    assert described("exec", {"params": ["a\nb"], "n": 1}) == "exec params=[a b] n=1"


async def test_models_are_asked_through_the_proxy_and_with_the_certificates_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, _ = contexts(tmp_path, "name.test")
    async with secure(mine, ok(b"answer")) as server, serving(tunnel_to(server.port)) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.pem"))
        async with bounded_client() as client:
            answer = await client.get("https://name.test/v1/models")
        assert answer.content == b"answer"
        assert proxy.seen[0].startswith(b"CONNECT name.test:443 ")
