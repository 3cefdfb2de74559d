"""Tools for CrewAI; calls that need approval ask a function of the program."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from skillhouse.floor import MissingExtraError
from skillhouse.frontends.adapters.framework_bridge import FrameworkBridge
from skillhouse.house import Skillhouse
from skillhouse.house.model_tools import OPENAI_CHARS
from skillhouse.tools import ToolResult

try:
    from crewai.tools import BaseTool
    from crewai.tools.tool_failure import ToolFailure
    from pydantic import BaseModel, ConfigDict, Field
except ModuleNotFoundError as error:
    raise MissingExtraError("crewai", error.name or "crewai") from error

__all__ = ["skillhouse_tools"]

CHANNEL = "crewai"
Approve = Callable[[Mapping[str, Any]], bool]


def skillhouse_tools(
    house: Skillhouse,
    *,
    agent: str = "default",
    user: str = "local",
    approve: Approve | None = None,
    wait: float = 0,
    cancel: threading.Event | None = None,
) -> list[BaseTool]:
    """Return the tools for `Agent(tools=…)`.

    CrewAI has no interrupts, so a call that needs approval is put to `approve` while it waits: it
    gets the question, with `title`, `reasons` and `facts`, and returns whether the user approves.
    Without it, a call waits `wait` seconds for an answer that is given elsewhere; then the model
    gets a pending result.

    CrewAI runs tools on threads, which go on when the task that awaits a crew is cancelled. Set
    `cancel` then: the call that runs ends, no other begins, and the crew ends with
    asyncio.CancelledError on its thread.
    """
    bridge = FrameworkBridge(house=house, channel=CHANNEL, agent=agent, user=user)
    return [
        _CrewTool(
            name=tool.name,
            description=tool.description,
            args_schema=_model_of(tool.name, tool.schema),
            cache_function=_never,
            bridge=bridge,
            approve=approve,
            wait=wait,
            cancel=cancel,
        )
        for tool in bridge.tools(OPENAI_CHARS)
    ]


class _CrewTool(BaseTool):
    bridge: Any = Field(exclude=True)
    approve: Any = Field(exclude=True)
    wait: float = 0
    cancel: Any = Field(exclude=True)

    def _run(self, /, **arguments: Any) -> str | ToolFailure:
        result = self.bridge.call_sync(
            self.name, arguments, wait=0 if self.approve else self.wait, cancel=self.cancel
        )
        while self.approve and (question := self.bridge.question(result)) is not None:
            result = self._answered(arguments, question)
        return ToolFailure(message=result.content) if result.is_error else result.content

    def _answered(self, arguments: dict[str, Any], question: dict[str, Any]) -> ToolResult:
        """Return the result of a call after an answer; what changed meanwhile is another question.

        A program whose `approve` raises has not approved, and its question stays open.
        """
        approval_id = str(question["approval_id"])
        result: ToolResult = (
            self.bridge.allowed_sync(self.name, arguments, approval_id, cancel=self.cancel)
            if self.approve(question)
            else self.bridge.refused(approval_id)
        )
        return result


def _never(_: Any = None, __: Any = None) -> bool:
    """Have no result kept: what a call gives, and whether it may run, is the gate's to say."""
    return False


def _model_of(name: str, schema: Mapping[str, Any]) -> type[BaseModel]:
    """Return a model that takes any arguments, which the gate checks, and shows their schema."""

    class Arguments(BaseModel):
        model_config = ConfigDict(extra="allow")

        @classmethod
        def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
            return {"title": name, **schema}

    return Arguments
