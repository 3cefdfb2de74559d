"""Tools for the plain OpenAI API, and results for the calls of a response.

It takes and returns plain values, which the caller sends with the `openai` package.
"""

from __future__ import annotations

from typing import Any, Literal

from skillhouse.frontends.adapters.framework_bridge import (
    FrameworkBridge,
    json_arguments,
)
from skillhouse.house import Caller, Skillhouse

__all__ = ["skillhouse_outputs", "skillhouse_outputs_async", "skillhouse_tools"]

CHANNEL = "openai"


def skillhouse_tools(
    house: Skillhouse,
    *,
    agent: str = "default",
    api: Literal["responses", "chat"] = "responses",
    tool_search: bool = False,
) -> list[Any]:
    """Return the `tools` of a request to `client.responses` or `client.chat.completions`.

    With `tool_search` the API finds the tools for which there is no room: see `ModelTools.openai`.
    """
    caller = Caller(agent=agent, channel=CHANNEL)
    return house.tools(agent=agent, caller=caller).openai(api=api, tool_search=tool_search)


def skillhouse_outputs(
    house: Skillhouse, response: Any, *, agent: str = "default", user: str = "local"
) -> list[Any]:
    """Run the calls of a response, and return what follows in `input` or `messages`.

    These are the items of the response, returned by `responses.create` or
    `chat.completions.create`, and the results; nothing when it calls no tool. The result of a call
    that needs approval is pending, and names the command that approves it.
    """
    bridge = FrameworkBridge(house=house, channel=CHANNEL, agent=agent, user=user)
    said, calls = _calls(response)
    results = [bridge.call_sync(name, arguments).content for _, name, arguments in calls]
    return said + [_output(call[0], text) for call, text in zip(calls, results, strict=True)]


async def skillhouse_outputs_async(
    house: Skillhouse, response: Any, *, agent: str = "default", user: str = "local"
) -> list[Any]:
    """Do what `skillhouse_outputs` does, one call after the other."""
    bridge = FrameworkBridge(house=house, channel=CHANNEL, agent=agent, user=user)
    said, calls = _calls(response)
    results = [(await bridge.call(name, arguments)).content for _, name, arguments in calls]
    return said + [_output(call[0], text) for call, text in zip(calls, results, strict=True)]


def _calls(response: Any) -> tuple[list[Any], list[tuple[Any, str, Any]]]:
    """Return the items of a response, and its calls with name and arguments."""
    if hasattr(response, "choices"):
        message = response.choices[0].message
        calls = [call for call in message.tool_calls or () if call.type == "function"]
        functions = [(call, call.function) for call in calls]
        said = [message.model_dump(exclude_none=True)]
    else:
        calls = [item for item in response.output if item.type == "function_call"]
        functions = [(call, call) for call in calls]
        said = [item.model_dump(exclude_none=True) for item in response.output]
    named = [(call, one.name, json_arguments(one.arguments)) for call, one in functions]
    return (said, named) if named else ([], [])


def _output(call: Any, text: str) -> dict[str, Any]:
    if hasattr(call, "function"):
        return {"role": "tool", "tool_call_id": call.id, "content": text}
    return {"type": "function_call_output", "call_id": call.call_id, "output": text}
