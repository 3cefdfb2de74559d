"""The MCP server in the test's own process, with the SDK's client and a person at it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp.client import Client
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import (
    CallToolResult,
    ElicitRequestParams,
    ElicitResult,
    InputRequiredResult,
    JSONRPCNotification,
    JSONRPCRequest,
)

from skillhouse.approval import Answer, Approval
from skillhouse.frontends.mcp.elicitation import ALLOW, DECISION, DENY
from skillhouse.frontends.mcp.server import SkillhouseServer
from skillhouse.frontends.mcp.tool_list import ToolListing
from skillhouse.house import Skillhouse, configured
from tests.frontends.mcp_peer import LEGACY, PATIENCE_SECONDS
from tests.house.places import make_places

ERAS = [LEGACY, "auto"]
"""Until 2025-11-25 a server asks during the call; since 2026-07-28 the client repeats it."""

YES = ElicitResult(action="accept", content={DECISION: ALLOW})
NO = ElicitResult(action="accept", content={DECISION: DENY})
OPENED = ElicitResult(action="accept")
PASSED = ElicitResult(action="decline")
LEFT = ElicitResult(action="cancel")


class Person:
    """Gives the answers in their order, and remembers what was shown."""

    def __init__(self, *answers: ElicitResult) -> None:
        self.answers = list(answers)
        self.shown: list[ElicitRequestParams] = []

    async def __call__(self, _: object, params: ElicitRequestParams) -> ElicitResult:
        """Answer as a client's user does."""
        self.shown.append(params)
        return self.answers.pop(0)


class Inside:
    """A place with a house, and servers of it; each has a house of its own on the same state."""

    def __init__(self, base: Path, **overrides: Any) -> None:
        self.places = make_places(base)
        self.project = self.places.start
        self.overrides = overrides
        self.house = self.another()

    def another(self) -> Skillhouse:
        """Return the house as another process has it."""
        return Skillhouse(configured(self.places), **self.overrides)

    def server(self, house: Skillhouse | None = None, **options: Any) -> SkillhouseServer:
        """Return a server, of the house of this place or another."""
        served = house or self.house
        agent = options.pop("agent", "default")
        who = {"agent": agent, "user": options.pop("user", "local")}
        return SkillhouseServer(served, ToolListing(served, agent), **who, **options)

    @asynccontextmanager
    async def client(
        self,
        mode: str,
        person: Person | None = None,
        server: SkillhouseServer | None = None,
        **more: Any,
    ) -> AsyncIterator[Client]:
        """Connect a client, whose user is asked where there is a person."""
        sdk = (server or self.server()).sdk
        with anyio.fail_after(PATIENCE_SECONDS):
            if person is not None:
                more["elicitation_callback"] = person
            async with Client(sdk, mode=mode, **more) as client:
                yield client

    def answer(self, answer: Answer = Answer.ONCE) -> Approval:
        """Answer the one open question as another process does, on the command line."""
        broker = self.another().approvals
        [found] = broker.pending()
        nonce = found.request.nonce
        return broker.answer(found.id, answer, by="local", channel="cli", nonce=nonce)


def talk(
    inside: Inside,
    work: Callable[[Client], Awaitable[Any]],
    mode: str = "auto",
    person: Person | None = None,
    **server: Any,
) -> Any:
    """Run `work` with a connected client and return what it returns."""

    async def main() -> Any:
        async with inside.client(mode, person, inside.server(**server)) as client:
            return await work(client)

    return anyio.run(main)


async def sdk_answers(server: SkillhouseServer, messages: Iterable[dict[str, Any]]) -> list[Any]:
    """Return the SDK's answers to the requests among `messages`, as JSON; the rest only notify."""
    answers = []
    async with (
        create_client_server_memory_streams() as ((read, write), served),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(server.sdk.run, *served, server.options())
        for message in messages:
            if "id" not in message:
                await write.send(SessionMessage(JSONRPCNotification.model_validate(message)))
                continue
            await write.send(SessionMessage(JSONRPCRequest.model_validate(message)))
            answer = await read.receive()
            assert isinstance(answer, SessionMessage)
            answers.append(
                answer.message.model_dump(mode="json", by_alias=True, exclude_unset=True)
            )
        tasks.cancel_scope.cancel()
    return answers


async def asked(client: Client, tool: str, **arguments: Any) -> InputRequiredResult:
    """Call a tool, and return the question that comes back (2026-07-28)."""
    result = await client.session.call_tool(tool, arguments, allow_input_required=True)
    assert isinstance(result, InputRequiredResult)
    assert result.request_state
    return result


async def retried(
    client: Client,
    tool: str,
    state: str | None,
    *,
    given: ElicitResult | None = YES,
    **arguments: Any,
) -> CallToolResult:
    """Repeat a call with a state and an answer."""
    result = await client.session.call_tool(
        tool,
        arguments,
        request_state=state,
        input_responses=None if given is None else {"approval": given},
        allow_input_required=True,
    )
    assert isinstance(result, CallToolResult)
    return result
