"""The tools that a chat's model has: each call is shown on the user's terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.toolsets import ToolsetTool

from skillhouse.extensions.chat.screen import Screen
from skillhouse.frontends.adapters.framework_bridge import FrameworkBridge
from skillhouse.frontends.adapters.pydantic_ai import SkillhouseToolset
from skillhouse.presentation.text import cut, one_line
from skillhouse.tools import Progress, ToolResult

_LINE = 100
_REASON_COLUMNS = 300


class ChatTools(SkillhouseToolset):
    """Shows each call and its progress, and passes its result to `on_result`."""

    def __init__(
        self,
        bridge: FrameworkBridge,
        screen: Screen,
        session_id: str,
        on_result: Callable[[ToolResult], None],
    ) -> None:
        super().__init__(bridge)
        self._screen = screen
        self._session_id = session_id
        self._on_result = on_result

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools, all sequential: the terminal asks one question at a time."""
        tools = await super().get_tools(ctx)
        return {
            name: dataclasses.replace(
                tool, tool_def=dataclasses.replace(tool.tool_def, sequential=True)
            )
            for name, tool in tools.items()
        }

    async def result_of(self, name: str, given: dict[str, Any], ctx: RunContext[Any]) -> ToolResult:
        self._screen.progress(described(name, given))
        self._screen.working(f"running {one_line(name)}")
        result = await self._bridge.call(
            name,
            given,
            listener=self._show,
            session_id=self._session_id,
            message_id=ctx.run_id or "",
            call_id=ctx.tool_call_id or "",
        )
        if result.is_error:
            reason = result.content.split("\n", 1)[0]
            self._screen.outcome(f"{result.status}: {cut(one_line(reason), _REASON_COLUMNS)}")
        self._on_result(result)
        return result

    async def _show(self, progress: Progress) -> None:
        message, total = one_line(progress.message), progress.total
        share = f"{progress.progress:g}" if total is None else f"{progress.progress:g} of {total:g}"
        # Without a total it is a line of output, whose number says nothing.
        shown = message if total is None and message else f"{share} {message}".rstrip()
        self._screen.progress(cut(f"  {shown}", _LINE))


def described(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a call in one line, safe to show.

    >>> described("exec", {"command": "git", "params": ["log"]})
    'exec command=git params=[log]'
    """
    shown = " ".join(f"{one_line(str(key))}={_brief(value)}" for key, value in arguments.items())
    return cut(one_line(f"{name} {shown}".rstrip()), _LINE)


def _brief(value: Any) -> str:
    if isinstance(value, list):
        return f"[{' '.join(one_line(str(item)) for item in value)}]"
    return one_line(str(value))
