"""Tests of what a result says of files that commands cannot read, and of what keeps them away."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillhouse.approval import Answer
from skillhouse.house import Skillhouse
from skillhouse.permission import Effect, Rule
from skillhouse.sandbox import Completed
from skillhouse.tools.hidden_notes import hidden_note
from tests.harness import Need
from tests.tools.houses import Person, house_at

SECRET = "its name is one of secrets, and a command that names it is asked about"


def why(path: str) -> str:
    return SECRET if ".env" in path else f"rule about {path}"


def said(stderr: str, *hidden: str, exit_code: int = 2) -> str:
    done = Completed(
        exit_code=exit_code, signal=None, stdout=b"", stderr=stderr.encode(), duration_seconds=0.0
    )
    return hidden_note(done, "/home/me/work", hidden, why)


@pytest.mark.parametrize(
    "line",
    [
        "grep: ./.env: Permission denied",
        "grep: .env: Permission denied",
        "rg: ./.env: Permission denied (os error 13)",
        "cp: cannot open './.env' for reading: Permission denied",
        "cp: cannot open ‘.env’ for reading: Permission denied",
        "tar: .env: Cannot open: Permission denied",
        "PermissionError: [Errno 13] Permission denied: '/home/me/work/.env'",
        "Error: EACCES: permission denied, open '.env'",
        'error: open(".env"): Permission denied',
    ],
)
def test_what_programs_say_of_a_hidden_file_is_explained(line: str) -> None:
    expected = f"`.env` is hidden from commands: {SECRET}"
    assert said(f"other\n{line}\n", ".env", "a/.env", "b.key") == expected


@pytest.mark.parametrize(
    "line",
    [
        "grep: my.env: Permission denied",
        "grep: .env.example: Permission denied",
        "grep: /root/.env: Permission denied",
        ".env: No such file or directory",
        "bash: ./run: Permission denied",
    ],
)
def test_what_is_about_another_file_is_not(line: str) -> None:
    assert said(line, ".env") == ""


def test_a_path_is_told_from_others_of_its_name_where_the_output_has_it() -> None:
    hidden = (".env", "a/.env", "b/.env", "private")
    assert said("grep: a/.env: Permission denied", *hidden).startswith("`a/.env` is")
    # From a directory below, a program names it by less.
    assert said("grep: x: Permission denied\ncat: c.key: Permission denied", "in/c.key") == (
        "`in/c.key` is hidden from commands: rule about in/c.key"
    )
    assert said("find: './private/x': Permission denied", *hidden).startswith("`private` is")


def test_many_files_are_counted_and_each_reason_is_said_once() -> None:
    hidden = [f"d{at}/.env" for at in range(9)]
    note = said("".join(f"grep: {one}: Permission denied\n" for one in hidden), *hidden)
    shown = ", ".join(f"`d{at}/.env`" for at in range(5))
    assert note == (f"{shown} and 4 more are hidden from commands: {SECRET}")
    both = said(".env: Permission denied\nx.pem: Permission denied", ".env", "x.pem")
    assert both == (
        f"`.env` is hidden from commands: {SECRET}; `x.pem` is hidden from commands: rule about "
        "x.pem"
    )


@pytest.fixture
def house(tmp_path: Path, need: Need) -> Iterator[Skillhouse]:
    need(shutil.which("bwrap"), "no bubblewrap")
    deny = Rule(effect=Effect.DENY, action="read", pattern=f"{tmp_path}/project/private/*")
    allow = Rule(effect=Effect.ALLOW, action="exec", pattern="*")
    with house_at(tmp_path, allow, deny, person=Person([Answer.ONCE] * 9)) as made:
        root = tmp_path / "project"
        (root / "private").mkdir(parents=True)
        for name in (".env", "private/a.txt", "open.txt"):
            (root / name).write_text("TOKEN=1\n")
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("command", ["grep -rn TOKEN .", "cp -r . /tmp/copy", "tar cf /tmp/x ."])
def test_a_search_and_a_copy_say_which_rule_hides_a_file(house: Skillhouse, command: str) -> None:
    content = house.call_sync("exec", {"command": command}).content
    assert f"`.env` is hidden from commands: {SECRET}" in content
    assert "`private` is hidden from commands: rule `read " in content
    assert "/private/*` of user policy" in content
