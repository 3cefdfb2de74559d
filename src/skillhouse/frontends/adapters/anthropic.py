"""Tools for the plain Anthropic API, and results for the calls of a message.

It takes and returns plain values, which the caller sends with the `anthropic` package.
"""

from __future__ import annotations

from typing import Any

from skillhouse.frontends.adapters.framework_bridge import FrameworkBridge
from skillhouse.house import Caller, Skillhouse
from skillhouse.tools import ToolResult

__all__ = ["skillhouse_outputs", "skillhouse_outputs_async", "skillhouse_tools"]

CHANNEL = "anthropic"


def skillhouse_tools(
    house: Skillhouse, *, agent: str = "default", tool_search: bool = False
) -> list[Any]:
    """Return the `tools` of a request.

    With `tool_search` the API finds the tools for which there is no room: see
    `ModelTools.anthropic`.
    """
    caller = Caller(agent=agent, channel=CHANNEL)
    return house.tools(agent=agent, caller=caller).anthropic(tool_search=tool_search)


def skillhouse_outputs(
    house: Skillhouse, message: Any, *, agent: str = "default", user: str = "local"
) -> list[Any]:
    """Run the calls of a message, and return what follows in `messages`.

    These are the message itself, returned by `messages.create`, and a user message with the
    results; nothing when it calls no tool. The result of a call that needs approval is pending,
    and names the command that approves it.
    """
    bridge = FrameworkBridge(house=house, channel=CHANNEL, agent=agent, user=user)
    calls = _calls(message)
    return _turns(message, [(call, bridge.call_sync(call.name, call.input)) for call in calls])


async def skillhouse_outputs_async(
    house: Skillhouse, message: Any, *, agent: str = "default", user: str = "local"
) -> list[Any]:
    """Do what `skillhouse_outputs` does, one call after the other."""
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
