"""A bot that people talk with in Discord: order, questions, gaps, limits of the service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.extensions.channels.bots import bot
from tests.extensions.channels.fake_discord import (
    BOT_ID,
    CHANNEL,
    ROLE,
    THREAD,
    FakeDiscord,
    fake_discord,
    faults,
)
from tests.extensions.chat.test_conversation import LOAD, WRITE, Script
from tests.frontends.adapters.houses import answers, written

from skillhouse.audit import read_records
from skillhouse.extensions.channels import discord, discord_chats
from skillhouse.extensions.channels.discord import DiscordChannel
from skillhouse.floor import ConfigError

pytestmark = pytest.mark.slow

NAMED = f"<@{BOT_ID}>"


@pytest.fixture
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeDiscord]:
    with fake_discord(tmp_path_factory.mktemp("discord")) as made:
        yield made


def test_a_message_is_answered_with_the_skills(tmp_path: Path, fake: FakeDiscord) -> None:
    script = Script(LOAD, "Falcons nest on *ledges*.")
    with bot(tmp_path, fake, script.model) as house:
        fake.wait(lambda one: one.identified)
        fake.write("Where do falcons nest?")
        said = fake.said("ledges")
        assert said["source"] == "Falcons nest on *ledges*."
        assert said["payload"]["enforce_nonce"] is True
        assert said["payload"]["allowed_mentions"]["parse"] == []
        assert said["payload"]["flags"] == 4
        records = [found.record for found in read_records(house.audit_log.path)]
    assert ("skill", "discord", "discord:42") in {
        (one.tool, one.channel, one.user) for one in records
    }


def test_a_question_is_answered_with_a_button_by_who_asked(
    tmp_path: Path, fake: FakeDiscord
) -> None:
    with bot(tmp_path, fake, Script(WRITE, "It is written.").model) as house:
        fake.wait(lambda one: one.identified)
        fake.write("Write a poem")
        question = fake.said("poem.txt")
        # As long as the answer is not there; a quick one may be there before it is shown.
        fake.wait(lambda one: one.of("typing"))
        labels = [one["label"] for row in question["buttons"] for one in row["components"]]
        assert labels == ["Approve", "Approve for this chat", "Always", "Deny"]
        # As long as the answer waits; a quick one may be there before.
        fake.wait(lambda one: one.of("typing"))
        fake.press(question, "Approve", user=43)
        fake.wait(lambda one: one.notes())
        assert "Only the person who asked" in fake.notes()[0]
        assert written(tmp_path) is None
        pressed = fake.press(question, "Approve")
        fake.said("It is written.")
        assert written(tmp_path) == "Rain.\n"
        assert fake.said("approved by Ada")["buttons"] == []
        assert answers(house)[-1][2:] == ("once", "discord")
        fake.wait(lambda one: len(one.notes()) == 2)
        # Deferred first; what is said is for who pressed alone.
        assert fake.interactions[pressed]["response"] == {"type": 6}
        assert fake.interactions[pressed]["is_ephemeral"] is True


def test_a_stranger_hears_one_sentence_and_the_model_nothing(
    tmp_path: Path, fake: FakeDiscord
) -> None:
    script = Script("secret")
    with bot(tmp_path, fake, script.model, allow=("discord:42",)):
        fake.wait(lambda one: one.identified)
        fake.write("hello", user=99)
        fake.said("discord:99")
        fake.write("hello again", user=99)
        fake.write("hi", user=42)
        fake.said("secret")
    assert len(fake.texts(fake.direct_chat(99))) == 1
    assert len(script.sent) == 1


@pytest.mark.parametrize("fault", [429, 500, "before", "after"])
def test_what_waits_at_a_limit_or_a_fault_is_sent_once(
    tmp_path: Path, fake: FakeDiscord, fault: int | str
) -> None:
    """Where the service has it already, the nonce says so, and no text says that it repeats."""
    fake.faults["send"] = faults(fault)
    with bot(tmp_path, fake, Script("one answer", "next").model):
        fake.wait(lambda one: one.identified)
        fake.write("go")
        fake.said("one answer", seconds=60)
        fake.write("go on")
        fake.said("next", seconds=60)
    assert fake.texts() == ["one answer", "next"]


def test_a_chat_at_a_long_limit_holds_no_other_up(tmp_path: Path, fake: FakeDiscord) -> None:
    fake.faults[f"send {fake.direct_chat(42)}"] = faults("limit")
    with bot(tmp_path, fake, Script("waits", "other").model):
        fake.wait(lambda one: one.identified)
        fake.write("go")
        fake.wait(lambda one: not one.faults[f"send {one.direct_chat(42)}"])
        fake.write("go", user=43)
        fake.said("other", chat=fake.direct_chat(43))
    assert fake.texts() == ["other"]


def test_an_answer_that_the_service_may_have_forgotten_says_that_it_comes_again(
    tmp_path: Path, fake: FakeDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the few minutes of a nonce."""
    fake.nonce_seconds = 0
    monkeypatch.setattr("skillhouse.extensions.channels.gateway.KEY_SECONDS", 1.0)
    fake.faults["send"] = faults("after")
    with bot(tmp_path, fake, Script("one answer").model):
        fake.wait(lambda one: one.identified)
        fake.write("go")
        fake.said("perhaps sent twice", seconds=60)
    assert len(fake.texts()) == 2


