"""Tools for LangChain and LangGraph; calls that need approval interrupt the graph."""

from __future__ import annotations

from typing import Any

from skillhouse.floor import MissingExtraError
from skillhouse.frontends.adapters.framework_bridge import FrameworkBridge
from skillhouse.frontends.adapters.langchain_retention import RetentionMiddleware
from skillhouse.house import Skillhouse
from skillhouse.house.model_tools import OPENAI_CHARS
from skillhouse.tools import ToolResult

try:
    from langchain.agents.middleware import AgentMiddleware, ModelRequest
    from langchain_core.messages import SystemMessage
    from langchain_core.tools import BaseTool, ToolException
    from langgraph.types import interrupt
    from pydantic import Field
except ModuleNotFoundError as error:
    raise MissingExtraError("langchain", error.name or "langchain") from error

__all__ = ["skillhouse_middleware", "skillhouse_tools"]

CHANNEL = "langchain"


def skillhouse_tools(
    house: Skillhouse, *, agent: str = "default", user: str = "local", ask: bool = True
) -> list[BaseTool]:
    """Return the tools, for a `ToolNode` or `create_agent`.

    A call that needs approval interrupts the graph with the question. Resume it with
    `{"approval_id": …, "approved": …}`, and for a denial optionally a `message`; anything else is a
    denial. Without `ask`, or outside a graph, the model gets a pending result.
    """
    bridge = FrameworkBridge(house=house, channel=CHANNEL, agent=agent, user=user, ask=ask)
    return [
        _LangChainTool(
            name=tool.name, description=tool.description, args_schema=tool.schema, bridge=bridge
        )
        for tool in bridge.tools(OPENAI_CHARS)
    ]


def skillhouse_middleware(
    house: Skillhouse, *, agent: str = "default", user: str = "local", ask: bool = True
) -> AgentMiddleware[Any, Any]:
    """Return the tools and the skills' part of the prompt, for `create_agent(middleware=…)`.

    It keeps loaded skills in the context; list it after middleware that shortens the messages.
    """
    tools = skillhouse_tools(house, agent=agent, user=user, ask=ask)
    return _LangChainMiddleware(
        FrameworkBridge(house=house, channel=CHANNEL, agent=agent, user=user), tools
    )


class _LangChainTool(BaseTool):
    handle_tool_error: bool = True
    bridge: Any = Field(exclude=True)

    def _run(self, /, **arguments: Any) -> str:
        result, given = self._asked(self.bridge.call_sync(self.name, arguments))
        while given:
            result, given = self._asked(self.bridge.allowed_sync(self.name, arguments, given))
        return _text(result)

    async def _arun(self, /, **arguments: Any) -> str:
        result, given = self._asked(await self.bridge.call(self.name, arguments))
        while given:
            result, given = self._asked(await self.bridge.allowed(self.name, arguments, given))
        return _text(result)

    def _asked(self, result: ToolResult) -> tuple[ToolResult, str]:
        """Return a result with the id of its approval, or interrupt the graph to get one.

        A resumed graph runs the tool from its start and replays every answer in order; an answer
        about another approval than the call has now is ignored.
        """
        question = self.bridge.question(result)
        while question is not None:
            try:
                answer = interrupt(question)
            except (KeyError, RuntimeError):  # There is no graph around this call.
                break
            said, wanted = answer if isinstance(answer, dict) else {}, question["approval_id"]
            if said.get("approval_id", wanted) != wanted:
                continue
            if said.get("approved") is True and "approval_id" in said:
                return result, wanted
            return self.bridge.refused(wanted, str(said.get("message", ""))), ""
        return result, ""


class _LangChainMiddleware(RetentionMiddleware):
    def __init__(self, bridge: FrameworkBridge, tools: list[BaseTool]) -> None:
        super().__init__(bridge)
        self.tools = tools

    def prompted(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        offered = [tool.name for tool in request.tools if isinstance(tool, BaseTool)]
        said = self.bridge.prompt(offered, chars=OPENAI_CHARS)
        if not said:
            return request
        before = f"{request.system_message.text}\n\n" if request.system_message else ""
        return request.override(system_message=SystemMessage(content=before + said))


def _text(result: ToolResult) -> str:
    if result.is_error:
        raise ToolException(result.content)
    return result.content
