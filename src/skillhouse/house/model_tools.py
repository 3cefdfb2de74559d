"""An agent's tools as a model is shown them, in the forms that the APIs of models take."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from skillhouse.discovery import within
from skillhouse.discovery.catalog_text import width
from skillhouse.floor.paths import sendable
from skillhouse.tools import Tool

if TYPE_CHECKING:
    from skillhouse.house.agent_view import AgentView

OPENAI_CHARS = 1_000
"""Characters of a tool's description for OpenAI's API and compatible ones, which refuse a request
with a description of more than 1,024 (`string_above_max_length`, getsentry/sentry-mcp#106)."""


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

    def openai(self, *, api: Literal["responses", "chat"] = "responses") -> list[Any]:
        """Return the `tools` of a request to `client.responses` or `client.chat.completions`."""
        functions = [
            {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.schema,
                # Strict mode has no optional arguments; the gate checks them all the same.
                "strict": False,
            }
            for tool in self.offered(OPENAI_CHARS)
        ]
        if api == "chat":
            return [{"type": "function", "function": function} for function in functions]
        return [{"type": "function", **function} for function in functions]

    def anthropic(self) -> list[Any]:
        """Return the `tools` of a request to `client.messages`."""
        return [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
            for tool in self.offered()
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
