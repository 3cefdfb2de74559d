"""What people read about lists of skills: what is left out of them, why a skill fits, its mark."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from skillhouse.frontends.presentation.text import counted, shown
from skillhouse.house.agent_view import LISTED
from skillhouse.retrieval import Fit, reason

if TYPE_CHECKING:
    from skillhouse.frontends.answers.catalogs import CatalogBoundsAnswer
    from skillhouse.house import AgentView
    from skillhouse.retrieval import Hit

FIT_TEXTS = {
    Fit.GOOD: "",
    Fit.WEAK: "weak matches, none of which is sure to fit; the nearest:",
    Fit.NONE: "nothing fits well; try other words, or English; the nearest:",
}
"""What a person reads before the hits."""


def why(hit: Hit) -> str:
    """Return for a person why a skill is a hit, and the ids of its copies."""
    return "; ".join(why_parts(hit))


def why_parts(hit: Hit) -> list[str]:
    also = [f"also: {', '.join(map(shown, hit.alike))}"] if hit.alike else []
    return [shown(reason(hit)), *also]


def unlisted(mark: str) -> list[str]:
    """Return the mark of a skill for a line about it; nothing of one that every list names."""
    return [mark] if mark not in ("", LISTED) else []


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
