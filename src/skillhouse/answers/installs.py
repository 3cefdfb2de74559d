"""What an install would bring, what a change of installed skills came to, and their locks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import UNSET, UnsetType

from skillhouse.answers.errors import RefusalAnswer
from skillhouse.answers.json_form import Count, EffectWord, JsonAnswer, copied, members
from skillhouse.answers.packages import (
    BuildAnswer,
    CandidateAnswer,
    InstalledAnswer,
    build_answer,
)
from skillhouse.floor import digest, structs
from skillhouse.floor.trees import TreeFile

if TYPE_CHECKING:
    from skillhouse.install import InstallReport
    from skillhouse.install.change_plan import PlannedChange
    from skillhouse.registry import InstallPlace, LockMerge, OtherEntry

InstallStatus: TypeAlias = Literal["shown", "unchanged", "declined", "installed", "refused"]


class PackedSkillAnswer(JsonAnswer, frozen=True, kw_only=True):
    """An archive that was written."""

    name: str
    version: str
    path: str
    digest: str
    tree_digest: str
    size: Count
    files: tuple[TreeFile, ...]


class ObeyedFileAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A file that agents or other programs obey."""

    path: str
    reason: str


class BroughtToolAnswer(JsonAnswer, frozen=True, kw_only=True):
    name: str
    level: str


class BroughtMentionAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What the skill's text names, and what the rules say of it."""

    kind: str
    text: str
    effect: EffectWord
    reason: str


class NamedHostAnswer(JsonAnswer, frozen=True, kw_only=True):
    origin: str
    files: tuple[str, ...]
    effect: EffectWord


class HiddenTextAnswer(JsonAnswer, frozen=True, kw_only=True):
    path: str
    what: str


class BroughtFindingAnswer(JsonAnswer, frozen=True, kw_only=True):
    code: str
    severity: Literal["error", "warning", "info"]
    message: str


class InstallReportAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What a package or folder brings, and how it differs from what is installed."""

    name: str
    own_name: str
    version: str
    description: str
    license: str
    repository: str
    trusted: bool | None
    published_at: str | None
    downgrade: bool
    resolved: str
    inside: str
    moved_from: str
    near: str
    rewritten: str
    unexpected: str
    """How it was not built as earlier versions were; empty where it was."""
    builds: list[BuildAnswer]
    """Where it was built, by each attestation that was verified."""
    unverified: tuple[str, ...]
    """Why other attestations were not."""
    publisher: str | None
    registry: str | None
    signed: bool
    warnings: tuple[str, ...]
    """Of the check of its signature."""
    owners: tuple[str, ...] | None
    """Who may sign the name: empty while it is unclaimed, null where no root says."""
    digest: str
    tree_digest: str
    size: Count
    files: tuple[TreeFile, ...]
    lacking: tuple[str, ...]
    obeyed: list[ObeyedFileAnswer]
    allowed_tools: tuple[str, ...]
    tools: list[BroughtToolAnswer]
    env: tuple[str, ...]
    dependencies: tuple[str, ...]
    mentions: list[BroughtMentionAnswer]
    hosts: list[NamedHostAnswer]
    hidden: list[HiddenTextAnswer]
    findings: list[BroughtFindingAnswer]
    scope: str
    path: str
    installed: str | None
    changes: tuple[str, ...]


class RestoredAnswer(JsonAnswer, frozen=True, kw_only=True):
    """How a skill compares with the entry of another installer's lock."""

    lock_hash: str
    note: str


class LockedSkillAnswer(JsonAnswer, frozen=True, kw_only=True):
    """An entry of another installer's lock."""

    name: str
    source: str
    path: str | None
    hash: str
    pinned: bool
    note: str
    fault: str


class FrozenSkillAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A skill that was installed exactly as the lock has it."""

    flat_members = ("installed",)
    installed: InstalledAnswer
    status: str
    error: str | UnsetType = UNSET


class InstallRowAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A skill that `install` or `update` shows; one that failed has `error`."""

    flat_members = ("report", "restored")
    report: InstallReportAnswer | UnsetType = UNSET
    restored: RestoredAnswer | UnsetType = UNSET
    status: InstallStatus | UnsetType = UNSET
    source: str | UnsetType = UNSET
    error: str | UnsetType = UNSET


class PlannedAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What a change would do with one skill, or what came of it."""

    flat_members = ("report", "restored")
    name: str
    report: InstallReportAnswer | UnsetType = UNSET
    questions: tuple[str, ...] | UnsetType = UNSET
    """What `answers` must name, of `install.QUESTIONS`."""
    restored: RestoredAnswer | UnsetType = UNSET
    plan_digest: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    """planned, unchanged, pinned, refused, or the state that leaves nothing to do; afterwards
    installed or declined."""
    error: RefusalAnswer | UnsetType = UNSET


class OfferedAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What a plan says of its source besides the skills that would change."""

    candidates: list[CandidateAnswer]
    problems: list[str]


class DecidedEntryAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Which side's entry was taken, and why."""

    name: str
    why: str
    tree_digest: str | None


class LockAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A lock, and what came of its merge."""

    scope: str
    path: str
    merged: bool = False
    skills: Count = 0
    decided: tuple[DecidedEntryAnswer, ...] = ()
    unclear: tuple[str, ...] = ()
    problem: str = ""


def report_answer(report: InstallReport) -> InstallReportAnswer:
    facts, effects, entry = report.facts, report.effects, report.entry
    offer, publisher, attested = report.offer, report.publisher, report.attested
    return copied(
        InstallReportAnswer,
        facts,
        name=report.name,
        repository=entry.repository,
        resolved=entry.resolved,
        digest=entry.digest,
        tree_digest=entry.tree_digest,
        own_name=facts.name,
        trusted=None if offer is None else offer.settings.trusted,
        published_at=None if offer is None else offer.release.published_at,
        downgrade=report.is_downgrade,
        inside=report.inside,
        moved_from=report.moved_from,
        near=report.near,
        rewritten=report.rewritten,
        unexpected=report.unexpected,
        builds=[] if attested is None else [build_answer(one) for one in attested.origins],
        unverified=() if attested is None else attested.problems,
        publisher=None if publisher is None else publisher.handle,
        registry=None if publisher is None else publisher.registry,
        signed=publisher is not None,
        warnings=() if publisher is None else tuple(publisher.warnings),
        owners=None if offer is None else offer.owners,
        size=report.tree.size,
        files=report.tree.files,
        lacking=tuple(report.lacking),
        obeyed=[ObeyedFileAnswer(path=path, reason=why) for path, why in effects.obeyed],
        tools=[BroughtToolAnswer(name=tool.name, level=tool.level) for tool in facts.tools],
        mentions=[
            BroughtMentionAnswer(
                kind=one.mention.kind,
                text=one.mention.text,
                effect=one.effect.value,
                reason=one.reason,
            )
            for one in effects.mentions
        ],
        hosts=[
            NamedHostAnswer(origin=one.origin, files=tuple(one.files), effect=one.effect.value)
            for one in effects.hosts
        ],
        hidden=[HiddenTextAnswer(path=name, what=what) for name, what in effects.hidden],
        findings=[
            BroughtFindingAnswer(code=one.code, severity=one.severity.value, message=one.message)
            for one in facts.diagnostics
        ],
        scope=report.place.scope,
        path=str(report.place.target(report.name)),
        installed=None if report.installed is None else report.installed.tree_digest,
        changes=tuple(report.difference),
    )


def plan_answer(action: str, plan: PlannedChange) -> PlannedAnswer:
    """Return what a change would do, with the digest by which one agrees to just this."""
    found = PlannedAnswer(
        name=plan.staged.name,
        report=report_answer(plan.staged.report),
        questions=tuple(plan.questions),
        restored=RestoredAnswer(lock_hash=plan.lock_hash, note=plan.note)
        if plan.lock_hash
        else UNSET,
    )
    text = json.dumps([action, found], sort_keys=True, default=members)
    return structs.replace(
        found,
        plan_digest=digest(text.encode("utf-8", "replace")),
        status="unchanged" if plan.is_in_force else "planned",
    )


def locked_skill(entry: OtherEntry) -> LockedSkillAnswer:
    return copied(LockedSkillAnswer, entry, path=entry.inside)


def merged_lock(place: InstallPlace, found: LockMerge, *, is_dry: bool) -> LockAnswer:
    decided = (
        DecidedEntryAnswer(
            name=one.name,
            why=one.why,
            tree_digest=None if one.entry is None else one.entry.tree_digest,
        )
        for one in found.decided
    )
    return LockAnswer(
        scope=place.scope,
        path=str(place.lock),
        merged=not found.unclear and not is_dry,
        skills=len(found.lock.skills),
        decided=tuple(decided),
        unclear=tuple(found.unclear),
        problem="both sides changed them: use --ours or --theirs" if found.unclear else "",
    )
