"""MCP server inside the Claude Agent SDK; calls that need approval ask `can_use_tool`."""

from __future__ import annotations

from typing import Any, Literal

from skillhouse.floor import ConfigError, MissingExtraError
from skillhouse.floor.structs import replace
from skillhouse.frontends.adapters.claude_agent_tools import OwnTools, decided
from skillhouse.frontends.adapters.framework_bridge import FrameworkBridge
from skillhouse.house import Skillhouse
from skillhouse.house.model_tools import ShownTool

try:
    from claude_agent_sdk import (
        CanUseTool,
        ClaudeAgentOptions,
        PermissionResult,
        PermissionResultAllow,
        SdkMcpTool,
        ToolPermissionContext,
        create_sdk_mcp_server,
    )
except ModuleNotFoundError as error:
    raise MissingExtraError("claude-agent", error.name or "claude_agent_sdk") from error

__all__ = ["skillhouse_options"]

CHANNEL = "claude-agent"
SERVER = "skillhouse"
PREFIX = f"mcp__{SERVER}__"


def skillhouse_options(
    house: Skillhouse,
    options: ClaudeAgentOptions | None = None,
    *,
    agent: str = "default",
    user: str = "local",
    ask: bool = True,
    own_tools: Literal["kept", "gated", "off"] = "kept",
) -> ClaudeAgentOptions:
    """Return options with our MCP server, for `query` or `ClaudeSDKClient`.

    A call that needs approval is put to the options' own `can_use_tool`, under the tool's full name
    and with the question as title and reason; it is not called for our tools otherwise. The skills
    are listed at the end of the system prompt, and Claude Code's own `Skill` tool is off. Without
    `ask` or `can_use_tool` the model gets a pending result. `own_tools` says what becomes of Claude
    Code's own tools, such as `Bash`: `kept` leaves them as the options have them, beside the gate;
    `gated` has the gate judge and ask about their calls too; `off` offers none of them.

    Raises:
        ConfigError: no agent has that name, or `mcp_servers` or `system_prompt` is a file.
    """
    options = options or ClaudeAgentOptions()
    if not isinstance(options.mcp_servers, dict):
        raise ConfigError("expected `mcp_servers` as a mapping, got a file", key="mcp_servers")
    bridge = FrameworkBridge(house=house, channel=CHANNEL, agent=agent, user=user, ask=ask)
    tools = [_tool(bridge, tool, options.can_use_tool) for tool in bridge.tools(lists=False)]
    names = {PREFIX + tool.name for tool in tools}
    # Without `alwaysLoad` the CLI shows the model only the names of the tools (seen with 2.1.330).
    # Older CLIs ignore it, and a server inside the program has no instructions, hence the prompt.
    server = {**create_sdk_mcp_server(SERVER, tools=tools), "alwaysLoad": True}
    servers = {**options.mcp_servers, SERVER: server}
    off = [*options.disallowed_tools, "Skill"]
    changed: dict[str, Any] = {"mcp_servers": servers, "skills": [], "disallowed_tools": off}
    gate = OwnTools(bridge, PREFIX, options.can_use_tool) if own_tools == "gated" else None
    if options.can_use_tool is None:
        changed["allowed_tools"] = [*options.allowed_tools, *sorted(names)]
    else:
        changed["can_use_tool"] = _let_through(names, options.can_use_tool, gate)
    if gate is not None:
        changed["hooks"] = gate.added_to(options.hooks)
    if own_tools == "off":
        changed["tools"] = []
    if prompt := bridge.prompt(prefix=PREFIX, always=True):
        changed["system_prompt"] = _with(options.system_prompt, prompt)
    return replace(options, **changed)


def _tool(bridge: FrameworkBridge, tool: ShownTool, ask: CanUseTool | None) -> SdkMcpTool[Any]:
    async def run(arguments: dict[str, Any]) -> dict[str, Any]:
        result = await bridge.call(tool.name, arguments)
        question = bridge.question(result)
        if question is not None and ask is not None:
            approval_id = question["approval_id"]
            answer = await decided(ask, PREFIX + tool.name, arguments, question)
            if isinstance(answer, PermissionResultAllow):
                changed = answer.updated_input
                result = await bridge.allowed(tool.name, changed or arguments, approval_id)
            elif answer is not None:
                result = bridge.refused(approval_id, answer.message)
        text = {"type": "text", "text": result.content}
        return {"content": [text], "is_error": result.is_error}

    return SdkMcpTool(tool.name, tool.description, tool.schema, run)


def _let_through(names: set[str], ask: CanUseTool, gate: OwnTools | None) -> CanUseTool:
    """Return `can_use_tool` for the options: what the gate decides is not asked about again."""

    async def can_use(
        name: str, arguments: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResult:
        is_allowed = gate is not None and gate.is_allowed(context.tool_use_id, name, arguments)
        if name in names or is_allowed:
            return PermissionResultAllow()
        return await ask(name, arguments, context)

    return can_use


def _with(before: Any, prompt: str) -> Any:
    if not isinstance(before, dict):
        return f"{before}\n\n{prompt}" if before else prompt
    key = {"preset": "append", "custom": "prompt"}.get(before["type"])
    if key is None:
        raise ConfigError("expected `system_prompt` as text, got a file", key="system_prompt")
    return {**before, key: f"{before.get(key, '')}\n\n{prompt}".strip()}
