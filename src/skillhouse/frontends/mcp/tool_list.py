"""What a client is shown of the tools, and whether that still holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from skillhouse.discovery import within
from skillhouse.runtime import AgentView, Invocable, Skillhouse
from skillhouse.tools import Tool

READING = frozenset({"read", "list", "web_search"})
"""Tools that change nothing, besides those about skills, which say so themselves; a client may run
them side by side and without asking."""
OPEN_WORLD = frozenset({"exec", "fetch", "web_search"})
"""Tools that can reach what lies outside this machine."""
ALWAYS_LOAD = "anthropic/alwaysLoad"
"""By this key in `_meta` Claude Code offers a tool with its description from the start; it defers
the others until the model looks for them (review M1: 2.1.330)."""
CHECK_SECONDS = 1.0
"""Least time between two looks at the disk that calls cause."""

Seen = tuple[object, ...]
"""Skills, tools and menu, as far as a client is shown them; two are compared."""


class ToolListing:
    """One agent's tools, and what was last seen of its skills."""

    def __init__(
        self, house: Skillhouse, agent: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._house = house
        self._agent = agent
        self._clock = clock
        self._checked = clock()
        self._menu: tuple[AgentView, tuple[Invocable, ...]] | None = None
        self._seen = self._visible()

    def tools(self) -> list[dict[str, Any]]:
        """Return the agent's tools as the protocol has them, all from one snapshot."""
        bound = self._house.profile.catalog.tool_chars
        return [
            _described(tool, None if bound == "none" else bound)
            for tool in self._house.tools(agent=self._agent)
        ]

    def instructions(self) -> str:
        """Return what the server says of the agent's skills; nothing where there are none."""
        return sendable(self._house.view(self._agent).prompts().instructions())

    def changed_lately(self) -> bool:
        """Do as `changed` does, unless the last look is less than a second old."""
        return self._clock() - self._checked >= CHECK_SECONDS and self.changed()

    def changed(self) -> bool:
        """Look anew, and return whether the agent sees anything else than at the last look."""
        self._checked = self._clock()
        self._house.refresh()
        before, self._seen = self._seen, self._visible()
        return self._seen != before

    def menu(self) -> tuple[Invocable, ...]:
        """Return what the agent's person may start."""
        return self._menu_of(self._house.view(self._agent))

    def _menu_of(self, view: AgentView) -> tuple[Invocable, ...]:
        if self._menu is None or self._menu[0] is not view:
            self._menu = view, view.menu.entries()
        return self._menu[1]

    def _visible(self) -> Seen:
        view = self._house.view(self._agent)
        return (
            tuple((skill.name, skill.description, skill.file) for skill in view.listed.skills),
            # Schemas are compared only where a look has made new tools.
            tuple((t.name, t.description, t.schema) for t in self._house.tools(agent=self._agent)),
            self._menu_of(view),
        )


def _described(tool: Tool, chars: int | None) -> dict[str, Any]:
    """Return a tool as the protocol has it, its description no longer than clients take."""
    text = sendable(tool.description)
    reads = getattr(tool, "reads_only", tool.name in READING)
    return {
        "name": tool.name,
        "title": getattr(tool, "title", tool.name),
        "description": text if chars is None else within(text, chars),
        "inputSchema": dict(tool.schema),
        "annotations": {
            "readOnlyHint": reads,
            "destructiveHint": not reads,
            "openWorldHint": tool.name in OPEN_WORLD,
        },
        **({"_meta": {ALWAYS_LOAD: True}} if getattr(tool, "listed_at_once", False) else {}),
    }


def sendable(text: str) -> str:
    r"""Return a text that can be sent: names of files may hold bytes that are no Unicode.

    >>> print(sendable("caf\udce9"))
    caf\udce9
    """
    return text.encode("utf-8", "backslashreplace").decode()
