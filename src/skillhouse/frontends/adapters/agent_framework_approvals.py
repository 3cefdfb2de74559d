"""Approvals of Microsoft Agent Framework: `approval_mode` is set for each turn of the model.

A question raised while the calls of a turn run would end the turn, and calls of it would stay
unanswered. Here it is known before the framework runs them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from skillhouse.floor import MissingExtraError
from skillhouse.frontends.adapters.framework_bridge import FrameworkBridge as Bridge
from skillhouse.frontends.adapters.framework_bridge import KeptResult, json_arguments
from skillhouse.tools import ToolResult

try:
    from agent_framework import (
        ChatContext,
        ChatMiddleware,
        ChatResponse,
        Content,
        FunctionInvocationContext,
        FunctionMiddleware,
        FunctionTool,
        ResponseStream,
    )
except ModuleNotFoundError as error:
    raise MissingExtraError("agent-framework", error.name or "agent_framework") from error

QUESTION = "skillhouse"
"""Key of a question in the additional properties of the function call that it is about."""


Tools = Mapping[str, FunctionTool]
Done = KeptResult[tuple[str, dict[str, Any], ToolResult]]
"""Name, arguments and result of calls that the gate allowed before the framework ran them."""


class ApprovalModes(ChatMiddleware):
    """Sets `approval_mode` for each turn of the model, before the framework runs its calls.

    The mode belongs to a tool and not to a call: when a call needs approval, the framework asks
    about the turn's other calls of that tool too. It keeps the rest of the turn until the answer.
    """

    def __init__(self, bridge: Bridge, tools: Tools, done: Done) -> None:
        self._bridge, self._tools, self._done = bridge, tools, done

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        context.stream_result_hooks.append(self._ask)
        await call_next()
        if context.result is not None and not isinstance(context.result, ResponseStream):
            await self._ask(context.result)

    async def _ask(self, response: ChatResponse[Any]) -> ChatResponse[Any]:
        contents = [content for said in response.messages for content in said.contents]
        calls = [one for one in contents if one.type == "function_call" and one.name in self._tools]
        asked = await asyncio.gather(*(self._needs_approval(call) for call in calls))
        names = {call.name for call, needed in zip(calls, asked, strict=True) if needed}
        for name, tool in self._tools.items():
            tool.approval_mode = "always_require" if name in names else "never_require"
        return response

    async def _needs_approval(self, call: Content) -> bool:
        """Open the question about a call, so that the approval is bound to it.

        If the gate allows a call that may have needed approval, its result is kept until the
        framework runs it.
        """
        name, arguments = str(call.name), _arguments(call)
        if not await self._bridge.may_ask(name, arguments):
            return False
        result = await self._bridge.call(name, arguments)
        question = self._bridge.question(result)
        if question is None:
            self._done.keep(call.call_id, (name, arguments, result))
            return False
        call.additional_properties[QUESTION] = question
        return True


class GatedCalls(FunctionMiddleware):
    """Runs the calls of our tools through the gate."""

    def __init__(self, bridge: Bridge, tools: Tools, done: Done) -> None:
        self._bridge, self._tools, self._done = bridge, tools, done

    async def process(
        self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        name, arguments = context.function.name, dict(context.arguments)
        if context.function is not self._tools.get(name):
            await call_next()
            return
        answer = context.metadata.get("approval_response")
        asked = asked_about(answer) if answer is not None and answer.approved is True else ""
        done = self._done.take(context.metadata["call_id"])
        if done is not None and done[:2] == (name, arguments):
            result = done[2]
        elif asked:
            result = await self._bridge.allowed(name, arguments, asked)
        else:
            result = await self._bridge.call(name, arguments)
        context.result = result.content


def _arguments(call: Content) -> dict[str, Any]:
    given = call.arguments
    return json_arguments(given) if isinstance(given, str) else dict(given or {})


def asked_about(answer: Content) -> str:
    """Return the id of the approval that a response is about; empty when it is about none."""
    if answer.type != "function_approval_response" or answer.function_call is None:
        return ""
    question = answer.function_call.additional_properties.get(QUESTION)
    return str(question.get("approval_id", "")) if isinstance(question, dict) else ""
