"""The result of a tool call, as a person or a program sees it."""

from __future__ import annotations

from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.tools import ToolResult


def answer(result: ToolResult, terminal: Terminal, *, as_json: bool) -> int:
    """Write a result; return the exit code, 1 when the call was refused or failed."""
    if as_json:
        terminal.json(
            {
                "status": result.status,
                "content": result.content,
                "data": result.data,
                "approval_id": result.approval_id,
            }
        )
    elif result.is_error:
        terminal.error(result.content)
    else:
        terminal.document(result.content)
    return 1 if result.is_error else 0
