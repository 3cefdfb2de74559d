"""The trust in the project that a house stands in: given, compared and taken back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.approval import OWNER

if TYPE_CHECKING:
    from skillhouse.runtime.enforcement import EnforcementServices
    from skillhouse.runtime.trust import TrustReport, TrustStore
    from skillhouse.skill import Skill


class ProjectTrust:
    """What a person says of one project, and the log remembers."""

    def __init__(
        self,
        store: TrustStore,
        project: Path,
        skills: Callable[[], tuple[Skill, ...]],
        safeguards: EnforcementServices,
        refresh: Callable[[], bool],
    ) -> None:
        """Take the project, what reads its skills, and what makes the house look anew."""
        self._store = store
        self._project = project
        self._skills = skills
        self._safeguards = safeguards
        self._refresh = refresh

    def report(self) -> TrustReport:
        """Return how this project's skills stand to what was trusted; reads them."""
        return self._store.report(self._project, self._skills())

    def trust(self) -> TrustReport:
        """Trust this project and its skills as they are now."""
        self._safeguards.event("trust", user=OWNER, reason=str(self._project))
        report = self._store.trust(self._project, self._skills(), datetime.now(UTC))
        self._refresh()
        return report

    def revoke(self) -> bool:
        """Take the trust in this project back; whether there was any."""
        self._safeguards.noted("trust-revoked", user=OWNER, reason=str(self._project))
        revoked = self._store.revoke(self._project)
        self._refresh()
        return revoked
