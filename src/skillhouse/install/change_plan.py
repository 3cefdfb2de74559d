"""What an install, an update or a rollback would change, and what a person agrees to before it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Literal

# A package and not its names, which are loaded when something is installed: a service starts first.
from msgspec import Struct

from skillhouse import registry
from skillhouse.floor import SkillhouseError, isolated, nearest, structs
from skillhouse.install.install_policy import AGREEMENTS, REWRITTEN, HeldBackError, agreements

if TYPE_CHECKING:
    from skillhouse.house.installed_check import InstalledState
    from skillhouse.install.installed_skills import InstalledSkills
    from skillhouse.install.installer import Installer
    from skillhouse.install.skill_sources import OpenSource
    from skillhouse.install.skill_stage import StagedSkill
    from skillhouse.registry import Candidate, InstallPlace, LockEntry, OtherEntry

EDITED = "edited"
"""It replaces files that were edited, which a rollback gives back."""
CHANGED = "changed"
"""Another installer's lock has another hash of its files."""
QUESTIONS = (*AGREEMENTS, EDITED, CHANGED)
"""All that a person may have to agree to by name, before a skill is changed."""
RESTORABLE = ("edited", "accepted", "missing", "unreadable")
"""States of an installed skill from which its files are put back; what a repository took back, or
whose signature is refused, comes back by no request."""


class PinnedError(SkillhouseError):
    """A skill stays at its version until its pin is taken off."""

    code = "pinned"


class AgreementError(SkillhouseError):
    """What a person agreed to is not what would be done; nothing was changed."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ChangeRequest(Struct, frozen=True, kw_only=True):
    """What is to be brought, in the words of the command line."""

    action: Literal["install", "update", "rollback", "restore"]
    source: str = ""
    """Of an install: NAME@RANGE, owner/repo, an address or a directory."""
    lock: str = ""
    """Of an install: the lock of another installer, whose skills are brought."""
    repository: str = ""
    """The one in which a name is looked for."""
    digest: str = ""
    """`sha256:` that an archive must have."""
    skills: tuple[str, ...] = ()
    """Skills of the source, or ids of installed ones."""
    everything: bool = False
    """Every skill of the source."""
    scope: Literal["user", "project"] = "user"
    """Where an install goes."""


class PlannedChange(Struct, frozen=True, kw_only=True):
    """A change that is ready to be made, while it is staged."""

    staged: StagedSkill
    is_in_force: bool
    """Just these files are there already."""
    questions: tuple[str, ...]
    """What a person must agree to by name."""
    apply: Callable[[], None]
    """Makes it; everything in `questions` must have been agreed to."""
    lock_hash: str = ""
    """How the files compare with the hash of another installer's lock; empty without one."""
    note: str = ""
    """What was assumed of that lock."""


Stage = Callable[[], "AbstractContextManager[StagedSkill]"]


class WantedChange(Struct, frozen=True, kw_only=True):
    """One skill of a request, before anything of it is fetched."""

    name: str
    stage: Stage
    skipped: str = ""
    """Why nothing is done: `pinned`; empty where it is staged."""
    restored: LockEntry | None = None
    """Of a restore: the entry that stays in the lock."""
    is_update: bool = False
    entry: OtherEntry | None = None
    """Of another installer's lock."""


def is_in_force(installer: Installer, staged: StagedSkill) -> bool:
    """Whether the staged files are in force already, from the same repository and as installed."""
    report = staged.report
    before = report.installed
    if before is None or not report.is_same or before.repository != report.entry.repository:
        return False
    return installer.installed.state(staged.name, before, report.place).state == "ok"


def chosen_candidates(
    found: OpenSource, names: Sequence[str], *, everything: bool = False
) -> Sequence[Candidate]:
    """Return the skills of a source that are meant; none where it has several and none is named.

    Raises:
        SourceError: it has no skill, or not just one of a name.
    """
    if not found.candidates:
        more = f": {'; '.join(found.unheld[:3])}" if found.unheld else ""
        raise registry.SourceError(f"no skill is in `{found.resolved}`{more}")
    if everything:
        # Of two with one name that which a person shares, before what clients were given.
        return sorted(found.candidates, key=lambda one: (one.path.startswith("."), one.path))
    if names:
        return [_named(found.candidates, name) for name in names]
    outer = [one for one in found.candidates if not one.is_inner]
    return outer if len(outer) == 1 else ()


