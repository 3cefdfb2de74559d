"""A house as tools of the plain Anthropic API, and its answers to the calls of a message.

Plain values in, plain values out: the `anthropic` package is what sends them.
"""

from __future__ import annotations

from typing import Any

from skillhouse.frontends.adapters.framework_bridge import FrameworkBridge
from skillhouse.runtime import Skillhouse
from skillhouse.tools import ToolResult

__all__ = ["skillhouse_outputs", "skillhouse_outputs_async", "skillhouse_tools"]

CHANNEL = "anthropic"


def skillhouse_tools(house: Skillhouse, *, agent: str = "default") -> list[Any]:
    """Return the `tools` of a request.

    Args:
        house: Whose tools; the caller closes it.
        agent: Whose skills and rules hold.

    Raises:
        ConfigError: no agent has that name.
    """
    return [
        {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
        for tool in FrameworkBridge(house=house, channel=CHANNEL, agent=agent).tools()
    ]


def skillhouse_outputs(
    house: Skillhouse, message: Any, *, agent: str = "default", user: str = "local"
) -> list[Any]:
    """Run the calls of a message, and return what follows in `messages`.

    That is the message itself, and one of the user with the results; nothing when it calls no
    tool. A call that needs a yes is pending: the model is told, with the command that answers.

    Args:
        house: Whose tools; the caller closes it.
        message: What `messages.create` returned.
        agent: Whose skills and rules hold.
        user: On whose behalf.
    """
    bridge = FrameworkBridge(house=house, channel=CHANNEL, agent=agent, user=user)
    calls = _calls(message)
    return _turns(message, [(call, bridge.call_sync(call.name, call.input)) for call in calls])


async def skillhouse_outputs_async(
    house: Skillhouse, message: Any, *, agent: str = "default", user: str = "local"
) -> list[Any]:
    """Do as `skillhouse_outputs` does, one call after the other."""
    bridge = FrameworkBridge(house=house, channel=CHANNEL, agent=agent, user=user)
    calls = _calls(message)
    return _turns(message, [(call, await bridge.call(call.name, call.input)) for call in calls])


def _calls(message: Any) -> list[Any]:
    return [block for block in message.content if block.type == "tool_use"]


def _turns(message: Any, results: list[tuple[Any, ToolResult]]) -> list[Any]:
    if not results:
        return []
    answers = [
        {
            "type": "tool_result",
            "tool_use_id": call.id,
            "content": result.content,
            "is_error": result.is_error,
        }
        for call, result in results
    ]
    said = [block.model_dump(exclude_none=True) for block in message.content]
    return [{"role": "assistant", "content": said}, {"role": "user", "content": answers}]
