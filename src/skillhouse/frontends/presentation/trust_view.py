"""What a person sees of a project before they trust it, with a digest of just that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from skillhouse import manage
from skillhouse.floor import SkillError, dataclass, digest
from skillhouse.frontends.presentation.json_values import (
    diagnostic_values,
    facts_value,
    trust_value,
)

if TYPE_CHECKING:
    from skillhouse.floor import Diagnostic
    from skillhouse.house import Skillhouse, TrustReport
    from skillhouse.manage import CodeFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustView:
    """A project with its skills, their code, and what is wrong with them."""

    report: TrustReport
    code: tuple[CodeFacts, ...]
    findings: tuple[Diagnostic, ...]
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Names that other skills here have, too: the project's are used in place of these ids."""
    reads_run: bool = False
    """Whether tools that read run without a question from the trust on, while their code stays."""

    @property
    def digest(self) -> str:
        """That of everything that is shown: what is trusted must be just this."""
        shown = [self.value(), diagnostic_values(self.findings), dict(self.report.tools)]
        return digest(json.dumps(shown, sort_keys=True).encode("utf-8", "replace"))

    def value(self) -> dict[str, Any]:
        return {
            **trust_value(self.report),
            "code": [facts_value(facts) for facts in self.code],
            "replaces": dict(self.replaced),
        }


def trust_view(house: Skillhouse) -> TrustView:
    """Return what `trust` is about; it reads the project's skills, whether trusted or not."""
    report = house.project_trust.report()
    return TrustView(
        report=report,
        code=manage.project_code(house),
        findings=house.snapshot.project_findings(),
        replaced=_replaced(house, report),
        reads_run=house.policy.reads_by_trust,
    )


def _replaced(house: Skillhouse, report: TrustReport) -> Mapping[str, str]:
    """Return the other skill of each name that the project takes: of several the strongest."""
    # What the profile in use does not find takes no other skill's place here.
    names = {found.skill.name for found in report.skills if not found.finders}
    shown = house.snapshot.shown.index
    others: dict[str, str] = {}
    for skill in (*shown.skills, *shown.shadowed):
        if skill.scope != "project" and skill.name in names:
            others.setdefault(skill.name, skill.id)
    return dict(sorted(others.items()))


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
