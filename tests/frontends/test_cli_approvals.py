"""Tests of `skillhouse approvals`, and of the question at a terminal that another program holds."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.approval import (
    Answer,
    ApprovalRequest,
    Grant,
    GrantStore,
    Reply,
    content_digest,
)
from skillhouse.frontends.cli.person import TerminalChannel, show_request
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.presentation.question import FACT_LINES
from tests.approval.questions import question
from tests.frontends.conftest import Run
from tests.states import state_at

Typing = Run
"""Runs a command at a terminal on which a word is typed."""

FAR = 4_102_444_800_000
"""The year 2100, in milliseconds since 1970."""
WRITE = ("call", "write", "--args", '{"path": "notes/a.txt", "content": "text"}')


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the terminal of whoever runs the tests out of them."""
    monkeypatch.setattr("skillhouse.frontends.cli.person.TERMINAL", tmp_path / "no-terminal")


def asked(run: Run) -> str:
    """Make a call that nobody can be asked about here, and return the id of its question."""
    code, out, _ = run(*WRITE, "--json")
    value = json.loads(out)
    assert (code, value["status"]) == (1, "pending")
    return str(value["approval_id"])


@pytest.mark.slow
def test_a_question_is_listed_shown_approved_and_its_call_runs_once(
    run: Run, typing: Typing, place: Path
) -> None:
    found = asked(run)
    code, out, _ = run("approvals", "list")
    assert code == 0
    assert found in out
    assert "write: " in out
    shown = run("approvals", "show", found[:6])[1]
    for part in ("content: text", "state         open", '"path": "notes/a.txt"', "sha256:"):
        assert part in shown
    (listed,) = json.loads(run("approvals", "list", "--json")[1])["approvals"]
    assert (
        listed["content_digest"]
        == json.loads(run("approvals", "show", found, "--json")[1])["content_digest"]
    )
    assert "nonce" not in json.dumps(listed)
    code, out, said = typing("approve", "approvals", "approve", found[:6])
    assert (code, out) == (0, f"{found} approved (once): write: {os.getcwd()}/notes/a.txt\n")
    assert "content: text" in said
    assert run(*WRITE, "--approval", found)[0] == 0
    assert (place / "project/notes/a.txt").read_text() == "text"
    assert run(*WRITE, "--approval", found)[0] == 1
    assert run("approvals", "list") == (0, "", "no questions\n")
    assert "used" in run("approvals", "list", "--all")[1]


def test_a_no_brings_its_message_to_the_caller(run: Run, place: Path) -> None:
    found = asked(run)
    assert run("approvals", "deny", found, "--message", "use docs/")[0] == 0
    code, _, said = run(*WRITE)
    assert code == 1
    assert "refused: use docs/" in said
    assert not (place / "project/notes").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "kept"), [("--project", True), ("--always", True), ("--session", False)]
)
def test_a_lasting_yes_is_listed_and_can_be_revoked(
    run: Run, typing: Typing, option: str, kept: bool
) -> None:
    typing("approve", "approvals", "approve", asked(run), option)
    assert json.loads(run("approvals", "grants", "--json")[1])["grants"] == []
    assert run(*WRITE)[0] == 0
    grants = json.loads(run("approvals", "grants", "--json")[1])["grants"]
    assert bool(grants) is kept
    if not kept:
        assert run("approvals", "grants") == (0, "", "no standing approvals\n")
        return
    (grant,) = grants
    assert grant["place"] == ("" if option == "--always" else os.getcwd())
    assert grant["pattern"] in run("approvals", "grants")[1]
    assert run(*WRITE)[0] == 0
    assert run("approvals", "revoke", grant["id"][:5])[0] == 0
    assert run(*WRITE)[0] == 1
    assert run("approvals", "revoke", grant["id"])[0] == 2


@pytest.mark.parametrize(
    ("options", "patterns"),
    [
        ((), ["/w/b/", "git log *", "/w/a/"]),
        (("--sort", "made"), ["/w/b/", "git log *", "/w/a/"]),
        (("--sort", "ends"), ["git log *", "/w/a/", "/w/b/"]),
        (("--sort", "rule"), ["git log *", "/w/a/", "/w/b/"]),
        (("--sort", "place"), ["/w/a/", "/w/b/", "git log *"]),
    ],
)
def test_standing_approvals_are_sorted_as_asked(
    run: Run, place: Path, options: tuple[str, ...], patterns: list[str]
) -> None:
    store = GrantStore(place / "home/.local/state/skillhouse")
    for action, pattern, where, ends in (
        ("write", "/w/b/", "/w", FAR),
        ("exec", "git log *", "/x", FAR - 2_000),
        ("write", "/w/a/", "", FAR - 1_000),
    ):
        grant = Grant(action=action, pattern=pattern, place=where, expires_ms=ends)
        store.add([grant])
    out = run("approvals", "grants", "--json", *options)[1]
    assert [one["pattern"] for one in json.loads(out)["grants"]] == patterns
    code, out, _ = run("approvals", "grants", *options)
    assert code == 0
    for line, pattern in zip(out.splitlines(), patterns, strict=True):
        assert pattern in line


