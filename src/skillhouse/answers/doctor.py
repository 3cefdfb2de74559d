"""What is in a place, what clients make of it, and what is wrong: for `doctor` and the status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from skillhouse.answers.catalogs import CatalogBoundsAnswer
from skillhouse.answers.findings import DiagnosticAnswer
from skillhouse.answers.hook_changes import HookChange
from skillhouse.answers.json_form import Count, JsonAnswer, copied
from skillhouse.answers.skills import AbsentSkillAnswer, CodeFactsAnswer
from skillhouse.audit import Trouble
from skillhouse.house import ToolReport
from skillhouse.manage import RepositoryFreshness

if TYPE_CHECKING:
    from skillhouse.clients import ClientColumn, ClientReport, ReportedSkill
    from skillhouse.skill import Profile


class BudgetUseAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The use of a client's list budget, in characters."""

    limit: Count
    reserved: Count
    needed: Count
    shortened: Count
    without_description: Count
    omitted: Count
    over: Count


class ClientAnswer(JsonAnswer, frozen=True, kw_only=True):
    name: str
    client: str
    checked: str
    roots: list[str]
    budget: BudgetUseAnswer | None


class VerdictAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What a client makes of a skill, and why."""

    state: str
    name: str
    code: str
    reason: str
    line: Count | None
    taken: str
    cut: str


class SeenSkillAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A skill with the verdict of each client; paths are short, fit to be published."""

    name: str
    file: str
    places: list[str]
    root: str
    description_chars: Count
    clients: dict[str, VerdictAnswer]


class NearMissAnswer(JsonAnswer, frozen=True, kw_only=True):
    code: str
    path: str


class ReportAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What each client makes of a place."""

    start: str
    project: str
    clients: list[ClientAnswer]
    skills: list[SeenSkillAnswer]
    misses: list[NearMissAnswer]


class ComparedAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What `profiles compare` says besides the skills that differ."""

    clients: list[str]
    alike: Count


class UnsafeEntryAnswer(JsonAnswer, frozen=True, kw_only=True):
    """An entry of a client that starts us unsafely."""

    client: str
    name: str
    fault: str


class WatchUseAnswer(JsonAnswer, frozen=True, kw_only=True):
    used: Count
    most: Count
    needed: Count
    free: Count
    polls: bool


class DoctorAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What `doctor` says besides the problems of clients with skills."""

    flat_members = ("report",)
    machine: str
    report: ReportAnswer
    audit: tuple[Trouble, ...]
    files: tuple[Trouble, ...]
    configuration: list[DiagnosticAnswer]
    entries: list[UnsafeEntryAnswer]
    catalog: CatalogBoundsAnswer | None
    watches: WatchUseAnswer | None
    code: list[CodeFactsAnswer | None]
    installed: list[AbsentSkillAnswer]
    tools: ToolReport
    trust: list[str]
    """What of signatures and repositories' metadata ended or soon does, as `list` says it."""
    repositories: list[RepositoryFreshness]
    hooks: list[HookChange] | UnsetType = UNSET


class ProfileLineAnswer(JsonAnswer, frozen=True, kw_only=True):
    name: str
    title: str
    client: str
    checked: str


class ProfilesAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The names of clients of which only folders are known."""

    folders: list[str]


class RootAnswer(JsonAnswer, frozen=True, kw_only=True):
    path: str
    scope: str
    state: str
    """read, missing, or unread (a project that is not trusted)."""
    skills: Count


class InstanceAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Which service answers: of several on one machine or behind one address, and since when."""

    id: str
    """Another one after each start."""
    name: str
    """What its operator calls it, as in its records; its machine's name where that is not said."""
    host: str
    version: str
    started: str


class StatusAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Counts of skills and findings, and what is wrong with files of ours."""

    instance: InstanceAnswer
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
    trust: list[str]
    """As of `doctor`."""
    repositories: list[RepositoryFreshness]


def report_answer(report: ClientReport) -> ReportAnswer:
    return ReportAnswer(
        start=report.tilde(report.start),
        project=report.tilde(report.project),
        clients=[_client(report, one) for one in report.clients],
        skills=[seen_skill(report, skill) for skill in report.skills],
        misses=[
            NearMissAnswer(code=miss.code, path=report.short(miss.path)) for miss in report.misses
        ],
    )


def _client(report: ClientReport, found: ClientColumn) -> ClientAnswer:
    budget = found.budget
    return ClientAnswer(
        name=found.name,
        client=found.profile.client,
        checked=found.profile.checked,
        roots=[report.short(root) for root in found.roots],
        budget=None if budget is None else copied(BudgetUseAnswer, budget, over=budget.over),
    )


def seen_skill(report: ClientReport, skill: ReportedSkill) -> SeenSkillAnswer:
    return SeenSkillAnswer(
        name=skill.name,
        file=report.short(skill.file),
        places=[report.short(place) for place in skill.places],
        root=report.short(skill.root),
        description_chars=skill.description_chars,
        clients={
            client.name: copied(
                VerdictAnswer,
                verdict,
                state=verdict.state.value,
                taken=report.short(verdict.other) if verdict.other else "",
                cut=verdict.cut.value,
            )
            for client, verdict in zip(report.clients, skill.verdicts, strict=True)
        },
    )


def profile_line(profile: Profile) -> ProfileLineAnswer:
    return copied(ProfileLineAnswer, profile)
