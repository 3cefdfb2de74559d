"""What a person sees of a project before they trust it, with a digest of just that."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from skillhouse import runtime
from skillhouse.floor import SkillError, dataclass, digest
from skillhouse.frontends.presentation.json_values import (
    diagnostic_values,
    facts_value,
    trust_value,
)

if TYPE_CHECKING:
    from skillhouse.floor import Diagnostic
    from skillhouse.runtime import CodeFacts, Skillhouse, TrustReport


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustView:
    """A project with its skills, their code, and what is wrong with them."""

    report: TrustReport
    code: tuple[CodeFacts, ...]
    findings: tuple[Diagnostic, ...]

    @property
    def digest(self) -> str:
        """That of everything that is shown: what is trusted must be just this."""
        shown = [self.value(), diagnostic_values(self.findings)]
        return digest(json.dumps(shown, sort_keys=True).encode("utf-8", "replace"))

    def value(self) -> dict[str, Any]:
        return {**trust_value(self.report), "code": [facts_value(facts) for facts in self.code]}


def trust_view(house: Skillhouse) -> TrustView:
    """Return what `trust` is about; it reads the project's skills, whether trusted or not."""
    return TrustView(
        report=house.project_trust.report(),
        code=runtime.project_code(house),
        findings=house.snapshot.project_findings(),
    )


def trust_shown(house: Skillhouse, shown: str) -> TrustReport:
    """Trust the project if it is still what was shown under this digest.

    Raises:
        SkillError: it is something else by now; nothing was trusted.
    """
    view = trust_view(house)
    if view.digest != shown:
        message = "it is not what was shown any more: nothing was trusted, look again"
        raise SkillError("changed", view.report.project, message)
    return house.project_trust.trust(view.report)
