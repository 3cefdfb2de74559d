"""The designs from a chat to the log: a message, the catalog, a file, a command, an answer."""

from __future__ import annotations

import re
import shutil
from collections import deque
from collections.abc import AsyncIterator, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from tests.extensions.channels.bots import bot
from tests.extensions.channels.fake_telegram import FakeTelegram, fake_telegram
from tests.extensions.chat.test_conversation import WRITE, Script
from tests.extensions.server.companion.app_device import AppDevice
from tests.extensions.server.pages.served import PORT, client_of
from tests.frontends.adapters.houses import written
from tests.frontends.mcp_peer import has_sandbox
from tests.frontends.test_mcp_walk import WEATHER, Forecast
from tests.harness import Need
from tests.house.coded import best_sandbox, tool, write_code
from tests.house.places import write_skill
from tests.loopback_http import serving_http
from tests.states import state_at

from skillhouse.audit import read_records
from skillhouse.extensions.channels import gateway
from skillhouse.extensions.server.app import make_app
from skillhouse.house import SkillCodeSettings, Skillhouse
from skillhouse.store import STATE_FILE

pytestmark = pytest.mark.slow
owliabot = pytest.mark.under("owliabot")
owliabot_js = pytest.mark.under("owliabot-js")

CONFIG = """
assignees = ["telegram:42"]

[net]
private = ["127.0.0.2"]
"""


@pytest.fixture
def fake() -> Iterator[FakeTelegram]:
    with fake_telegram() as made:
        yield made


@pytest.fixture
def forecast() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    handler = type("Handler", (Forecast,), {"asked": asked})
    with serving_http(ThreadingHTTPServer(("127.0.0.2", 0), handler)) as server:
        yield f"http://127.0.0.2:{server.server_port}", asked


class Reader:
    """A model that knows only what it is sent: reads the skill that fits, runs what that says."""

    def __init__(self) -> None:
        self.sent: list[list[ModelMessage]] = []
        self.model = FunctionModel(stream_function=self.stream)

    async def stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        self.sent.append(messages)
        heard = [getattr(part, "content", "") for one in messages for part in one.parts]
        instructions = "\n".join(getattr(one, "instructions", None) or "" for one in messages)
        results = [one for one in heard if isinstance(one, str)]
        match len(self.sent):
            case 1:
                prompt = "\n".join([instructions, *results])
                [place] = re.findall(
                    r"<name>weather</name>.*?<location>(.+?)</location>", prompt, re.DOTALL
                )
                yield {0: DeltaToolCall("read", f'{{"path": "{place}"}}', tool_call_id="1")}
            case 2:
                [command] = re.findall(r"```bash\n(.*?)\n```", results[-1])
                yield {0: DeltaToolCall("exec", f'{{"command": "{command}"}}', tool_call_id="2")}
            case _:
                yield f"It is now {results[-1].strip()}"


@owliabot
@pytest.mark.req("S000-49", "S000-54")
def test_the_weather_in_tokyo(
    tmp_path: Path, fake: FakeTelegram, forecast: tuple[str, list[str]], need: Need
) -> None:
    need(shutil.which("curl"), "curl")
    need(has_sandbox(), "bubblewrap that can make namespaces")
    address, asked = forecast
    url = f"{address}/Tokyo?format=3"
    skills = tmp_path / "home/.owliabot/skills"
    write_skill(skills / "weather", "weather in Tokyo.", f"```bash\ncurl -s '{url}'\n```\n")
    write_skill(skills / "github", "Works with pull requests.")
    configure(tmp_path, "exec: {tier: 2, requireConfirmation: true, confirmationChannel: inline}")
    model = Reader()
    with bot(tmp_path, fake, model.model) as house:
        fake.write("What's the weather in Tokyo?")
        question = fake.said("curl")
        assert f"only GET {address}" in question["text"]
        fake.press(question, "Approve")
        said = fake.said("It is now")
        assert said["text"] == f"It is now {WEATHER.strip()}"
        records = list(read_records(house.audit_log.path, newest_first=False))
    assert asked == ["/Tokyo?format=3"]
    calls = [(one.record.tool, one.record.channel, one.status) for one in records]
    assert ("read", "telegram", "ok") in calls
    assert ("exec", "telegram", "ok") in calls
    [run] = [
        one.record for one in records if (one.record.kind, one.record.tool) == ("intent", "exec")
    ]
    assert (run.user, run.tier) == ("telegram:42", "2")
    assert run.confirmation is not None
    assert run.confirmation.channel == "telegram"


@owliabot
@pytest.mark.req("S000-106")
def test_who_is_not_assigned_only_reads(tmp_path: Path, fake: FakeTelegram) -> None:
    configure(tmp_path, "write: {tier: 2, requireConfirmation: true}")
    with bot(tmp_path, fake, Script(WRITE, "not done").model) as house:
        fake.write("go", user=43)
        fake.said("not done")
        records = [one.record for one in read_records(house.audit_log.path)]
    [refused] = [record for record in records if record.tool == "write"]
    assert "`write` is for users that it is assigned to, got `telegram:43`" in refused.reason
    assert written(tmp_path) is None


