"""Tests of tools/tool.py: a tool's defaults, and conversations that are kept apart and bounded.

Forecasts about one moment look once, a call each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from skillhouse.floor import structs
from skillhouse.house import Skillhouse
from skillhouse.permission import Effect, Permission
from skillhouse.skill import Skill, SkillIndex
from skillhouse.tools import (
    ForecastCache,
    Gate,
    PermissionRequest,
    Plan,
    RefusedError,
    Session,
    Sessions,
    Tool,
    ToolResult,
    Workspace,
)
from skillhouse.tools.call import object_schema
from skillhouse.tools.protection import NoFiles
from skillhouse.tools.tool import SESSIONS_MAX
from tests.tools.gates import gate_to
from tests.tools.houses import house_at


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Skillhouse]:
    with house_at(tmp_path) as made:
        yield made


class Least(Tool):
    """The least that a tool has to say."""

    name = "least"
    description = "Does nothing."
    schema = object_schema({})

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        raise RefusedError("it does nothing")


def gate_of(house: Skillhouse, tool: Any) -> Gate:
    return gate_to(
        tool,
        decide=lambda *_: pytest.fail("nothing is decided"),
        approvals=house.approvals,
        audit=house.audit_log,
        workspace_root=house.policy.place,
    )


def test_what_a_tool_does_not_say_is_the_careful_answer():
    tool = Least()
    assert (tool.durable, tool.reads_only, tool.loads_skills) == (True, False, False)
    assert (tool.title, tool.full_name, tool.accepted) == ("least", "", None)
    assert tool.canonical({"a": 1}) == {"a": 1}
    assert tool.shaped(ToolResult(content="", status="denied")) is None
    assert tool.description_within(3) == "Does nothing."


def test_a_tool_with_only_what_it_must_say_goes_through_the_gate(house):
    assert list(gate_of(house, Least()).tools) == ["least"]


def test_an_object_that_only_looks_like_a_tool_is_refused_when_the_gate_is_made(house):
    lookalike = SimpleNamespace(name="x", description="", schema=object_schema({}), durable=True)
    with pytest.raises(TypeError, match="expected an object of a subclass of `Tool`, got"):
        gate_of(house, lookalike)


def test_a_tool_without_a_plan_cannot_be_made():
    with pytest.raises(TypeError, match="abstract"):
        type("Planless", (Tool,), {"name": "x"})()


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
    acting = kept.get("default", "local", "mcp", NOTHING, session_id="acting")
    wanted = Permission(action="skill_code", resource="docs:a")
    acting.active_remote_requests["f"] = PermissionRequest(
        permission=wanted, default=Effect.ASK, why="w", level="write"
    )
    for number in range(SESSIONS_MAX + 5):
        kept.get("default", "local", "mcp", NOTHING, session_id=str(number))
    assert kept.get("default", "local", "mcp", NOTHING, session_id="acting") is acting


class CountedFiles(NoFiles):
    looks = 0

    def places(self) -> Iterable[Path]:
        self.looks += 1
        if self.looks == 1:
            raise RefusedError("not now")
        return ()


def test_forecasts_about_one_moment_look_once_and_a_call_each_time(tmp_path: Path) -> None:
    own = CountedFiles()
    workspace = Workspace(tmp_path, own=own)
    call = Session(
        agent="a",
        user="u",
        channel="c",
        visible=SkillIndex(),
        skill_need=lambda skill: pytest.fail(skill.name),
    )
    forecast = structs.replace(call, forecasts=ForecastCache())
    with pytest.raises(RefusedError, match="not now"):
        workspace.check(forecast)
    # A refusal is not kept; the second look is, for forecasts that share it.
    guarded = workspace.check(forecast)
    assert workspace.check(structs.replace(forecast)) is guarded
    assert own.looks == 2
    for _ in range(3):
        workspace.check(call)
    workspace.check(structs.replace(call, forecasts=ForecastCache()))
    assert own.looks == 6
