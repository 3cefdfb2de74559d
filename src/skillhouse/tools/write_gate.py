"""Who may change anything at all, and whether each change is confirmed (seeds.md section 1.1)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from skillhouse.permission import Decision, Effect
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

    def judged(self, found: Judged, user: str) -> Judged:
        """Return a need's decision as the gate changes it; a deny stays one.

        The order is that of decision 7: the user's list comes before any question.
        """
        decision, need = found.decision, found.need
        if not self.enabled or need.effective_level == "read" or decision.effect is Effect.DENY:
            return found
        if user not in self.allow_users:
            return _changed(found, Effect.DENY, "write operation denied: not_in_allowlist")
        if self.confirmation:
            # A person's own lasting yes is the confirmation.
            if decision.effect is Effect.ALLOW and decision.layer != "grants":
                return _changed(found, Effect.ASK, "every write operation is confirmed")
            return found
        by_default = decision.effect is Effect.ASK and decision.layer == "default"
        if by_default and need.permission.action == "write" and need.effective_level == "write":
            return _changed(found, Effect.ALLOW, "confirmation_disabled_allow")
        return found


def _changed(found: Judged, effect: Effect, reason: str) -> Judged:
    return dataclasses.replace(found, decision=Decision(effect=effect, layer=LAYER), reason=reason)