def _named(every: Sequence[Candidate], name: str) -> Candidate:
    """Return the skill of a path, of a directory's name, or of the name that it says itself."""
    wanted = name.rstrip("/")
    for names in (_paths, _folders, _names):
        fitting = [one for one in every if wanted in names(one)]
        # One that another skill holds comes last.
        exact = [one for one in fitting if not one.is_inner] or fitting
        if len(exact) == 1:
            return exact[0]
        if exact:
            said = ", ".join(one.label for one in exact)
            raise registry.SourceError(
                f"expected one skill `{name}` in the source, got {len(exact)}: {said}"
            )
    known = {word for one in every for word in (one.folder, *filter(None, _names(one)))}
    close = ", ".join(f"`{word}`" for word in nearest(wanted, known))
    meant = f"; did you mean {close}" if close else ""
    raise registry.SourceError(
        f"expected one skill `{name}` in the source, got 0{meant}: see --list"
    )


def _paths(one: Candidate) -> tuple[str, ...]:
    return (one.path, *one.links) if one.path else (".", *one.links)


def _folders(one: Candidate) -> tuple[str, ...]:
    return (one.folder, *(link.rpartition("/")[2] for link in one.links))


def _names(one: Candidate) -> tuple[str, ...]:
    return one.name, one.installed_as


def split_id(text: str) -> tuple[str, str]:
    """Return the scope of an id, empty for a name alone, and the name.

    >>> split_id("user:pdf"), split_id("pdf")
    (('user', 'pdf'), ('', 'pdf'))
    """
    scope, _, name = text.rpartition(":")
    return scope, name


def updatable(
    installed: InstalledSkills, ids: Sequence[str]
) -> Iterator[tuple[InstallPlace, str, LockEntry]]:
    """Yield the installed skills that are meant; without ids all of them, pinned ones too.

    Those of one repository come together.

    Raises:
        PinnedError: one that is named is pinned.
    """
    named = []
    for text in ids:
        scope, name = split_id(text)
        place, entry = installed.find(name, scope=scope)
        if entry.pinned:
            reason = f": {' '.join(entry.pin_reason.split())}" if entry.pin_reason else ""
            message = f"`{name}` is pinned{reason}; `skillhouse pin {name} --off` first"
            raise PinnedError(message)
        named.append((place, name, entry))
    yield from by_source(named if ids else installed.entries())


def by_source(
    entries: Iterable[tuple[InstallPlace, str, LockEntry]],
) -> list[tuple[InstallPlace, str, LockEntry]]:
    """Return installed skills in their order, those of one repository together, so that it is
    fetched once however many others there are."""
    found = list(entries)
    first: dict[str, int] = {}
    for number, (_, _, entry) in enumerate(found):
        first.setdefault(entry.repository, number)
    return sorted(found, key=lambda one: first[one[2].repository])


def restorable(state: InstalledState) -> bool:
    return state.state in RESTORABLE


def asked_state(
    installer: Installer, name: str, entry: LockEntry, place: InstallPlace
) -> tuple[InstalledState, SkillhouseError | None]:
    """Return how an installed skill is, and why its repository could not be asked about it."""
    with isolated() as failed:
        return installer.released_state(name, entry, place), None
    # What could not be asked is no finding about the files, and not passed over either.
    state = installer.installed.state(name, entry, place)
    found = "unasked" if state.is_well else state.state
    return structs.replace(state, state=found), failed[0]


