"""Context provider for Microsoft Agent Framework; approvals are requested as user input."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from skillhouse.floor import MissingExtraError
from skillhouse.frontends.adapters.framework_bridge import OPENAI_CHARS, FrameworkBridge
from skillhouse.runtime import Skillhouse

try:
    from agent_framework import (
        AgentSession,
        Content,
        ContextProvider,
        FunctionInvocationContext,
        FunctionMiddleware,
        FunctionTool,
        SessionContext,
        SupportsAgentRun,
    )
except ModuleNotFoundError as error:
    raise MissingExtraError("agent-framework", error.name or "agent_framework") from error

__all__ = ["skillhouse_provider"]

CHANNEL = "agent-framework"


def skillhouse_provider(
    house: Skillhouse, *, agent: str = "default", user: str = "local", ask: bool = True
) -> ContextProvider:
    """Return the provider for `Agent(client, context_providers=[…])`.

    A call that needs approval comes back among `response.user_input_requests`; continue the run, in
    the same session, with a message of `request.to_function_approval_response(approved=True)`.
    """
    bridge = FrameworkBridge(house=house, channel=CHANNEL, agent=agent, user=user, ask=ask)
    bridge.prompt()
    return _SkillProvider(bridge)


class _SkillProvider(ContextProvider):
    def __init__(self, bridge: FrameworkBridge) -> None:
        super().__init__(source_id=f"skillhouse-{bridge.agent}")
        self._bridge = bridge

    async def before_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        tools = [
            FunctionTool(
                name=tool.name,
                description=tool.description,
                input_model=tool.schema,
                func=_only_through_the_gate,
            )
            for tool in self._bridge.tools(OPENAI_CHARS)
        ]
        context.extend_tools(self.source_id, tools)
        prompt = self._bridge.prompt()
        if prompt:
            context.extend_instructions(self.source_id, prompt)
        context.extend_middleware(self.source_id, [_AgentMiddleware(self._bridge, tools)])


async def _only_through_the_gate(**_: Any) -> str:
    """Stand in for a function: the middleware runs the calls, since only it gets their ids."""
    return "this tool runs inside an agent with its context provider only; nothing was done"


class _AgentMiddleware(FunctionMiddleware):
    def __init__(self, bridge: FrameworkBridge, tools: list[FunctionTool]) -> None:
        self._bridge = bridge
        self._tools = tools

    async def process(
        self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        if not any(context.function is tool for tool in self._tools):
            await call_next()
            return
        name, arguments = context.function.name, dict(context.arguments)
        answer = context.metadata.get("approval_response")
        given = answer.additional_properties.get("skillhouse") if answer is not None else None
        if isinstance(given, dict) and answer is not None and answer.approved is True:
            result = await self._bridge.allowed(name, arguments, str(given.get("approval_id")))
        else:
            result = await self._bridge.call(name, arguments)
        question = self._bridge.question(result)
        context.result = result.content if question is None else _request(context, question)


def _request(context: FunctionInvocationContext, question: dict[str, Any]) -> Content:
    call_id = context.metadata["call_id"]
    occurrence = context.metadata.get("function_call_occurrence_id")
    call = Content.from_function_call(
        call_id, context.function.name, arguments=dict(context.arguments), id=occurrence
    )
    return Content.from_function_approval_request(
        occurrence or call_id, call, additional_properties={"skillhouse": question}
    )
