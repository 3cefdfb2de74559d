"""Who may change anything at all, and whether each change is confirmed (seeds.md section 1.1)."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass

from skillhouse.permission import Decision, Effect, matches
from skillhouse.tools.need import Judged

LAYER = "write gate"
"""The name under which the gate's decisions stand in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteGate:
    """The user allow-list and the confirmation of every call that does more than look."""

    enabled: bool = False
    allow_users: tuple[str, ...] = ()
    """Exact ids of users; empty lets nobody change anything."""
    confirmation: bool = True
    """Whether a person is asked about each change, also where a rule allows it. Where nobody is,
    a write that no rule speaks about is allowed to the listed users."""
    allow_paths: tuple[str, ...] = ()
    """Paths relative to the workspace that may be written to, for everybody and also where the
    gate is off; see `is_listed`. Empty is anywhere in the workspace."""

    def judged(self, found: Judged, user: str, place: str = "") -> Judged:
        """Return a need's decision as the gate changes it; a deny stays one.

        The order is that of decision 7: the lists of users and paths come before any question.

        Args:
            found: The need, with the decision of the rules.
            user: Who asks for it.
            place: Real path of the workspace.
        """
        decision, need = found.decision, found.need
        if need.effective_level == "read" or decision.effect is Effect.DENY:
            return found
        if self.enabled and user not in self.allow_users:
            return _changed(found, Effect.DENY, "write operation denied: not_in_allowlist")
        if need.permission.action == "write" and self.allow_paths:
            relative = os.path.relpath(need.permission.resource, place or "/")
            if not is_listed(relative, self.allow_paths):
                return _changed(found, Effect.DENY, "write operation denied: path_not_allowed")
        if not self.enabled:
            return found
        if self.confirmation:
            # A person's own lasting yes is the confirmation.
            if decision.effect is Effect.ALLOW and decision.layer != "grants":
                return _changed(found, Effect.ASK, "every write operation is confirmed")
            return found
        by_default = decision.effect is Effect.ASK and decision.layer == "default"
        if by_default and need.permission.action == "write" and need.effective_level == "write":
            return _changed(found, Effect.ALLOW, "confirmation_disabled_allow")
        return found


def is_listed(relative: str, patterns: tuple[str, ...]) -> bool:
    """Whether a path without links is one that a pattern names.

    `*` and `?` stand within a name, and a name `**` stands for any number of names, also none. A
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
    """Compare names with names, without ever trying one twice."""
    # After each name of the pattern: how many names of the path may be used up.
    reached = {0}
    for name in pattern.removeprefix("./").split("/"):
        if name == "**":
            reached = set(range(min(reached, default=len(parts) + 1), len(parts) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(parts) and matches(name, parts[at])}
    return len(parts) in reached


def _changed(found: Judged, effect: Effect, reason: str) -> Judged:
    return dataclasses.replace(found, decision=Decision(effect=effect, layer=LAYER), reason=reason)
