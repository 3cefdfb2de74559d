"""Keeps loaded skills in the context of LangChain's agents, whatever shortens the messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from skillhouse.floor import MissingExtraError
from skillhouse.frontends.adapters.framework_bridge import (
    FrameworkBridge,
    framework_call,
    lost_skills,
    lost_skills_sync,
)

try:
    from langchain.agents.middleware import AgentMiddleware, ModelRequest
    from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
    from langgraph.config import get_config
except ModuleNotFoundError as error:
    raise MissingExtraError("langchain", error.name or "langchain") from error


class RetentionMiddleware(AgentMiddleware[Any, Any]):
    """Attaches the framework's ids to calls, and begins a request with the skills that it has lost.

    The texts are added to requests only; the graph's state stays as it is.
    """

    def __init__(self, bridge: FrameworkBridge) -> None:
        super().__init__()
        self.bridge = bridge

    def prompted(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        return request

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]
    ) -> Any:
        text = lost_skills_sync(self.bridge, _results(request.messages), _thread())
        return handler(_begun(self.prompted(request), text))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        text = await lost_skills(self.bridge, _results(request.messages), _thread())
        return await handler(_begun(self.prompted(request), text))

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        with framework_call(call_id=request.tool_call["id"], session_id=_thread()):
            return handler(request)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        with framework_call(call_id=request.tool_call["id"], session_id=_thread()):
            return await handler(request)


def _results(messages: list[AnyMessage]) -> list[tuple[str, str]]:
    returned = [message for message in messages if isinstance(message, ToolMessage)]
    return [(message.tool_call_id, message.text) for message in returned]


def _begun(request: ModelRequest[Any], text: str) -> ModelRequest[Any]:
    if not text:
        return request
    return request.override(messages=[HumanMessage(content=text), *request.messages])


def _thread() -> str:
    """Return the graph's id of the conversation; empty where it has none.

    A nested agent has its parent's thread and a context of its own, hence the namespace.
    """
    try:
        configurable = get_config().get("configurable", {})
    except RuntimeError:  # There is no graph around this call.
        return ""
    thread = str(configurable.get("thread_id") or "")
    around, _, _ = str(configurable.get("checkpoint_ns") or "").rpartition("|")
    return f"{thread}|{around}" if thread and around else thread
