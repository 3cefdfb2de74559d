"""A bot that people talk with in Telegram: order, questions, restarts, limits of the service."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from tests.extensions.channels.bots import bot
from tests.extensions.channels.fake_telegram import FakeTelegram, fake_telegram
from tests.extensions.chat.test_conversation import LOAD, WRITE, Script
from tests.frontends.adapters.houses import answers, written
from tests.harness import until
from tests.states import state_at

from skillhouse.audit import read_records
from skillhouse.extensions.channels import gateway
from skillhouse.extensions.channels.chat_channel import BusyChannelError, Outgoing
from skillhouse.extensions.channels.gateway import FAILED, UNDONE_MAX
from skillhouse.extensions.channels.mailbox import Mailbox, SessionKey, WaitingUpdate
from skillhouse.extensions.channels.telegram import TelegramChannel
from skillhouse.extensions.chat.conversation import Answered, ChatConversation
from skillhouse.floor import make_private
from skillhouse.store import STATE_FILE, store

pytestmark = pytest.mark.slow


@pytest.fixture
def fake() -> Iterator[FakeTelegram]:
    with fake_telegram() as made:
        yield made


def test_a_message_is_answered_with_the_skills(tmp_path: Path, fake: FakeTelegram) -> None:
    script = Script(LOAD, "Falcons nest on *ledges*.")
    with bot(tmp_path, fake, script.model) as house:
        fake.write("Where do falcons nest?")
        said = fake.said("ledges")
        assert said["text"] == "Falcons nest on ledges."
        assert said["source"] == "Falcons nest on <i>ledges</i>."
        records = [found.record for found in read_records(house.audit_log.path)]
    assert ("skill", "telegram", "telegram:42") in {
        (one.tool, one.channel, one.user) for one in records
    }


def test_a_question_is_answered_with_a_button_by_who_asked(
    tmp_path: Path, fake: FakeTelegram
) -> None:
    with bot(tmp_path, fake, Script(WRITE, "It is written.").model) as house:
        fake.write("Write a poem")
        question = fake.said("poem.txt")
        assert question["buttons"][0][0]["text"] == "Approve"
        fake.press(question, "Approve", user=43)
        fake.wait(lambda one: one.of("answerCallbackQuery"))
        assert "Only the person who asked" in fake.of("answerCallbackQuery")[0]["text"]
        assert written(tmp_path) is None
        fake.press(question, "Approve")
        fake.said("It is written.")
        assert written(tmp_path) == "Rain.\n"
        assert "approved by Ada" in fake.said("approved by")["text"]
        assert fake.said("approved by")["buttons"] == []
        assert answers(house)[-1][2:] == ("once", "telegram")


def test_a_stranger_hears_one_sentence_and_the_model_nothing(
    tmp_path: Path, fake: FakeTelegram, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script("secret")
    with bot(tmp_path, fake, script.model, allow=("telegram:42",)):
        fake.write("hello", user=99)
        fake.said("telegram:99")
        fake.write("hello again", user=99)
        fake.write("hi", user=42)
        fake.said("secret")
    assert len(fake.texts(99)) == 1
    assert len(script.sent) == 1
    assert caplog.text.count("user 99 is not on the list") == 1


def test_what_waits_at_a_limit_or_a_fault_is_sent_once(tmp_path: Path, fake: FakeTelegram) -> None:
    fake.faults["sendMessage"] = deque([429, 500, "before"])
    with bot(tmp_path, fake, Script("one answer").model):
        fake.write("go")
        fake.said("one answer", seconds=60)
    assert len([text for text in fake.texts() if "one answer" in text]) == 1


def test_an_answer_whose_sending_was_cut_off_says_so_when_it_comes_again(
    tmp_path: Path, fake: FakeTelegram
) -> None:
    fake.faults["sendMessage"] = deque(["after"])
    with bot(tmp_path, fake, Script("one answer").model):
        fake.write("go")
        again = fake.said("perhaps sent twice", seconds=60)
    assert "one answer" in again["text"]
    assert fake.texts() == ["one answer", again["text"]]


def test_what_was_written_while_no_bot_ran_is_answered_in_order(
    tmp_path: Path, fake: FakeTelegram
) -> None:
    for number in range(3):
        fake.write(f"message {number}")
    with bot(tmp_path, fake, Script("a0", "a1", "a2").model):
        fake.said("a2")
    assert fake.texts() == ["a0", "a1", "a2"]
    fake.write("and now")
    script = Script("remembered")
    with bot(tmp_path, fake, script.model):
        fake.said("remembered")
    # The conversation goes on after a restart.
    assert "message 0" in str(script.sent[0])


def test_an_update_that_is_delivered_twice_is_answered_once(
    tmp_path: Path, fake: FakeTelegram
) -> None:
    script = Script("first", "second")
    with bot(tmp_path, fake, script.model):
        fake.write("go")
        fake.said("first")
        again = fake.wait(lambda one: one.delivered)[0]
        fake.redeliver(again)
        fake.write("next")
        fake.said("second")
    assert fake.texts() == ["first", "second"]


def test_in_a_group_the_bot_answers_when_it_is_named(tmp_path: Path, fake: FakeTelegram) -> None:
    script = Script("in the group")
    with bot(tmp_path, fake, script.model):
        fake.write("nobody asked", chat=-100, user=7)
        fake.write("@house_bot what is new?", chat=-100, user=7)
        said = fake.said("in the group", chat=-100)
    assert said["reply_to"] is not None
    assert "what is new?" in str(script.sent[0])
    assert "@house_bot" not in str(script.sent[0])


def test_the_commands_say_what_they_do(tmp_path: Path, fake: FakeTelegram) -> None:
    with bot(tmp_path, fake, Script("a", "b").model):
        fake.write("/help")
        fake.said("/reload-skills")
        fake.write("/skills")
        assert "kestrel" in fake.said("* in use")["text"]
        fake.write("/reload_skills")
        fake.wait(lambda one: len(one.messages) == 3)
        assert "skills" in fake.texts()[2]
        fake.write("/skill nothing")
        fake.said("No skill `nothing`")
        fake.write("hello")
        fake.said("a")
        fake.write("/new")
        fake.said("A new conversation")


def test_stop_stops_everything_at_once(tmp_path: Path, fake: FakeTelegram) -> None:
    with bot(tmp_path, fake, Script("a").model) as house:
        fake.write("/stop")
        fake.said("Everything is stopped")
        assert "telegram:42" in house.services.enforcement.tiers.stopped_reason
        fake.write("/resume")
        fake.said("This is not done in a chat")
        assert house.services.enforcement.tiers.stopped_reason


def test_what_fails_in_one_message_ends_no_other(
    tmp_path: Path, fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = ChatConversation.ask

    async def failing(self: ChatConversation, *prompts: str) -> Answered:
        if prompts == ("fail",):
            raise OSError("no space left on device")
        return await ask(self, *prompts)

    monkeypatch.setattr(ChatConversation, "ask", failing)
    with bot(tmp_path, fake, Script("answered").model):
        fake.write("fail")
        fake.said(FAILED)
        fake.write("go", user=43)
        fake.said("answered", chat=43)


def test_sessions_are_side_by_side_and_one_of_a_session_after_the_other(
    tmp_path: Path, fake: FakeTelegram
) -> None:
    """A question that waits in one chat holds no other up, and what follows it waits."""
    with bot(tmp_path, fake, Script(WRITE, "other", "written", "after").model):
        fake.write("write")
        question = fake.said("poem.txt")
        fake.write("and then?")
        fake.write("hello", user=43)
        fake.said("other", chat=43)
        assert fake.texts(42) == [question["text"]]
        fake.press(question, "Approve")
        fake.said("after")
    assert fake.texts(42)[1:] == ["written", "after"]


@pytest.mark.file_state  # The test shortens the wait for a file; a server has its own.
def test_state_that_another_process_holds_is_waited_for(
    tmp_path: Path,
    fake: FakeTelegram,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(store, "BUSY_SECONDS", 0.05)
    monkeypatch.setattr(gateway, "STATE_WAITS", (0.05,) * 200)
    with bot(tmp_path, fake, Script("On ledges.", "On cliffs.").model) as house:
        fake.write("Where do falcons nest?")
        fake.said("On ledges.")
        with state_at(house.config.state_directory / STATE_FILE):
            fake.write("And where else?")
            until(lambda: "it is tried again" in caplog.text)
            assert "On cliffs." not in str(fake.messages)
        fake.said("On cliffs.")
    assert [one["text"] for one in fake.messages] == ["On ledges.", "On cliffs."]


def test_a_message_that_comes_as_the_last_one_ends_is_answered(
    tmp_path: Path, fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_next = Mailbox.begin_next
    late: list[str] = []

    def begin(self: Mailbox, session: SessionKey) -> WaitingUpdate | None:
        found = begin_next(self, session)
        if found is None and not late:
            late.append("late")
            fake.write("late")
            # It is stored, and its session woken, before the worker hears that there is none.
            fake.wait(lambda one: any("late" in str(update) for update in one.delivered))
        return found

    monkeypatch.setattr(Mailbox, "begin_next", begin)
    with bot(tmp_path, fake, Script("first", "second").model):
        fake.write("go")
        fake.said("first")
        fake.said("second")


def test_a_group_that_becomes_a_supergroup_keeps_its_conversation(
    tmp_path: Path, fake: FakeTelegram
) -> None:
    script = Script("before", "after")
    allow = ("telegram:chat:-100", "telegram:chat:-200")
    with bot(tmp_path, fake, script.model, allow=allow):
        fake.write("@house_bot remember", chat=-100, user=7)
        fake.said("before", chat=-100)
        fake.write("", chat=-200, user=7, migrate_from_chat_id=-100)
        fake.write("@house_bot and now", chat=-200, user=7)
        fake.said("after", chat=-200)
    assert "remember" in str(script.sent[1])


def test_a_question_is_answered_where_its_group_is_now(tmp_path: Path, fake: FakeTelegram) -> None:
    allow = ("telegram:chat:-100", "telegram:chat:-200")
    with bot(tmp_path, fake, Script(WRITE, "It is written.").model, allow=allow):
        fake.write("@house_bot write", chat=-100, user=7)
        question = fake.said("poem.txt", chat=-100)
        fake.write("", chat=-200, user=7, migrate_from_chat_id=-100)
        moved = {**question, "chat": {"id": -200, "type": "supergroup", "title": "Team"}}
        fake.press(moved, "Approve", user=8)
        fake.wait(lambda one: one.of("answerCallbackQuery"))
        assert written(tmp_path) is None
        fake.press(moved, "Approve", user=7)
        fake.said("It is written.")
    assert written(tmp_path) == "Rain.\n"


def test_an_answer_is_shown_as_soon_as_it_begins_and_none_of_the_one_before(
    tmp_path: Path, fake: FakeTelegram
) -> None:
    script = Script("the first answer", "the second answer")
    with bot(tmp_path, fake, script.model):
        fake.write("go")
        fake.said("the first answer")
        fake.write("go on")
        fake.said("the second answer")
    shown = [
        (name, str(payload.get("text")))
        for name, payload in fake.calls
        if name in ("sendMessageDraft", "sendMessage")
    ]
    after = shown[shown.index(("sendMessage", "the first answer")) + 1 :]
    assert all("first" not in text for _, text in after)


def test_a_message_of_full_length_has_room_to_say_that_it_comes_again(
    tmp_path: Path, fake: FakeTelegram
) -> None:
    fake.faults["sendMessage"] = deque(["after"])
    with bot(tmp_path, fake, Script("x " * 2_040 + "end").model):
        fake.write("go")
        fake.said("perhaps sent twice", seconds=60)
        fake.said("end", seconds=60)


@pytest.mark.parametrize("fault", [429, 500, "before"])
def test_a_question_that_meets_a_limit_or_a_fault_is_shown_later(
    tmp_path: Path, fake: FakeTelegram, fault: int | str
) -> None:
    fake.faults["sendMessage"] = deque([fault])
    with bot(tmp_path, fake, Script(WRITE, "It is written.").model):
        fake.write("Write a poem")
        fake.press(fake.said("poem.txt", seconds=60), "Approve")
        fake.said("It is written.", seconds=60)
    assert written(tmp_path) == "Rain.\n"


def test_a_named_approver_need_not_be_one_who_may_write(tmp_path: Path, fake: FakeTelegram) -> None:
    model = Script(WRITE, "done").model
    with bot(tmp_path, fake, model, allow=("telegram:42",), approvers=("telegram:99",)):
        fake.write("@house_bot go", chat=-100)
        fake.press(fake.said("poem.txt", chat=-100), "Approve", user=99)
        fake.said("done", chat=-100)
    assert written(tmp_path) == "Rain.\n"


def test_a_chat_that_moved_keeps_what_waits_and_its_sessions_when_it_is_said_twice(
    tmp_path: Path,
) -> None:
    make_private(tmp_path)
    mailbox = Mailbox(tmp_path)
    before, now = (SessionKey("telegram", chat, "7") for chat in ("-100", "-200"))
    mailbox.keep_transcript(before, "kept")
    mailbox.post("telegram", Outgoing(chat="-100", text="waits"))
    for _ in range(2):
        mailbox.move_chat("telegram", "-100", "-200")
    assert mailbox.transcript(now) == "kept"
    answer = mailbox.next_answer("telegram", frozenset())
    assert answer is not None
    # By this chat the gateway notes which takes none now.
    assert answer.message.chat == "-200"
    assert mailbox.next_answer("telegram", frozenset({answer.message.chat})) is None


def test_who_runs_the_bot_hears_that_an_allowed_group_has_another_id(
    tmp_path: Path, fake: FakeTelegram, caplog: pytest.LogCaptureFixture
) -> None:
    with bot(tmp_path, fake, Script("a").model, allow=("telegram:42", "telegram:chat:-100")):
        fake.write("", chat=-200, user=7, migrate_from_chat_id=-100)
        fake.write("go")
        fake.said("a")
    assert "`telegram:chat:-200`" in caplog.text


def test_a_stop_waits_for_nothing_that_is_said_to_those_who_press(
    tmp_path: Path, fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = threading.Event()

    async def say(self: TelegramChannel, press: str, text: str) -> None:
        # As a service that is slow, or asked by many at once.
        await anyio.to_thread.run_sync(lambda: stopped.wait(60), abandon_on_cancel=True)

    monkeypatch.setattr(TelegramChannel, "say_to_presser", say)
    shown = {"buttons": [], "message_id": 1, "chat": {"id": -100, "type": "supergroup"}}
    fake.press(shown, "", user=42, data="q.none.once")
    fake.press(shown, "", user=99, data="q.none.once")
    fake.write("/stop")
    with bot(tmp_path, fake, Script("a").model):
        fake.said("Everything is stopped", seconds=15)
        stopped.set()


def test_a_command_of_the_bot_counts_in_a_group_and_one_of_another_does_not(
    tmp_path: Path, fake: FakeTelegram
) -> None:
    with bot(tmp_path, fake, Script("a").model) as house:
        for text in ("/weather", "/stop@other_bot", "go to /stop"):
            fake.write(text, chat=-100, user=7)
        fake.write("/help", chat=-100, user=7)
        fake.said("/reload-skills", chat=-100)
        assert not house.services.enforcement.tiers.stopped_reason
        fake.write("/stop", chat=-100, user=7)
        fake.said("Everything is stopped", chat=-100)
    assert len(fake.texts(-100)) == 2


def test_an_answer_waits_as_long_as_the_service_cannot_be_reached(
    tmp_path: Path, fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, left = TelegramChannel.send, iter(range(2 * UNDONE_MAX))

    async def unreached(self: TelegramChannel, message: Outgoing, key: str) -> str:
        if next(left, None) is not None:
            raise BusyChannelError("no connection", seconds=0.01)
        return await send(self, message, key)

    monkeypatch.setattr(TelegramChannel, "send", unreached)
    with bot(tmp_path, fake, Script("one answer").model):
        fake.write("go")
        fake.said("one answer")
    assert fake.texts() == ["one answer"]
