"""The lists of skills that a model gets, and what their bounds leave out."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from skillhouse import tools as toolbox
from skillhouse.frontends.answers.json_form import Count, JsonAnswer
from skillhouse.frontends.answers.search import RequestAnswer
from skillhouse.frontends.presentation.text import counted
from skillhouse.skill import tokens_of

if TYPE_CHECKING:
    from skillhouse.discovery import Catalog
    from skillhouse.house import AgentView


class CatalogAnswer(JsonAnswer, frozen=True, kw_only=True):
    text: str
    tokens: Count
    included: tuple[str, ...]
    omitted: tuple[str, ...]


class PromptCatalogAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The list that a model gets, what its prompt says of it, and the hits of a request."""

    flat_members = ("catalog", "fitting")
    catalog: CatalogAnswer
    prompt: str
    fitting: RequestAnswer | UnsetType = UNSET


class ToolCatalogAnswer(JsonAnswer, frozen=True, kw_only=True):
    chars: Count | None
    listed: Count
    omitted: Count


class CatalogBoundsAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The bounds of an agent's catalogs, and how many skills are in each and left out."""

    budget_tokens: Count | None
    tokens: Count
    mcp_tokens: Count
    """What an MCP client sends with each request: description and instructions."""
    listed: Count
    omitted: Count
    tool: ToolCatalogAnswer | None
    """The list in the skill tool's description; null where the profile has none there."""


def catalog_answer(catalog: Catalog) -> CatalogAnswer:
    return CatalogAnswer(
        text=catalog.text,
        tokens=catalog.tokens,
        included=tuple(skill.id for skill in catalog.included),
        omitted=tuple(skill.id for skill in catalog.omitted),
    )


def catalog_bounds(view: AgentView) -> CatalogBoundsAnswer:
    whole, over_mcp = view.catalog(), view.over_mcp()
    is_in_tool = view.profile.catalog.exposure == "tool"
    in_tool = 0 if over_mcp is None or not is_in_tool else over_mcp.tokens
    return CatalogBoundsAnswer(
        budget_tokens=view.budget_tokens,
        tokens=whole.tokens,
        mcp_tokens=in_tool + tokens_of(view.prompts().instructions()),
        listed=len(whole.included),
        omitted=len(whole.omitted),
        tool=_tool_catalog(view) if is_in_tool else None,
    )


def _tool_catalog(view: AgentView) -> ToolCatalogAnswer:
    limit = view.profile.catalog.tool_chars
    chars = None if limit == "none" else limit
    found = view.tool_catalog(toolbox.list_room(view.profile.messages, chars))
    return ToolCatalogAnswer(chars=chars, listed=len(found.included), omitted=len(found.omitted))


def catalog_notes(bounds: CatalogBoundsAnswer, view: AgentView) -> list[str]:
    """Return a line for people about each catalog that leaves out skills."""
    if view.profile.catalog.exposure == "search":
        # Skills are found by search alone there, and nothing is left out of a list.
        return []
    search = next((rule.name for rule in view.profile.tools if rule.kind == "search"), "")
    found = f"; `{search}` finds them" if search else ""
    notes = []
    if bounds.omitted:
        budget = bounds.budget_tokens
        of = f"of {budget:,} tokens" if budget is not None else "of the profile"
        notes.append(f"left out of the catalog {of}: {counted(bounds.omitted, 'skill')}{found}")
    tool = bounds.tool
    if tool is not None and tool.omitted:
        of = f"of {tool.chars:,} characters" if tool.chars is not None else "of the profile"
        words = f"left out of the skill tool's description {of}"
        notes.append(f"{words}: {counted(tool.omitted, 'skill')}{found}")
    return notes


def catalog_cost(bounds: CatalogBoundsAnswer, view: AgentView) -> str:
    """Return for people what the lists cost each request, and how many skills they name."""
    marks = Counter(view.marks.values())
    named = ", ".join(f"{count:,} {mark}" for mark, count in marks.items())
    return (
        f"the list of skills costs each request about {bounds.tokens:,} tokens, over MCP about "
        f"{bounds.mcp_tokens:,}: {named or 'no skills'}"
    )