def test_two_answers_that_are_the_same_both_come(tmp_path: Path, fake: FakeDiscord) -> None:
    with bot(tmp_path, fake, Script("same", "same", "end").model):
        fake.wait(lambda one: one.identified)
        for _ in range(3):
            fake.write("go")
        fake.said("end")
    assert fake.texts() == ["same", "same", "end"]


def test_what_was_written_while_no_bot_ran_is_answered_in_order(
    tmp_path: Path, fake: FakeDiscord
) -> None:
    with bot(tmp_path, fake, Script("first").model):
        fake.wait(lambda one: one.identified)
        fake.write("message 0")
        fake.said("first")
    for number in range(1, 4):
        fake.write(f"message {number}")
    # Who never wrote before, and a chat of the server in which the bot was never called.
    fake.write("my first", user=43)
    fake.write(f"{NAMED} in the thread", user=7, chat=THREAD)
    fake.write("among others", user=7, chat=THREAD)
    script = Script(*["again"] * 5)
    with bot(tmp_path, fake, script.model):
        fake.wait(lambda one: len(one.messages) == 6)
    texts = [str(one) for one in script.sent]
    assert sum("my first" in text for text in texts) == 1
    assert sum("in the thread" in text for text in texts) == 1
    assert len(fake.texts(fake.direct_chat(42))) == 4
    # The conversation goes on after a restart, and nothing is taken again.
    last = next(text for text in texts if "message 3" in text)
    assert last.index("message 0") < last.index("message 1") < last.index("message 2")
    with bot(tmp_path, fake, Script("only this").model):
        fake.wait(lambda one: one.identified == 3)
        fake.write("the last")
        fake.said("only this")
    assert len(fake.messages) == 7


