"""A question to a person as plain lines, the same on a terminal and in an MCP client."""

from __future__ import annotations

from collections.abc import Iterator

from skillhouse.approval import ApprovalRequest
from skillhouse.floor import digest
from skillhouse.frontends.presentation.text import cut, one_line, shown

FACT_LINES = 30
"""Lines of one fact that are shown; more is said to be there."""
LINE_COLUMNS = 400
"""Columns of one line that are shown (reference/security.md section 6, item 68)."""


def question_title(request: ApprovalRequest) -> str:
    """Return the title of a question in one line; what is cut off is counted."""
    title = one_line(request.title)
    kept = cut(title, LINE_COLUMNS)
    return title if kept == title else f"{kept} ({len(title)} characters in all)"


def question_lines(request: ApprovalRequest) -> Iterator[str]:
    """Yield everything a person should see of a question; nothing in it can act on a terminal.

    The title comes first, what would happen after it, then why a person is asked.
    """
    yield question_title(request)
    for label, value in request.facts:
        first, *rest = shown_lines(value)
        yield f"  {shown(label)}: {first}"
        yield from (f"    {line}" for line in rest[:FACT_LINES])
        if len(rest) > FACT_LINES:
            yield f"    … {len(rest) - FACT_LINES} more lines"
        if len(rest) > FACT_LINES or any(len(line) > LINE_COLUMNS for line in value.split("\n")):
            yield f"    {len(value)} characters in all, {digest(value.encode())}"
    yield from (f"  why: {one_line(reason)}" for reason in request.reasons)


def shown_lines(text: str) -> list[str]:
    """Return the lines of an untrusted text, safe to show, each folded where it is too long."""
    return [cut(shown(line), LINE_COLUMNS) for line in text.split("\n")]
