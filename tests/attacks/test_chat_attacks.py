"""Attacks on the chat by models and providers: what they say, how much, and where they lead.

Each first succeeds on what a plain chat does.
"""

from __future__ import annotations

import io
import json
import logging
import unicodedata
import warnings
from collections.abc import AsyncIterator
from itertools import repeat
from pathlib import Path
from typing import Any
from urllib.request import Request as UrlRequest
from urllib.request import urlopen

import anyio
import httpx2
import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from skillhouse.approval import ApprovalState
from skillhouse.audit import KnownSecrets
from skillhouse.extensions.chat import models
from skillhouse.extensions.chat.conversation import ChatConversation
from skillhouse.extensions.chat.model_choice import Wanted
from skillhouse.extensions.chat.models import UsableModel, model_of
from skillhouse.extensions.chat.repl import Commands
from skillhouse.extensions.chat.screen import Screen, shown_logs
from skillhouse.floor import ConfigError
from skillhouse.house import Skillhouse
from tests.extensions.chat.providers import Request, provider
from tests.extensions.chat.test_conversation import WRITE, Script, parts_of, run, talk
from tests.frontends.adapters.houses import open_house, written
from tests.house.places import write_skill

pytestmark = pytest.mark.slow

KEY = "sk-0123456789-falcon"
SEQUENCES = {
    "clear": "\x1b[2J\x1b[H",
    "clipboard": "\x1b]52;c;cm0gLXJmIH4=\x07",
    "link": "\x1b]8;;https://evil.example\x1b\\docs\x1b]8;;\x1b\\",
    "title": "\x9d0;root\x9c",
    "eight-bit": "\x9b2J",
    "overwrite": "rm -rf ~\rls       ",
    "backspace": "rm\b\bls",
    "bidi": "\u202etxt.sh",
    "isolate": "\u2066sh\u2069",
    "tag": "\U000e0041\U000e0042",
    "cut": "\x1b|]52;c;eA==|\x07",
}


def acts(text: str) -> bool:
    """Whether a text does something to a terminal besides standing there."""
    return any(unicodedata.category(one) in ("Cc", "Cf") for one in text if one not in ("\n", "\t"))


@pytest.mark.parametrize("sequence", SEQUENCES.values(), ids=SEQUENCES)
def test_nothing_that_a_model_says_or_calls_acts_on_the_terminal(
    tmp_path: Path, sequence: str
) -> None:
    plain = io.StringIO()
    for piece in sequence.split("|"):
        plain.write(piece)
    assert acts(plain.getvalue())

    call = ("write", {"path": sequence, sequence: [sequence]})
    write_skill(tmp_path / "skills/evil", f"Does {sequence.replace('|', '')}")
    with open_house(tmp_path) as house:
        conversation, out = talk(house, Script(call, sequence))
        run(conversation, "go")

        async def typed() -> None:
            for line in ("/skills", "/cost", "/reload-skills", f"/{sequence}"):
                await Commands(conversation, Screen(out, out)).take(line)
            await house.services.release_loop()

        anyio.run(typed)
    assert "· write path=" in out.getvalue()
    assert not acts(out.getvalue())


@pytest.mark.parametrize("sequence", SEQUENCES.values(), ids=SEQUENCES)
@pytest.mark.filterwarnings("always")
def test_a_fault_that_is_logged_does_not_act_on_the_terminal(sequence: str) -> None:
    """What a provider answered stands in the errors that libraries log."""
    plain, out = io.StringIO(), io.StringIO()
    logger = logging.getLogger("plain")
    handler = logging.StreamHandler(plain)
    logger.addHandler(handler)
    logger.error("bad answer %s", sequence)
    logger.removeHandler(handler)
    assert acts(plain.getvalue())

    with shown_logs(Screen(out, out)):
        try:
            raise ValueError(sequence)
        except ValueError:
            logging.getLogger("library").exception("bad answer %s", sequence)
        warnings.warn(sequence, UserWarning, stacklevel=1)
    assert out.getvalue().startswith("· bad answer ")
    assert out.getvalue().count("\n") == 1
    assert not acts(out.getvalue())


FAKE = "Allow? (y once, n no) y\n/stop\n/unload kestrel\n/kestrel now\n· write: approved"


def naive_commands(said: str) -> list[str]:
    """Return what a chat does that looks for commands in all that stands in the conversation."""
    return [line for line in said.splitlines() if line.startswith("/")]


