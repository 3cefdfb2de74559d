"""The channel of docs/guides/write-a-channel.md, with its library unmodified, against a fake."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.extensions.channels.bots import bot_of
from tests.extensions.channels.fake_slack import APP_TOKEN, BOT_TOKEN, FakeSlack, fake_slack
from tests.extensions.chat.test_conversation import WRITE, Script
from tests.frontends.adapters.houses import written
from tests.harness import until
from tests.house.places import make_places

from skillhouse.extension import Extension, ExtensionContext, LoadedExtensions
from skillhouse.extensions.channels.bot import NoChannelError, _channels
from skillhouse.extensions.channels.chat_channel import ChatChannel
from skillhouse.extensions.channels.mailbox import Mailbox
from skillhouse.house import BotSettings, Skillhouse, configured

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).resolve().parents[3] / "docs/guides/write-a-channel.md"
LINES_MAX = 150
ALLOW = ("slack:U42", "slack:chat:C1")


def block(kind: str, number: int = 0) -> str:
    text = GUIDE.read_text(encoding="utf-8")
    return str(re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)[number])


@pytest.fixture(scope="module")
def slack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The module of the guide, under the name that its pyproject.toml registers."""
    about = tomllib.loads(block("toml"))["project"]
    name, _, value = about["entry-points"]["skillhouse.extensions"]["slack"].partition(":")
    file = tmp_path_factory.mktemp("slack") / f"{name}.py"
    file.write_text(block("python"), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    made = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert getattr(made, value).name == "slack"
    yield made
    del sys.modules[name]


@pytest.fixture
def fake() -> Iterator[FakeSlack]:
    with fake_slack() as made:
        yield made


def running(base: Path, slack: ModuleType, fake: FakeSlack, script: Script) -> Any:
    def channel() -> Any:
        return slack.SlackChannel(BOT_TOKEN, APP_TOKEN, fake.url)

    return bot_of(base, lambda _: channel(), script.model, allow=ALLOW)


def test_the_channel_is_short_enough_to_read() -> None:
    assert len(block("python").splitlines()) <= LINES_MAX


def test_people_talk_with_it_alone_and_in_a_channel(
    tmp_path: Path, slack: ModuleType, fake: FakeSlack
) -> None:
    script = Script("a < b & <!channel>", "in a thread")
    with running(tmp_path, slack, fake, script):
        fake.write("is a &lt; b?")
        assert fake.said("a &lt; b")["text"] == "a &lt; b &amp; &lt;!channel&gt;"
        fake.write("<@UBOT> and here?", channel="C1", user="U7")
        said = fake.said("in a thread")
        fake.write("nobody asked", channel="C1", user="U7", type="message")
        fake.write("an echo", bot_id="B1")
        fake.wait(lambda one: not one.waiting)
    assert (said["channel"], said["thread_ts"][:3]) == ("C1", "17.")
    assert "is a < b?" in str(script.sent[0])
    assert "and here?" in str(script.sent[1])
    assert "UBOT" not in str(script.sent[1])
    assert len(script.sent) == 2


def test_a_question_is_answered_with_a_button_by_who_asked(
    tmp_path: Path, slack: ModuleType, fake: FakeSlack
) -> None:
    with running(tmp_path, slack, fake, Script(WRITE, "It is written.")):
        fake.write("Write a poem")
        question = fake.said("poem.txt")
        fake.press(question, "Approve", user="U7")
        fake.wait(lambda one: any(name == "chat.postEphemeral" for name, _ in one.calls))
        assert written(tmp_path) is None
        fake.press(question, "Approve")
        fake.said("It is written.")
        fake.said("approved by ada")
    assert written(tmp_path) == "Rain.\n"


def test_limits_and_faults_are_waited_for(
    tmp_path: Path, slack: ModuleType, fake: FakeSlack
) -> None:
    fake.faults["chat.postMessage"] = [429]
    with running(tmp_path, slack, fake, Script("one answer")):
        fake.write("go")
        fake.said("one answer")
    assert [one["text"] for one in fake.messages] == ["one answer"]


def test_what_could_not_be_stored_is_not_acknowledged(
    tmp_path: Path, slack: ModuleType, fake: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, fails = Mailbox.take, [True]

    def failing(self: Mailbox, *given: Any) -> Any:
        if fails:
            fails.pop()
            raise OSError("no space left on device")
        return take(self, *given)

    monkeypatch.setattr(Mailbox, "take", failing)
    with running(tmp_path, slack, fake, Script("stored")):
        fake.write("go")
        until(lambda: not fails)
    assert fake.waiting
    with running(tmp_path, slack, fake, Script("stored")):
        fake.said("stored")
        fake.wait(lambda one: not one.waiting)


def test_an_extension_brings_it_by_its_section(
    tmp_path: Path, slack: ModuleType, fake: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokens are those of the section, and no log has them."""
    loaded = LoadedExtensions(extensions=(slack.EXTENSION,))
    monkeypatch.setattr("skillhouse.house.extension_parts.load_extensions", lambda: loaded)
    shown = tomllib.loads(block("toml", 1))["slack"]
    table = {"bot_token": "env:SLACK_BOT", "app_token": "env:SLACK_APP"}
    assert set(shown) == set(table)
    table["server"] = fake.url
    variables = {"SLACK_BOT": BOT_TOKEN, "SLACK_APP": APP_TOKEN}
    places = make_places(tmp_path, environment=variables)
    with Skillhouse(configured(places), sections={"slack": table}) as house:
        found = _channels(BotSettings(), house)
        assert list(found) == ["slack"]
        assert isinstance(found["slack"], ChatChannel)
        assert {BOT_TOKEN, APP_TOKEN} <= set(house.services.enforcement.secret_values)
    with Skillhouse(configured(places)) as house, pytest.raises(NoChannelError):
        _channels(BotSettings(), house)


def test_a_channel_that_is_none_costs_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def raising(context: ExtensionContext) -> list[object]:
        raise ValueError("no such place")

    parts = [lambda _: [object()], raising]
    extensions = tuple(
        Extension(name=f"odd{at}", chat_channels=part) for at, part in enumerate(parts)
    )
    loaded = LoadedExtensions(extensions=extensions)
    monkeypatch.setattr("skillhouse.house.extension_parts.load_extensions", lambda: loaded)
    with Skillhouse(configured(make_places(tmp_path))) as house, pytest.raises(NoChannelError):
        _channels(BotSettings(), house)
    assert "a channel of an extension is not used" in caplog.text
    assert "extension `odd1`: " in caplog.text
