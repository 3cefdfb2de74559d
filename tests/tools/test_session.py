"""Tests of tools/session.py: conversations are kept apart, and not without end."""

from __future__ import annotations

from skillhouse.permission import Effect, Permission
from skillhouse.skill import Skill, SkillIndex
from skillhouse.tools import PermissionRequest, Sessions
from skillhouse.tools.session import SESSIONS_MAX

NOTHING = SkillIndex((), shadowed=(), diagnostics=())


def sessions() -> Sessions:
    def no_need(_: Skill) -> PermissionRequest:
        raise AssertionError

    return Sessions(no_need)


def test_each_id_has_a_conversation_of_its_own() -> None:
    kept = sessions()
    one = kept.get("default", "local", "mcp", NOTHING, session_id="1")
    two = kept.get("default", "local", "mcp", NOTHING, session_id="2")
    assert one is not two
    assert kept.get("default", "local", "mcp", NOTHING, session_id="1") is one
    assert kept.get("default", "local", "mcp", NOTHING).id == ""


def test_the_conversation_that_was_used_longest_ago_goes_first() -> None:
    kept = sessions()

    def get(number: int) -> object:
        return kept.get("default", "local", "mcp", NOTHING, session_id=str(number))

    first, second = get(0), get(1)
    for number in range(2, SESSIONS_MAX):
        get(number)
    assert get(0) is first
    get(SESSIONS_MAX)
    assert get(0) is first
    assert get(1) is not second


def test_a_conversation_with_a_skill_of_another_server_stays_longest() -> None:
    """Its commands need a yes for that skill; a conversation that began anew would not ask."""
    kept = sessions()
    active_remote_requests = kept.get("default", "local", "mcp", NOTHING, session_id="acting")
    wanted = Permission(action="skill_code", resource="docs:a")
    active_remote_requests.active_remote_requests["f"] = PermissionRequest(
        permission=wanted, default=Effect.ASK, why="w", level="write"
    )
    for number in range(SESSIONS_MAX + 5):
        kept.get("default", "local", "mcp", NOTHING, session_id=str(number))
    assert (
        kept.get("default", "local", "mcp", NOTHING, session_id="acting") is active_remote_requests
    )
