"""What the bounds of catalogs leave out, for people and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skillhouse import tools as toolbox
from skillhouse.frontends.presentation.text import counted

if TYPE_CHECKING:
    from skillhouse.discovery import Catalog
    from skillhouse.runtime import AgentView


def catalog_report(view: AgentView) -> dict[str, Any]:
    """Return the bounds of an agent's catalogs, and how many skills are in each and left out.

    `tool` is the list in the skill tool's description; null where the profile has none there.
    """
    whole = view.catalog()
    return {
        "budget_tokens": view.budget_tokens,
        "tokens": whole.tokens,
        **_counts(whole),
        "tool": _tool_report(view) if view.profile.catalog.exposure == "tool" else None,
    }


def _tool_report(view: AgentView) -> dict[str, Any]:
    limit = view.profile.catalog.tool_chars
    chars = None if limit == "none" else limit
    room = toolbox.list_room(view.profile.messages, chars)
    return {"chars": chars, **_counts(view.tool_catalog(room))}


def catalog_notes(report: dict[str, Any], view: AgentView) -> list[str]:
    """Return a line for people about each catalog of a report that leaves out skills."""
    if view.profile.catalog.exposure == "search":
        # Skills are found by search alone there, and nothing is left out of a list.
        return []
    search = next((rule.name for rule in view.profile.tools if rule.kind == "search"), "")
    found = f"; `{search}` finds them" if search else ""
    tool = report["tool"] or {"omitted": 0}
    notes = []
    if report["omitted"]:
        bound = report["budget_tokens"]
        of = f"of {bound:,} tokens" if bound is not None else "of the profile"
        notes.append(f"left out of the catalog {of}: {counted(report['omitted'], 'skill')}{found}")
    if tool["omitted"]:
        of = f"of {tool['chars']:,} characters" if tool["chars"] is not None else "of the profile"
        words = f"left out of the skill tool's description {of}"
        notes.append(f"{words}: {counted(tool['omitted'], 'skill')}{found}")
    return notes


def _counts(catalog: Catalog) -> dict[str, int]:
    return {"listed": len(catalog.included), "omitted": len(catalog.omitted)}
