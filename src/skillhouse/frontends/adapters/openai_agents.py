"""Tools for the OpenAI Agents SDK; calls that need approval interrupt the run."""

from __future__ import annotations

from typing import Any

from skillhouse.floor import MissingExtraError
from skillhouse.frontends.adapters.framework_bridge import (
    FrameworkBridge,
    KeptResult,
    framework_call,
    json_arguments,
)
from skillhouse.house import Skillhouse
from skillhouse.house.model_tools import OPENAI_CHARS
from skillhouse.tools import ToolResult

try:
    from agents import FunctionTool, RunContextWrapper, Tool
    from agents.tool_context import ToolContext
except ModuleNotFoundError as error:
    raise MissingExtraError("openai-agents", error.name or "agents") from error

__all__ = ["skillhouse_tools"]

CHANNEL = "openai-agents"


def skillhouse_tools(
    house: Skillhouse, *, agent: str = "default", user: str = "local", ask: bool = True
) -> list[Tool]:
    """Return the tools for `Agent(tools=…)`.

    A run whose `interruptions` are not empty continues after `state.approve(interruption)`, also in
    another process, from the state's JSON.
    """
    bridge = FrameworkBridge(house=house, channel=CHANNEL, agent=agent, user=user, ask=ask)
    return [
        FunctionTool(
            name=tool.name,
            description=tool.description,
            params_json_schema=tool.schema,
            on_invoke_tool=one.invoke,
            # Strict mode has no optional arguments; the gate checks them all the same.
            strict_json_schema=False,
            needs_approval=one.needs_approval if ask else False,
        )
        for tool in bridge.tools(OPENAI_CHARS)
        for one in [_OpenAITool(bridge, tool.name)]
    ]


class _OpenAITool:
    def __init__(self, bridge: FrameworkBridge, name: str) -> None:
        self._bridge = bridge
        self._name = name
        self._asked = KeptResult[str]()
        self._done = KeptResult[ToolResult]()

    async def needs_approval(
        self, _: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str
    ) -> bool:
        """Open the question about a call before it is invoked, so that the approval is bound to it.

        Only a call that may need approval is put to the gate here. If the gate then allows it,
        since it was approved elsewhere, `invoke` returns that result.
        """
        if not await self._bridge.may_ask(self._name, arguments):
            return False
        result = await self._bridge.call(self._name, arguments, call_id=call_id)
        question = self._bridge.question(result)
        if question is None:
            self._done.keep(call_id, result)
            return False
        self._asked.keep(call_id, question["approval_id"])
        return True

    async def invoke(self, context: ToolContext[Any], text: str) -> str:
        call_id = context.tool_call_id
        done = self._done.take(call_id)
        if done is not None:
            return done.content
        arguments = json_arguments(text)
        asked = self._asked.take(call_id)
        with framework_call(call_id=call_id, session_id=None):
            if context.is_tool_approved(context.tool_name, call_id):
                asked = asked or await self._bridge.asked_about(self._name, call_id)
                if asked:
                    return (await self._bridge.allowed(self._name, arguments, asked)).content
            return (await self._bridge.call(self._name, arguments)).content