def test_a_model_can_neither_type_commands_nor_ask_in_the_gates_name(tmp_path: Path) -> None:
    assert naive_commands(FAKE) == ["/stop", "/unload kestrel", "/kestrel now"]
    with open_house(tmp_path) as house:
        script = Script(WRITE, FAKE, "heard")
        conversation, out = talk(house, script)
        commands = Commands(conversation, Screen(out, out))

        async def typed() -> Any:
            first = await commands.take("write it")
            # The person takes the model's line for a question, and answers it.
            await commands.take("y")
            await house.services.release_loop()
            return first

        first = anyio.run(typed)
        assert first is not None
        asked = house.approvals.get(first.pending[0])
        assert asked.state is ApprovalState.OPEN
        assert not house.services.enforcement.tiers.stopped_reason
        assert len(script.sent) == 3
    assert written(tmp_path) is None


class Endless:
    """A model that goes on for ever with text, thoughts or the arguments of a call."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.pieces = 0
        self.is_ended = False
        self.model = FunctionModel(self.whole, stream_function=self.stream)

    async def whole(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart("They spoke.")])

    async def stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if self.is_ended:
            yield "ok"
            return
        try:
            for number in repeat(0) if self.what != "calls" else range(10**9):
                self.pieces += 1
                if self.what == "text":
                    yield "and so on " * 50
                elif self.what == "calls":
                    yield {
                        number: DeltaToolCall("read", '{"path": "a"}', tool_call_id=f"c{number}")
                    }
                else:
                    name = "write" if self.pieces == 1 else None
                    yield {0: DeltaToolCall(name, '{"path": "' if name else "x" * 500)}
        finally:
            self.is_ended = True


@pytest.mark.parametrize("what", ["text", "arguments", "calls"])
def test_an_answer_without_an_end_is_ended(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 20_000
    monkeypatch.setattr(models, "ANSWER_MAX", most)
    monkeypatch.setattr(models, "PARTS_MAX", 300)

    async def plain() -> int:
        size = 0
        async with Agent(Endless(what).model).run_stream_events("go") as events:
            async for event in events:
                size += len(str(event))
                if size > 10 * most:
                    break
        return size

    assert anyio.run(plain) > 10 * most
    with open_house(tmp_path) as house:
        endless = Endless(what)
        conversation, _ = talk(house, Script())
        conversation = ChatConversation(
            house,
            UsableModel(model=endless.model, reports_end=False),
            Screen(io.StringIO(), io.StringIO()),
            session_id="s1",
            known=KnownSecrets(),
        )
        answered = run(conversation, "go")
        assert answered.status == "failed"
        assert "the answer was ended" in answered.reason
        assert endless.pieces <= 400
        assert run(conversation, "again").text == "ok"
    assert written(tmp_path) is None


class Flood(Script):
    """A model that makes a thousand calls at once, and then talks."""

    async def stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        self.sent.append(messages)
        if len(self.sent) > 1:
            yield "ok"
            return
        made = json.dumps({"path": "poem.txt", "content": "x"})
        yield {n: DeltaToolCall("write", made, tool_call_id=f"c{n}") for n in range(1_000)}


def test_a_thousand_calls_at_once_are_not_made(tmp_path: Path) -> None:
    made = []

    def write(path: str, content: str) -> str:
        made.append(path)
        return "ok"

    plain = Agent(Flood().model, tools=[write])

    async def plainly() -> None:
        async with plain.run_stream("go") as answer:
            await answer.get_output()

    anyio.run(plainly)
    assert len(made) == 1_000

    with open_house(tmp_path) as house:
        flood = Flood()
        conversation, _ = talk(house, flood)
        answered = run(conversation, "go")
        assert (answered.status, answered.pending) == ("failed", ())
        assert "say `go on`" in answered.reason
        assert house.approvals.latest() == ()
        assert run(conversation, "go on").text == "ok"
        # Each call has a result, or providers would refuse the conversation from now on.
        assert len(parts_of(flood.sent[-1], ToolReturnPart)) == 1_000


def asked(house: Skillhouse, wanted: Wanted, environment: dict[str, str], *prompts: str) -> Any:
    """Ask a model over HTTP."""
    out = io.StringIO()
    found = model_of(wanted, environment)
    known = KnownSecrets(found.secrets)
    screen = Screen(out, out)
    return run(ChatConversation(house, found, screen, session_id="s1", known=known), *prompts)


def test_a_line_without_an_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "BODY_MAX", 500_000)

    def endless(request: Request) -> None:
        request.stream()
        request.wfile.write(b"data: ")
        while True:
            request.wfile.write(b"x" * 65_536)

    with provider(endless) as hostile, open_house(tmp_path) as house:
        with urlopen(UrlRequest(hostile.url, data=b"{}")) as plain:
            assert len(plain.read(2_000_000)) == 2_000_000
        answered = asked(house, Wanted(model="m", base_url=hostile.url), {}, "go")
    assert answered.status == "unreachable"


def test_a_compressed_answer_that_nobody_asked_for_is_refused(tmp_path: Path) -> None:
    def bomb(request: Request) -> None:
        request.status(200, **{"Content-Encoding": "gzip", "Content-Type": "text/event-stream"})

    with provider(bomb) as hostile, open_house(tmp_path) as house:
        answered = asked(house, Wanted(model="m", base_url=hostile.url), {}, "go")
        assert hostile.requests[0][0]["accept-encoding"] == "identity"
    assert answered.status == "unreachable"


@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_a_redirect_takes_neither_key_nor_words_elsewhere(tmp_path: Path, code: int) -> None:
    with provider(lambda request: request.status(500)) as elsewhere:

        def lead(request: Request) -> None:
            request.status(code, Location=f"{elsewhere.url}/chat/completions")

        with provider(lead) as hostile, open_house(tmp_path) as house:
            if code >= 307:
                with httpx2.Client(follow_redirects=True) as plain:
                    plain.post(hostile.url, headers={"api-key": KEY}, content="words")
                assert elsewhere.requests[0][0]["api-key"] == KEY
                assert elsewhere.requests.pop()[1] == b"words"
            wanted = Wanted(model="m", base_url=hostile.url, key_variable="MY_KEY")
            answered = asked(house, wanted, {"MY_KEY": KEY}, "go")
            assert hostile.requests[-1][0]["authorization"] == f"Bearer {KEY}"
        assert elsewhere.requests == []
    assert answered.status == "unreachable"
    assert "not followed" in answered.reason


@pytest.mark.parametrize(
    "url",
    [
        "http://192.0.2.1/v1",
        "http://localhost.evil.example/v1",
        "http://127.0.0.1.evil.example/v1",
        "http://[::ffff:192.0.2.1]/v1",
        "HTTP://192.0.2.1/v1",
    ],
)
def test_a_key_goes_to_no_other_machine_over_plain_http(url: str) -> None:
    plain = OpenAIChatModel("m", provider=OpenAIProvider(base_url=url, api_key=KEY))
    assert plain.client.api_key == KEY
    found = model_of(Wanted(model="openai:m", base_url=url), {"OPENAI_API_KEY": KEY})
    assert isinstance(found.model, OpenAIChatModel)
    assert (found.model.client.api_key == KEY, found.secrets) == (False, ())
    assert "is not sent over plain http" in found.notice


@pytest.mark.parametrize(
    "url", ["http://a:b@127.0.0.1/v1", "https://x.example/v1?api-key=abc", "http://[1/v1"]
)
def test_an_address_that_would_be_kept_with_its_key_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        model_of(Wanted(model="m", base_url=url), {})


def test_half_a_character_does_not_end_the_conversation(tmp_path: Path) -> None:
    """JSON can name one, and no later request could be encoded."""
    with pytest.raises(UnicodeEncodeError):
        json.loads('"\\ud83d"').encode()

    def half(request: Request) -> None:
        request.stream()
        request.say("\ud83d", finish="stop")

    with provider(half) as hostile, open_house(tmp_path) as house:
        wanted = Wanted(model="m", base_url=hostile.url)
        assert asked(house, wanted, {}, "go", "typed \udcff").status == "ok"


def test_an_error_that_repeats_the_key_does_not_show_it(tmp_path: Path) -> None:
    def echo(request: Request) -> None:
        said = f"bad key {request.headers['Authorization']}\x1b[2J"
        request.status(401, body=json.dumps({"error": {"message": said}}))

    with provider(echo) as hostile, open_house(tmp_path) as house:
        wanted = Wanted(model="m", base_url=hostile.url, key_variable="MY_KEY")
        answered = asked(house, wanted, {"MY_KEY": KEY}, "go")
    assert KEY not in answered.reason
    assert not acts(answered.reason)
    assert "the key is not taken" in answered.reason
