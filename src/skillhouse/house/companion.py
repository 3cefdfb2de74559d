"""What the companion app's life means for calls (S000-110), and the codes that pair one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse import approval

if TYPE_CHECKING:
    from skillhouse.house.enforcement import EnforcementServices

WARNING_MS = 600_000
"""How long before only reads go on people are warned."""


class Companion:
    def __init__(self, enforcement: EnforcementServices, state: Path) -> None:
        self._enforcement = enforcement
        self.codes = approval.PairingCodes(state, clock=enforcement.clock)

    def see(self) -> None:
        """Note a sign of life of an app, where the tier policy waits for one."""
        if self._enforcement.has_policy and self._enforcement.policy.has_companion:
            self._enforcement.tiers.see_companion()

    def warning(self) -> int | None:
        """Return the minutes until only reads go on since no app was open, 0 once that is so; None
        where people are not to be warned. A channel that warns them asks this."""
        if not self._enforcement.has_policy:
            return None
        left_ms = self._enforcement.tiers.companion_left_ms()
        if left_ms is None or left_ms > WARNING_MS:
            return None
        return math.ceil(left_ms / 60_000)
