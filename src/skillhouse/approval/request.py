"""The question that a person is asked, and who asks it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from skillhouse.floor import Digest


class Answer(enum.StrEnum):
    """What a person said; silence is a no."""

    ONCE = "once"
    ALWAYS = "always"
    NO = "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """One call that needs a yes, described by the house and never by a skill."""

    id: str
    tool: str
    agent: str
    user: str
    title: str
    """What would happen, in one line."""
    facts: tuple[tuple[str, str], ...]
    """Labels and values that a person should see; all values are untrusted text."""
    reasons: tuple[str, ...]
    """Why a person is asked."""
    content_digest: Digest
    """Digest of the canonical JSON of the exact call: what a yes is about."""
    always: tuple[str, ...] = ()
    """What a lasting yes would allow, in words; empty when there can be none."""


class Channel(Protocol):
    """A way to reach a person."""

    async def ask(self, request: ApprovalRequest) -> Answer:
        """Return the person's answer; `Answer.NO` when none can be had."""
        ...


class Unattended:
    """The channel of a house that nobody watches: every answer is no."""

    async def ask(self, request: ApprovalRequest) -> Answer:
        """Return `Answer.NO`."""
        return Answer.NO
