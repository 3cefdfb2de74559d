"""The first gate of what writes: a list of users, then a person's yes, in the published words."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from skillhouse.permission.rules import Effect
from skillhouse.permission.tier_values import Level

YES = frozenset({"yes", "y", "confirm"})
"""The replies that approve (published, S000-75); any other is a no."""
TIMEOUT_SECONDS = 60
PREVIEW_MAX = 200
"""Characters of a text that a question shows (published)."""

PATH_FIELDS = ("path", "file", "filename", "directory")
TEXT_FIELDS = ("old_text", "new_text", "content")


class WriteReason(enum.StrEnum):
    """How the gate answered, in the published words."""

    APPROVED = "approved"
    DENIED = "denied"
    TIMEOUT = "timeout"
    NOT_IN_ALLOWLIST = "not_in_allowlist"
    CONFIRMATION_DISABLED_ALLOW = "confirmation_disabled_allow"


PASSING = frozenset({WriteReason.APPROVED, WriteReason.CONFIRMATION_DISABLED_ALLOW})


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Where a person sits: who, on which channel, in which conversation."""

    user: str
    channel: str
    conversation: str = ""
    """The group, or empty in a direct chat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteVerdict:
    """What the gate says before anybody is asked."""

    effect: Effect
    reason: WriteReason | None = None
    """None while a person has to be asked."""
    timeout_seconds: float = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteGate:
    """Who may write, and whether each write is asked about."""

    allow_list: frozenset[str] = frozenset()
    """Ids of users, compared exactly; empty lets nobody write."""
    confirmation: bool = True
    timeout_seconds: float = TIMEOUT_SECONDS

    def judge(self, user: str, level: Level | None) -> WriteVerdict:
        """Decide as far as it goes without a person; reads pass, and nobody is asked in vain.

        >>> WriteGate(confirmation=False).judge("mika", Level.WRITE).reason
        <WriteReason.NOT_IN_ALLOWLIST: 'not_in_allowlist'>
        """
        if level is Level.READ:
            return WriteVerdict(effect=Effect.ALLOW)
        if user not in self.allow_list:
            return WriteVerdict(effect=Effect.DENY, reason=WriteReason.NOT_IN_ALLOWLIST)
        if not self.confirmation:
            return WriteVerdict(effect=Effect.ALLOW, reason=WriteReason.CONFIRMATION_DISABLED_ALLOW)
        return WriteVerdict(effect=Effect.ASK, timeout_seconds=self.timeout_seconds)


def counts_for(asked: Seat, replied: Seat) -> bool:
    """Whether a reply is to a question: the same user, channel and conversation.

    What does not count is ignored: it is no answer, and not a no either.
    """
    return asked == replied


def reply_reason(asked: Seat, replied: Seat, text: str) -> WriteReason | None:
    """Return what a reply says; None when it is nobody's who was asked.

    >>> seat = Seat(user="mika", channel="telegram")
    >>> reply_reason(seat, seat, "  YES ").value
    'approved'
    """
    if not counts_for(asked, replied):
        return None
    return WriteReason.APPROVED if is_yes(text) else WriteReason.DENIED


def is_yes(text: str) -> bool:
    """Whether a reply approves: one of three words, in any case, with blanks around it."""
    return text.strip().lower() in YES


def refusal_text(reason: WriteReason) -> str:
    """Return what the model is told of a refusal, as published.

    >>> refusal_text(WriteReason.TIMEOUT)
    'Write denied: timeout'
    """
    return f"Write denied: {reason}"


def user_notice(reason: WriteReason) -> str:
    """Return what the user is told when a question has ended, or "" when there is nothing to say.

    >>> user_notice(WriteReason.TIMEOUT)
    'Write operation timed out — denied.'
    """
    return {
        WriteReason.TIMEOUT: "Write operation timed out — denied.",
        WriteReason.DENIED: "Write operation denied.",
    }.get(reason, "")


def question_facts(tool: str, arguments: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return what a question shows: the tool, the file, and the beginnings of the texts."""
    paths = [(f, arguments[f]) for f in PATH_FIELDS if isinstance(arguments.get(f), str)]
    texts = [
        (f.replace("_", " "), preview(arguments[f]))
        for f in TEXT_FIELDS
        if isinstance(arguments.get(f), str)
    ]
    return (("tool", tool), *paths, *texts)


def preview(text: str) -> str:
    """Return the first 200 characters of a text, with an ellipsis when there is more."""
    return text if len(text) <= PREVIEW_MAX else text[:PREVIEW_MAX] + "…"


def audit_params(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments that an audit line keeps: those that name a path (S000-84).

    >>> audit_params({"path": "a.txt", "content": "secret", "file": 3})
    {'path': 'a.txt'}
    """
    return {
        field: preview(arguments[field])
        for field in PATH_FIELDS
        if isinstance(arguments.get(field), str)
    }


def audit_line(
    tool: str,
    arguments: Mapping[str, Any],
    *,
    user: str,
    session: str,
    reason: WriteReason,
    now: datetime,
    waited_seconds: float,
) -> dict[str, object]:
    """Return the published audit line of a verdict, for the house's log (S000-83)."""
    return {
        "ts": now.isoformat(timespec="milliseconds"),
        "tool": tool,
        "user": user,
        "session": session,
        "params": audit_params(arguments),
        "result": str(reason),
        "durationMs": int(waited_seconds * 1000),
    }
