"""Completes what a person types in a client: addresses of skills, and arguments of prompts.

Only what the lists show to the same client is offered; of a skill's own text only the values that
its `argument-hint` names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from skillhouse.floor.paths import sendable
from skillhouse.floor.regex import regex
from skillhouse.frontends.mcp.skill_resources import SCHEME, SkillResources
from skillhouse.frontends.mcp.tool_list import ToolListing
from skillhouse.house import Invocable
from skillhouse.skill import SKILL_FILE

TEMPLATE = f"{SCHEME}{{+skill}}/{SKILL_FILE}"
"""The address of a skill, `scope/name` or `scope/plugin/name` (RFC 6570, 3.2.3)."""
PARAMETER = "skill"
VALUES_MAX = 100
"""Of one answer (MCP, "Completion")."""
VALUE_MAX = 200

_PLACE = regex(r"\[[^\[\]]*\]|<[^<>]*>|\S+")
_VALUE = regex(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*")


class CompletionRequests:
    """Answers `completion/complete`."""

    def __init__(
        self, resources: SkillResources, listing: ToolListing, *, is_of_user: bool
    ) -> None:
        """Without `is_of_user` there are no prompts, and so nothing of theirs is offered."""
        self._resources = resources
        self._listing = listing
        self._is_of_user = is_of_user

    def register(self, server: Server[None]) -> None:
        server.add_request_handler("completion/complete", types.CompleteRequestParams, self._answer)

    async def _answer(
        self, _: ServerRequestContext[None], params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        begun = params.argument.value
        if isinstance(params.ref, types.PromptReference):
            values = self._of_prompt(params.ref.name, params.argument.name)
        elif params.ref.uri == TEMPLATE and params.argument.name == PARAMETER:
            values = self._resources.paths()
        else:
            raise MCPError(types.INVALID_PARAMS, f"no template has that argument; use `{TEMPLATE}`")
        fitting = begun_with(begun, values)
        shown = [sendable(value) for value in fitting[:VALUES_MAX]]
        more = len(fitting) > VALUES_MAX
        completion = types.Completion(values=shown, total=len(fitting), has_more=more)
        return types.CompleteResult(completion=completion)

    def _of_prompt(self, name: str, argument: str) -> Sequence[str]:
        menu = self._listing.menu() if self._is_of_user else ()
        entry = next((one for one in menu if sendable(one.name) == name), None)
        if entry is None:
            raise MCPError(types.INVALID_PARAMS, f"no prompt `{name[:200]}`")
        return hinted_values(entry, argument)


def hinted_values(entry: Invocable, argument: str) -> tuple[str, ...]:
    """Return the values that a skill's `argument-hint` names for an argument, as `[fast|slow]`."""
    names = entry.arguments or ("arguments",)
    places: list[str] = _PLACE.findall(entry.argument_hint)
    if argument not in names or names.index(argument) >= len(places):
        return ()
    values = places[names.index(argument)].strip("[]<>").split("|")
    is_choice = len(values) > 1 and all(_VALUE.fullmatch(one.strip()) for one in values)
    return tuple(one.strip()[:VALUE_MAX] for one in values) if is_choice else ()


def begun_with(begun: str, values: Iterable[str]) -> list[str]:
    """Return the values that begin so, or a part of whose path does.

    >>> begun_with("no", ["user/notes", "user/poem", "node"])
    ['user/notes', 'node']
    """
    wanted = begun.casefold()
    return [
        value
        for value in values
        if value.casefold().startswith(wanted) or f"/{wanted}" in f"/{value.casefold()}"
    ]
