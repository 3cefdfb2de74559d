"""A house as tools of the plain OpenAI API, and its answers to the calls of a response.

Plain values in, plain values out: the `openai` package is what sends them.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from skillhouse.frontends.adapters.framework_bridge import OPENAI_CHARS, FrameworkBridge
from skillhouse.runtime import Skillhouse

__all__ = ["skillhouse_outputs", "skillhouse_outputs_async", "skillhouse_tools"]

CHANNEL = "openai"


def skillhouse_tools(
    house: Skillhouse, *, agent: str = "default", api: Literal["responses", "chat"] = "responses"
) -> list[Any]:
    """Return the `tools` of a request.

    Args:
        house: Whose tools; the caller closes it.
        agent: Whose skills and rules hold.
        api: For `client.responses` or for `client.chat.completions`.

    Raises:
        ConfigError: no agent has that name.
    """
    functions = [
        {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.schema,
            # Strict mode has no optional arguments; the gate checks them all the same.
            "strict": False,
        }
        for tool in FrameworkBridge(house=house, channel=CHANNEL, agent=agent).tools(OPENAI_CHARS)
    ]
    if api == "chat":
        return [{"type": "function", "function": function} for function in functions]
    return [{"type": "function", **function} for function in functions]


def skillhouse_outputs(
    house: Skillhouse, response: Any, *, agent: str = "default", user: str = "local"
) -> list[Any]:
    """Run the calls of a response, and return what follows in `input` or `messages`.

    That is what the model said with its calls, and their results; nothing when it called no tool.
    A call that needs a yes is pending: the model is told, with the command that answers.

    Args:
        house: Whose tools; the caller closes it.
        response: What `responses.create` or `chat.completions.create` returned.
        agent: Whose skills and rules hold.
        user: On whose behalf.
    """
    bridge = FrameworkBridge(house=house, channel=CHANNEL, agent=agent, user=user)
    said, calls = _calls(response)
    results = [bridge.call_sync(name, arguments).content for _, name, arguments in calls]
    return said + [_output(call[0], text) for call, text in zip(calls, results, strict=True)]


async def skillhouse_outputs_async(
    house: Skillhouse, response: Any, *, agent: str = "default", user: str = "local"
) -> list[Any]:
    """Do as `skillhouse_outputs` does, one call after the other."""
    bridge = FrameworkBridge(house=house, channel=CHANNEL, agent=agent, user=user)
    said, calls = _calls(response)
    results = [(await bridge.call(name, arguments)).content for _, name, arguments in calls]
    return said + [_output(call[0], text) for call, text in zip(calls, results, strict=True)]


def _calls(response: Any) -> tuple[list[Any], list[tuple[Any, str, Any]]]:
    """Return what the model said, and its calls as the API has them, with name and arguments."""
    if hasattr(response, "choices"):
        message = response.choices[0].message
        calls = [call for call in message.tool_calls or () if call.type == "function"]
        found = [(call, call.function.name, _read(call.function.arguments)) for call in calls]
        said = [message.model_dump(exclude_none=True)]
    else:
        calls = [item for item in response.output if item.type == "function_call"]
        found = [(call, call.name, _read(call.arguments)) for call in calls]
        said = [item.model_dump(exclude_none=True) for item in response.output]
    return (said, found) if found else ([], [])


def _read(arguments: str) -> Any:
    """Return the arguments, or what the gate will refuse with the reason."""
    try:
        read = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        read = None
    return read if isinstance(read, dict) else {"arguments": arguments}


def _output(call: Any, text: str) -> dict[str, Any]:
    if hasattr(call, "function"):
        return {"role": "tool", "tool_call_id": call.id, "content": text}
    return {"type": "function_call_output", "call_id": call.call_id, "output": text}