def test_a_person_narrows_a_lasting_yes(run: Run, typing: Typing) -> None:
    found = asked(run)
    file = f"write {os.getcwd()}/notes/a.txt"
    code, _, said = typing(
        "approve", "approvals", "approve", found, "--always", "--rule", "write /*"
    )
    assert code == 1
    assert "is not covered by what was offered" in said
    code, _, said = typing("approve", "approvals", "approve", found, "--always", "--rule", file)
    assert code == 0
    assert f"  rule: {file}" in said
    assert run("approvals", "approve", found, "--rule", file)[0] == 2
    assert run(*WRITE)[0] == 0
    (grant,) = json.loads(run("approvals", "grants", "--json")[1])["grants"]
    assert f"write {grant['pattern']}" == file


def test_an_update_of_standing_approvals_is_said_once(run: Run, place: Path) -> None:
    found = asked(run)
    (state,) = place.rglob("state.sqlite3")
    with state_at(state) as connection:
        connection.execute("INSERT INTO notice VALUES ('standing-approvals', '2 narrowed')")
    said = "2 narrowed; `skillhouse approvals grants` lists what holds\n"
    assert run("approvals", "show", found)[2] == said
    assert run("approvals", "show", found)[2] == ""


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("approvals", "show", "zz"), 2, "no approval begins with `zz`"),
        (("approvals", "revoke", "zz"), 2, "no grants or scripts begin with `zz`"),
        (("approvals", "unpair", "zz"), 2, "no device `zz`"),
        (("approvals", "approve"), 2, "id"),
        (("approvals", "lst"), 2, "invalid choice: 'lst'"),
    ],
)
def test_bad_words_are_named(run: Run, arguments: tuple[str, ...], code: int, message: str) -> None:
    found = run(*arguments)
    assert found[:2] == (code, "")
    assert message in found[2]


def test_a_question_is_answered_once(run: Run, typing: Typing) -> None:
    found = asked(run)
    typing("approve", "approvals", "approve", found)
    code, out, said = run("approvals", "deny", found)
    assert (code, out) == (1, "")
    assert "was answered already" in said


@pytest.mark.slow
def test_the_beginning_of_an_id_unpairs_one_device(run: Run, typing: Typing) -> None:
    # Two of seventeen begin with the same hex digit.
    ids = [
        json.loads(typing("pair", "approvals", "pair", f"phone-{number}", "--json")[1])["id"]
        for number in range(17)
    ]
    first = Counter(one[0] for one in ids).most_common(1)[0][0]
    assert "two devices begin with" in run("approvals", "unpair", first)[2]
    assert "no device ``" in run("approvals", "unpair", "")[2]
    assert run("approvals", "unpair", ids[0][:12])[1].startswith(f"unpaired: {ids[0]};")
    listed = json.loads(run("approvals", "devices", "--json")[1])["devices"]
    left = [device["id"] for device in listed]
    assert left == ids[1:]


@pytest.mark.slow
def test_devices_are_paired_listed_and_unpaired(run: Run, typing: Typing) -> None:
    device = json.loads(typing("pair", "approvals", "pair", "phone", "--json")[1])
    listed = run("approvals", "devices", "--json")[1]
    assert device["secret"].startswith("whsec_")
    assert device["secret"] not in listed
    assert json.loads(listed)["devices"][0]["id"] == device["id"]
    assert "phone, answers as local" in run("approvals", "devices")[1]
    assert run("approvals", "unpair", device["id"])[1] == (
        f"unpaired: {device['id']}; withdrawn: 0 unused approvals, 0 standing approvals\n"
    )
    assert run("approvals", "devices") == (0, "", "no devices\n")
    said = typing("pair", "approvals", "pair", "tablet", "--user", "robin")
    assert said[1].startswith("device: ")
    assert said[2].endswith("the secret is not shown again\r\n")
    assert typing("yes", "approvals", "pair", "other")[:2] == (1, "")
    assert "tablet, answers as robin" in run("approvals", "devices")[1]


def shown_of(request: ApprovalRequest) -> list[str]:
    lines: list[str] = []
    show_request(request, lines.append)
    return lines


def test_a_long_value_is_folded_and_shown_with_its_digest() -> None:
    text = "\n".join(f"line {at}" for at in range(100)) + "\n" + "x" * 10_000
    lines = shown_of(question(sent=(("content", text),)))
    assert len(lines) < FACT_LINES + 10
    assert max(map(len, lines)) < 500
    assert f"      … {100 - FACT_LINES} more lines" in lines
    assert any(content_digest(text) in line and "characters in all" in line for line in lines)


class Typed:
    """A terminal device of the test's own, on which something is typed once it is asked."""

    def __init__(self, typed: bytes) -> None:
        self.ours, self.theirs = pty.openpty()
        self.typed = typed

    def open(self) -> Any:
        return os.fdopen(os.dup(self.theirs), "w")

    async def answer(self, request: ApprovalRequest, capsys: Any) -> tuple[Reply | None, str]:
        terminal = Terminal(sys.stdout, sys.stderr, {})
        with io.StringIO() as stdin:
            channel = TerminalChannel(stdin, terminal, device=self.open)
            replies: list[Reply | None] = []

            async def ask() -> None:
                replies.append(await channel.ask(request))

            said = b""
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                while b"Allow?" not in said:
                    await anyio.wait_readable(self.ours)
                    said += os.read(self.ours, 65_536)
                os.write(self.ours, self.typed)
        captured = capsys.readouterr()
        assert (captured.out, captured.err) == ("", "")
        os.close(self.ours)
        os.close(self.theirs)
        return replies[0], said.decode()


