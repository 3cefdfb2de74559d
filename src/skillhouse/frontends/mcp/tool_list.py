"""The tools as listed to a client, and whether they changed since."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from skillhouse.discovery import within
from skillhouse.floor import isolated
from skillhouse.floor.paths import sendable
from skillhouse.frontends.mcp.tried_clients import ClientList, Places, places_of, uncut_list
from skillhouse.house import AgentView, Caller, Invocable, Skillhouse
from skillhouse.house.model_tools import ModelTools, description_of
from skillhouse.tools import Tool

logger = logging.getLogger(__name__)

READING = frozenset({"read", "list", "web_search"})
"""Tools that change nothing, besides those about skills, which declare it themselves; a client may
run them in parallel and without asking."""
OPEN_WORLD = frozenset({"exec", "fetch", "find_and_install_skill", "web_search"})
"""Tools that can access other machines."""
ALWAYS_LOAD = "anthropic/alwaysLoad"
"""Key in `_meta` by which Claude Code offers a tool with its description from the start; it defers
others until the model searches for them (seen with 2.1.330)."""
RESULT_CHARS = "anthropic/maxResultSizeChars"
"""Key in `_meta` by which Claude Code shows a model a result of more than 50,000 characters; it
writes others into a file of its own, and the model gets the first 2,000 characters."""
LOADED_CHARS = 300_000
"""More than a loaded skill has (256 KiB); Claude Code takes up to 500,000."""
UNSTRUCTURED = frozenset({"2024-11-05", "2025-03-26"})
"""Revisions without `outputSchema` and `structuredContent`."""
WITHOUT_ICONS = UNSTRUCTURED | {"2025-06-18"}
"""Revisions without `icons`."""
CHECK_SECONDS = 1.0
"""Minimum time between two scans of the disk caused by calls."""

Seen = tuple[object, ...]
"""Skills, tools and menu as shown to a client."""


class ToolListing:
    """One agent's tools, and its skills at the last look."""

    def __init__(
        self, house: Skillhouse, agent: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._house = house
        self._agent = agent
        self._clock = clock
        self._checked = clock()
        self.client_list = ClientList(Places.EACH, "")
        """What the client got of the list."""
        self._in_instructions: frozenset[str] | None = None
        """Files of the skills in all instructions so far."""
        self._menu: tuple[AgentView, tuple[Invocable, ...]] | None = None
        self._seen = self._visible()

    def tools(
        self, client_list: ClientList | None = None, caller: Caller | None = None
    ) -> list[dict[str, Any]]:
        """Return the agent's tools in the protocol's form, all from one snapshot.

        They are for a client that got `client_list`, by default this one's; of skills for whose
        tools there is no room those that `caller` has loaded are there. There are none of an agent
        that was removed from the configuration meanwhile.
        """
        if not self._is_known():
            return []
        bound = self._house.policy.profile.catalog.tool_chars
        chars = None if bound == "none" else bound
        found = []
        for tool in self._house.tools(agent=self._agent, caller=caller):
            with isolated() as failed:
                found.append(self._described(tool, chars, client_list or self.client_list))
            for error in failed:
                logger.warning("not listed over MCP: `%s`: %s", tool.name, error)
        return found

    def _described(self, tool: Tool, chars: int | None, got: ClientList) -> dict[str, Any]:
        if not getattr(tool, "loads_skills", False):
            return _described(tool, chars, description_of(tool, chars))
        chars = got.tool_chars(chars)
        listed = got.in_tool(self._house.view(self._agent), chars)
        if listed is None:
            return _described(tool, chars, description_of(tool, chars))
        described = _described(tool, chars, listed[0])
        return {**described, "inputSchema": _naming(tool.schema, listed[1])}

    def instructions(self) -> str:
        """Return the server's instructions; empty without skills or a fault to say."""
        if not self._is_known():
            return ""
        text, listed = self._house.view(self._agent).prompts().listing_instructions()
        files = frozenset(skill.file for skill in listed.included) if listed else frozenset()
        known = self._in_instructions
        self._in_instructions = files if known is None else known & files
        notice = self._house.config_reload.notice
        return sendable(f"{notice}\n\n{text}".strip() if notice else text)

    def list_for(self, client: str) -> ClientList:
        """Return what a client of that name gets of the list, whatever the handshake gave it.

        Over HTTP all clients get the same instructions, at different times; in the description one
        that shows both gets those that one of them left out.
        """
        places, got = places_of(client), self.client_list
        if places is Places.TOOL:
            return got._replace(places=places)
        is_half = places is Places.HALVES and got.places is Places.EACH
        if not is_half or not self._in_instructions or not self._is_known():
            return got
        if not uncut_list(self._house.view(self._agent)):
            return got
        return ClientList(places, "", self._in_instructions)

    def changed_lately(self) -> bool:
        """Do what `changed` does, unless the last look is less than `CHECK_SECONDS` old."""
        return self._clock() - self._checked >= CHECK_SECONDS and self.changed()

    def changed(self) -> bool:
        """Scan again, and return whether skills, tools or menu differ from the last look."""
        self._checked = self._clock()
        self._house.refresh()
        before, self._seen = self._seen, self._visible()
        return self._seen != before

    def menu(self) -> tuple[Invocable, ...]:
        if not self._is_known():
            return ()
        return self._menu_of(self._house.view(self._agent))

    def why_not_in_menu(self, name: str) -> str:
        """Return why a skill that is here is not in the menu; empty if nothing is known of it."""
        return self._house.view(self._agent).menu.refusal(name) if self._is_known() else ""

    def _menu_of(self, view: AgentView) -> tuple[Invocable, ...]:
        if self._menu is None or self._menu[0] is not view:
            self._menu = view, view.menu.entries()
        return self._menu[1]

    def in_use(self, caller: Caller) -> tuple[str, ...]:
        """Return the names of the tools that are listed because the caller loaded their skills."""
        deferred = self._house.snapshot.view(self._agent).deferred if self._is_known() else None
        if not deferred:
            return ()
        services = self._house.services
        return tuple(deferred.in_use(services.sessions.tools_in_use(services.caller(caller))))

    def _every_tool(self) -> ModelTools:
        return self._house.tools(agent=self._agent, every=True)

    def _is_known(self) -> bool:
        self._house.config_reload.check()
        return self._agent in self._house.config.agents

    def _visible(self) -> Seen:
        if not self._is_known():
            return ()
        view = self._house.view(self._agent)
        return (
            tuple((skill.name, skill.description, skill.file) for skill in view.listed.skills),
            # Schemas are compared only if a scan created new tools.
            tuple((t.name, t.description, t.schema, t.returns) for t in self._every_tool()),
            self._menu_of(view),
        )


def _described(tool: Tool, chars: int | None, description: str) -> dict[str, Any]:
    text = sendable(description)
    name = getattr(tool, "own_name", "") or tool.name
    reads = getattr(tool, "reads_only", name in READING)
    return {
        "name": tool.name,
        "title": getattr(tool, "title", tool.name),
        "description": text if chars is None else within(text, chars),
        "inputSchema": dict(tool.schema),
        "annotations": {
            "readOnlyHint": reads,
            "destructiveHint": not reads,
            "openWorldHint": name in OPEN_WORLD,
        },
        **({"outputSchema": dict(tool.returns)} if tool.returns is not None else {}),
        **({"icons": icons} if (icons := _icons_of(tool)) else {}),
        **({"_meta": meta} if (meta := _meta_of(tool)) else {}),
    }


def _icons_of(tool: Tool) -> list[dict[str, str]]:
    """Return the icons of a skill's tool; a client shows them to people as it sees fit."""
    manifest = getattr(getattr(tool, "skill", None), "manifest", None)
    found: tuple[str, ...] = () if manifest is None else manifest.icons
    return [
        {"src": one, **({"mimeType": one[5:].partition(";")[0]} if one[:5] == "data:" else {})}
        for one in found
    ]


def as_listed_in(version: str, tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return tools as a client of a revision knows them.

    >>> as_listed_in("2025-03-26", [{"name": "a", "outputSchema": {"type": "object"}}])
    [{'name': 'a'}]
    """
    left_out = {"outputSchema"} if version in UNSTRUCTURED else set()
    left_out |= {"icons"} if version in WITHOUT_ICONS else set()
    return [{key: value for key, value in one.items() if key not in left_out} for one in tools]


def _naming(schema: Mapping[str, Any], names: str) -> Mapping[str, Any]:
    """Return a schema of one parameter whose description has names too."""
    if not names:
        return dict(schema)
    [(parameter, wanted)] = schema["properties"].items()
    text = sendable(f"{wanted['description']}; further skills: {names}")
    return {**schema, "properties": {parameter: {**wanted, "description": text}}}


def _meta_of(tool: Tool) -> dict[str, Any]:
    meta: dict[str, Any] = {}
    if getattr(tool, "listed_at_once", False):
        meta[ALWAYS_LOAD] = True
    if getattr(tool, "loads_skills", False):
        meta[RESULT_CHARS] = LOADED_CHARS
    return meta
