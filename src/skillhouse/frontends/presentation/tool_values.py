"""Tools and the results of calls as plain values, for `--json` and the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skillhouse import tools as toolbox
from skillhouse.frontends.presentation.json_values import python_value

if TYPE_CHECKING:
    from skillhouse.tools import Tool, ToolResult


def tool_value(tool: Tool) -> dict[str, Any]:
    """Return a tool as plain values; `skill` and `level` are null for a built-in tool."""
    code = tool if isinstance(tool, toolbox.SkillCodeTool) else None
    return {
        "name": tool.name,
        "full_name": code.full_name if code else tool.name,
        "skill": code.skill.manifest.name if code else None,
        "level": code.level if code else None,
        "python": python_value(code) if code else None,
        "description": tool.description,
        "parameters": dict(tool.schema),
    }


def result_value(result: ToolResult) -> dict[str, Any]:
    return {
        "status": result.status,
        "content": result.content,
        "data": result.data,
        "approval_id": result.approval_id,
    }
