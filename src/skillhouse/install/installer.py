"""Installs, updates and removes skills for a person; every change is in the audit log."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from msgspec import Struct

from skillhouse import registry
from skillhouse.audit.log import recorded
from skillhouse.floor import SkillError, Tree, read_tree, structs
from skillhouse.house.house import Skillhouse
from skillhouse.house.installed_check import InstalledState
from skillhouse.install.install_policy import (
    check_agreed,
    check_alone,
    check_as_locked,
    check_newer,
    check_offer,
    check_publisher,
    check_repository,
)
from skillhouse.install.install_report import InstallReport, skill_effects
from skillhouse.install.install_steps import InstallError, install_step
from skillhouse.install.installed_skills import InstalledSkills, keep_edits, with_edits
from skillhouse.install.opened_sources import OpenedSources, chosen_by_path
from skillhouse.install.repositories import RepositoryOffer, locked_place
from skillhouse.install.skill_sources import OpenSource, Progress, Report, SkillSources, no_progress
from skillhouse.registry import (
    Candidate,
    InstallPlace,
    LockedSignature,
    LockEntry,
    SourceError,
    TreeChanges,
)
from skillhouse.skill import ArchiveMember, install_name, write_members


class StagedSkill(Struct, frozen=True, kw_only=True):
    """A skill that is ready beside its place, and not in force."""

    directory: Path
    members: tuple[ArchiveMember, ...]
    report: InstallReport

    @property
    def name(self) -> str:
        return self.report.name


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
        self._opened = OpenedSources(self.sources, house.audit_log)
        self._done: dict[Path, LockEntry] = {}
        """What was put into which directory by this installer."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()
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
        """Return what a source holds, as of `OpenedSources.typed`."""
        return self._opened.typed(
            text, expected=expected, is_typed=is_typed, repository=repository, place=place
        )

    @contextmanager
    def staged(
        self, found: OpenSource, candidate: Candidate, place: InstallPlace, *, requested: str
    ) -> Iterator[StagedSkill]:
        """Give a skill of a source, written beside its place and looked through.

        Raises:
            InstallError: it is refused; nothing of it is left.
        """
        is_here = found.source.kind in ("directory", "archive")
        resolved = structs.replace(
            _NOTHING,
            repository=found.source.repository,
            resolved=found.resolved,
            # A relative path means another place once one works elsewhere.
            requested=found.resolved if is_here else requested,
            digest=found.digest,
            inside=candidate.path,
            dated=found.dated or f"{self._now():%Y-%m-%d}",
        )
        filled = self._opened.filled(found, candidate)
        with self._staged(
            filled.members, candidate.folder, place, resolved, found.offer, filled.lacking
        ) as staged:
            yield staged

    @contextmanager
    def _staged(
        self,
        members: tuple[ArchiveMember, ...],
        folder: str,
        place: InstallPlace,
        resolved: LockEntry,
        offer: RepositoryOffer | None = None,
        lacking: tuple[str, ...] = (),
    ) -> Iterator[StagedSkill]:
        staging = self._installs.stage(place.root)
        try:
            directory = staging / "new"
            with install_step("archive"):
                write_members(members, directory)
            with install_step("skill"):
                report = self._report(directory, folder, place, resolved, offer)
                report = structs.replace(report, lacking=lacking)
            yield StagedSkill(directory=directory, members=members, report=report)
        finally:
            shutil.rmtree(staging)

    def _report(
        self,
        directory: Path,
        folder: str,
        place: InstallPlace,
        resolved: LockEntry,
        offer: RepositoryOffer | None,
    ) -> InstallReport:
        tree = read_tree(directory, whole=True)
        facts = registry.read_facts(directory, folder, any_name=True)
        name = install_name(facts.name, folder)
        # Its directory here is called as it is, whatever the one at its source is called.
        kept = tuple(one for one in facts.diagnostics if one.code != "name-mismatch")
        facts = structs.replace(facts, diagnostics=kept)
        if offer is not None:
            check_offer(offer, facts, tree.digest)
        publisher = self.installed.publishers.publisher_of(
            directory, tree, facts=facts, repository=offer.registry if offer else ""
        )
        installed = registry.read_lock(place.lock).skills.get(name)
        entry = structs.replace(
            resolved,
            tree_digest=tree.digest,
            version=facts.version or (offer.release.version if offer else ""),
            size=tree.size,
            path=place.path_of(name),
            signature=None
            if publisher is None
            else LockedSignature(
                publisher=publisher.handle,
                cert_sha256=publisher.certificate,
                registry=publisher.registry,
                signed_at=publisher.signed_at,
                file_sha256=publisher.signature_sha256,
            ),
        )
        changes, difference = self._compared(installed, tree, directory)
        return InstallReport(
            facts=facts,
            tree=tree,
            publisher=publisher,
            entry=entry,
            inside=resolved.inside,
            place=place,
            effects=skill_effects(self._house, directory, tree, facts),
            offer=offer,
            installed=installed,
            changes=changes,
            difference=difference,
        )

    def _compared(
        self, installed: LockEntry | None, tree: Tree, directory: Path
    ) -> tuple[TreeChanges | None, tuple[str, ...]]:
        """Return what differs from the installed version, where its files are still known."""
        before = None if installed is None else self._store.get(installed.tree_digest)
        if before is None:
            return None, ()
        changes = registry.compare_trees(registry.member_tree(before), tree)
        _, after = registry.directory_members(directory)
        return changes, tuple(registry.text_changes(changes, before, after))

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
            return structs.replace(state, state="refused", problem=said.text)
        return structs.replace(state, note=note or ("" if said is None else said.text))

    def check(self, staged: StagedSkill, *, force: bool = False) -> None:
        """Raise the InstallError of `install` about what is in the place now."""
        with install_step("place"):
            wanted = staged.report.entry.tree_digest
            self._installs.check(staged.report.place, staged.name, wanted=wanted, force=force)

    def install(
        self,
        staged: StagedSkill,
        *,
        allow_unsigned: bool = False,
        accept_untrusted: bool = False,
        accept_obeyed: bool = False,
        force: bool = False,
    ) -> LockEntry:
        """Put a staged skill in force and into the lock, and return its entry.

        Args:
            allow_unsigned: A person said so of this very skill.
            accept_untrusted: Likewise, where its repository is not trusted.
            accept_obeyed: Likewise, where it brings files that other programs obey.
            force: Also over local edits, which the store keeps.

        Raises:
            InstallError: `policy`: it is unsigned or of an untrusted repository, and that is not
                allowed, or the name is locked to another one; `place`: as of `Installs.install`.
        """
        report = staged.report
        with install_step("policy"):
            check_agreed(
                report,
                require_signature=self._house.config.registry.require_signature,
                allow_unsigned=allow_unsigned,
                accept_untrusted=accept_untrusted,
                accept_obeyed=accept_obeyed,
            )
            check_repository(staged.name, report.installed, report.entry)
            check_publisher(staged.name, report.installed, report.entry)
        entry = structs.replace(report.entry, previous=self._before(report, force=force))
        if report.installed is not None:
            entry = structs.replace(
                entry, pinned=report.installed.pinned, pin_reason=report.installed.pin_reason
            )
        target = report.place.target(staged.name)
        with install_step("place"):
            check_alone(staged.name, self._done.get(target), entry, target)
        arguments = {
            "name": staged.name,
            "path": str(target),
            "resolved": entry.resolved,
            "tree_digest": entry.tree_digest,
            "publisher": "" if report.publisher is None else report.publisher.handle,
        }
        with install_step("place"), recorded(self._log, "install", arguments):
            self._store.put(staged.members, entry.tree_digest)
            self._installs.install(report.place, staged.name, staged.directory, entry, force=force)
        self._done[target] = entry
        return entry

    def follow(self, staged: StagedSkill) -> None:
        """Take over where an installed skill is at its source by now; its files stay."""
        report, now = staged.report, staged.report.entry
        before = report.installed
        if before is None:
            return
        entry = structs.replace(
            before, inside=now.inside, requested=now.requested, resolved=now.resolved
        )
        arguments = {"name": staged.name, "from": before.inside, "inside": now.inside}
        with install_step("place"), recorded(self._log, "follow", arguments):
            self._installs.amend(report.place, staged.name, entry)

    def restore(self, staged: StagedSkill, entry: LockEntry, *, force: bool = False) -> None:
        """Put a staged skill in force under the entry that the lock has; errors as `install`.

        Edited files that it replaces are what a rollback then gives.
        """
        place = staged.report.place
        entry = with_edits(self._store, place.target(staged.name), entry) if force else entry
        arguments = {
            "name": staged.name,
            "path": str(place.target(staged.name)),
            "resolved": entry.resolved,
            "tree_digest": entry.tree_digest,
        }
        with install_step("place"), recorded(self._log, "install", arguments):
            self._store.put(staged.members, entry.tree_digest)
            self._installs.install(place, staged.name, staged.directory, entry, force=force)

    def _before(self, report: InstallReport, *, force: bool) -> dict[str, object] | None:
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
    def newest(self, name: str, entry: LockEntry, place: InstallPlace) -> Iterator[StagedSkill]:
        """Give what the source of an installed skill has now, staged.

        Raises:
            InstallError: `source`, it is not there any more, at several places, or has another
                name;
                others as of `staged`.
        """
        source = self._opened.named(name, entry)
        if source is None:
            found, candidate, requested = self._opened.newest(
                name, entry, is_typed=place.scope == "user"
            )
        else:
            requested = entry.requested
            found = self._opened.kept(source, expected="", said=requested)
            with install_step("source"):
                candidate = chosen_by_path(found, entry.inside)
        kept = self._store.get(entry.tree_digest) if found.digest == entry.digest else None
        if found.offer is not None and kept is not None:
            # The same archive: nothing has to be fetched again.
            with self._staged(kept, name, place, entry, found.offer) as staged:
                yield staged
            return
        with self.staged(found, candidate, place, requested=requested) as staged:
            with install_step("source"):
                if staged.name != name:
                    raise SourceError(f"`{name}` is called `{staged.name}` at its source now")
                if found.offer is not None:
                    taken_back = found.offer.newer_yanked
                    check_newer(name, entry, staged.report.entry, taken_back=taken_back)
            yield staged

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
        with self._staged(members, name, place, resolved) as staged:
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
        source, offer = self._opened.named(name, entry), None
        if source is not None and not offline:
            exact = structs.replace(source, ref=entry.version)
            found = self._opened.kept(
                exact, expected=entry.digest, allow_yanked=entry.version, said=entry.resolved
            )
            offer = found.offer
        kept = self._store.get(entry.tree_digest, signature=entry.signature_file)
        if kept is not None:
            with self._staged(kept, name, place, entry, offer) as staged:
                check_as_locked(name, entry, staged.report)
                yield staged
            return
        if offline:
            message = f"the files of `{name}` are not kept here, and --offline asks no source"
            raise InstallError("source", SourceError(message))
        if source is None:
            is_typed = place.scope == "user"
            found = self._opened.typed(entry.resolved, expected=entry.digest, is_typed=is_typed)
        with install_step("source"):
            candidate = chosen_by_path(found, entry.inside)
        members = self._opened.filled(found, candidate).members
        with self._staged(members, candidate.folder, place, entry, offer) as staged:
            check_as_locked(name, entry, staged.report)
            yield staged


_NOTHING = LockEntry(tree_digest="", repository="", resolved="")
