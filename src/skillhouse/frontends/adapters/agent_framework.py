"""Context provider for Microsoft Agent Framework; approvals are requested as user input."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from skillhouse.floor import MissingExtraError
from skillhouse.frontends.adapters.agent_framework_approvals import (
    ApprovalModes,
    Done,
    GatedCalls,
    asked_about,
)
from skillhouse.frontends.adapters.framework_bridge import (
    FrameworkBridge,
    KeptResult,
)
from skillhouse.house import Skillhouse
from skillhouse.house.model_tools import OPENAI_CHARS

try:
    from agent_framework import (
        AgentSession,
        Content,
        ContextProvider,
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
    The other calls of that turn run then, and the model gets all results in order.
    """
    bridge = FrameworkBridge(house=house, channel=CHANNEL, agent=agent, user=user, ask=ask)
    bridge.prompt()
    return _SkillProvider(bridge)


class _SkillProvider(ContextProvider):
    def __init__(self, bridge: FrameworkBridge) -> None:
        super().__init__(source_id=f"skillhouse-{bridge.agent}")
        self._bridge = bridge
        self._done: Done = KeptResult()

    async def before_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        self._deny(content for said in context.input_messages for content in said.contents)
        offered, prompt = self._bridge.offer(OPENAI_CHARS)
        tools = {
            tool.name: FunctionTool(
                name=tool.name,
                description=tool.description,
                input_model=tool.schema,
                func=_only_through_the_gate,
            )
            for tool in offered
        }
        context.extend_tools(self.source_id, list(tools.values()))
        if prompt:
            context.extend_instructions(self.source_id, prompt)
        parts = (self._bridge, tools, self._done)
        context.extend_middleware(self.source_id, [ApprovalModes(*parts), GatedCalls(*parts)])

    def _deny(self, contents: Iterable[Content]) -> None:
        """Record the user's denials; the framework itself answers those calls."""
        for content in contents:
            asked = asked_about(content)
            if asked and content.approved is not True:
                self._bridge.refused(asked)


async def _only_through_the_gate(**_: Any) -> str:
    """Stand in for a function: the middleware runs the calls, since only it gets their ids."""
    return "this tool runs inside an agent with its context provider only; nothing was done"
