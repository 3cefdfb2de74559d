"""Attacks by files that people send to the bot, and by what a model wants sent."""

from __future__ import annotations

import io
import os
import unicodedata
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillhouse.extensions.channels import received_files
from skillhouse.extensions.channels.received_files import kept_name
from skillhouse.permission import Effect, Rule
from tests.extensions.channels.bots import bot
from tests.extensions.channels.fake_telegram import TOKEN, FakeTelegram, fake_telegram
from tests.extensions.chat.test_conversation import Script
from tests.frontends.adapters.houses import answers

NAMES = [
    "../x",
    "../../../../etc/passwd",
    "/etc/passwd",
    "..\\..\\x.exe",
    "C:\\Windows\\system32\\x.dll",
    "..",
    ".",
    "",
    " ",
    ".env",
    ".ssh/authorized_keys",
    "AGENTS.md",
    "SKILL.md",
    "id_rsa",
    "NUL",
    "con.txt",
    "COM1.tar.gz",
    "a\x00b.txt",
    "a\nb\r\x1b[2J.txt",
    "invoice\u202efdp.exe",
    "\u200b\u2066\ufeff.txt",
    "\u3164.txt",
    "a`b$(reboot);|&<>*?\"'.txt",
    "x" * 5_000,
    "\U0001f600" * 500 + ".txt",
    "\ud800.txt",
    "name." + "e" * 300,
    "-rf",
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_name_is_one_plain_part(name: str) -> None:
    made = kept_name(name, "key")
    stem, _, end = made.partition(".")
    assert all(one.isalnum() or one == "-" for one in stem)
    assert all(one.isascii() and one.isalnum() for one in end)
    assert not stem.startswith("-")
    assert len(made.encode()) <= 120
    assert not any(unicodedata.category(one).startswith("C") for one in made)
    assert made.lower() not in {"agents.md", "skill.md", "id_rsa"}
    assert os.path.basename(made) == made
    assert kept_name(name, "another key") != made


@pytest.fixture
def fake() -> Iterator[FakeTelegram]:
    with fake_telegram() as made:
        yield made


def everything(base: Path) -> dict[str, bytes]:
    """Return each file that is in the workspace, and around it."""
    return {
        str(file.relative_to(base)): file.read_bytes()
        for file in base.rglob("*")
        if file.is_file() and ".local" not in file.parts and "skills" not in file.parts
    }


@pytest.mark.slow
def test_files_of_the_same_odd_name_are_all_there_and_nowhere_else(
    tmp_path: Path, fake: FakeTelegram
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/x").write_bytes(b"mine")
    with bot(tmp_path, fake, Script("one", "two", "three").model):
        for data, word in ((b"1", "one"), (b"2", "two"), (b"3", "three")):
            fake.send(data, "../x")
            fake.said(word)
    found = everything(tmp_path / "project")
    assert found.pop("x") == b"mine"
    assert sorted(found.values()) == [b"1", b"2", b"3"]
    assert all(name.startswith("inbox/telegram-42/x-") for name in found)


@pytest.mark.slow
def test_a_zip_bomb_stays_one_file(tmp_path: Path, fake: FakeTelegram) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", b"\0" * 50_000_000)
        archive.writestr("../../escaped", b"x")
    with bot(tmp_path, fake, Script("a zip").model):
        fake.send(packed.getvalue(), "bomb.zip")
        fake.said("a zip")
    found = everything(tmp_path / "project")
    assert list(found.values()) == [packed.getvalue()]


@pytest.mark.slow
def test_a_file_that_is_larger_than_is_said_is_not_kept(
    tmp_path: Path, fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(received_files, "KEPT_BYTES", 1_000_000)
    script = Script("small", "said", "not said", "full")
    with bot(tmp_path, fake, script.model):
        fake.send(b"x" * 600_000, "a.bin")
        fake.said("small")
        fake.send(b"x", "b.bin", size=20_000_001)
        fake.said("said")
        fake.send(b"x" * 500_000, "c.bin", size=10)
        fake.said("not said")
        fake.send(b"x" * 500_000, "d.bin")
        fake.said("full")
    heard = [str(one) for one in script.sent]
    assert "at most 20 MB" in heard[1]
    assert "is full" in heard[2]
    assert [len(data) for data in everything(tmp_path / "project").values()] == [600_000]


@pytest.mark.slow
def test_too_many_files_are_refused(
    tmp_path: Path, fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(received_files, "KEPT_MAX", 2)
    script = Script("a0", "a1", "a2")
    with bot(tmp_path, fake, script.model):
        for number in range(3):
            fake.send(b"x", f"{number}.txt")
        fake.said("a2")
    assert len(everything(tmp_path / "project")) == 2
    assert "is full" in str(script.sent[2])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["link", "file", "link in it"])
def test_an_inbox_that_leads_elsewhere_takes_nothing(
    tmp_path: Path, fake: FakeTelegram, kind: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    project = tmp_path / "project"
    project.mkdir()
    if kind == "link":
        (project / "inbox").symlink_to(outside)
    elif kind == "file":
        (project / "inbox").write_text("mine")
    else:
        (project / "inbox").mkdir()
        (project / "inbox/telegram-42").symlink_to(outside)
    script = Script("no")
    with bot(tmp_path, fake, script.model):
        fake.send(b"x", "a.txt")
        fake.said("no")
    assert list(outside.iterdir()) == []
    assert "was not stored" in str(script.sent[0])


@pytest.mark.slow
def test_a_stranger_and_a_file_for_no_one_store_nothing(tmp_path: Path, fake: FakeTelegram) -> None:
    with bot(tmp_path, fake, Script("hi").model, allow=("telegram:42",)):
        fake.send(b"x", "a.txt", user=99)
        fake.said("telegram:99")
        fake.write("hi")
        fake.said("hi")
    assert fake.of("getFile") == []
    assert not (tmp_path / "project/inbox").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", ["link.txt", "deep/link.txt", "../outside.txt", "inbox/../../outside.txt"]
)
def test_what_leads_out_of_the_workspace_is_not_sent(
    tmp_path: Path, fake: FakeTelegram, path: str
) -> None:
    project = tmp_path / "project"
    (project / "deep").mkdir(parents=True)
    (tmp_path / "outside.txt").write_text("private")
    (project / "link.txt").symlink_to(tmp_path / "outside.txt")
    (project / "deep/link.txt").symlink_to("../../outside.txt")
    with bot(tmp_path, fake, Script(("send_file", {"path": path}), "refused").model):
        fake.write("go")
        fake.said("refused")
    assert fake.of("sendDocument") == []


@pytest.mark.slow
def test_an_absolute_path_and_a_file_of_secrets_are_asked_about(
    tmp_path: Path, fake: FakeTelegram
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / ".env").write_text("KEY=1")
    (tmp_path / "outside.txt").write_text("private")
    calls = [("send_file", {"path": one}) for one in (".env", str(tmp_path / "outside.txt"))]
    with bot(tmp_path, fake, Script(*calls, "refused").model) as house:
        fake.write("go")
        for part in (".env", "outside.txt"):
            question = fake.said(part)
            assert answers(house)[-1][1] == "open"
            fake.press(question, "Deny")
        fake.said("refused")
    assert fake.of("sendDocument") == []


@pytest.mark.slow
def test_a_rule_that_denies_reading_denies_sending(tmp_path: Path, fake: FakeTelegram) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "salaries.csv").write_text("1,2")
    rule = Rule(action="read", pattern="*salaries*", effect=Effect.DENY)
    call = ("send_file", {"path": "salaries.csv"})
    with bot(tmp_path, fake, Script(call, "refused").model, rule):
        fake.write("go")
        fake.said("refused")
    assert fake.of("sendDocument") == []


@pytest.mark.slow
def test_no_secret_of_ours_and_no_state_goes_out_in_a_file(
    tmp_path: Path, fake: FakeTelegram
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "notes.txt").write_text(f"the token is {TOKEN}")
    (project / "empty.txt").write_text("")
    calls = [("send_file", {"path": one}) for one in ("notes.txt", "empty.txt")]
    with bot(tmp_path, fake, Script(*calls, "state", "refused").model) as house:
        house.services.enforcement.also_secret = (TOKEN,)
        fake.write("go")
        fake.said("state")
    state = ("send_file", {"path": str(house.config.state_directory / "state.db")})
    with bot(tmp_path, fake, Script(state, "done").model):
        fake.write("go on")
        fake.said("done")
    assert fake.of("sendDocument") == []


@pytest.mark.slow
def test_a_server_that_names_a_file_of_this_machine_gets_none(
    tmp_path: Path, fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library reads `file_path` as a local file where there is one of that name."""
    private = tmp_path / "private.txt"
    private.write_text("private")
    answer = {"file_id": "f", "file_unique_id": "f", "file_path": str(private)}
    monkeypatch.setattr(FakeTelegram, "_get_file", lambda *_: (200, answer))
    script = Script("no")
    with bot(tmp_path, fake, script.model):
        fake.send(b"x", "a.txt")
        fake.said("no")
    assert not list((tmp_path / "project/inbox").rglob("*.txt"))
