"""The house's tools as the chat offers them: seen by the person, one call after the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.toolsets import ToolsetTool

from skillhouse.frontends.adapters.framework_bridge import FrameworkBridge
from skillhouse.frontends.adapters.pydantic_ai import HouseToolset
from skillhouse.frontends.chat.screen import Screen
from skillhouse.frontends.presentation.text import cut, one_line
from skillhouse.tools import Progress, ToolResult

CHANNEL = "chat"
"""Where the calls of a chat come from, for rules, questions and the log."""
_LINE = 100
_TOLD = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A call of the model with what came of it."""

    name: str
    arguments: Mapping[str, Any]
    call_id: str
    result: ToolResult


Heard = Callable[[Called], ToolResult]
"""Is told of each call, and returns what the model is told of it."""


class ChatTools(HouseToolset):
    """Shows each call and its progress, and tells the conversation what came of it."""

    def __init__(
        self, desk: FrameworkBridge, screen: Screen, session_id: str, heard: Heard
    ) -> None:
        """Take the place in the house, where calls are shown, and who is told of them."""
        super().__init__(desk)
        self._screen = screen
        self._session_id = session_id
        self._heard = heard

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools; one runs at a time, since the terminal asks one question at a time."""
        found = await super().get_tools(ctx)
        return {
            name: dataclasses.replace(
                tool, tool_def=dataclasses.replace(tool.tool_def, sequential=True)
            )
            for name, tool in found.items()
        }

    async def result_of(self, name: str, given: dict[str, Any], ctx: RunContext[Any]) -> ToolResult:
        """Make one call, and show it."""
        self._screen.progress(described(name, given))
        call_id = ctx.tool_call_id or ""
        result = await self._desk.call(
            name,
            given,
            listener=self._show,
            session_id=self._session_id,
            message_id=ctx.run_id or "",
            call_id=call_id,
        )
        if result.is_error:
            told = result.content.split("\n", 1)[0]
            self._screen.outcome(f"{result.status}: {cut(one_line(told), _TOLD)}")
        return self._heard(Called(name=name, arguments=given, call_id=call_id, result=result))

    async def _show(self, progress: Progress) -> None:
        of = f" of {progress.total:g}" if progress.total is not None else ""
        message = f" {one_line(progress.message)}" if progress.message else ""
        self._screen.progress(cut(f"  {progress.progress:g}{of}{message}", _LINE))


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