@owliabot
@pytest.mark.req("S000-77", "S000-102")
def test_silence_is_a_denial_that_its_message_says(tmp_path: Path, fake: FakeTelegram) -> None:
    configure(tmp_path, "write: {tier: 2, requireConfirmation: true, timeout: 1}")
    script = Script(WRITE, "not done")
    with bot(tmp_path, fake, script.model) as house:
        fake.write("go")
        fake.said("not done")
        ended = fake.said("answered elsewhere, or too late")
        assert ended["buttons"] == []
        statuses = {one.status for one in read_records(house.audit_log.path)}
    assert "timeout" in statuses
    assert written(tmp_path) is None


@owliabot
@pytest.mark.req("S000-108", "S000-109")
@pytest.mark.parametrize("command", ["/stop", "/emergency", "/halt"])
def test_a_stop_in_the_chat_holds_until_the_owner_lifts_it_elsewhere(
    tmp_path: Path, fake: FakeTelegram, command: str
) -> None:
    with bot(tmp_path, fake, Script(WRITE, "stopped", WRITE, "still").model) as house:
        fake.write("go")
        question = fake.said("poem.txt")
        data = question["buttons"][0][0]["callback_data"]
        fake.write(command)
        assert "Everything is stopped" in fake.said("Everything is stopped")["text"]
        fake.wait(lambda _: not question["buttons"])
        fake.press(question, "Approve", data=data)
        fake.wait(lambda one: one.of("answerCallbackQuery"))
        fake.write("/resume")
        fake.said("This is not done in a chat")
        assert house.services.enforcement.tiers.stopped_reason
        events = [one.record for one in read_records(house.audit_log.path)]
    assert ("system:emergency-stop", f"telegram:42: {command}") in {
        (one.tool, one.reason) for one in events
    }
    assert written(tmp_path) is None


@owliabot
def test_a_question_loses_its_buttons_though_it_was_stopped_while_it_was_sent(
    tmp_path: Path, fake: FakeTelegram
) -> None:
    with bot(tmp_path, fake, Script(WRITE, "stopped").model):
        fake.faults["sendMessage"] = deque(["slow"])
        fake.write("go")
        question = fake.said("poem.txt")
        fake.write("/stop")
        fake.wait(lambda _: not question["buttons"])
    assert written(tmp_path) is None


@owliabot_js
@pytest.mark.req("S002-8", "S002-45", "S002-55", "S002-95")
def test_a_tool_of_a_skill_hears_who_wrote_and_where(
    tmp_path: Path, fake: FakeTelegram, need: Need
) -> None:
    best_sandbox(need)
    who = "lambda params, context: [context.meta[key] for key in ('userId', 'channel')]"
    code = f"tools = {{'who': {who}, 'note': {who}}}\n"
    script = Script(("echo__who", {}), "one", ("echo__note", {}), "two")
    settings = SkillCodeSettings(enabled=True)
    with bot(tmp_path, fake, script.model, skill_code=settings) as house:
        write_code(tmp_path / "skills/echo", code, tool("who"), tool("note", "write"))
        fake.write("/reload-skills")
        assert fake.said("echo:who")["text"] == "1 skill\n  tool: echo:who\n  tool: echo:note"
        fake.write("Who am I?")
        fake.said("one")
        fake.write("Note it")
        fake.press(fake.said("why: no rule matches"), "Approve")
        fake.said("two")
        found = [
            (one.record.tool, one.status, one.record.user, one.record.channel)
            for one in read_records(house.audit_log.path)
            if one.record.tool.startswith("echo")
        ]
    heard = [str(part) for sent in script.sent for one in sent for part in one.parts]
    assert any("telegram:42" in one and "echo__who" in one for one in heard)
    assert sorted(found) == [
        ("echo__note", "ok", "telegram:42", "telegram"),
        ("echo__who", "ok", "telegram:42", "telegram"),
    ]


@owliabot
@pytest.mark.req("S000-100", "S000-110")
def test_tier_1_and_the_absence_of_the_app_are_said_in_the_chat(
    tmp_path: Path, fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "ABSENCE_LOOK_SECONDS", 0.1)
    configure(tmp_path, "write: {tier: 1}")
    script = Script(WRITE, "It is written.")
    with bot(tmp_path, fake, script.model) as house:
        app = make_app(house, token="token-of-this-start", port=PORT, session="session")
        phone = AppDevice(client_of(app, {})).paired(house)
        fake.write("go")
        said = fake.said("This is not decided in a chat")
        assert said["buttons"] == []
        [question] = house.approvals.pending()
        assert phone.answer(question).json() == {"done": "approved"}
        fake.said("It is written.")
        assert written(tmp_path) == "Rain.\n"
        for minutes, text in ((21, "in 9 min only reads go on"), (10, "only reads go on until")):
            pass_minutes(house, minutes)
            assert fake.said(text)["chat"]["id"] == 42


def pass_minutes(house: Skillhouse, minutes: int) -> None:
    """Have the app's last sign of life be so much longer ago."""
    path = house.config.state_directory / STATE_FILE
    with state_at(path) as connection:
        changed = connection.execute(
            "UPDATE tier_mark SET at_ms = at_ms - ? WHERE name = 'companion'",
            (minutes * 60_000,),
        )
        assert changed.rowcount == 1


def configure(base: Path, tools: str) -> None:
    """Write the configuration and the tier policy of the design's owner."""
    place = base / "home/.config/skillhouse"
    place.mkdir(parents=True)
    (place / "config.toml").write_text(CONFIG)
    (place / "policy.yml").write_text(f'version: "1"\ntools:\n  {tools}\n')
