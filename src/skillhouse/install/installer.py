"""Installs, updates and rolls back skills for a person; every change is in the audit log."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from skillhouse import registry
from skillhouse.audit.log import recorded, recorded_set
from skillhouse.clients import Exporter
from skillhouse.floor import SkillError, SkillhouseError, structs
from skillhouse.house.house import Skillhouse
from skillhouse.house.installed_check import InstalledState
from skillhouse.house.rehearsal import export_source
from skillhouse.install.build_origins import BuildOrigins
from skillhouse.install.install_policy import (
    HeldBackError,
    check_agreed,
    check_alone,
    check_as_locked,
    check_newer,
    check_publisher,
    check_repository,
    check_taken_down,
)
from skillhouse.install.install_report import InstallReport
from skillhouse.install.install_steps import InstallError, install_error, install_step
from skillhouse.install.installed_skills import InstalledSkills, keep_edits, with_edits
from skillhouse.install.opened_sources import OpenSources, chosen_by_path
from skillhouse.install.public_collections import PublicCollections
from skillhouse.install.skill_sources import OpenSource, Progress, Report, SkillSources, no_progress
from skillhouse.install.skill_stage import SkillStage, StagedSkill
from skillhouse.install.source_policy import check_evidence
from skillhouse.registry import (
    Candidate,
    InstallPlace,
    LockEntry,
    SourceError,
    StagedInstall,
    Takedown,
)
from skillhouse.registry.releases import locked_place


class Installer:
    """The installs of one configuration; at its end the skills are looked for again."""

    def __init__(
        self,
        house: Skillhouse,
        *,
        report: Report = lambda _: None,
        progress: Progress = no_progress,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._house = house
        self._now = now
        self.places = house.config.places
        self.installed = InstalledSkills(house)
        """What is installed already."""
        self._installs = self.installed.installs
        self._store = self.installed.store
        self._log = house.audit_log
        self.sources = SkillSources(
            house.config, house.services.network, report=report, progress=progress
        )
        self._open_sources = OpenSources(self.sources, house.audit_log, self._store)
        self._origins = BuildOrigins(house.config.registry, house.config.state_directory)
        self._stage = SkillStage(house, self.installed, self.sources, self._open_sources, now=now)
        self._taken: dict[Path, LockEntry] = {}
        """The entry of each directory that this installer filled or is about to fill."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open_sources.close()
        self._house.refresh()

    def opened(
        self,
        text: str,
        *,
        expected: str = "",
        is_typed: bool = True,
        repository: str = "",
        place: InstallPlace | None = None,
    ) -> OpenSource:
        """Return what a source holds, as of `OpenSources.open_text`."""
        return self._open_sources.open_text(
            text, expected=expected, is_typed=is_typed, repository=repository, place=place
        )

    def public(self) -> PublicCollections:
        """Return the public collections, whose repositories are opened as any source."""
        return PublicCollections(self.opened, self._house.config.cache_directory)

    def staged(
        self, found: OpenSource, candidate: Candidate, place: InstallPlace, *, requested: str
    ) -> AbstractContextManager[StagedSkill]:
        """Give a skill of a source, as of `SkillStage.of_source`."""
        return self._stage.of_source(found, candidate, place, requested=requested)

    def released_state(self, name: str, entry: LockEntry, place: InstallPlace) -> InstalledState:
        """Compare an installed skill with the lock, and with what its repository says of it.

        What the repository revoked, and what a trusted root did, is taken over first.

        Raises:
            InstallError: `source`, its repository cannot be asked; `signature`, what it gives as
                its revocations is refused.
        """
        known = locked_place(entry.repository)
        note, said = "", None
        if known is not None:
            repositories = self.sources.repositories
            with install_step("source"):
                note = repositories.take_revocations(repositories.named(known[0]))
                said = repositories.state_of(name, entry)
        state = self.installed.state(name, entry, place)
        if said is not None and said.state == "revoked" and state.is_well:
            # It could not be kept.
            state = structs.replace(state, state="refused", problem=said.text)
        asked = () if said is None or state.state == "refused" else (said.text,)
        notes = (note, *asked, state.note, *self.sources.repositories.problems)
        return structs.replace(state, note="; ".join(dict.fromkeys(filter(None, notes))))

    def lift(self, name: str) -> tuple[Takedown, ...]:
        """Forget what was taken down under a name, where its repository says so by now.

        It must name the very release. A person says so too: a repository's word is not signed, and
        one that leaves the release out, as a mirror would, says nothing.

        Raises:
            InstallError: `source`, it cannot be asked, or says nothing else of a release.
        """
        found = self.installed.memory.of_skill(name)
        with install_step("source"):
            if not found:
                raise SourceError(f"no release of `{name}` is known here as revoked")
            for one in found:
                self.sources.repositories.check_lifted(one)
        for one in found:
            arguments = {"name": name, "repository": one.repository, "digest": one.digest}
            with recorded(self._log, "lift", {**arguments, "reason": one.reason}):
                self.installed.memory.lift(one)
        return found

    def check(self, staged: StagedSkill, *, force: bool = False) -> None:
        """Raise the InstallError of `install` about what is in the place now."""
        with install_step("place"):
            wanted = staged.report.entry.tree_digest
            self._installs.check(staged.report.place, staged.name, wanted=wanted, force=force)

    def install(
        self,
        staged: StagedSkill,
        *,
        agreed: Collection[str] = (),
        ignore_age: bool = False,
        force: bool = False,
    ) -> None:
        """Put a staged skill in force and into the lock.

        Args:
            agreed: The words of `install_policy` that a person said of this very skill.
            ignore_age: Also an update that is held back because it is new.
            force: Also over local edits, which the store keeps.

        Raises:
            InstallError: `policy`: it is unsigned or of an untrusted repository, and that is not
                allowed, or the name is locked to another one; `place`: as of `Installs.install`.
        """
        (fault,) = self.install_all([staged], agreed=agreed, ignore_age=ignore_age, force=force)
        if fault is not None:
            raise fault

    def install_all(
        self,
        every: Sequence[StagedSkill],
        *,
        agreed: Collection[str],
        ignore_age: bool = False,
        force: bool = False,
    ) -> tuple[SkillhouseError | None, ...]:
        """Put skills of one place in force together; return of each why it alone was refused.

        Args:
            agreed: The words of `install_policy` that a person said of all of them.
            ignore_age: As of `install`.
            force: Likewise.
        """
        faults: list[SkillhouseError | None] = [None] * len(every)
        ready: dict[int, StagedInstall] = {}
        for number, staged in enumerate(every):
            try:
                entry = self._agreed_entry(staged, agreed, ignore_age=ignore_age, force=force)
            except InstallError as error:
                faults[number] = error
                continue
            directory = staged.directory
            ready[number] = StagedInstall(name=staged.name, directory=directory, entry=entry)
        if not ready:
            return tuple(faults)
        records = [_recorded(every[number], one.entry) for number, one in ready.items()]
        place = every[0].report.place
        with install_step("place"), recorded_set(self._log, "install", records) as recorded_faults:
            for number, one in ready.items():
                members, is_alone = every[number].members, len(ready) == 1
                self._store.put(members, one.entry.tree_digest, durable=is_alone)
            wanted = tuple(ready.values())
            stored = None if len(ready) == 1 else self._store.directory
            found = self._installs.install_all(place, wanted, force=force, also=stored)
            for number, (at, fault) in enumerate(zip(ready, found, strict=True)):
                recorded_faults[number] = fault
                if fault is None and every[at].report.attested is not None:
                    self._origins.keep([ready[at].entry])
                if fault is not None:
                    faults[at] = install_error("place", fault)
        return tuple(faults)

    def check_allowed(
        self, staged: StagedSkill, *, agreed: Collection[str], ignore_age: bool = False
    ) -> None:
        """Raise the InstallError of `install` about what policy forbids or no person agreed to."""
        report, settings = staged.report, self._house.config.registry
        with install_step("policy"):
            check_agreed(report, agreed, require_signature=settings.require_signature)
            if report.held and not ignore_age:
                raise HeldBackError(staged.name, report.held)
            check_evidence(settings, report.source, staged.name, report.publisher)
            check_repository(staged.name, report.installed, report.entry)
            check_publisher(staged.name, report.installed, report.entry)
            check_taken_down(staged.name, self.installed.taken_down(report.entry))

    def _agreed_entry(
        self, staged: StagedSkill, agreed: Collection[str], *, ignore_age: bool, force: bool
    ) -> LockEntry:
        """Return the entry of a skill that may be installed; InstallError for another."""
        self.check_allowed(staged, agreed=agreed, ignore_age=ignore_age)
        report = staged.report
        entry = structs.replace(report.entry, previous=self._rollback_entry(report, force=force))
        if report.installed is not None:
            entry = structs.replace(
                entry, pinned=report.installed.pinned, pin_reason=report.installed.pin_reason
            )
        self.reserve(staged)
        return entry

    def reserve(self, staged: StagedSkill) -> None:
        """Keep the place for this skill; InstallError where another one of this run has it."""
        entry, target = staged.report.entry, staged.report.place.target(staged.name)
        with install_step("place"):
            check_alone(staged.name, self._taken.get(target), entry, target)
        self._taken[target] = entry

    def follow(self, staged: StagedSkill) -> None:
        """Take over where an installed skill is at its source by now, and its commit; its files
        stay."""
        report, now = staged.report, staged.report.entry
        before = report.installed
        if before is None:
            return
        entry = structs.replace(
            before,
            inside=now.inside,
            requested=now.requested,
            resolved=now.resolved,
            git=now.git,
            dated=now.dated,
        )
        arguments = {"name": staged.name, "from": before.inside, "inside": now.inside}
        with install_step("place"), recorded(self._log, "follow", arguments):
            self._installs.amend(report.place, staged.name, entry)

    def restore(self, staged: StagedSkill, entry: LockEntry, *, force: bool = False) -> None:
        """Put a staged skill in force under the entry that the lock has; errors as `install`.

        Edited files that it replaces are what a rollback then gives.
        """
        with install_step("policy"):
            check_taken_down(staged.name, self.installed.taken_down(entry))
        place = staged.report.place
        with install_step("policy"):
            check_evidence(
                self._house.config.registry,
                staged.report.source,
                staged.name,
                staged.report.publisher,
            )
        entry = with_edits(self._store, place.target(staged.name), entry) if force else entry
        with install_step("place"), recorded(self._log, "install", _recorded(staged, entry)):
            self._store.put(staged.members, entry.tree_digest)
            self._installs.install(place, staged.name, staged.directory, entry, force=force)

    def sync_copies(self, staged: StagedSkill) -> None:
        """Update what was exported of a skill that is in force now.

        It raises nothing; `export --status` says what could not be.
        """
        self._house.refresh()
        target = staged.report.place.target(staged.name)
        Exporter(export_source(self._house)).follow(target)

    def _rollback_entry(self, report: InstallReport, *, force: bool) -> dict[str, object] | None:
        """Return the entry for a rollback, and keep edited files that are about to go."""
        installed = report.installed
        if installed is None:
            return None
        target = report.place.target(report.name)
        edits = keep_edits(self._store, target, installed.expected) if force else ""
        if edits:
            installed = structs.replace(installed, accepted=edits)
        if report.is_same and not installed.accepted:
            return None if installed.previous is None else dict(installed.previous)
        return registry.entry_value(structs.replace(installed, previous=None))

    @contextmanager
    def newest(
        self, name: str, entry: LockEntry, place: InstallPlace, *, ignore_age: bool = False
    ) -> Iterator[StagedSkill]:
        """Give what the source of an installed skill has now, staged.

        Of a repository whose newest version is held back it is the newest one that is not.

        Args:
            ignore_age: The newest one also where it is held back.

        Raises:
            InstallError: `source`, it is not there any more, at several places, or has another
                name;
                others as of `staged`.
        """
        source = self._open_sources.locked_source(name, entry)
        also_at: tuple[str, ...] = ()
        if source is None:
            newest = self._open_sources.newest(name, entry, is_typed=place.scope == "user")
            found, candidate, requested = newest.found, newest.candidate, newest.requested
            also_at = newest.also_at
        else:
            requested = entry.requested
            found = self._open_sources.open(source, expected="", said=requested)
            with install_step("source"):
                candidate = chosen_by_path(found, entry.inside)
        kept = self._store.get(entry.tree_digest) if found.digest == entry.digest else None
        if found.offer is not None and kept is not None:
            # The same archive: nothing has to be fetched again.
            with self._stage.of_members(kept, name, place, entry, found.offer) as staged:
                yield staged
            return
        waiting = older = ""
        with self._replacing(name, entry, place, found, candidate, requested) as staged:
            report = structs.replace(staged.report, also_at=also_at)
            if report.held and not ignore_age and source is not None:
                older = self._stage.newest_waited(staged, source.ref)
            if not older:
                yield structs.replace(staged, report=report)
                return
            waiting = f"{report.entry.label} is held back, {report.held}"
        exact = structs.replace(found.source, ref=older)
        found = self._open_sources.open(exact, expected="", said=requested)
        with self._replacing(name, entry, place, found, candidate, requested) as staged:
            report = structs.replace(staged.report, waiting=waiting)
            yield structs.replace(staged, report=report)

    @contextmanager
    def _replacing(
        self,
        name: str,
        entry: LockEntry,
        place: InstallPlace,
        found: OpenSource,
        candidate: Candidate,
        requested: str,
    ) -> Iterator[StagedSkill]:
        """Give a skill in place of an installed one, with how long it is held back still."""
        with self.staged(found, candidate, place, requested=requested) as staged:
            with install_step("source"):
                if staged.name != name:
                    raise SourceError(
                        f"`{name}` is called `{staged.name}` at its source now: `skillhouse "
                        f"uninstall {name}` removes it here, and `skillhouse install "
                        f"{shlex.quote(requested)} --skill {shlex.quote(candidate.label)}` brings "
                        "that"
                    )
                if found.offer is not None:
                    taken_back = found.offer.newer_yanked
                    check_newer(name, entry, staged.report.entry, taken_back=taken_back)
                held = self._stage.held(staged)
            yield structs.replace(staged, report=structs.replace(staged.report, held=held))

    @contextmanager
    def earlier(self, name: str, *, scope: str = "") -> Iterator[StagedSkill]:
        """Give the version before the last change of a skill, staged.

        Raises:
            SkillError: there is none, or its files are not kept any more.
        """
        place, entry = self.installed.find(name, scope=scope)
        if entry.previous is None:
            message = f"no earlier version of `{name}` is known"
            raise SkillError("no-previous", place.target(name), message)
        before = registry.entry_of(entry.previous)
        digest = before.expected[-1]
        members = self._store.get(digest, signature=before.signature_file)
        if members is None:
            message = f"the files of the earlier version of `{name}` are not kept any more"
            raise SkillError("no-previous", place.target(name), message)
        resolved = structs.replace(before, accepted="", previous=None, signature=None)
        with self._stage.of_members(members, name, place, resolved) as staged:
            yield staged

    @contextmanager
    def locked(
        self, name: str, entry: LockEntry, place: InstallPlace, *, offline: bool = False
    ) -> Iterator[StagedSkill]:
        """Give exactly what the lock has under a name, from what is kept here or its source.

        A repository is asked in any case whether the version was revoked, but for `offline`.

        Raises:
            SourceError: the source has something else by now.
        """
        source, offer = self._open_sources.locked_source(name, entry), None
        if source is not None and not offline:
            exact = structs.replace(source, ref=entry.version)
            found = self._open_sources.open(
                exact, expected=entry.digest, allow_yanked=entry.version, said=entry.resolved
            )
            offer = found.offer
        kept = self._store.get(entry.tree_digest, signature=entry.signature_file)
        if kept is not None:
            with self._stage.of_members(kept, name, place, entry, offer) as staged:
                check_as_locked(name, entry, staged.report)
                yield staged
            return
        if offline:
            message = f"the files of `{name}` are not kept here, and --offline asks no source"
            raise InstallError("source", SourceError(message))
        if source is None:
            is_typed = place.scope == "user"
            found = self._open_sources.open_text(
                entry.resolved, expected=entry.digest, is_typed=is_typed
            )
        with install_step("source"):
            candidate = chosen_by_path(found, entry.inside)
        members = self._open_sources.filled(found, candidate).members
        with self._stage.of_members(members, candidate.folder, place, entry, offer) as staged:
            check_as_locked(name, entry, staged.report)
            yield staged


def _recorded(staged: StagedSkill, entry: LockEntry) -> dict[str, object]:
    publisher = staged.report.publisher
    return {
        "name": staged.name,
        "path": str(staged.report.place.target(staged.name)),
        "resolved": entry.resolved,
        "tree_digest": entry.tree_digest,
        "publisher": "" if publisher is None else publisher.handle,
    }
