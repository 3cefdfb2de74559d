"""Keeps loaded skills in the context of Pydantic AI's agents, whatever shortens the history."""

from __future__ import annotations

from typing import Any

from skillhouse.floor import MissingExtraError
from skillhouse.frontends.adapters.framework_bridge import FrameworkBridge, lost_skills
from skillhouse.house import Skillhouse

try:
    from pydantic_ai import RunContext
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import ModelRequest, ToolReturnPart, UserPromptPart
except ModuleNotFoundError as error:
    raise MissingExtraError("pydantic-ai", error.name or "pydantic_ai") from error


def skillhouse_context(
    house: Skillhouse, *, agent: str = "default", user: str = "local"
) -> AbstractCapability[Any]:
    """Return what keeps loaded skills in the context, for `Agent(model, capabilities=[…])`.

    List it after what shortens the history. The texts are added to requests only.
    """
    return RetentionCapability(
        FrameworkBridge(house=house, channel="pydantic-ai", agent=agent, user=user)
    )


class RetentionCapability(AbstractCapability[Any]):
    """Begins a request with the skills that it has lost; the run's history is not changed."""

    def __init__(self, bridge: FrameworkBridge) -> None:
        self._bridge = bridge

    async def before_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
        parts = [part for message in request_context.messages for part in message.parts]
        returned = [part for part in parts if isinstance(part, ToolReturnPart)]
        results = [(part.tool_call_id, part.model_response_str()) for part in returned]
        text = await lost_skills(self._bridge, results, ctx.conversation_id)
        if text:
            first = ModelRequest(parts=[UserPromptPart(text)])
            request_context.messages = [first, *request_context.messages]
        return request_context
