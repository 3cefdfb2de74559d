"""What a person sees of a project before they trust it, with a digest of just that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from skillhouse import manage
from skillhouse.answers.findings import DiagnosticAnswer, diagnostic_answers
from skillhouse.answers.json_form import JsonAnswer, ListAnswer, listed, members
from skillhouse.answers.skills import CodeFactsAnswer, code_facts
from skillhouse.floor import SkillError, digest

if TYPE_CHECKING:
    from skillhouse.floor import Diagnostic
    from skillhouse.house import Skillhouse, TrustReport
    from skillhouse.house.trust import TrustedSkill
    from skillhouse.manage import CodeFacts


class OtherReadingAnswer(JsonAnswer, frozen=True, kw_only=True):
    """How the clients of some profiles read the same file."""

    profiles: tuple[str, ...]
    name: str
    description: str


class TrustedSkillAnswer(JsonAnswer, frozen=True, kw_only=True):
    name: str
    description: str
    earlier_description: str | None
    directory: str
    tree_digest: str | None
    state: Annotated[
        str, Meta(extra_json_schema={"enum": ["trusted", "new", "changed", "unbound"]})
    ]
    problem: str | None
    found_by: tuple[str, ...]
    targets: tuple[str, ...]
    readings: tuple[OtherReadingAnswer, ...]


class TrustAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What is said of a project besides its skills."""

    project: str
    trusted: bool
    through: tuple[str, ...]


class TrustViewAnswer(TrustAnswer, frozen=True, kw_only=True):
    """With the code of the skills, and the ids of others that the project's replace."""

    code: list[CodeFactsAnswer]
    replaces: dict[str, str]


class ShownTrustAnswer(TrustViewAnswer, frozen=True, kw_only=True):
    """With the findings, and the digest by which one agrees to just this."""

    diagnostics: list[DiagnosticAnswer]
    digest: str


class RevokedTrustAnswer(JsonAnswer, frozen=True, kw_only=True):
    project: str
    revoked: bool
    others: tuple[str, ...] | UnsetType = UNSET
    """Work trees of the same repository, which lost it too."""


def trust_answer(report: TrustReport) -> ListAnswer:
    return listed("skills", _skills(report), TrustAnswer(**_facts(report)))


def _facts(report: TrustReport) -> dict[str, Any]:
    through = tuple(report.through)
    return {"project": str(report.project), "trusted": report.is_trusted, "through": through}


def _skills(report: TrustReport) -> list[TrustedSkillAnswer]:
    return list(map(_trusted_skill, report.skills))


def _trusted_skill(found: TrustedSkill) -> TrustedSkillAnswer:
    readings = (
        OtherReadingAnswer(
            profiles=tuple(one.profiles), name=one.text.name, description=one.text.description
        )
        for one in found.other_readings
    )
    return TrustedSkillAnswer(
        name=found.skill.name,
        description=found.skill.description,
        earlier_description=found.earlier.description if found.earlier else None,
        directory=found.directory,
        tree_digest=found.tree_digest or None,
        state=found.state,
        problem=found.problem or None,
        found_by=tuple(found.finders),
        targets=tuple(found.targets),
        readings=tuple(readings),
    )


class TrustView(Struct, frozen=True, kw_only=True):
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
        skills = {"skills": _skills(self.report)}
        shown = [
            members(self._more()) | skills,
            diagnostic_answers(self.findings),
            dict(self.report.tools),
        ]
        text = json.dumps(shown, sort_keys=True, default=members)
        return digest(text.encode("utf-8", "replace"))

    def _more(self) -> TrustViewAnswer:
        code = [facts for one in self.code if (facts := code_facts(one)) is not None]
        return TrustViewAnswer(**_facts(self.report), code=code, replaces=dict(self.replaced))

    def answer(self) -> ListAnswer:
        return listed("skills", _skills(self.report), self._more())

    def shown(self) -> ListAnswer:
        """Return it with the digest, for who is to agree."""
        more = ShownTrustAnswer(
            **members(self._more()),
            diagnostics=diagnostic_answers(self.findings),
            digest=self.digest,
        )
        return listed("skills", _skills(self.report), more)


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
