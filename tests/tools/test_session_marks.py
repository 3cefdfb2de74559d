"""Tests of tools/session_marks.py: what commands need, for each server of a state."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from skillhouse.approval import caller_connection
from skillhouse.floor import StateError
from skillhouse.permission import Effect, Permission
from skillhouse.skill import SkillIndex
from skillhouse.store import STATE, STATE_FILE, pooled
from skillhouse.tools import PermissionRequest, SessionMarks, Sessions
from skillhouse.tools.remote_skills import guard_commands
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

    sessions = Sessions(no_need, marks=SessionMarks(path))
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
    assert one.remote_requests()[0] == WANTED


def test_what_is_known_of_a_skill_is_of_its_last_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time begins again, and what was approved of other bytes does not count."""
    moment, digest = [1_000_000.0], ["sha256:1"]
    clock = SimpleNamespace(time=lambda: moment[0])
    monkeypatch.setattr("skillhouse.tools.session_marks.time", clock)
    skill = SimpleNamespace(name="docs:a", file="/a/SKILL.md")

    def machine() -> Session:
        one = session(tmp_path)
        one.remote_skills = SimpleNamespace(
            origin=lambda _: "from docs", binding=lambda _: digest[0]
        )
        return one

    def load(one: Session) -> None:
        guard_commands(one, skill)  # type: ignore[arg-type]
        assert one.has_new_marks
        one.keep_marks()

    first, second = machine(), machine()
    load(first)
    assert [one.skill_digest for one in second.remote_requests()] == ["sha256:1"]
    moment[0] += 29 * 86_400
    digest[0] = "sha256:2"
    load(first)
    assert [one.skill_digest for one in machine().remote_requests()] == ["sha256:2"]
    # One that loaded it before asks for what it knows, and for what there is now.
    assert [one.skill_digest for one in second.remote_requests()] == ["sha256:1", "sha256:2"]
    moment[0] += 29 * 86_400
    second.active_remote_requests["/b/SKILL.md"] = WANTED
    second.keep_marks()
    assert len(machine().remote_requests()) == 2


@pytest.mark.file_state
def test_where_it_cannot_be_read_commands_ask(tmp_path: Path) -> None:
    """One read that fails, as with all connections in use: the next one may be answered."""
    (tmp_path / STATE_FILE).write_bytes(b"no database" * 100)
    one = session(tmp_path)
    (found,) = one.remote_requests()
    assert (found.permission.action, found.default) == ("skill_code", Effect.ASK)
    assert not found.may_last
