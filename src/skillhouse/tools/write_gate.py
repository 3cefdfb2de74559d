"""Who may change anything, and whether each change is confirmed (the published design)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

from skillhouse.approval import ApprovalState
from skillhouse.floor import structs
from skillhouse.permission import Decision, Effect, matches

if TYPE_CHECKING:
    # Every configuration has a `WriteGate`; what judges calls is loaded with the first call.
    from skillhouse.tools.call import EvaluatedPermission
    from skillhouse.tools.call_context import CallContext

LAYER = "write gate"
"""The name of the gate's decisions in the log."""

# The verdicts of the published design.
APPROVED = "approved"
DENIED = "denied"
TIMEOUT = "timeout"
NOT_IN_ALLOWLIST = "not_in_allowlist"
CONFIRMATION_DISABLED_ALLOW = "confirmation_disabled_allow"
CONFIRM = "confirm"
"""No verdict yet: a person's answer, or a standing approval, is the verdict."""


class WriteGate(Struct, frozen=True, kw_only=True):
    """The user allow-list and the confirmation of every call that does more than look."""

    enabled: bool = False
    """Whether the other keys count, but for `allow_paths`."""
    allow_users: tuple[str, ...] = ()
    """Exact ids of users; empty lets no user change anything."""
    confirmation: bool = True
    """Whether a person is asked about each change, also where a rule allows it. Otherwise a write
    that no rule matches is allowed to the listed users."""
    allow_paths: tuple[str, ...] = ()
    """Paths relative to the workspace that may be written to, for everybody and also where the
    gate is off; see `is_listed`. Empty is anywhere in the workspace."""

    def apply(self, judged: EvaluatedPermission, user: str, place: str = "") -> EvaluatedPermission:
        """A deny stays one; the lists of users and paths come before any question."""
        decision, need = judged.decision, judged.request
        if need.effective_level == "read" or decision.effect is Effect.DENY:
            return judged
        if self.enabled and user not in self.allow_users:
            return _changed(
                judged, Effect.DENY, f"write operation denied: {NOT_IN_ALLOWLIST}", NOT_IN_ALLOWLIST
            )
        if need.permission.action == "write" and self.allow_paths:
            relative = os.path.relpath(need.permission.resource, place or "/")
            if not is_listed(relative, self.allow_paths):
                # The list of paths is ours: the published word for a refusal is `denied`.
                return _changed(
                    judged, Effect.DENY, "write operation denied: path_not_allowed", DENIED
                )
        if not self.enabled:
            return judged
        if self.confirmation:
            # A person's own standing approval is the confirmation.
            if decision.effect is Effect.ALLOW and decision.layer != "grants":
                return _changed(judged, Effect.ASK, "every write operation is confirmed", CONFIRM)
            return structs.replace(judged, gate=CONFIRM)
        unasked = CONFIRMATION_DISABLED_ALLOW
        by_default = decision.effect is Effect.ASK and decision.layer == "default"
        if by_default and need.permission.action == "write" and need.effective_level == "write":
            return _changed(judged, Effect.ALLOW, unasked, unasked)
        return structs.replace(judged, gate=unasked)


def verdict_of(context: CallContext, status: str) -> str:
    """Return the gate's published verdict, or "": where a rule or the tier policy refused first, or
    the question is open. A call refused for another reason is `denied`, as the published gate calls
    an error of its own. `status` is empty for a call that is about to run."""
    words = {judged.gate for judged in context.evaluated}
    for word in (NOT_IN_ALLOWLIST, DENIED):
        if word in words:
            return word
    refused = context.verdict is not None and context.verdict.effect is Effect.DENY
    if context.denied is not None or refused:
        return ""
    if CONFIRM not in words:
        return CONFIRMATION_DISABLED_ALLOW if CONFIRMATION_DISABLED_ALLOW in words else ""
    if context.effect is Effect.ALLOW:
        return APPROVED
    state = context.approval.state if context.approval is not None else ApprovalState.DENIED
    if state is ApprovalState.USED:
        return APPROVED
    if state is ApprovalState.EXPIRED:
        return TIMEOUT
    return DENIED if status == "denied" else ""


def is_listed(relative: str, patterns: tuple[str, ...]) -> bool:
    """Whether a path without links is one that a pattern names.

    `*` and `?` match within a name, and a name `**` matches any number of names, also none. A
    pattern that ends in `/` is all that is below it.

    >>> is_listed("docs/a/b.md", ("docs/**/*.md",)), is_listed("docs/a/b.md", ("docs/*.md",))
    (True, False)
    >>> is_listed("src/x.py", ("src/",)), is_listed("src-old/x.py", ("src/",))
    (True, False)
    """
    parts = relative.split("/")
    if ".." in parts or os.path.isabs(relative):
        return False
    return any(_fits(f"{p}**/*" if p.endswith("/") else p, parts) for p in patterns)


def _fits(pattern: str, parts: list[str]) -> bool:
    """Match name by name, never one twice."""
    # After each name of the pattern: how many names of the path may be used up.
    reached = {0}
    for name in pattern.removeprefix("./").split("/"):
        if name == "**":
            reached = set(range(min(reached, default=len(parts) + 1), len(parts) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(parts) and matches(name, parts[at])}
    return len(parts) in reached


def _changed(
    judged: EvaluatedPermission, effect: Effect, reason: str, gate: str
) -> EvaluatedPermission:
    decision = Decision(effect=effect, layer=LAYER)
    return structs.replace(judged, decision=decision, reason=reason, gate=gate)
