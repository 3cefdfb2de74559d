"""What an agent would see and meet for a request, and what trust in a project covers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skillhouse.answers.catalogs import (
    CatalogAnswer,
    NamedHitAnswer,
    catalog_answer,
    named_hit,
)
from skillhouse.answers.json_form import Count, EffectWord, JsonAnswer, copied
from skillhouse.answers.policy import ExplanationAnswer, explanation_answer
from skillhouse.answers.skills import (
    ContentAnswer,
    SkillAnswer,
    content_answer,
    skill_answer,
)
from skillhouse.retrieval import Fit
from skillhouse.sandbox import SandboxStatus

if TYPE_CHECKING:
    from skillhouse.house import Rehearsal


class MentionAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What a skill's text names, and what the gate would say of it."""

    kind: str
    text: str
    line: Count
    effect: EffectWord
    layer: str
    reason: str
    argv: tuple[str, ...] | None


class UnjudgedAnswer(JsonAnswer, frozen=True, kw_only=True):
    line: Count
    label: str


class CodeVerdictAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A tool of a skill's own code that fits, and what the gate would say of a call."""

    skill: str
    tool: str
    description: str
    level: str
    effect: EffectWord
    reason: str


class RehearsalAnswer(JsonAnswer, frozen=True, kw_only=True):
    request: str
    catalog: CatalogAnswer
    hidden: Count
    hits: list[NamedHitAnswer]
    weak: bool
    nothing_fits: bool
    skill: SkillAnswer | None
    decision: ExplanationAnswer | None
    content: ContentAnswer | None
    fault: str | None
    mentions: list[MentionAnswer]
    unjudged: list[UnjudgedAnswer]
    sandbox: SandboxStatus | None
    protected: tuple[str, ...]
    code: list[CodeVerdictAnswer]


def rehearsal_answer(found: Rehearsal) -> RehearsalAnswer:
    mentions = [
        MentionAnswer(
            kind=verdict.mention.kind,
            text=verdict.mention.text,
            line=verdict.mention.line,
            effect=verdict.effect.value,
            layer=verdict.layer,
            reason=verdict.reason,
            argv=None if verdict.argv is None else tuple(verdict.argv),
        )
        for verdict in found.mentions
    ]
    return RehearsalAnswer(
        request=found.request,
        catalog=catalog_answer(found.catalog),
        hidden=found.hidden,
        hits=[named_hit(hit, mark) for hit, mark in zip(found.hits, found.marks, strict=True)],
        weak=found.fit is not Fit.GOOD,
        nothing_fits=found.fit is Fit.NONE,
        skill=None if found.skill is None else skill_answer(found.skill),
        decision=None if found.decision is None else explanation_answer(found.decision),
        content=None if found.content is None else content_answer(found.content),
        fault=found.fault or None,
        mentions=mentions,
        unjudged=[UnjudgedAnswer(line=one.line, label=one.label) for one in found.unjudged],
        sandbox=found.sandbox,
        protected=tuple(found.protected),
        code=[
            copied(CodeVerdictAnswer, one, effect=one.effect.value) for one in found.code_verdicts
        ],
    )