@pytest.mark.parametrize(
    ("typed", "answer", "message"),
    [
        (b"y\n", Answer.ONCE, ""),
        (b"  YES \n", Answer.ONCE, ""),
        (b"Confirm\n", Answer.ONCE, ""),
        (b"s\n", Answer.SESSION, ""),
        (b"p\n", Answer.PROJECT, ""),
        (b"a\n", Answer.ALWAYS, ""),
        (b"n use docs/\n", Answer.NO, "use docs/"),
        (b"yes please\n", Answer.NO, ""),
        (b"\n", Answer.NO, ""),
        (b"\xff\n", Answer.NO, ""),
    ],
)
@pytest.mark.under("owliabot")
@pytest.mark.req("S000-75", "S000-76")
def test_the_terminal_is_asked_when_another_program_holds_stdin(
    typed: bytes, answer: Answer, message: str, capsys: Any
) -> None:
    reply, said = anyio.run(Typed(typed).answer, question(), capsys)
    assert reply == Reply(answer=answer, by="local", channel="terminal", message=message)
    assert "path: /w/a.txt" in said


def test_a_rule_may_follow_a_lasting_word(capsys: Any) -> None:
    typed = b"a write /w/a.txt\n"
    reply, said = anyio.run(Typed(typed).answer, question(), capsys)
    rules = ("write /w/a.txt",)
    assert reply == Reply(answer=Answer.ALWAYS, by="local", channel="terminal", rules=rules)
    assert "a narrower rule may follow" in said


def test_a_lasting_word_where_there_is_none_is_taken_as_once(capsys: Any) -> None:
    reply, said = anyio.run(Typed(b"a\n").answer, question(patterns=(), always=()), capsys)
    assert reply is not None
    assert reply.answer is Answer.ONCE
    assert "Allow? (y once, n deny)" in said


def test_what_signs_is_not_asked_at_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as device, open(os.devnull, encoding="utf-8") as stdin:
        channel = TerminalChannel(
            stdin, Terminal(sys.stdout, sys.stderr, {}), device=lambda: device
        )
        assert anyio.run(channel.ask, question(level="sign")) is None
        said = b""
        while b"decide it on the page" not in said:  # A terminal gives a line at a time.
            said += os.read(ours, 4096)
    os.close(ours)


def test_without_any_terminal_nobody_answers() -> None:
    with open(os.devnull, encoding="utf-8") as stdin:
        channel = TerminalChannel(stdin, Terminal(sys.stdout, sys.stderr, {}))
        assert anyio.run(channel.ask, question()) is None


@pytest.mark.slow
def test_a_call_in_a_pipeline_is_asked_about_on_its_terminal(place: Path) -> None:
    """A real controlling terminal, with stdin, stdout and stderr held by another program."""
    pid, ours = pty.fork()
    if pid == 0:
        code = subprocess.run(  # noqa: PLW1510
            [sys.executable, "-m", "skillhouse", *WRITE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ).returncode
        os._exit(code)
    said = b""
    while b"Allow?" not in said:
        said += os.read(ours, 4096)
    os.write(ours, b"y\n")
    _, status = os.waitpid(pid, 0)
    os.close(ours)
    assert os.waitstatus_to_exitcode(status) == 0
    assert (place / "project/notes/a.txt").read_text() == "text"


def test_a_code_pairs_an_app_and_its_address_is_a_page(run: Run, typing: Typing) -> None:
    address = ("--url", "http://192.168.1.5:8600/approvals")
    code, out, err = typing("pair", "approvals", "pair", "phone", "--app", *address)
    assert code == 0
    found = re.search(r"^code: ([2-9A-Z]{4}-[2-9A-Z]{4}-[2-9A-Z]{4})$", out, re.MULTILINE)
    assert found
    assert f"\naddress: http://192.168.1.5:8600/companion/#code={found[1]}\n" in out
    assert "is plain HTTP and not this machine" in " ".join(err.split())
    made = json.loads(typing("pair", "approvals", "pair", "phone", "--app", "--json")[1])
    assert made["address"] == f"http://127.0.0.1:8600/companion/#code={made['code']}"
    assert made["picture"].startswith("<svg")
    assert json.loads(run("approvals", "devices", "--json")[1])["devices"] == []
    for wrong in ("ftp://house.example", "house.example", "https://me@house.example"):
        code, _, err = typing("pair", "approvals", "pair", "phone", "--app", "--url", wrong)
        assert (code, "expected an address such as" in err) == (2, True)
    assert "expected `--app`" in run("approvals", "pair", "phone", "--url", "https://a.example")[2]
    assert typing("no", "approvals", "pair", "phone", "--app")[0] == 1
