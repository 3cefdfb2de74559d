"""What comes of a call, as MCP has it: a text, a declared value, or an error without traceback."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

import mcp_types as types
from mcp.shared.exceptions import MCPError

from skillhouse.floor import InternalFaultError, SkillhouseError, as_error
from skillhouse.floor.paths import sendable
from skillhouse.tools import ToolResult, UnknownToolError, structured_content

R = TypeVar("R")


async def guarded(made: Awaitable[R]) -> R | ToolResult:
    """Return what a call returns; a failure as a result that says so, for the model.

    Raises:
        MCPError: the request itself is wrong.
    """
    try:
        return await made
    except UnknownToolError as error:
        raise MCPError(types.INVALID_PARAMS, str(error)) from error
    except MCPError:
        raise
    except SkillhouseError as error:
        return ToolResult(content=str(error), status="error")
    except Exception as error:  # noqa: BLE001 - the edge of the process.
        # A traceback is for our log, never for a model.
        return ToolResult(
            content=f"the call failed inside skillhouse{named(error)}", status="error"
        )


def named(error: Exception) -> str:
    """Return by which report a fault is found; nothing else of it is for a client."""
    fault = as_error(error)
    return f": report `{fault.report}`" if isinstance(fault, InternalFaultError) else ""


def answer(result: ToolResult, *, is_structured: bool = True) -> types.CallToolResult:
    """Return a result on the wire: a text, and the value that its tool declares, if it does.

    A server must provide a value that fits `outputSchema`, and clients refuse a result without: it
    is an error where the value has to be left out. Other values are not structured content, which
    clients give to a model as JSON.
    """
    if result.returns is None or not is_structured:
        return text_answer(result.content, is_error=result.is_error)
    value, why = structured_content(result.returns, result.data or {})
    if why:
        text = f"the tool was run, and its result is a text: {why}\n{result.content}"
        return text_answer(text, is_error=True)
    answered = text_answer(result.content, is_error=False)
    answered.structured_content = value
    return answered


def text_answer(text: str, *, is_error: bool) -> types.CallToolResult:
    content = types.TextContent(type="text", text=sendable(text))
    return types.CallToolResult(content=[content], is_error=is_error)
