"""What a question says, made once: terminal, page, MCP clients and frameworks render this value."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from skillhouse.approval import (
    FOUND_HEADING,
    SENT_HEADING,
    Answer,
    ApprovalRequest,
    Facts,
    allowed_answers,
)
from skillhouse.floor import digest
from skillhouse.presentation.text import cut, one_line, shown
from skillhouse.tools.call import SKILL_CLAIM, WILL_NOT_WORK

DIFFERENCE = "difference"
"""Label of the fact that says what a write changes."""
ANSWER_WORDS = {
    Answer.ONCE: "once",
    Answer.SESSION: "this connection",
    Answer.PROJECT: "this project",
    Answer.ALWAYS: "every project",
    Answer.NO: "deny",
}
"""What each answer means, in the words of every surface."""
PAGE_PLACE = "the page of `skillhouse up`"
ONLY_PLACE = f"{PAGE_PLACE} or on a paired device"
"""Where a question is decided that no other surface may decide."""
FACT_LINES = 30
"""Lines of one fact that are shown; more is said to be there."""
LINE_COLUMNS = 400
"""Columns of one line that are shown."""


class Question(Struct, frozen=True, kw_only=True):
    """One question to a person; every text but the keys of `answers` is untrusted."""

    id: str
    title: str
    found: Facts
    """What skillhouse found, under labels of its own; of a transaction what it decoded."""
    sent: Facts
    """What the call brought, whose labels are untrusted too; nothing of a transaction."""
    differences: Facts
    """Those of what was found that skillhouse made by comparing."""
    consequence: str
    """What will not work, in a sentence of ours; empty where nothing is known to fail."""
    reasons: tuple[str, ...]
    standing: tuple[str, ...]
    """The rules that a lasting answer would write."""
    answers: dict[str, str]
    """The answers that are possible at all, each with its words."""
    is_transaction: bool
    is_for_page: bool
    """Whether only the page and paired devices decide it."""


def question_of(request: ApprovalRequest) -> Question:
    content: dict[str, Any] = json.loads(request.content or "{}")
    ours = tuple((str(label), str(value)) for label, value in content.get("shown", ()))
    is_transaction = request.level == "sign" and "binding" in content
    decoded = tuple(fact for fact in ours if fact[0] != SKILL_CLAIM)
    return Question(
        id=request.id,
        title=request.title,
        found=decoded if is_transaction else request.found,
        sent=() if is_transaction else request.sent,
        differences=tuple(one for one in ours if one[0] == DIFFERENCE and one[1][:4] == "--- "),
        consequence=dict(ours).get(WILL_NOT_WORK, ""),
        reasons=request.reasons,
        standing=request.always,
        answers={one.value: ANSWER_WORDS[one] for one in allowed_answers(request)},
        is_transaction=is_transaction,
        is_for_page=request.out_of_band_only,
    )


def answered_at(question: Question, page: str) -> str:
    """Return where a person answers; `page` is the address of the page, empty if unknown."""
    return f"{page}/approvals/{question.id}" if page else PAGE_PLACE


def question_title(title: str) -> str:
    """Return the title of a question in one line; what is cut off is counted."""
    title = one_line(title)
    kept = cut(title, LINE_COLUMNS)
    return title if kept == title else f"{kept} ({len(title)} characters in all)"


def question_lines(question: Question) -> Iterator[str]:
    """Yield everything a person should see of a question; nothing in it can act on a terminal.

    The title comes first, what would happen after it, then why a person is asked. What was found
    and what was sent are blocks of their own, in which every line is further in than a line of
    ours; what was found comes first, so that nothing in the other block is above it.
    """
    yield question_title(question.title)
    for heading, facts in ((FOUND_HEADING, question.found), (SENT_HEADING, question.sent)):
        yield from (f"  {heading}",) if facts else ()
        for label, value in facts:
            yield from _fact_lines(label, value)
    yield from (f"  why: {one_line(reason)}" for reason in question.reasons)


def _fact_lines(label: str, value: str) -> Iterator[str]:
    lines = value.split("\n")
    first, *rest = [cut(shown(line), LINE_COLUMNS) for line in lines]
    yield f"    {shown(label)}: {first}"
    yield from (f"      {line}" for line in rest[:FACT_LINES])
    if len(rest) > FACT_LINES:
        yield f"      … {len(rest) - FACT_LINES} more lines"
    if len(rest) > FACT_LINES or any(len(line) > LINE_COLUMNS for line in lines):
        yield f"      {len(value)} characters in all, {digest(value.encode())}"


def standing_line(question: Question) -> str:
    """Return what a lasting answer would allow; empty where none is possible."""
    rules = one_line(", ".join(question.standing))
    return f"  a standing approval would allow: {rules}" if rules else ""