def test_whoever_may_write_first_is_heard_also_where_their_chat_is_opened_late(
    tmp_path: Path, fake: FakeDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only so many direct chats are opened at a start."""
    monkeypatch.setattr(discord_chats, "DIRECT_MAX", 0)
    with bot(tmp_path, fake, Script("unheard").model):
        fake.wait(lambda one: one.identified)
    fake.write("hello")
    fake.write("is it on?", user=43)
    monkeypatch.setattr(discord, "DIRECT_SECONDS", 0.05)
    # Which of the two is answered first is left open.
    with bot(tmp_path, fake, Script("heard", "heard").model):
        fake.said("heard", chat=fake.direct_chat(42))
        fake.said("heard", chat=fake.direct_chat(43))
    assert fake.texts(fake.direct_chat(42)) == fake.texts(fake.direct_chat(43)) == ["heard"]


def test_more_than_a_page_was_missed(tmp_path: Path, fake: FakeDiscord) -> None:
    with bot(tmp_path, fake, Script("first").model):
        fake.wait(lambda one: one.identified)
        fake.write("go")
        fake.said("first")
    for number in range(230):
        fake.write(f"{NAMED} {number}" if number % 23 == 0 else "talk", user=7, chat=CHANNEL)
    with bot(tmp_path, fake, Script(*["a"] * 10).model):
        fake.wait(lambda one: len(one.texts(CHANNEL)) == 10, 60)
        # Three pages, and one of each direct chat at both starts.
        assert len(fake.of("history")) <= 7


@pytest.mark.parametrize("how", ["resume", "forget", "1001", "4009"])
def test_what_is_written_while_the_gateway_is_gone_is_answered_once(
    tmp_path: Path, fake: FakeDiscord, how: str
) -> None:
    """The library resumes a session; where the service forgot it, the history is read."""
    with bot(tmp_path, fake, Script("first", "second", "third").model):
        fake.wait(lambda one: one.identified)
        fake.write("one")
        fake.said("first")
        code = int(how) if how.isdecimal() else None
        fake.disconnect(code, forget=how == "forget")
        fake.write("two")
        fake.said("second", seconds=60)
        fake.write("three")
        fake.said("third", seconds=60)
        assert fake.resumed == (0 if how == "forget" else 1)
        assert fake.identified == (2 if how == "forget" else 1)
    assert fake.texts() == ["first", "second", "third"]


def test_faults_of_the_history_lose_nothing(tmp_path: Path, fake: FakeDiscord) -> None:
    with bot(tmp_path, fake, Script("first").model):
        fake.wait(lambda one: one.identified)
        fake.write("one")
        fake.said("first")
    fake.write("two")
    fake.faults["history"] = faults(429, 503, "before")
    with bot(tmp_path, fake, Script("second", "third").model):
        fake.wait(lambda one: one.identified == 2)
        fake.write("three")
        fake.said("third", seconds=60)
    assert fake.texts() == ["first", "second", "third"]


@pytest.mark.parametrize("status", [503, 400])
def test_a_chat_without_its_history_holds_no_other_up(
    tmp_path: Path, fake: FakeDiscord, status: int
) -> None:
    """A stop acts there too; what else comes waits, unless the service will never have it."""
    with bot(tmp_path, fake, Script("first").model):
        fake.wait(lambda one: one.identified)
        fake.write("one")
        fake.said("first")
    fake.write("two")
    fake.write("other", user=43)
    fake.faults[f"history {fake.direct_chat(42)}"] = faults(*[status] * 500)
    with bot(tmp_path, fake, Script("to the other", "after").model):
        fake.said("to the other", chat=fake.direct_chat(43), seconds=60)
        if status == 503:
            fake.write("/stop")
            fake.said("Everything is stopped", seconds=60)
            assert fake.texts(fake.direct_chat(42))[0] == "first"
        else:
            fake.write("three")
            fake.said("after", chat=fake.direct_chat(42), seconds=60)


def test_an_event_that_comes_twice_is_answered_once(tmp_path: Path, fake: FakeDiscord) -> None:
    with bot(tmp_path, fake, Script("first", "second").model):
        fake.wait(lambda one: one.identified)
        fake.write("go")
        fake.said("first")
        fake.send_again("MESSAGE_CREATE", '"go"')
        fake.write("next")
        fake.said("second")
    assert fake.texts() == ["first", "second"]


def test_in_a_server_the_bot_answers_when_it_is_named_or_replied_to(
    tmp_path: Path, fake: FakeDiscord
) -> None:
    script = Script("in the channel", "to the reply", "in the thread", "to the role")
    with bot(tmp_path, fake, script.model):
        fake.wait(lambda one: one.identified)
        fake.write("nothing for the bot", chat=CHANNEL, user=7)
        asked = fake.write(f"{NAMED} what is new?", chat=CHANNEL, user=7)
        said = fake.said("in the channel", chat=CHANNEL)
        assert said["reply_to"] == asked["id"]
        fake.write("and more?", chat=CHANNEL, user=7, reply_to=said["message_id"])
        fake.said("to the reply", chat=CHANNEL)
        fake.write(f"here {NAMED}", chat=THREAD, user=7)
        fake.said("in the thread", chat=THREAD)
        fake.write(f"<@&{ROLE}>  by its role", chat=THREAD, user=7, mention_roles=[str(ROLE)])
        fake.said("to the role", chat=THREAD)
        fake.write("<@&601> <@42> others", chat=THREAD, user=7, mention_roles=["601"])
        fake.write(f"{NAMED} /help", chat=THREAD, user=7)
        fake.said("/reload-skills", chat=THREAD)
    assert len(script.sent) == 4
    assert f"<@&{ROLE}>" not in str(script.sent[3])
    assert "what is new?" in str(script.sent[0])
    assert NAMED not in str(script.sent[0])
    # A thread is a chat, with a conversation of its own.
    assert "what is new?" not in str(script.sent[2])


def test_another_bot_is_not_answered(tmp_path: Path, fake: FakeDiscord) -> None:
    other = {"id": "77", "username": "x", "discriminator": "0", "avatar": None, "bot": True}
    script = Script("to a person")
    with bot(tmp_path, fake, script.model):
        fake.wait(lambda one: one.identified)
        fake.write(f"{NAMED} loop", chat=CHANNEL, author=other)
        fake.write(f"{NAMED} joined", chat=CHANNEL, user=7, type=7)
        fake.write(f"{NAMED} hook", chat=CHANNEL, user=7, webhook_id="5")
        fake.write(f"{NAMED} me", chat=CHANNEL, user=7)
        fake.said("to a person")
    assert len(script.sent) == 1


def test_the_commands_say_what_they_do(tmp_path: Path, fake: FakeDiscord) -> None:
    with bot(tmp_path, fake, Script("a", "b").model):
        fake.wait(lambda one: one.identified)
        fake.write("/help")
        fake.said("/reload-skills")
        fake.write("/skills")
        assert "kestrel" in fake.said("* in use")["text"]
        fake.write("/skill nothing")
        fake.said("No skill `nothing`")
        fake.write("hello")
        fake.said("a")
        fake.write(f"{NAMED} /new", chat=CHANNEL, user=7)
        fake.said("A new conversation", chat=CHANNEL)


def test_a_stop_acts_at_once_and_is_not_repeated_by_the_history(
    tmp_path: Path, fake: FakeDiscord
) -> None:
    with bot(tmp_path, fake, Script("a").model) as house:
        fake.wait(lambda one: one.identified)
        fake.write("/stop")
        fake.said("Everything is stopped")
        assert "discord:42" in house.services.enforcement.tiers.stopped_reason
        fake.write("/resume")
        fake.said("This is not done in a chat")
        fake.disconnect(forget=True)
        fake.wait(lambda one: one.identified == 2, 60)
        fake.write("/help")
        fake.said("/reload-skills")
    with bot(tmp_path, fake, Script("a").model):
        fake.wait(lambda one: one.identified == 3)
        fake.write("/skills")
        fake.said("* in use")
    assert sum("Everything is stopped" in text for text in fake.texts()) == 1


def test_an_answer_longer_than_a_message_comes_in_parts(tmp_path: Path, fake: FakeDiscord) -> None:
    text = "\n\n".join(f"Paragraph {number} " + "word " * 120 for number in range(20))
    script = Script(f"{text}\n\n```py\n" + "code_\n" * 1_500 + "```")
    with bot(tmp_path, fake, script.model):
        fake.wait(lambda one: one.identified)
        fake.write("go")
        fake.wait(lambda one: sum(text.count("code_") for text in one.texts()) == 1_500, 60)
    assert "Paragraph 0" in fake.texts()[0]
    assert any("Paragraph 19" in text for text in fake.texts())
    fences = [text for text in fake.texts() if "code_" in text and "Paragraph" not in text]
    assert all(text.startswith("```py\n") and text.endswith("\n```") for text in fences)


def test_a_text_full_of_special_characters_is_shown_as_it_is(
    tmp_path: Path, fake: FakeDiscord
) -> None:
    special = "a_b <c> [d] " * 150
    with bot(tmp_path, fake, Script(special, "plain").model):
        fake.wait(lambda one: one.identified)
        fake.write("go")
        said = fake.wait(lambda one: one.messages)[0]
        assert len(said["source"]) <= 2_000
        assert said["source"].startswith("```")
        # Without a backslash anywhere.
        assert said["source"].count("a_b <c> [d]") > 140
        fake.write("go")
        fake.said("plain")


def test_without_the_intent_the_bot_says_what_to_switch_on(
    tmp_path: Path, fake: FakeDiscord
) -> None:
    fake.allows_content = False
    with pytest.raises(BaseExceptionGroup) as raised, bot(tmp_path, fake, Script("a").model):
        fake.wait(lambda one: one.closed)
    found: BaseException = raised.value
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, ConfigError)
    assert "`Message Content Intent`" in str(found)
    assert "developer portal" in str(found)


@pytest.mark.parametrize("token", ["", "Bot a.b.c", "123:ABC", "aaaa.bbbb.cc\n", "x" * 300])
def test_what_is_no_token_is_refused_unseen(token: str) -> None:
    with pytest.raises(ConfigError) as raised:
        DiscordChannel(token, chats=None, allow=frozenset())  # type: ignore[arg-type]
    assert raised.value.key == "bot.discord.token"
    assert token not in str(raised.value) or not token


@pytest.mark.parametrize(
    "server",
    ["http://127.0.0.1:1", "https://", "gateway.example", "https://[::1", "wss://x", "https://x/p"],
)
def test_a_server_is_reached_with_tls_alone(server: str) -> None:
    token = "MTIz.GfakeX.token-of-nothing"
    with pytest.raises(ConfigError, match="https"):
        DiscordChannel(token, server=server, chats=None, allow=frozenset())  # type: ignore[arg-type]


def test_custom_ids_are_short(tmp_path: Path, fake: FakeDiscord) -> None:
    with bot(tmp_path, fake, Script(WRITE, "done").model):
        fake.wait(lambda one: one.identified)
        fake.write("go")
        question = fake.said("poem.txt")
        assert "custom_id" in json.dumps(question["buttons"])
        found = [one["custom_id"] for row in question["buttons"] for one in row["components"]]
        assert max(map(len, found)) <= 100
        fake.press(question, "Deny")
        fake.said("done")
