"""Toolset for Pydantic AI; calls that need approval are deferred."""

from __future__ import annotations

from typing import Any

from skillhouse.floor import MissingExtraError
from skillhouse.frontends.adapters.framework_bridge import (
    FrameworkBridge,
    KeptResult,
    description_chars,
    framework_call,
)
from skillhouse.frontends.adapters.pydantic_ai_retention import skillhouse_context
from skillhouse.house import Skillhouse
from skillhouse.house.model_tools import ShownTool
from skillhouse.tools import CALL_SKILL_TOOL, ToolResult

try:
    from pydantic_ai import ApprovalRequired, RunContext, ToolDefinition, ToolFailed
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
    from pydantic_core import SchemaValidator, core_schema
except ModuleNotFoundError as error:
    raise MissingExtraError("pydantic-ai", error.name or "pydantic_ai") from error

__all__ = ["SkillhouseToolset", "skillhouse_context", "skillhouse_toolset"]

CHANNEL = "pydantic-ai"
# The gate checks arguments against the tool's schema, and says what is wrong with them.
_AS_GIVEN = SchemaValidator(core_schema.dict_schema())


def skillhouse_toolset(
    house: Skillhouse, *, agent: str = "default", user: str = "local", ask: bool = True
) -> AbstractToolset[Any]:
    """Return the toolset for `Agent(model, toolsets=[…])`.

    With `ask`, `DeferredToolRequests` must be among the agent's output types.
    """
    bridge = FrameworkBridge(house=house, channel=CHANNEL, agent=agent, user=user, ask=ask)
    bridge.prompt()
    return SkillhouseToolset(bridge)


class SkillhouseToolset(AbstractToolset[Any]):
    """The toolset of `skillhouse_toolset`; a subclass may observe each call."""

    def __init__(self, bridge: FrameworkBridge) -> None:
        self._bridge = bridge
        self._asked = KeptResult[str]()

    @property
    def id(self) -> str:
        return f"skillhouse-{self._bridge.agent}"

    async def get_instructions(self, ctx: RunContext[Any]) -> str | None:
        return self._bridge.prompt(chars=description_chars(ctx.model.system)) or None

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        chars = description_chars(ctx.model.system)
        with framework_call(call_id=None, session_id=ctx.conversation_id):
            tools, _ = self._bridge.offer(chars)
            # Other providers may bound the number of tools, whether they are loaded or not.
            later = self._bridge.deferred(chars) if chars is None else []
        found = {
            tool.name: self._tool(tool)
            for tool in tools
            if not later or tool.name != CALL_SKILL_TOOL
        }
        return found | {tool.name: self._tool(tool, defer_loading=True) for tool in later}

    def _tool(self, tool: ShownTool, *, defer_loading: bool = False) -> ToolsetTool[Any]:
        return ToolsetTool(
            toolset=self,
            tool_def=ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_json_schema=tool.schema,
                defer_loading=defer_loading,
            ),
            max_retries=1,
            args_validator=_AS_GIVEN,
        )

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> str:
        approval_id = await self._approval_id(name, ctx) if ctx.tool_call_approved else ""
        model = f"{ctx.model.system}:{ctx.model.model_name}"
        with framework_call(call_id=ctx.tool_call_id, session_id=ctx.conversation_id, model=model):
            if approval_id:
                result = await self._bridge.allowed(name, tool_args, approval_id)
            else:
                result = await self.result_of(name, tool_args, ctx)
        question = self._bridge.question(result)
        if question is not None:
            self._asked.keep(ctx.tool_call_id, question["approval_id"])
            raise ApprovalRequired(metadata=question)
        if result.is_error:
            raise ToolFailed(result.content)
        return result.content

    async def result_of(self, name: str, given: dict[str, Any], ctx: RunContext[Any]) -> ToolResult:
        """Make one call for the first time; a subclass may add to it."""
        return await self._bridge.call(name, given)

    async def _approval_id(self, name: str, ctx: RunContext[Any]) -> str:
        """Return the id of the approval: from the program, or else of the question about this call.

        Another toolset, as that of another process, finds the question by the id of the call.
        """
        metadata = ctx.tool_call_metadata
        named = metadata.get("approval_id") if isinstance(metadata, dict) else None
        asked = self._asked.take(ctx.tool_call_id)
        if isinstance(named, str):
            return named
        return asked or await self._bridge.asked_about(name, ctx.tool_call_id)
