"""Tests of `keys`, with real signer processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from skillhouse.floor import make_private
from skillhouse.frontends.cli.signing_keys import seconds_from
from skillhouse.frontends.cli.verbs import parser_of
from tests.frontends.conftest import Run
from tests.signer.places import PASSWORD, TOKEN, filled

SECRET = "11" * 32
ADDRESS = "0x19e7e376e7c213b7e7e7e46cc70a5dd086daff2a"
"""The address of `SECRET`."""
LOCKED = ("--password", "env:SIGNER_TEST")


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNER_TEST", PASSWORD)


def events(run: Run) -> list[str]:
    return [
        event["event"] for event in json.loads(run("signer", "keys", "log", "--json")[1])["events"]
    ]


def test_without_keys_the_list_says_how_to_make_one(run: Run) -> None:
    assert run("signer", "keys", "list") == (
        0,
        "",
        "no keys yet; `skillhouse signer keys new NAME` makes one\n",
    )
    assert json.loads(run("signer", "keys", "list", "--json")[1])["keys"] == []
    assert run("signer", "keys", "session", "list")[:2] == (0, "")
    assert run("signer", "keys", "session", "revoke", "--all")[:2] == (
        0,
        "revoked 0 session keys\n",
    )


@pytest.mark.slow
def test_a_key_is_imported_listed_limited_and_forgotten(run: Run, place: Path) -> None:
    descriptor = filled(SECRET)
    code, out, err = run("signer", "keys", "import", "wallet", "--from", str(descriptor), *LOCKED)
    os.close(descriptor)
    assert (code, out, err) == (0, f"imported wallet: {ADDRESS}\n", "")
    limit = f"eip155:1/erc20:{TOKEN}=5/{10**30}"
    assert run("signer", "keys", "limit", "wallet", "--limit", limit, *LOCKED)[0] == 0
    (key,) = json.loads(run("signer", "keys", "list", "--json")[1])["keys"]
    assert (key["id"], key["session"], key["limits"][0]["day"]) == (ADDRESS, "", str(10**30))
    _, out, _ = run("signer", "keys", "list")
    assert ADDRESS in out
    assert "at most 5 base units of token" in out
    assert run("signer", "keys", "remove", "wallet", *LOCKED)[0] == 2
    assert run("signer", "keys", "remove", "wallet", "--yes", *LOCKED)[:2] == (
        0,
        f"forgot wallet: {ADDRESS}\n",
    )
    assert run("signer", "keys", "accept", *LOCKED)[0] == 0
    assert events(run) == ["imported", "terms", "removed", "accepted"]
    kept = [path.read_bytes() for path in place.rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in data or PASSWORD.encode() in data for data in kept)


@pytest.mark.slow
def test_a_session_key_is_made_rotated_and_revoked(run: Run) -> None:
    new = ("signer", "keys", "session", "new", "bot", "--kind", "ed25519", "--limit", "message=1/9")
    assert run(*new, "--ttl", "2h", *LOCKED)[0] == 0
    assert run(*new, *LOCKED)[0] == 1
    assert "session key, active" in run("signer", "keys", "list")[1]
    assert run("signer", "keys", "session", "rotate", "bot", *LOCKED)[1].startswith(
        "rotated session key bot"
    )
    assert run("signer", "keys", "session", "revoke", "bit")[0::2] == (1, "did you mean `bot`\n")
    assert run("signer", "keys", "session", "revoke", "bot", "--reason", "lost")[:2] == (
        0,
        "revoked 1 session key\n",
    )
    found = json.loads(run("signer", "keys", "session", "list", "--json")[1])["sessions"]
    assert [(s["state"], s["reason"]) for s in found] == [
        ("revoked", "rotated"),
        ("revoked", "lost"),
    ]
    assert events(run) == ["created", "rotated", "created", "revoked"]


@pytest.mark.slow
def test_the_words_of_before_work_and_name_the_new_ones(run: Run) -> None:
    code, out, err = run("keys", "new", "main", *LOCKED)
    assert (code, out.partition(" ")[0]) == (0, "made")
    assert err == ("`keys` is for publishers: use `skillhouse signer keys new` for this key\n")
    assert run("keys", "session", "list")[0] == 0
    # The list of all keys is no word of before.
    assert run("keys", "list")[0::2] == (0, "")
    for words in (("keys", "remove", "main", "--yes"), ("keys", "accept")):
        assert "`skillhouse signer keys " in run(*words, *LOCKED)[2]


def test_the_help_of_keys_is_about_publishers() -> None:
    listed = parser_of("keys")[1].format_help()
    assert not any(f"    {verb} " in listed for verb in ("import", "limit", "session", "accept"))
    assert all(f"    {verb} " in listed for verb in ("request", "issue", "certify", "trust"))
    # What a signer's keys have is in the help of its own group.
    assert "skillhouse signer keys import wallet" in parser_of("signer")[1].format_help()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("new", "main", "--password", "hunter2"), 1, "expected `terminal`, `keyring`"),
        (("new", "main", "--password", "env:NONE"), 1, "the variable `NONE` holds no password"),
        (("new", "main", "--limit", "5", *LOCKED), 1, "expected CURRENCY=EACH/DAY"),
        (("new", "main", "--kind", "rsa"), 2, "invalid choice"),
        (("session", "new", "bot", "--ttl", "1w"), 2, "expected a time such as 30m"),
        (("session", "revoke"), 2, "expected a session key's name, or --all"),
        (("session", "revoke", "bot", "--all"), 2, "expected a session key's name, or --all"),
    ],
)
def test_wrong_words_are_errors_that_say_what_to_write(
    run: Run, arguments: tuple[str, ...], code: int, message: str
) -> None:
    found, out, err = run("signer", "keys", *arguments)
    assert (found, out) == (code, "")
    assert message in err


def test_a_damaged_keystore_is_an_error(run: Run, place: Path) -> None:
    state = Path.home() / ".local/state/skillhouse"
    make_private(state)
    (state / "keys.json").write_text("{}")
    (state / "keys.json").chmod(0o600)
    code, _, err = run("signer", "keys", "list")
    assert code == 1
    assert "version 1 of a keystore" in err


def test_a_time_is_a_number_with_its_unit() -> None:
    assert [seconds_from(text) for text in ("90s", "30m", "24h", "7d")] == [
        90,
        1_800,
        86_400,
        604_800,
    ]


SPAWN = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"


def typed(*arguments: str, answers: dict[str, str]) -> tuple[int, str]:
    """Run a command at a terminal of its own, answer its questions, return code and screen."""
    process = subprocess.Popen(
        [sys.executable, "-c", SPAWN, sys.executable, "-m", "skillhouse", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    screen = b""
    for question, text in answers.items():
        while question.encode() not in screen and (part := os.read(process.stdout.fileno(), 4096)):
            screen += part
        process.stdin.write(text.encode() + b"\n")
        process.stdin.flush()
    rest, _ = process.communicate(timeout=30)
    return process.returncode, (screen + rest).decode()


@pytest.mark.slow
def test_the_password_is_typed_unseen_at_the_terminal(place: Path, run: Run) -> None:
    answers = {"new password": PASSWORD, "once more": PASSWORD}
    code, screen = typed("keys", "new", "main", answers=answers)
    assert code == 0, screen
    assert "made main: ed25519:" in screen
    code, screen = typed(
        "keys",
        "import",
        "wallet",
        answers={"password of the keystore": PASSWORD, "private key": SECRET},
    )
    assert (code, ADDRESS in screen) == (0, True), screen
    assert PASSWORD not in screen
    assert SECRET not in screen
    code, screen = typed("keys", "new", "other", answers={"password of": "not the password"})
    assert code == 1
    assert "does not open" in screen


@pytest.mark.slow
def test_two_passwords_that_differ_make_nothing(place: Path, run: Run) -> None:
    answers = {"new password": PASSWORD, "once more": PASSWORD + "x"}
    code, screen = typed("keys", "new", "main", answers=answers)
    assert code == 1
    assert "the two passwords differ; nothing was made" in screen
    assert json.loads(run("signer", "keys", "list", "--json")[1])["keys"] == []


@pytest.mark.slow
def test_ctrl_c_at_the_password_ends_both_processes_quietly(place: Path, run: Run) -> None:
    code, screen = typed("keys", "new", "main", answers={"new password": "\x03"})
    assert code == 130
    assert "Traceback" not in screen
    assert json.loads(run("signer", "keys", "list", "--json")[1])["keys"] == []
