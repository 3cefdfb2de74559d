"""Tests of tools/command_run.py: what a run looks at right before it begins, and its result.

The result names files that commands cannot read, and what keeps them away.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillhouse.approval import Answer
from skillhouse.audit import read_records
from skillhouse.house import Skillhouse
from skillhouse.permission import Effect, Rule
from skillhouse.sandbox import Completed
from skillhouse.tools import RefusedError, Session, Workspace
from skillhouse.tools.command_run import LastLook, hidden_note
from tests.harness import Need
from tests.tools.houses import Person, house_at

ALLOW = Rule(effect=Effect.ALLOW, action="exec", pattern="*")
SECRET = "its name is one of secrets, and a command that names it is asked about"


async def test_a_look_that_was_taken_is_for_one_run() -> None:
    looks = iter("abc")
    look = LastLook(lambda: next(looks))
    look.take()
    assert [await look.taken(), await look.taken()] == ["a", "b"]
    look.take()
    assert await look.taken() == "c"


async def test_what_a_look_refuses_is_said_by_the_run_and_looked_at_again_by_the_next() -> None:
    answers: list[Any] = [RefusedError("it is gone"), OSError("no"), "there"]

    def look() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    found = LastLook(look)
    for expected in (RefusedError, OSError):
        found.take()
        with pytest.raises(expected):
            await found.taken()
    assert await found.taken() == "there"


@pytest.mark.slow
@pytest.mark.parametrize("is_asked", [False, True])
def test_the_last_look_follows_the_record_and_every_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_asked: bool
) -> None:
    person = Person([Answer.ONCE])
    seen: list[tuple[int, list[str]]] = []
    look = Workspace.protected

    def protected(workspace: Workspace, session: Session) -> tuple[str, ...]:
        kinds = [entry.record.kind for entry in read_records(own.audit_log.path)]
        seen.append((len(person.asked), kinds))
        return look(workspace, session)

    monkeypatch.setattr(Workspace, "protected", protected)
    with house_at(tmp_path, *(() if is_asked else (ALLOW,)), person=person) as own:
        assert own.call_sync("exec", {"command": "touch made"}).status == "ok"
    assert seen == [(int(is_asked), ["intent"])]


@pytest.mark.slow
def test_what_the_last_look_refuses_is_the_outcome_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def protected(workspace: Workspace, session: Session) -> tuple[str, ...]:
        raise RefusedError("it cannot be protected")

    monkeypatch.setattr(Workspace, "protected", protected)
    with house_at(tmp_path, ALLOW) as house:
        result = house.call_sync("exec", {"command": "touch made"})
        assert (result.status, result.content) == ("error", "it cannot be protected")
        (entry,) = read_records(house.audit_log.path)
        assert (entry.record.kind, entry.status) == ("intent", "error")
    assert not (tmp_path / "project/made").exists()


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
