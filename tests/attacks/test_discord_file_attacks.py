"""Attacks by files in Discord: where they are, what they are called, how large they are."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillhouse.extensions.channels import discord
from tests.attacks.test_channel_file_attacks import everything
from tests.extensions.channels.bots import bot
from tests.extensions.channels.fake_discord import TOKEN, FakeDiscord, fake_discord, faults
from tests.extensions.chat.test_conversation import Script

pytestmark = pytest.mark.slow

BIDI = "\u202e"
FOLDER = "inbox/discord-7000042-42"


@pytest.fixture
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeDiscord]:
    with fake_discord(tmp_path_factory.mktemp("discord")) as made:
        yield made


ADDRESSES = [
    "https://127.0.0.1:{port}/attachments/1/2/x",
    "https://localhost:{port}/x",
    "https://cdn.discordapp.com:{port}/x",
    "https://cdn.discordapp.com@127.0.0.1:{port}/x",
    "https://127.0.0.1:{port}\\@cdn.discordapp.com/x",
    "https://me:pass@cdn.discordapp.com/x",
    "https://cdn.discordapp.com.evil.example/x",
    "https://evil.example#cdn.discordapp.com/x",
    "https://discord.com/api/v10/users/@me",
    "http" + "://cdn.discordapp.com/x",
    "//cdn.discordapp.com/x",
    "file:///etc/passwd",
    "https://[::1",
    "",
]


def test_an_address_that_is_none_of_discord_is_not_asked(tmp_path: Path, fake: FakeDiscord) -> None:
    """The service, or who is in its place, names a server of this network."""
    script = Script(*[f"no {number}." for number in range(len(ADDRESSES))])
    with bot(tmp_path, fake, script.model):
        fake.wait(lambda one: one.identified)
        for number, address in enumerate(ADDRESSES):
            fake.address = address.format(port=fake.port) or " "
            fake.send(("a.txt", b"x"))
            fake.said(f"no {number}.")
    assert fake.of("file") == []
    assert len(fake.of("me")) == 1
    assert everything(tmp_path / "project") == {}
    assert all("could not be fetched" in str(one) for one in script.sent)


def test_an_address_that_leads_elsewhere_is_not_followed(tmp_path: Path, fake: FakeDiscord) -> None:
    fake.faults["file"] = faults(302)
    script = Script("no")
    with bot(tmp_path, fake, script.model):
        fake.wait(lambda one: one.identified)
        fake.send(("a.txt", b"x"))
        fake.said("no")
    assert len(fake.of("file")) == 1
    assert everything(tmp_path / "project") == {}


@pytest.mark.parametrize("name", ["../x", f"{BIDI}x", "..\\..\\x", "/etc/x", "a\x00/x", "x"])
def test_a_file_of_an_odd_name_is_in_the_inbox_under_a_plain_one(
    tmp_path: Path, fake: FakeDiscord, name: str
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/x").write_bytes(b"mine")
    script = Script("taken")
    with bot(tmp_path, fake, script.model):
        fake.wait(lambda one: one.identified)
        odd = {**fake.attachment("x", b"2"), "title": name}
        fake.write("look", attachments=[fake.attachment(name, b"1"), odd])
        fake.said("taken")
    found = everything(tmp_path / "project")
    assert found.pop("x") == b"mine"
    assert sorted(found.values()) == [b"1", b"2"]
    assert all(one.startswith(f"{FOLDER}/x-") for one in found)
    heard = str(script.sent[0])
    assert BIDI not in heard
    assert "../" not in heard


def test_a_file_of_an_odd_name_is_sent_under_a_plain_one(tmp_path: Path, fake: FakeDiscord) -> None:
    project = tmp_path / "project"
    project.mkdir()
    names = [f"in{BIDI}fdp.exe", 'a"; filename="b.txt', "c\r\nX-Y: z\r\n\r\nd.txt"]
    for name in names:
        (project / name).write_bytes(b"x")
    calls = [("send_file", {"path": name}) for name in names]
    with bot(tmp_path, fake, Script(*calls, "done").model):
        fake.wait(lambda one: one.identified)
        fake.write("go")
        fake.said("done")
    sent = [name for one in fake.messages for name, _ in one["files"]]
    assert sent == ["in fdp.exe", "a_; filename=_b.txt", "c X-Y: z d.txt"]


def test_a_file_that_is_larger_than_is_said_is_not_kept(
    tmp_path: Path, fake: FakeDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discord.DiscordChannel, "received_max", 1_000_000)
    script = Script("said", "not said", "negative")
    with bot(tmp_path, fake, script.model):
        fake.wait(lambda one: one.identified)
        fake.send(("a.bin", b"x"), size=1_000_001)
        fake.said("said")
        assert fake.of("file") == []
        fake.send(("b.bin", b"x" * 1_000_001), size=10)
        fake.said("not said")
        fake.send(("c.bin", b"x" * 1_000_001), size=-1)
        fake.said("negative")
    assert all("at most 1 MB" in str(one[-1]) for one in script.sent)
    assert everything(tmp_path / "project") == {}


def test_more_files_than_a_message_may_have_are_not_taken(
    tmp_path: Path, fake: FakeDiscord
) -> None:
    script = Script("ten")
    with bot(tmp_path, fake, script.model):
        fake.wait(lambda one: one.identified)
        fake.send(*[(f"{number}.txt", b"x") for number in range(12)])
        fake.said("ten")
    assert len(everything(tmp_path / "project")) == 10
    assert "Of 12 files only 10" in str(script.sent[0])


def test_what_a_stranger_sends_is_not_fetched(tmp_path: Path, fake: FakeDiscord) -> None:
    with bot(tmp_path, fake, Script("hi").model, allow=("discord:42",)):
        fake.wait(lambda one: one.identified)
        fake.send(("a.txt", b"x"), user=99)
        fake.said("discord:99")
        fake.write("hi")
        fake.said("hi")
    assert fake.of("message") == fake.of("file") == []
    assert not (tmp_path / "project/inbox").exists()


def test_no_token_and_no_address_of_a_file_is_in_a_log(
    tmp_path: Path, fake: FakeDiscord, caplog: pytest.LogCaptureFixture
) -> None:
    """By its address anyone gets a file for a day."""
    caplog.set_level(logging.DEBUG, "skillhouse")
    caplog.set_level(logging.WARNING)
    fake.faults["message"] = faults(403)
    fake.faults["file"] = faults(500, "before", "after", 404)
    script = Script("one", "two", "three")
    with bot(tmp_path, fake, script.model):
        fake.wait(lambda one: one.identified)
        for word in ("one", "two", "three"):
            fake.send(("a.txt", b"x" * 1_000))
            fake.said(word, seconds=60)
    assert len(fake.signatures) > 3
    shown = caplog.text + str(script.sent)
    assert "a file was not stored" in shown
    assert not any(one in shown for one in (TOKEN, "attachments/", *fake.signatures))
