"""Tests of tools/command_run.py: what a run looks at right before it begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skillhouse.approval import Answer
from skillhouse.audit import read_records
from skillhouse.permission import Effect, Rule
from skillhouse.tools import RefusedError, Session, Workspace
from skillhouse.tools.command_run import LastLook
from tests.tools.houses import Person, house_at

ALLOW = Rule(effect=Effect.ALLOW, action="exec", pattern="*")


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
        kinds = [entry.record.kind for entry in read_records(house.audit_log.path)]
        seen.append((len(person.asked), kinds))
        return look(workspace, session)

    monkeypatch.setattr(Workspace, "protected", protected)
    with house_at(tmp_path, *(() if is_asked else (ALLOW,)), person=person) as house:
        assert house.call_sync("exec", {"command": "touch made"}).status == "ok"
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
