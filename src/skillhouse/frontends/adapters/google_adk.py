"""Toolset for Google's ADK; calls that need approval ask for a tool confirmation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from skillhouse.floor import MissingExtraError
from skillhouse.frontends.adapters.framework_bridge import FrameworkBridge
from skillhouse.house import Skillhouse
from skillhouse.house.model_tools import ShownTool

try:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.events import Event
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.base_toolset import BaseToolset
    from google.adk.tools.tool_context import ToolContext
    from google.genai.types import Content, FunctionDeclaration, FunctionResponse, Part
except ModuleNotFoundError as error:
    raise MissingExtraError("google-adk", error.name or "google.adk") from error

__all__ = ["skillhouse_answers", "skillhouse_toolset"]

CHANNEL = "google-adk"
_CONFIRMATION = "adk_request_confirmation"
"""Name of the function call by which ADK asks for a tool confirmation."""


def skillhouse_toolset(
    house: Skillhouse, *, agent: str = "default", user: str = "local", ask: bool = True
) -> BaseToolset:
    """Return the toolset for `Agent(tools=[…])`.

    A call that needs approval asks for a tool confirmation, whose payload is the question; the
    answer is a `ToolConfirmation` with the same payload, as `skillhouse_answers` makes it.
    """
    bridge = FrameworkBridge(house=house, channel=CHANNEL, agent=agent, user=user, ask=ask)
    bridge.prompt()
    return _AdkToolset(bridge)


def skillhouse_answers(
    events: Iterable[Event], approve: Callable[[Mapping[str, Any]], bool]
) -> Content | None:
    """Return the `new_message` that answers our questions among a run's events; None without any.

    `approve` gets each question, with `title`, `reasons` and `facts`, and returns whether the user
    approves. Confirmations that other tools ask for are not answered.
    """
    parts = {}
    for call in (call for event in events for call in event.get_function_calls()):
        asked = (call.args or {}).get("toolConfirmation") if call.name == _CONFIRMATION else None
        payload = asked.get("payload") if isinstance(asked, dict) else None
        if isinstance(payload, dict) and "approval_id" in payload and call.id not in parts:
            word = {"confirmed": approve(payload), "payload": payload}
            response = FunctionResponse(id=call.id, name=call.name, response=word)
            parts[call.id] = Part(function_response=response)
    return Content(role="user", parts=list(parts.values())) if parts else None


class _AdkToolset(BaseToolset):
    def __init__(self, bridge: FrameworkBridge) -> None:
        super().__init__()
        self._bridge = bridge

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        return [_AdkTool(self._bridge, tool) for tool in self._bridge.tools()]

    async def process_llm_request(
        self, *, tool_context: ToolContext, llm_request: LlmRequest
    ) -> None:
        prompt = self._bridge.prompt()
        if prompt:
            llm_request.append_instructions([prompt])


class _AdkTool(BaseTool):
    def __init__(self, bridge: FrameworkBridge, tool: ShownTool) -> None:
        super().__init__(name=tool.name, description=tool.description)
        self._bridge = bridge
        self._schema = tool.schema

    def _get_declaration(self) -> FunctionDeclaration:
        return FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=self._schema,
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Run a call, ask for its confirmation, or take the confirmation; errors are texts."""
        confirmation = tool_context.tool_confirmation
        payload = confirmation.payload if confirmation is not None else None
        given = str(payload.get("approval_id", "")) if isinstance(payload, dict) else ""
        if confirmation is None or (confirmation.confirmed and not given):
            result = await self._bridge.call(self.name, args)
        elif confirmation.confirmed:
            result = await self._bridge.allowed(self.name, args, given)
        else:
            result = self._bridge.refused(given)
        question = self._bridge.question(result)
        # ADK does not ask twice about one call; the model gets the pending result instead.
        if question is not None and confirmation is None:
            tool_context.request_confirmation(hint=question["title"], payload=question)
            tool_context.actions.skip_summarization = True
        return {"error" if result.is_error else "result": result.content}
