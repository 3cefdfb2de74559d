"""Installs, updates and removes skills for a person; every change is in the audit log."""

from __future__ import annotations

import dataclasses
import shutil
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from skillhouse import registry
from skillhouse.audit.changes import recorded
from skillhouse.floor import SkillError, Tree, TreeError, dataclass, read_tree
from skillhouse.registry import (
    Candidate,
    InstallPlace,
    LockedSignature,
    LockEntry,
    SourceError,
    TreeChanges,
)
from skillhouse.runtime.house import Skillhouse
from skillhouse.runtime.install_report import InstallReport, skill_effects
from skillhouse.runtime.install_steps import InstallError, UnsignedError, install_step
from skillhouse.runtime.installed_skills import InstalledSkills
from skillhouse.runtime.skill_sources import OpenSource, Progress, Report, SkillSources, no_progress
from skillhouse.skill import ArchiveMember, write_members


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSkill:
    """A skill that is ready beside its place, and not in force."""

    directory: Path
    members: tuple[ArchiveMember, ...]
    report: InstallReport

    @property
    def name(self) -> str:
        return self.report.facts.name


OPEN_MAX = 8
"""Sources that stay open, so that many skills of one repository are fetched once."""


class Installer:
    """The installs of one configuration; at its end the skills are looked for again."""

    def __init__(
        self,
        house: Skillhouse,
        *,
        report: Report = lambda _: None,
        progress: Progress = no_progress,
    ) -> None:
        self._house = house
        self.installed = InstalledSkills(house)
        """What is installed already."""
        self._installs = self.installed.installs
        self._store = self.installed.store
        self._open: OrderedDict[tuple[str, str, bool], tuple[ExitStack, OpenSource]] = OrderedDict()
        self.sources = SkillSources(
            house.config, house.services.network, report=report, progress=progress
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            self._open.popitem()[1][0].close()
        self._house.refresh()

    def opened(self, text: str, *, expected: str = "", is_typed: bool = True) -> OpenSource:
        """Return what a source holds; it stays open until the end, or for the next `OPEN_MAX`.

        `is_typed` is False for an address of a project's lock, which is untrusted.

        Raises:
            InstallError: it cannot be had (`source`), or is another archive (`digest`).
            OSError: a file cannot be read.
        """
        known = self._open.get((text, expected, is_typed))
        if known is not None:
            return known[1]
        with ExitStack() as stack:
            with (
                install_step("source"),
                recorded(self._house.audit_log, "fetch", {"source": text}),
            ):
                source = self.sources.parse(text)
                opening = self.sources.open(source, expected=expected, is_typed=is_typed)
                found = stack.enter_context(opening)
            self._open[text, expected, is_typed] = stack.pop_all(), found
        if len(self._open) > OPEN_MAX:
            self._open.popitem(last=False)[1][0].close()
        return found

    @contextmanager
    def staged(
        self, found: OpenSource, candidate: Candidate, place: InstallPlace, *, requested: str
    ) -> Iterator[StagedSkill]:
        """Give a skill of a source, written beside its place and looked through.

        Raises:
            InstallError: it is refused; nothing of it is left.
        """
        is_here = found.source.kind in ("directory", "archive")
        resolved = dataclasses.replace(
            _NOTHING,
            repository=found.source.repository,
            resolved=found.resolved,
            # A relative path means another place once one works elsewhere.
            requested=found.resolved if is_here else requested,
            digest=found.digest,
            inside=candidate.path,
        )
        with install_step("archive"):
            members = found.members(candidate)
        with self._staged(members, candidate.folder, place, resolved) as staged:
            yield staged

    @contextmanager
    def _staged(
        self,
        members: tuple[ArchiveMember, ...],
        folder: str,
        place: InstallPlace,
        resolved: LockEntry,
    ) -> Iterator[StagedSkill]:
        staging = self._installs.stage(place.root)
        try:
            directory = staging / "new"
            with install_step("archive"):
                write_members(members, directory)
            with install_step("skill"):
                report = self._report(directory, folder, place, resolved)
            yield StagedSkill(directory=directory, members=members, report=report)
        finally:
            shutil.rmtree(staging)

    def _report(
        self, directory: Path, folder: str, place: InstallPlace, resolved: LockEntry
    ) -> InstallReport:
        tree = read_tree(directory)
        facts = registry.read_facts(directory, folder)
        # Its directory here is called as it is, whatever the one at its source is called.
        kept = tuple(one for one in facts.diagnostics if one.code != "name-mismatch")
        facts = dataclasses.replace(facts, diagnostics=kept)
        publisher = self.installed.publishers.publisher_of(directory, tree, facts=facts)
        installed = registry.read_lock(place.lock).skills.get(facts.name)
        entry = dataclasses.replace(
            resolved,
            tree_digest=tree.digest,
            version=facts.version,
            size=tree.size,
            path=place.path_of(facts.name),
            signature=None
            if publisher is None
            else LockedSignature(
                publisher=publisher.handle,
                cert_sha256=publisher.certificate,
                registry=publisher.registry,
                signed_at=publisher.signed_at,
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

    def check(self, staged: StagedSkill, *, force: bool = False) -> None:
        """Raise the InstallError of `install` about what is in the place now."""
        with install_step("place"):
            self._installs.check(staged.report.place, staged.name, force=force)

    def install(
        self, staged: StagedSkill, *, allow_unsigned: bool = False, force: bool = False
    ) -> LockEntry:
        """Put a staged skill in force and into the lock, and return its entry.

        Args:
            allow_unsigned: A person said so of this very skill.
            force: Also over local edits, which the store keeps.

        Raises:
            InstallError: `policy`: it is unsigned, and that is not allowed, or the name
                is locked to another repository; `place`: as of `Installs.install`.
        """
        report = staged.report
        with install_step("policy"):
            is_required = self._house.config.registry.require_signature
            if report.publisher is None and (is_required or not allow_unsigned):
                why = ", and `registry.require_signature` is set" if is_required else ""
                raise UnsignedError(f"`{staged.name}` is unsigned{why}: nothing was installed")
            check_repository(staged.name, report.installed, report.entry)
            check_publisher(staged.name, report.installed, report.entry)
        entry = dataclasses.replace(report.entry, previous=self._before(report, force=force))
        if report.installed is not None:
            entry = dataclasses.replace(
                entry, pinned=report.installed.pinned, pin_reason=report.installed.pin_reason
            )
        arguments = {
            "name": staged.name,
            "path": str(report.place.target(staged.name)),
            "resolved": entry.resolved,
            "tree_digest": entry.tree_digest,
            "publisher": "" if report.publisher is None else report.publisher.handle,
        }
        with install_step("place"), recorded(self._house.audit_log, "install", arguments):
            self._store.put(staged.members, entry.tree_digest)
            self._installs.install(report.place, staged.name, staged.directory, entry, force=force)
        return entry

    def restore(self, staged: StagedSkill, entry: LockEntry, *, force: bool = False) -> None:
        """Put a staged skill in force under the entry that the lock has; errors as `install`.

        Edited files that it replaces are what a rollback then gives.
        """
        place = staged.report.place
        entry = self._with_edits(staged.name, entry, place, force=force)
        arguments = {
            "name": staged.name,
            "path": str(place.target(staged.name)),
            "resolved": entry.resolved,
            "tree_digest": entry.tree_digest,
        }
        with install_step("place"), recorded(self._house.audit_log, "install", arguments):
            self._store.put(staged.members, entry.tree_digest)
            self._installs.install(place, staged.name, staged.directory, entry, force=force)

    def _before(self, report: InstallReport, *, force: bool) -> dict[str, object] | None:
        """Return the entry for a rollback, and keep edited files that are about to go."""
        installed = report.installed
        if installed is None:
            return None
        target = report.place.target(report.facts.name)
        edits = self._kept_edits(target, installed.expected) if force else ""
        if edits:
            installed = dataclasses.replace(installed, accepted=edits)
        if report.is_same and not installed.accepted:
            return None if installed.previous is None else dict(installed.previous)
        return registry.entry_value(dataclasses.replace(installed, previous=None))

    def _with_edits(
        self, name: str, entry: LockEntry, place: InstallPlace, *, force: bool
    ) -> LockEntry:
        """Return the entry with the files that are there as the version before it, if edited."""
        edits = self._kept_edits(place.target(name), (entry.tree_digest,)) if force else ""
        if not edits:
            return entry
        before = dataclasses.replace(entry, accepted=edits, previous=None)
        return dataclasses.replace(entry, accepted="", previous=registry.entry_value(before))

    def _kept_edits(self, target: Path, expected: tuple[str, ...]) -> str:
        """Keep the files of a directory that are others than expected; return their digest."""
        if not target.is_dir() or target.is_symlink():
            return ""
        tree = self._tree(target)
        if tree is None or tree.digest in expected:
            return ""
        _, members = registry.directory_members(target)
        self._store.put(members, tree.digest)
        return tree.digest

    def _tree(self, directory: Path) -> Tree | None:
        try:
            return read_tree(directory)
        except TreeError:
            return None

    @contextmanager
    def newest(self, name: str, entry: LockEntry, place: InstallPlace) -> Iterator[StagedSkill]:
        """Give what the source of an installed skill has now, staged.

        Raises:
            SourceError: it is not there any more, or has another name; others as of `staged`.
        """
        found = self.opened(entry.requested, is_typed=place.scope == "user")
        with install_step("source"):
            candidate = chosen_by_path(found, entry.inside)
        with self.staged(found, candidate, place, requested=entry.requested) as staged:
            if staged.name != name:
                raise SourceError(f"`{name}` is called `{staged.name}` at its source now")
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
        members = self._store.get(digest)
        if members is None:
            message = f"the files of the earlier version of `{name}` are not kept any more"
            raise SkillError("no-previous", place.target(name), message)
        resolved = dataclasses.replace(before, accepted="", previous=None, signature=None)
        with self._staged(members, name, place, resolved) as staged:
            yield staged

    @contextmanager
    def locked(self, name: str, entry: LockEntry, place: InstallPlace) -> Iterator[StagedSkill]:
        """Give exactly what the lock has under a name, from what is kept here or its source.

        Raises:
            SourceError: the source has something else by now.
        """
        kept = self._store.get(entry.tree_digest)
        if kept is not None:
            with self._staged(kept, name, place, entry) as staged:
                yield staged
            return
        is_typed = place.scope == "user"
        found = self.opened(entry.resolved, expected=entry.digest, is_typed=is_typed)
        with install_step("source"):
            candidate = chosen_by_path(found, entry.inside)
            members = found.members(candidate)
        with self._staged(members, candidate.folder, place, entry) as staged:
            if staged.report.tree.digest != entry.tree_digest or staged.name != name:
                message = (
                    f"`{name}`: expected {entry.tree_digest} at `{entry.resolved}`, "
                    f"got {staged.report.tree.digest}: nothing was installed"
                )
                raise InstallError("digest", SourceError(message))
            yield staged


_NOTHING = LockEntry(tree_digest="", repository="", resolved="")


def check_repository(name: str, installed: LockEntry | None, entry: LockEntry) -> None:
    """Refuse another repository than the one that a name is locked to (dependency confusion).

    Raises:
        SourceError: the lock has another one.
    """
    if installed is not None and installed.repository != entry.repository:
        raise SourceError(
            f"`{name}` is locked to {installed.repository}, and this one is from "
            f"{entry.repository}: uninstall it first if you mean that"
        )


def check_publisher(name: str, installed: LockEntry | None, entry: LockEntry) -> None:
    """Refuse a skill of another publisher than the one that is installed, or an unsigned one.

    Raises:
        SourceError: the lock has a publisher, and it is another one.
    """
    before = None if installed is None else installed.signature
    if before is None:
        return
    after = "unsigned" if entry.signature is None else f"signed by {entry.signature.who}"
    if after != f"signed by {before.who}":
        raise SourceError(
            f"`{name}` is installed as signed by {before.who}, and this one is {after}: uninstall "
            "it first if you mean that"
        )


def chosen_by_path(found: OpenSource, inside: str) -> Candidate:
    """Return the candidate at a path of a source; SourceError without one."""
    for candidate in found.candidates:
        if candidate.path == inside:
            return candidate
    raise SourceError(f"no skill at `{inside or '.'}` in `{found.resolved}` any more")
