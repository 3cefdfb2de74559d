"""Attacks on standing approvals (review G7): what else does a lasting answer allow?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skillhouse.approval import Answer, Reply
from skillhouse.permission import Effect, Rule, matches
from tests.tools.houses import Person, house_at

pytestmark = pytest.mark.slow


def write(path: str) -> tuple[str, dict[str, Any]]:
    return "write", {"path": path, "content": "x\n"}


def run(line: str) -> tuple[str, dict[str, Any]]:
    return "exec", {"command": line}


LASTING = [Answer.SESSION, Answer.PROJECT, Answer.ALWAYS]


@pytest.mark.parametrize("answer", LASTING)
@pytest.mark.parametrize(
    ("path", "covered", "others"),
    [
        ("README.md", ["README.md"], ["OTHER.md", "sub/x", "README.md.x", "sub/README.md"]),
        ("notes/a.md", ["notes/a.md", "notes/b.md"], ["notes/deep/a.md", "a.md", "notes2/a.md"]),
        ("notes/deep/a.md", ["notes/deep/b.md"], ["notes/a.md", "notes/deep/er/a.md"]),
    ],
)
def test_always_for_a_file_is_that_file_or_one_directory(
    tmp_path: Path, answer: Answer, path: str, covered: list[str], others: list[str]
) -> None:
    person = Person([answer])
    with house_at(tmp_path, person=person) as house:
        assert house.call_sync(*write(path)).status == "ok"
        # A pattern of the naive kind covers what is below as well.
        assert matches(f"{tmp_path}/project/*", f"{tmp_path}/project/sub/x")
        assert [house.call_sync(*write(one)).status for one in covered] == ["ok"] * len(covered)
        assert [house.call_sync(*write(one)).status for one in others] == ["denied"] * len(others)


@pytest.mark.parametrize(
    ("line", "others"),
    [
        ("git status -s", ["git status -s; git log", "git log -1", "git stash", "git -c a=b log"]),
        ("git branch --list", ["git branch -D main", "git branch new", "git push"]),
        ("ls -l", ["ls -l; id", "lsof", "ls", "ls -l $(id)"]),
        ("touch made", ["touch other", "touch made other", "touch"]),
    ],
)
def test_always_for_a_command_is_no_other_one(tmp_path: Path, line: str, others: list[str]) -> None:
    person = Person([Answer.ONCE, Answer.ALWAYS])
    with house_at(tmp_path, person=person) as house:
        house.call_sync(*run("git init -q ."))
        asked = house.call_sync(*run(line))
        assert asked.status != "denied", asked
        assert house.call_sync(*run(line)).status != "denied"
        assert [house.call_sync(*run(one)).status for one in others] == ["denied"] * len(others)


@pytest.mark.parametrize(
    "line", ["git push", "git push origin x", "pip install x", "docker compose down -v", "rm a.txt"]
)
def test_what_pushes_installs_or_deletes_is_approved_once(tmp_path: Path, line: str) -> None:
    person = Person()
    with house_at(tmp_path, person=person) as house:
        house.call_sync(*run(line))
    assert [asked.always for asked in person.asked] == [()]


class Narrowing(Person):
    """Gives a lasting answer with rules of their own."""

    def __init__(self, *rules: str, answer: Answer = Answer.ALWAYS) -> None:
        super().__init__()
        self.rules = list(rules)
        self.answer = answer

    async def ask(self, request: Any) -> Any:
        self.asked.append(request)
        if not self.rules:
            return Answer.NO
        return Reply(
            answer=self.answer,
            by=request.user,
            channel=request.channel,
            rules=(self.rules.pop(0),),
        )


@pytest.mark.parametrize("answer", LASTING)
def test_always_for_a_file_that_is_read_is_no_secret_next_to_it(
    tmp_path: Path, answer: Answer
) -> None:
    person = Person([answer])
    ask = Rule(effect=Effect.ASK, action="read", pattern="*")
    with house_at(tmp_path, ask, person=person) as house:
        sub = tmp_path / "project/sub"
        sub.mkdir(parents=True)
        for name in ("a.txt", "b.txt", ".env"):
            (sub / name).write_text("KEY=1\n")
        assert house.call_sync("read", {"path": "sub/a.txt"}).status == "ok"
        assert house.call_sync("read", {"path": "sub/a.txt"}).status == "ok"
        for name in ("b.txt", ".env"):
            assert house.call_sync("read", {"path": f"sub/{name}"}).status == "denied"


@pytest.mark.parametrize("answer", LASTING)
def test_a_person_narrows_the_rule_and_no_more_is_written(tmp_path: Path, answer: Answer) -> None:
    person = Narrowing(f"write {tmp_path}/project/notes/a.md", answer=answer)
    with house_at(tmp_path, person=person) as house:
        assert house.call_sync(*write("notes/a.md")).status == "ok"
        assert house.call_sync(*write("notes/a.md")).status == "ok"
        assert house.call_sync(*write("notes/b.md")).status == "denied"
        patterns = [grant.pattern for grant in house.approvals.grant_store.all()]
        kept = [f"{tmp_path}/project/notes/a.md"]
        assert patterns == ([] if answer is Answer.SESSION else kept)


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (write("notes/a.md"), "write /*"),
        (write("notes/a.md"), "write /"),
        (write("notes/a.md"), "exec *"),
        (run("ls -l"), "exec *"),
        (run("ls -l"), "exec ls *"),
        (run("ls -l"), "exec ls -l*"),
        (run("git status"), "exec git *"),
    ],
)
def test_a_rule_that_is_wider_than_what_was_shown_is_refused_and_asked_again(
    tmp_path: Path, call: tuple[str, dict[str, Any]], rule: str
) -> None:
    person = Narrowing(rule)
    with house_at(tmp_path, person=person) as house:
        assert house.call_sync(*call).status == "denied"
        assert house.approvals.grant_store.all() == ()
    first, second = person.asked
    assert f"the rule `{rule}` is not covered by what was offered" in second.reasons[-1]
    assert first.reasons == second.reasons[:-1]
