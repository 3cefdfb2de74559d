"""Files that people send to the bot, and that it sends to them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.extensions.channels.bots import bot
from tests.extensions.channels.fake_telegram import FakeTelegram, fake_telegram
from tests.extensions.channels.programs import echoing, start_bot, write_settings
from tests.extensions.chat.test_conversation import Script

from skillhouse.audit import read_records
from skillhouse.extensions.channels.gateway import REPEATED
from skillhouse.extensions.channels.mailbox import Mailbox
from skillhouse.extensions.channels.send_file import FOLDER

pytestmark = pytest.mark.slow

SEND = ("send_file", {"path": "report.pdf"})


@pytest.fixture
def fake() -> Iterator[FakeTelegram]:
    with fake_telegram() as made:
        yield made


def inbox(base: Path, folder: str = "telegram-42") -> list[Path]:
    return sorted((base / "project/inbox" / folder).glob("*"))


def test_a_file_is_in_the_inbox_and_the_model_hears_where(
    tmp_path: Path, fake: FakeTelegram
) -> None:
    script = Script("read it")
    with bot(tmp_path, fake, script.model):
        fake.send(b"%PDF-1.7", "My report.pdf", caption="What is in this?")
        fake.said("read it")
    (file,) = inbox(tmp_path)
    assert file.read_bytes() == b"%PDF-1.7"
    assert re.fullmatch(r"My-report-[0-9a-f]{10}\.pdf", file.name)
    assert file.stat().st_mode & 0o777 == 0o600
    heard = str(script.sent[0])
    assert "What is in this?" in heard
    assert f"at `inbox/telegram-42/{file.name}`, 8 bytes" in heard


def test_a_photo_without_a_name_or_a_text_is_a_file_too(tmp_path: Path, fake: FakeTelegram) -> None:
    script = Script("a falcon")
    with bot(tmp_path, fake, script.model):
        fake.files["large"] = b"jpeg"
        sizes = [
            {"file_id": name, "file_unique_id": name, "width": width, "height": width}
            for name, width in (("small", 90), ("large", 1280), ("middle", 320))
        ]
        fake.write("", photo=sizes)
        fake.said("a falcon")
    (file,) = inbox(tmp_path)
    assert (file.read_bytes(), file.name[:6], file.suffix) == (b"jpeg", "photo-", ".jpg")


def test_in_a_group_a_file_counts_where_its_text_names_the_bot(
    tmp_path: Path, fake: FakeTelegram
) -> None:
    mention = [{"type": "mention", "offset": 0, "length": 10}]
    with bot(tmp_path, fake, Script("thanks").model):
        fake.send(b"no", "no.txt", chat=-100, user=7)
        named = "@house_bot look"
        fake.send(b"yes", "yes.txt", chat=-100, user=7, caption=named, caption_entities=mention)
        fake.said("thanks", chat=-100)
    (file,) = inbox(tmp_path, "telegram--100-7")
    assert file.read_bytes() == b"yes"


def test_what_cannot_be_fetched_now_is_tried_again_and_whole(
    tmp_path: Path, fake: FakeTelegram
) -> None:
    fake.faults["file"] = deque([500, "before", "after"])
    fake.faults["getFile"] = deque([429])
    script = Script("here")
    with bot(tmp_path, fake, script.model):
        fake.send(b"0123456789" * 1_000, "a.txt")
        fake.said("here", seconds=60)
    (file,) = inbox(tmp_path)
    assert file.read_bytes() == b"0123456789" * 1_000


def test_a_file_that_the_service_lost_is_said_to_the_model(
    tmp_path: Path, fake: FakeTelegram
) -> None:
    script = Script("I did not get it")
    with bot(tmp_path, fake, script.model):
        fake.write("look", document={"file_id": "gone", "file_unique_id": "gone"})
        fake.said("I did not get it")
    assert "could not be fetched or stored" in str(script.sent[0])
    assert inbox(tmp_path) == []


def test_the_bot_sends_a_file_before_its_answer(tmp_path: Path, fake: FakeTelegram) -> None:
    script = Script(SEND, "There it is.")
    (tmp_path / "project").mkdir()
    (tmp_path / "project/report.pdf").write_bytes(b"%PDF-1.7")
    with bot(tmp_path, fake, script.model) as house:
        fake.write("Send me the report")
        fake.said("There it is.")
        state = house.config.state_directory
        fake.wait(lambda _: list((state / FOLDER).iterdir()) == [])
    sent = fake.messages[0]
    assert (sent["file_name"], sent["document"]) == ("report.pdf", b"%PDF-1.7")
    assert [one["text"] for one in fake.messages[1:]] == ["There it is."]
    (found,) = read_records(house.audit_log.path, tool="send_file")
    assert found.outcome is not None
    assert (found.status, found.outcome.detail["bytes"]) == ("ok", 8)
    assert (found.record.channel, found.record.user) == ("telegram", "telegram:42")


def test_a_file_whose_sending_was_cut_off_says_so_when_it_comes_again(
    tmp_path: Path, fake: FakeTelegram
) -> None:
    fake.faults["sendDocument"] = deque([429, "after"])
    (tmp_path / "project").mkdir()
    (tmp_path / "project/report.pdf").write_bytes(b"%PDF-1.7")
    with bot(tmp_path, fake, Script(SEND, "There it is.").model):
        fake.write("Send me the report")
        fake.said("There it is.", seconds=60)
    documents = [one for one in fake.messages if "document" in one]
    assert [one["text"] for one in documents] == ["", REPEATED]


def test_what_is_sent_is_what_was_judged_and_survives_a_restart(
    tmp_path: Path, fake: FakeTelegram
) -> None:
    """The file may change or go, and the process end, before the service takes it."""
    fake.faults["sendDocument"] = deque([429] * 3)
    project = tmp_path / "project"
    project.mkdir()
    (project / "report.pdf").write_bytes(b"as judged")
    with bot(tmp_path, fake, Script(SEND, "There it is.").model) as house:
        fake.write("Send me the report")
        state = house.config.state_directory
        fake.wait(lambda _: Mailbox(state).waiting_files())
        (project / "report.pdf").unlink()
    stray = state / FOLDER / "left-by-a-kill"
    stray.write_bytes(b"x")
    with bot(tmp_path, fake, Script("").model):
        fake.said("There it is.", seconds=60)
    assert [one["document"] for one in fake.messages if "document" in one] == [b"as judged"]
    assert list((state / FOLDER).iterdir()) == []


def test_a_file_is_not_lost_when_the_bot_is_killed_while_it_is_fetched(
    tmp_path: Path, fake: FakeTelegram
) -> None:
    fake.faults["file"] = deque([500])
    with echoing() as model:
        write_settings(tmp_path, fake, model.url, ["telegram:42"])
        process = start_bot(tmp_path)
        try:
            fake.send(b"whole", "a.txt", caption="keep this")
            fake.wait(lambda one: one.of("file"), 60)
            assert not [one for one in inbox(tmp_path) if one.suffix == ".txt"]
            process.kill()
            process.wait()
            process = start_bot(tmp_path)
            said = fake.said("re: keep this", seconds=60)
        finally:
            process.kill()
            process.wait()
    (file,) = inbox(tmp_path)
    assert file.read_bytes() == b"whole"
    assert f"inbox/telegram-42/{file.name}" in said["text"]
    assert len(fake.messages) == 1


def test_send_file_is_offered_in_chats_alone(tmp_path: Path, fake: FakeTelegram) -> None:
    script = Script("hello")
    with bot(tmp_path, fake, script.model) as house:
        fake.write("hello")
        fake.said("hello")
        assert "send_file" not in [one.name for one in house.tools()]
        made = house.call_sync("send_file", {"path": "report.pdf"})
    assert made.is_error
    assert "there is no chat here" in made.content
