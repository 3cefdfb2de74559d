"""A program as a builder writes it: its types hold under `mypy --strict`, and it runs.

`tests/test_python_guide.py` runs it in an empty directory, and checks it and each slip in it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, assert_type

from skillhouse import (
    Answer,
    Approval,
    ApprovalRequest,
    AuditEntry,
    Caller,
    Channel,
    Conversation,
    Effect,
    Forecast,
    FunctionTool,
    Layer,
    ReportProgress,
    Rule,
    Skillhouse,
    SkillhouseError,
    ToolResult,
    read_records,
    tool,
)


@dataclass
class Release:
    """What runs somewhere."""

    version: str
    replicas: int = 1


@tool(level="read")
async def versions(environment: str) -> list[str]:
    """List the versions that run in an environment."""
    return ["1.3", "1.4"] if environment == "staging" else []


@tool(resource="{environment}")
def deploy(environment: str, release: Release, progress: ReportProgress) -> int:
    """Deploy a release to an environment."""
    progress(0.5, release.version)
    return release.replicas


class Person:
    """A channel of approvals: it answers what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def ask(self, request: ApprovalRequest) -> Answer | None:
        self.asked.append(request.title)
        return Answer.ONCE if "staging" in request.title else None


async def typed_calls(house: Skillhouse) -> None:
    """Make calls by the tool itself, and by its name."""
    found = await house.call(versions, {"environment": "staging"}, user="robin", wait=5)
    assert_type(found, ToolResult[list[str]])
    assert_type(found.value, list[str])
    assert found.value == ["1.3", "1.4"]
    arguments = {"environment": "staging", "release": {"version": "1.4", "replicas": 3}}
    done = await house.call(deploy, arguments, caller=Caller(agent="default", user="robin"))
    assert_type(done.value, int)
    assert (done.status, done.value) == ("ok", 3), done.content
    named = await house.call("versions", {"environment": "test"})
    assert_type(named, ToolResult[Any])
    assert named.data is not None
    assert not named.is_error


async def pending_and_answered(house: Skillhouse) -> None:
    """Have a call wait for an answer that is given through the broker."""
    arguments = {"environment": "production", "release": {"version": "1.4"}}
    waiting = await house.call(deploy, arguments)
    assert waiting.status == "pending", waiting.content
    try:
        print(assert_type(waiting.value, int))
    except SkillhouseError as error:
        print(str(error).partition(":")[0])
    (question,) = house.approvals.pending()
    assert_type(question, Approval)
    request: ApprovalRequest = question.request
    house.approvals.answer(
        question.id, Answer.ONCE, by=request.user, channel="cli", nonce=request.nonce
    )
    again = await house.call(deploy, arguments, approval_id=question.id)
    assert (again.status, again.value) == ("ok", 1), again.content


async def sessions(house: Skillhouse) -> None:
    """Keep a conversation, and forecast what a call needs."""
    talk = house.conversation(user="robin", session_id="first")
    assert_type(talk, Conversation)
    assert talk.activations is not None
    forecast = house.forecast("deploy", {"environment": "nowhere", "release": {"version": "1"}})
    assert_type(forecast, Forecast)
    assert_type(forecast.effect, Effect)
    assert forecast.effect is Effect.DENY


async def main() -> None:
    """Use a house as a program that goes on does."""
    assert_type(await versions("production"), list[str])
    kept: FunctionTool[..., Any, list[str]] = versions
    person = Person()
    channel: Channel = person
    rules = Layer(name="user", rules=(Rule(effect=Effect.DENY, action="deploy", pattern="no*"),))
    async with Skillhouse.open(tools=[kept, deploy], channel=channel, layers=(rules,)) as house:
        assert_type(house, Skillhouse)
        await typed_calls(house)
        await pending_and_answered(house)
        await sessions(house)
        entries = read_records(house.audit_log.path, tool="deploy", limit=9)
        assert all(isinstance(one, AuditEntry) for one in entries)
        print(len(person.asked), [one.status for one in reversed(entries)])


def synchronous() -> None:
    """Call without an event loop."""
    with Skillhouse(tools=[versions]) as house:
        result = house.call_sync(versions, {"environment": "staging"})
        assert_type(result.value, list[str])
        print(", ".join(result.value))


if __name__ == "__main__":
    asyncio.run(main())
    synchronous()
