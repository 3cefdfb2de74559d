"""Tests of tools/session_marks.py: what commands need, for each server of a state."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.approval import caller_connection
from skillhouse.floor import StateError
from skillhouse.floor.lock import Lazy
from skillhouse.permission import Effect, Permission
from skillhouse.skill import SkillIndex
from skillhouse.store import STATE, STATE_FILE, pooled
from skillhouse.tools import PermissionRequest, SessionMarks, Sessions
from skillhouse.tools.tool import Session

NOTHING = SkillIndex((), shadowed=(), diagnostics=())
CALLER = caller_connection("a token")
WANTED = PermissionRequest(
    permission=Permission(action="skill_code", resource="docs:a"),
    default=Effect.ASK,
    why="w",
    skill_digest="sha256:1",
    level="write",
)


def session(path: Path, connection: str = CALLER, **who: str) -> Session:
    """Return a conversation as another server has it."""

    def no_need(_: object) -> PermissionRequest:
        raise AssertionError

    sessions = Sessions(no_need, marks=Lazy(lambda: SessionMarks(path)))
    return sessions.get("default", "local", "mcp", NOTHING, connection=connection, **who)


def test_what_one_server_marks_another_one_asks_for(tmp_path: Path) -> None:
    first, second = session(tmp_path), session(tmp_path)
    assert second.remote_requests() == ()
    first.active_remote_requests["/a/SKILL.md"] = WANTED
    news = [first.has_new_marks]
    first.keep_marks()
    assert [*news, first.has_new_marks] == [True, False]
    assert first.remote_requests() == second.remote_requests() == (WANTED,)
    others = [session(tmp_path, caller_connection("b")), session(tmp_path, session_id="2")]
    assert [one.remote_requests() for one in others] == [(), ()]


def test_a_client_with_a_connection_is_at_one_server_and_writes_nothing(tmp_path: Path) -> None:
    one = session(tmp_path, "0000000000001-00")
    one.active_remote_requests["/a/SKILL.md"] = WANTED
    assert (one.has_new_marks, one.remote_requests()) == (False, (WANTED,))
    assert not (tmp_path / STATE_FILE).exists()


@pytest.mark.parametrize("text", ["{", "[" * 50_000, '{"permission": 1}', ""])
def test_a_mark_that_cannot_be_read_asks(tmp_path: Path, text: str) -> None:
    marks, one = SessionMarks(tmp_path), session(tmp_path)
    who = tuple(one.caller_fields().values())
    marks.add(who, {"/a/SKILL.md": WANTED})
    with pooled(tmp_path / STATE_FILE, STATE) as store, store.transaction() as connection:
        connection.execute("UPDATE session_mark SET request = ?", (text,))
    (found,) = one.remote_requests()
    assert (found.default, found.may_last) == (Effect.ASK, False)


def test_a_mark_goes_with_the_text_and_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks, one = SessionMarks(tmp_path), session(tmp_path)
    who = tuple(one.caller_fields().values())
    marks.add(who, {"/a/SKILL.md": WANTED, "/b/SKILL.md": WANTED})
    marks.remove(who, "/a/SKILL.md")
    assert list(marks.of(who)) == ["/b/SKILL.md"]
    monkeypatch.setattr("skillhouse.tools.session_marks.MARK_DAYS", -1)
    marks.add(who, {"/c/SKILL.md": WANTED})
    assert list(marks.of(who)) == ["/b/SKILL.md"]


@pytest.mark.file_state
def test_marks_that_cannot_be_kept_are_an_error_and_those_of_here_still_ask(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_bytes(b"no database" * 100)
    one = session(tmp_path)
    one.active_remote_requests["/a/SKILL.md"] = WANTED
    with pytest.raises(StateError):
        one.keep_marks()
    assert one.has_new_marks
    assert one.remote_requests() == (WANTED,)
