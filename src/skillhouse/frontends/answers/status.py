"""The state of a service, and every skill of it, as its pages have them."""

from __future__ import annotations

from skillhouse.audit import Trouble
from skillhouse.frontends.answers.catalogs import CatalogBoundsAnswer
from skillhouse.frontends.answers.findings import DiagnosticAnswer
from skillhouse.frontends.answers.json_form import Count, JsonAnswer
from skillhouse.frontends.answers.skills import AbsentSkillAnswer, CodeFactsAnswer, SkillAnswer


class RootAnswer(JsonAnswer, frozen=True, kw_only=True):
    path: str
    scope: str
    state: str
    """read, missing, or unread (a project that is not trusted)."""
    skills: Count


class StatusAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Counts of skills and findings, and what is wrong with files of ours."""

    version: str
    project: str
    trusted: bool
    profile: str
    skills: Count
    hidden: Count
    shadowed: Count
    diagnostics: Count
    errors: Count
    changed: list[AbsentSkillAnswer]
    audit: list[Trouble]
    config_fault: str
    catalog: CatalogBoundsAnswer
    roots: list[RootAnswer]


class SkillsAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Every skill, with all findings."""

    skills: list[SkillAnswer]
    shadowed: list[SkillAnswer]
    diagnostics: list[DiagnosticAnswer]
    hidden: list[SkillAnswer]
    catalog: CatalogBoundsAnswer
    code: list[CodeFactsAnswer | None]