def wanted_changes(
    installer: Installer, request: ChangeRequest, found: OpenSource | None = None
) -> Iterator[WantedChange]:
    """Yield what a request is about; `found` is the open source of an install.

    Raises:
        SkillError: a skill is not installed; PinnedError, SourceError: as above.
    """
    installed = installer.installed
    if request.action == "install":
        if found is None:
            raise registry.SourceError("expected a source")
        place = installed.place(request.scope)
        for one in chosen_candidates(found, request.skills, everything=request.everything):
            yield WantedChange(name=one.label, stage=_stage_install(installer, found, one, request))
        return
    if request.action == "update":
        for place, name, entry in updatable(installed, request.skills):
            yield WantedChange(
                name=name,
                stage=_stage_update(installer, name, entry, place),
                skipped="pinned" if entry.pinned else "",
                is_update=True,
            )
        return
    for text in request.skills:
        scope, name = split_id(text)
        place, entry = installed.find(name, scope=scope)
        if request.action == "rollback":
            yield WantedChange(name=name, stage=_stage_rollback(installer, name, place.scope))
            continue
        state = installed.state(name, entry, place)
        yield WantedChange(
            name=name,
            stage=_stage_locked(installer, name, entry, place),
            skipped="" if restorable(state) else state.state,
            restored=entry,
        )


# A loop's variables are those of its last round by the time that a stage begins.
def _stage_install(
    installer: Installer, found: OpenSource, one: Candidate, request: ChangeRequest
) -> Stage:
    place = installer.installed.place(request.scope)
    return lambda: installer.staged(found, one, place, requested=request.source)


def _stage_update(installer: Installer, name: str, entry: LockEntry, place: InstallPlace) -> Stage:
    return lambda: installer.newest(name, entry, place)


def _stage_rollback(installer: Installer, name: str, scope: str) -> Stage:
    return lambda: installer.earlier(name, scope=scope)


def _stage_locked(installer: Installer, name: str, entry: LockEntry, place: InstallPlace) -> Stage:
    return lambda: installer.locked(name, entry, place)


def planned(installer: Installer, staged: StagedSkill, wanted: WantedChange) -> PlannedChange:
    """Return what would be done with a staged skill.

    Raises:
        InstallError: `place`, something that was not installed is in its place.
    """
    words, restored, entry = agreements(staged.report), wanted.restored, wanted.entry
    comparison = registry.compare_hash(entry, staged.members) if entry else ""
    if comparison == "different":
        words = (*words, CHANGED)
    if wanted.is_update and staged.report.is_same:
        if staged.report.moved_from:
            follow = partial(installer.follow, staged)
            asked = (REWRITTEN,) * bool(staged.report.rewritten)
            return PlannedChange(staged=staged, is_in_force=False, questions=asked, apply=follow)
        # Edits of its files are no business of an update.
        return PlannedChange(staged=staged, is_in_force=True, questions=(), apply=_nothing)
    if staged.report.held:
        raise HeldBackError(staged.name, staged.report.held)
    try:
        installer.check(staged, force=False)
    except SkillhouseError as error:
        if getattr(error, "code", "") != "local-edits":
            raise
        installer.check(staged, force=True)
        words = (*words, EDITED)

    def apply() -> None:
        if restored is not None:
            installer.restore(staged, restored, force=EDITED in words)
            installer.sync_copies(staged)
            return
        # What was agreed to is this very report.
        installer.install(staged, agreed=words, force=EDITED in words)
        if entry and entry.pinned:
            scope = staged.report.place.scope
            installer.installed.pin(entry.name, scope=scope, reason=entry.pin_reason)
        installer.sync_copies(staged)

    return PlannedChange(
        staged=staged,
        is_in_force=restored is None and is_in_force(installer, staged),
        questions=words,
        apply=apply,
        lock_hash=comparison,
        note=entry.note if entry else "",
    )


def _nothing() -> None:
    """Change nothing: it is there already."""


def check_answers(plan: PlannedChange, answers: Collection[str]) -> None:
    """Refuse an agreement that leaves out a question, or answers one that was not asked.

    Raises:
        AgreementError: `not-agreed`.
    """
    missing = [word for word in plan.questions if word not in answers]
    unknown = sorted(set(answers) - set(plan.questions))
    if missing or unknown:
        text = f"expected the answers {', '.join(plan.questions) or '(none)'}"
        raise AgreementError("not-agreed", f"{text}, got {', '.join(sorted(answers)) or '(none)'}")
