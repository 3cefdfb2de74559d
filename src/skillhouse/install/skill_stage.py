"""What a skill would be where it is installed: written beside its place, and looked through."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from msgspec import Struct

from skillhouse import registry
from skillhouse.floor import Tree, read_tree, structs
from skillhouse.house.house import Skillhouse
from skillhouse.install.build_origins import BuildOrigins, unexpected
from skillhouse.install.install_policy import (
    check_offer,
    check_owner,
    near_installed,
    near_listed,
    rewritten,
)
from skillhouse.install.install_report import InstallReport, skill_effects
from skillhouse.install.install_steps import install_step
from skillhouse.install.installed_skills import InstalledSkills
from skillhouse.install.opened_sources import OpenSources
from skillhouse.install.repositories import RepositoryOffer
from skillhouse.install.skill_sources import OpenSource, SkillSources
from skillhouse.install.source_policy import (
    first_seen,
    held_back,
    release_seen,
    required_age,
    source_text,
)
from skillhouse.registry import (
    Candidate,
    InstallPlace,
    LockedCommit,
    LockedSignature,
    LockEntry,
    SourceError,
    TreeChanges,
    is_older,
)
from skillhouse.registry.releases import locked_place
from skillhouse.registry.version_ranges import published_versions
from skillhouse.skill import ArchiveMember, install_name, write_members
from skillhouse.tools import ForecastCache

_NOTHING = LockEntry(tree_digest="", repository="", resolved="")


class StagedSkill(Struct, frozen=True, kw_only=True):
    """A skill that is ready beside its place, and not in force."""

    directory: Path
    members: tuple[ArchiveMember, ...]
    report: InstallReport

    @property
    def name(self) -> str:
        return self.report.name


class SkillStage:
    """Brings skills of sources beside their places; none of them is in force by it."""

    def __init__(
        self,
        house: Skillhouse,
        installed: InstalledSkills,
        sources: SkillSources,
        open_sources: OpenSources,
        *,
        now: Callable[[], datetime],
    ) -> None:
        self._house = house
        self._installed = installed
        self._sources = sources
        self._open_sources = open_sources
        self._now = now
        self._origins = BuildOrigins(house.config.registry, house.config.state_directory)
        self._forecasts = ForecastCache()

    @contextmanager
    def of_source(
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
        filled = self._open_sources.filled(found, candidate)
        with self.of_members(
            filled.members, candidate.folder, place, resolved, found.offer, filled.lacking
        ) as staged:
            yield self._with_history(staged, found)

    def _with_history(self, staged: StagedSkill, found: OpenSource) -> StagedSkill:
        """Add the commit, and what became of the one that is installed."""
        git, report = found.git, staged.report
        if git is None:
            return staged
        before, said = report.installed, ""
        known = None if before is None else before.git
        if before is not None and before.repository == report.entry.repository:
            ref = found.source.ref if found.source.ref == self._asked_ref(before) else None
            said = rewritten(before, report.entry, git, ref=ref)
        is_kept = known is not None and known.root and known.commit == git.commit
        root = known.root if known is not None and is_kept else git.history().root
        commit = LockedCommit(commit=git.commit, root=root, tag=git.tag)
        entry = structs.replace(report.entry, git=commit)
        return structs.replace(staged, report=structs.replace(report, entry=entry, rewritten=said))

    def _asked_ref(self, entry: LockEntry) -> str:
        try:
            return self._sources.parse(entry.requested).ref
        except SourceError:
            return ""

    @contextmanager
    def of_members(
        self,
        members: tuple[ArchiveMember, ...],
        folder: str,
        place: InstallPlace,
        resolved: LockEntry,
        offer: RepositoryOffer | None = None,
        lacking: tuple[str, ...] = (),
    ) -> Iterator[StagedSkill]:
        staging = self._installed.installs.stage(place.root)
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
        publisher = self._installed.publishers.publisher_of(
            directory, tree, facts=facts, repository=offer.registry if offer else ""
        )
        if offer is not None:
            check_owner(offer, publisher)
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
        near = ""
        if installed is None:
            known = ((other, entry) for _, other, entry in self._installed.entries())
            near = near_installed(name, entry, known) or (near_listed(offer.found) if offer else "")
        attested, said = None, ""
        if offer is not None and (installed is None or installed.digest != offer.release.digest):
            attested = self._origins.read(offer)
            expected = self._origins.expected(entry, installed)
            said = unexpected(name, expected, attested)
            entry = structs.replace(entry, build=attested.origin(expected))
        return InstallReport(
            facts=facts,
            tree=tree,
            publisher=publisher,
            entry=entry,
            attested=attested,
            unexpected=said,
            inside=resolved.inside,
            place=place,
            effects=skill_effects(self._house, directory, tree, facts, self._forecasts),
            offer=offer,
            installed=installed,
            changes=changes,
            difference=difference,
            near=near,
            source=self._source_text(resolved),
        )

    def _source_text(self, resolved: LockEntry) -> str:
        """Return the source of what is staged, as the operator's rules name it."""
        if locked_place(resolved.repository) is not None:
            return resolved.repository
        try:
            return source_text(self._sources.parse(resolved.resolved))
        except SourceError:
            # A directory that is gone since.
            return resolved.resolved

    def held(self, staged: StagedSkill) -> str:
        """Return how long an update is held back still; empty where it may be installed."""
        report, now = staged.report, self._now()
        age = self._age(report)
        if report.is_same or not age:
            return ""
        directory = self._house.config.state_directory
        return held_back(first_seen(directory, report.entry, report.offer, now), age, now)

    def newest_waited(self, staged: StagedSkill, wanted: str) -> str:
        """Return the newest version before one that is held back which waited long enough.

        Args:
            wanted: The range that is followed.

        Returns:
            Empty where none is newer than what is installed.
        """
        report, now = staged.report, self._now()
        if report.offer is None or report.installed is None:
            return ""
        age, directory = self._age(report), self._house.config.state_directory
        place, offer = report.entry.repository, report.offer
        for release in published_versions(offer.found.skill, wanted):
            is_before = is_older(release.version, offer.release.version)
            if not (is_before and is_older(report.installed.version, release.version)):
                continue
            seen = release_seen(directory, place, offer, release, now)
            if seen is not None and not held_back(seen, age, now):
                return release.version
        return ""

    def _age(self, report: InstallReport) -> timedelta:
        return required_age(
            self._house.config.registry, report.source, report.entry.requested, report.offer
        )

    def _compared(
        self, installed: LockEntry | None, tree: Tree, directory: Path
    ) -> tuple[TreeChanges | None, tuple[str, ...]]:
        """Return what differs from the installed version, where its files are still known."""
        before = None if installed is None else self._installed.store.get(installed.tree_digest)
        if before is None:
            return None, ()
        changes = registry.compare_trees(registry.member_tree(before), tree)
        _, after = registry.directory_members(directory)
        return changes, tuple(registry.text_changes(changes, before, after))
