"""The skills that a user may start, as prompts: clients show them as slash commands."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from skillhouse.floor import SkillhouseError, nearest
from skillhouse.frontends.mcp.approval_bridge import ApprovalBridge
from skillhouse.frontends.mcp.skill_resources import paged
from skillhouse.frontends.mcp.skills import NOT_APPROVED, error_of
from skillhouse.frontends.mcp.tool_list import ToolListing
from skillhouse.frontends.presentation.text import sendable
from skillhouse.runtime import Invocable, Skillhouse

WHOLE = "arguments"
"""The argument of a skill that declares none: all text after its name."""

UNKNOWN = "a prompt is its person's act: connect with the token, or have the model load the skill"
"""Answer to a client whose user is unknown."""


class PromptRequests:
    """Answers `prompts/list` and `prompts/get`.

    Getting a prompt is the user's act (MCP, "Prompts", user interaction model), so the rules of
    `skillhouse invoke` apply. It grants nothing else: a skill's commands are the agent's calls.
    """

    def __init__(
        self, house: Skillhouse, listing: ToolListing, bridge: ApprovalBridge, *, is_persons: bool
    ) -> None:
        """Without `is_persons` the client's user is unknown, and there are no prompts."""
        self._house = house
        self._listing = listing
        self._bridge = bridge
        self._is_persons = is_persons

    def register(self, server: Server[None]) -> None:
        add = server.add_request_handler
        add("prompts/list", types.PaginatedRequestParams, self._list)
        add("prompts/get", types.GetPromptRequestParams, self._get)

    async def _list(
        self, _: ServerRequestContext[None], params: types.PaginatedRequestParams
    ) -> types.ListPromptsResult:
        menu = self._listing.menu() if self._is_persons else ()
        entries = sorted(menu, key=lambda entry: entry.name)
        page, cursor = paged(entries, params.cursor, key=lambda entry: entry.name)
        return types.ListPromptsResult(
            prompts=[_prompt(entry) for entry in page],
            next_cursor=cursor,
            ttl_ms=0,
            cache_scope="private",
        )

    async def _get(
        self, context: ServerRequestContext[None], params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        if not self._is_persons:
            raise MCPError(NOT_APPROVED, UNKNOWN, {"status": "denied", "approvalId": None})
        self._listing.changed_lately()
        menu = {entry.name: entry for entry in self._listing.menu()}
        entry = menu.get(params.name)
        if entry is None:
            close = next(iter(nearest(params.name, menu)), "")
            hint = f"; did you mean `{close}`" if close else ""
            raise MCPError(types.INVALID_PARAMS, f"no prompt `{params.name[:200]}`{hint}")
        line = _line(entry, params.arguments or {})
        try:
            result = await self._bridge.call_with_approval(
                context,
                params,
                lambda caller, approval_id: self._house.invoke(
                    entry.name, line, caller=caller, approval_id=approval_id
                ),
            )
        except SkillhouseError as error:
            raise MCPError(types.INTERNAL_ERROR, sendable(str(error))) from error
        if isinstance(result, types.InputRequiredResult):
            return result
        if result.is_error:
            raise error_of(result)
        content = types.TextContent(type="text", text=sendable(result.content))
        return types.GetPromptResult(
            description=sendable(entry.description),
            messages=[types.PromptMessage(role="user", content=content)],
        )


def _prompt(entry: Invocable) -> types.Prompt:
    names = entry.arguments or (WHOLE,)
    hint = sendable(entry.argument_hint) or None
    return types.Prompt(
        name=sendable(entry.name),
        description=sendable(entry.description),
        arguments=[
            types.PromptArgument(name=name, description=hint, required=False) for name in names
        ],
    )


def _line(entry: Invocable, given: Mapping[str, str]) -> str:
    """Return the arguments as a user would write them after the name.

    Raises:
        MCPError: one is unknown, or one is missing before another.
    """
    names = entry.arguments or (WHOLE,)
    unknown = next((name for name in given if name not in names), None)
    if unknown is not None:
        message = f"`{entry.name}` takes {', '.join(names)}, got `{unknown[:200]}`"
        raise MCPError(types.INVALID_PARAMS, message)
    if not entry.arguments:
        return given.get(WHOLE, "")
    values = [given.get(name) for name in names]
    while values and values[-1] is None:
        values.pop()
    if None in values:
        missing = names[values.index(None)]
        raise MCPError(types.INVALID_PARAMS, f"`{entry.name}` needs `{missing}` as well")
    # Each value is one argument, whatever spaces and quotes it has.
    return shlex.join(value for value in values if value is not None)
