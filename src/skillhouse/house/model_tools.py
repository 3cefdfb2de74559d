"""An agent's tools as a model is shown them, in the forms that the APIs of models take."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from skillhouse.discovery import within
from skillhouse.discovery.catalog_text import width
from skillhouse.floor.paths import sendable
from skillhouse.tools import CALL_SKILL_TOOL, Tool

if TYPE_CHECKING:
    from skillhouse.house.agent_view import AgentView

OPENAI_CHARS = 1_000
"""Characters of a tool's description for OpenAI's API and compatible ones, which refuse a request
with a description of more than 1,024 (`string_above_max_length`, getsentry/sentry-mcp#106)."""


DEFERRED = {"defer_loading": True}
"""Of a tool whose definition the API shows a model only once its own search has found it: `tools`
of Anthropic's Messages API and of OpenAI's Responses API."""
ANTHROPIC_SEARCH = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
OPENAI_SEARCH = {"type": "tool_search"}
"""What has the API search."""


class ShownTool(Struct, frozen=True, kw_only=True):
    """One tool as a model is shown it."""

    name: str
    description: str
    schema: dict[str, Any]


class ModelTools(list[Tool]):
    """An agent's tools, all from one snapshot; only `Skillhouse.call` runs them."""

    def __init__(self, tools: Iterable[Tool], view: AgentView) -> None:
        super().__init__(tools)
        self._view = view

    def openai(
        self, *, api: Literal["responses", "chat"] = "responses", tool_search: bool = False
    ) -> list[Any]:
        """Return the `tools` of a request to `client.responses` or `client.chat.completions`.

        With `tool_search` the API finds the tools for which there is no room, which are all in
        `tools` then; ask for it only where the model and `responses` have it.
        """
        if api == "chat":
            functions = map(_openai_function, self.offered(OPENAI_CHARS))
            return [{"type": "function", "function": function} for function in functions]
        listed, later = self._split(OPENAI_CHARS, searched=tool_search)
        made = [{"type": "function", **_openai_function(tool)} for tool in listed]
        made += [{"type": "function", **_openai_function(tool), **DEFERRED} for tool in later]
        return [*made, OPENAI_SEARCH] if later else made

    def anthropic(self, *, tool_search: bool = False) -> list[Any]:
        """Return the `tools` of a request to `client.messages`; `tool_search` as of `openai`."""
        listed, later = self._split(None, searched=tool_search)
        made = [_anthropic_tool(tool) for tool in listed]
        made += [{**_anthropic_tool(tool), **DEFERRED} for tool in later]
        return [*made, ANTHROPIC_SEARCH] if later else made

    def _split(
        self, chars: int | None, *, searched: bool
    ) -> tuple[list[ShownTool], list[ShownTool]]:
        """Return the tools, and those that the API itself is to find; else one of ours does."""
        later = self.deferred(chars) if searched else []
        listed = self.offered(chars)
        return [one for one in listed if not later or one.name != CALL_SKILL_TOOL], later

    def deferred(self, chars: int | None = None) -> list[ShownTool]:
        """Return the tools of skills for which there is no room, for a framework that finds tools
        by itself; `call_skill_tool` is not needed beside them."""
        known = self._view.deferred
        here = {tool.name for tool in self}
        if not known or CALL_SKILL_TOOL not in here:
            return []
        return [
            ShownTool(
                name=tool.name,
                description=sendable(description_of(tool, chars)),
                schema=copy.deepcopy(dict(tool.schema)),
            )
            for name, tool in known.tools.items()
            if name not in here
        ]

    def offered(self, chars: int | None = None, *, lists: bool = True) -> list[ShownTool]:
        """Return what a model is shown, for an API of another form.

        `chars` is the maximum length of a description; None leaves it at that of the catalog.
        Without `lists` that of the skill tool has no list of skills. Skills that it has no room to
        name are named in the schema.
        """
        misses = lists and chars is not None and self._view.tool_misses(chars)
        return [
            ShownTool(
                name=tool.name,
                description=sendable(description_of(tool, chars, lists=lists)),
                # A copy, since frameworks modify the schema.
                schema=copy.deepcopy(dict(_schema(tool, names_all=misses))),
            )
            for tool in self
        ]

    def __repr__(self) -> str:
        lines = "".join(f"  {tool!r},\n" for tool in self)
        return f"[\n{lines}]" if lines else "[]"


def _openai_function(tool: ShownTool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.schema,
        # Strict mode has no optional arguments; the gate checks them all the same.
        "strict": False,
    }


def _anthropic_tool(tool: ShownTool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.schema}


def description_of(tool: Tool, chars: int | None, *, lists: bool = True) -> str:
    """Return a tool's description of at most so many characters.

    A shortened list of skills says what is left out; without `lists` there is none.
    """
    # A tool of a program that embeds this need not have the method.
    shortened = getattr(tool, "description_within", None)
    if shortened is None or (lists and (chars is None or width(tool.description) <= chars)):
        text = tool.description
    else:
        text = shortened(chars if lists else 0)
    return text if chars is None else within(text, chars)


def _schema(tool: Tool, *, names_all: bool) -> Mapping[str, Any]:
    named: Mapping[str, Any] | None = getattr(tool, "schema_with_names", None)
    return tool.schema if named is None or not names_all else named
