"""Files that people send to the bot in Discord, and that it sends to them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.extensions.channels.bots import bot
from tests.extensions.channels.fake_discord import (
    BOT_ID,
    CDN,
    CHANNEL,
    TOKEN,
    FakeDiscord,
    fake_discord,
    faults,
)
from tests.extensions.channels.programs import echoing, start_bot, write_discord_settings
from tests.extensions.channels.test_bot_files import SEND, inbox
from tests.extensions.chat.test_conversation import Script
from tests.harness import until

from skillhouse.extensions.channels.mailbox import Mailbox
from skillhouse.extensions.channels.send_file import FOLDER

pytestmark = pytest.mark.slow

NAMED = f"<@{BOT_ID}>"
FOLDER_OF_42 = "discord-7000042-42"
"""A direct chat has an id of its own."""


@pytest.fixture
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeDiscord]:
    with fake_discord(tmp_path_factory.mktemp("discord")) as made:
        yield made


def report(base: Path, data: bytes = b"%PDF-1.7") -> None:
    (base / "project").mkdir()
    (base / "project/report.pdf").write_bytes(data)


def test_files_are_in_the_inbox_and_the_model_hears_where(
    tmp_path: Path, fake: FakeDiscord
) -> None:
    script = Script("read both")
    with bot(tmp_path, fake, script.model):
        fake.wait(lambda one: one.identified)
        fake.send(("My_report.pdf", b"%PDF-1.7"), ("b.txt", b"two"), text="What is in these?")
        fake.said("read both")
    first, second = sorted(inbox(tmp_path, FOLDER_OF_42), key=lambda one: one.suffix)
    assert (first.read_bytes(), second.read_bytes()) == (b"%PDF-1.7", b"two")
    assert re.fullmatch(r"My-report-[0-9a-f]{10}\.pdf", first.name)
    assert first.stat().st_mode & 0o777 == 0o600
    heard = str(script.sent[0])
    assert "What is in these?" in heard
    assert f"at `inbox/{FOLDER_OF_42}/{first.name}`, 8 bytes" in heard
    # Asked of the CDN, which gets no token.
    assert fake.of("file") == [{"host": CDN, "authorization": None}] * 2


def test_a_file_without_a_text_and_with_a_title_is_one_too(
    tmp_path: Path, fake: FakeDiscord
) -> None:
    with bot(tmp_path, fake, Script("thanks").model):
        fake.wait(lambda one: one.identified)
        one = fake.attachment("t.pdf", b"x")
        fake.write("", attachments=[{**one, "title": "été"}])
        fake.said("thanks")
    (file,) = inbox(tmp_path, FOLDER_OF_42)
    assert (file.name[:4], file.suffix) == ("été-", ".pdf")


def test_in_a_server_a_file_counts_where_the_bot_is_named(
    tmp_path: Path, fake: FakeDiscord
) -> None:
    with bot(tmp_path, fake, Script("thanks").model):
        fake.wait(lambda one: one.identified)
        fake.send(("no.txt", b"no"), chat=CHANNEL, user=7)
        fake.send(("yes.txt", b"yes"), text=NAMED, chat=CHANNEL, user=7)
        fake.said("thanks", chat=CHANNEL)
    (file,) = inbox(tmp_path, f"discord-{CHANNEL}-7")
    assert file.read_bytes() == b"yes"


def test_a_file_that_was_sent_while_no_bot_ran_is_fetched(
    tmp_path: Path, fake: FakeDiscord
) -> None:
    with bot(tmp_path, fake, Script("first").model):
        fake.wait(lambda one: one.identified)
        fake.write("hello")
        fake.said("first")
    fake.send(("late.txt", b"late"))
    with bot(tmp_path, fake, Script("I have it").model):
        fake.said("I have it")
    (file,) = inbox(tmp_path, FOLDER_OF_42)
    assert file.read_bytes() == b"late"


def test_what_cannot_be_fetched_now_is_tried_again_and_whole(
    tmp_path: Path, fake: FakeDiscord
) -> None:
    fake.faults["message"] = faults(429)
    fake.faults["file"] = faults(503, "before", "after")
    with bot(tmp_path, fake, Script("here").model):
        fake.wait(lambda one: one.identified)
        fake.send(("a.txt", b"0123456789" * 50_000))
        fake.said("here", seconds=60)
    (file,) = inbox(tmp_path, FOLDER_OF_42)
    assert file.read_bytes() == b"0123456789" * 50_000


@pytest.mark.parametrize("gone", ["message", "attachment", "bytes"])
def test_a_file_that_is_gone_is_said_to_the_model(
    tmp_path: Path, fake: FakeDiscord, gone: str
) -> None:
    script = Script("hi", "I did not get it")
    with bot(tmp_path, fake, script.model):
        fake.wait(lambda one: one.identified)
        fake.write("hello")
        fake.said("hi")
        with fake.lock:
            sent = fake.send(("a.txt", b"x"), text="look")
            if gone == "message":
                fake.history[fake.direct_chat(42)].remove(sent)
            elif gone == "attachment":
                sent["attachments"] = []
            else:
                fake.faults["file"] = faults(404)
        fake.said("I did not get it")
    assert "could not be fetched or stored" in str(script.sent[1])
    assert inbox(tmp_path, FOLDER_OF_42) == []


def test_the_bot_sends_a_file_before_its_answer(tmp_path: Path, fake: FakeDiscord) -> None:
    report(tmp_path)
    with bot(tmp_path, fake, Script(SEND, "There it is.").model) as house:
        fake.wait(lambda one: one.identified)
        fake.write("Send me the report")
        fake.said("There it is.")
        state = house.config.state_directory
        fake.wait(lambda _: list((state / FOLDER).iterdir()) == [])
    first, second = fake.messages
    assert (first["files"], first["text"]) == ([("report.pdf", b"%PDF-1.7")], "")
    assert first["payload"]["enforce_nonce"] is True
    assert first["payload"]["allowed_mentions"]["parse"] == []
    assert (second["files"], second["text"]) == ([], "There it is.")


@pytest.mark.parametrize("fault", [429, 500, "before", "after"])
def test_a_file_whose_sending_was_cut_off_comes_once(
    tmp_path: Path, fake: FakeDiscord, fault: int | str
) -> None:
    report(tmp_path, b"0123456789" * 50_000)
    fake.faults["send"] = faults(fault)
    with bot(tmp_path, fake, Script(SEND, "There it is.").model):
        fake.wait(lambda one: one.identified)
        fake.write("Send me the report")
        fake.said("There it is.", seconds=60)
    assert fake.texts() == ["", "There it is."]
    assert fake.messages[0]["files"] == [("report.pdf", b"0123456789" * 50_000)]


def test_a_file_that_discord_does_not_take_is_said_to_the_person(
    tmp_path: Path, fake: FakeDiscord
) -> None:
    report(tmp_path, b"x" * 101)
    fake.attachment_max = 100
    with bot(tmp_path, fake, Script(SEND, "There it is.").model) as house:
        fake.wait(lambda one: one.identified)
        fake.write("Send me the report")
        said = fake.said("could not be sent")
        state = house.config.state_directory
        fake.wait(lambda _: list((state / FOLDER).iterdir()) == [])
    assert said["text"] == (
        "The file report.pdf could not be sent: it is larger than what Discord takes in this chat"
    )


def test_a_file_that_is_too_large_for_any_chat_is_said_to_the_model(
    tmp_path: Path, fake: FakeDiscord
) -> None:
    report(tmp_path, b"x" * 10_000_001)
    script = Script(SEND, "It is too large.")
    with bot(tmp_path, fake, script.model):
        fake.wait(lambda one: one.identified)
        fake.write("Send me the report")
        fake.said("It is too large.")
    assert "larger than the 10000000 bytes that can be sent" in str(script.sent[1])
    assert fake.texts() == ["It is too large."]


def test_a_file_is_not_lost_when_the_bot_is_killed_and_its_address_has_ended(
    tmp_path: Path, fake: FakeDiscord
) -> None:
    fake.faults["file"] = faults(503)
    environment = {"BOT_TOKEN": TOKEN, "SSL_CERT_FILE": fake.certificate}
    with echoing() as model:
        write_discord_settings(tmp_path, fake, model.url, ["discord:42"])
        process = start_bot(tmp_path, environment=environment)
        try:
            fake.wait(lambda one: one.identified, 60)
            fake.send(("a.txt", b"whole"), text="keep this")
            fake.wait(lambda one: one.of("file"), 60)
            process.kill()
            process.wait()
            assert not [one for one in inbox(tmp_path, FOLDER_OF_42) if one.suffix == ".txt"]
            fake.end_addresses()
            process = start_bot(tmp_path, environment=environment)
            said = fake.said("re: keep this", seconds=60)
        finally:
            process.kill()
            process.wait()
    (file,) = inbox(tmp_path, FOLDER_OF_42)
    assert file.read_bytes() == b"whole"
    assert f"inbox/{FOLDER_OF_42}/{file.name}" in said["text"]
    assert len(fake.messages) == 1


def test_a_file_of_the_bot_is_there_once_when_it_ends_before_it_knows_of_it(
    tmp_path: Path, fake: FakeDiscord
) -> None:
    report(tmp_path)
    script = Script(SEND, "There it is.")
    # The service has it; its answer is lost, and the process ends before the next try.
    fake.faults["send"] = faults("after", 503)
    with bot(tmp_path, fake, script.model) as house:
        fake.wait(lambda one: one.identified)
        fake.write("Send me the report")
        fake.wait(lambda one: one.messages)
        mailbox = Mailbox(house.config.state_directory)
        # The answer is stored, behind the file.
        assert until(lambda: not mailbox.sessions("discord"), 30)
    with bot(tmp_path, fake, Script("").model):
        fake.said("There it is.", seconds=60)
    assert [one["files"] for one in fake.messages] == [[("report.pdf", b"%PDF-1.7")], []]
