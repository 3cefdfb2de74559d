"""Installs, updates and removes skills for a person; every change is in the audit log."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from skillhouse import registry
from skillhouse.audit.changes import recorded
from skillhouse.floor import SkillError, Tree, TreeError, read_tree
from skillhouse.registry import (
    Candidate,
    InstallPlace,
    LockedSignature,
    LockEntry,
    PackageStore,
    SourceError,
    TreeChanges,
)
from skillhouse.runtime.house import Skillhouse
from skillhouse.runtime.install_report import InstallReport, skill_effects
from skillhouse.runtime.install_steps import InstallError, UnsignedError, install_step
from skillhouse.runtime.installed_skills import (
    INSTALLS,
    InstalledState,
    compared_state,
    install_places,
)
from skillhouse.runtime.skill_sources import OpenSource, Report, SkillSources
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


class Installer:
    """The installs of one configuration."""

    def __init__(self, house: Skillhouse, *, report: Report = lambda _: None) -> None:
        self._house = house
        directory = house.config.state_directory / INSTALLS
        self._installs = registry.Installs(directory)
        self._store = PackageStore(directory / "packages")
        self._publishers = registry.PublisherCheck(house.config.state_directory)
        self._places = install_places(house)
        self.sources = SkillSources(house.config, house.services.network, report=report)

    def place(self, scope: str) -> InstallPlace:
        """Return where skills of a scope are installed; SkillError if the profile has none."""
        if scope not in self._places:
            message = f"the profile has no place for skills of scope {scope}"
            raise SkillError("no-place", self._house.config.places.start, message)
        return self._places[scope]

    def entries(self) -> Iterator[tuple[InstallPlace, str, LockEntry]]:
        """Yield what is installed, the project's first; StateError if a lock cannot be used."""
        self._installs.recover()
        for scope in ("project", "user"):
            if scope in self._places:
                place = self._places[scope]
                skills = registry.read_lock(place.lock).skills
                yield from ((place, name, skills[name]) for name in sorted(skills))

    def find(self, name: str, *, scope: str = "") -> tuple[InstallPlace, LockEntry]:
        """Return an installed skill; SkillError if there is none of that name."""
        for place, known, entry in self.entries():
            if known == name and scope in ("", place.scope):
                return place, entry
        lock = self._places["user"].lock if "user" in self._places else Path(registry.LOCK_FILE)
        raise SkillError("not-installed", lock, f"no installed skill `{name}`")

    @contextmanager
    def opened(self, text: str, *, expected: str = "") -> Iterator[OpenSource]:
        """Give what a source holds.

        Raises:
            InstallError: it cannot be had (`source`), or is another archive (`digest`).
            OSError: a file cannot be read.
        """
        with ExitStack() as stack:
            with (
                install_step("source"),
                recorded(self._house.audit_log, "fetch", {"source": text}),
            ):
                source = self.sources.parse(text)
                found = stack.enter_context(self.sources.open(source, expected=expected))
            yield found

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
        with install_step("signature"):
            publisher = self._publishers.publisher_of(directory, tree, facts=facts)
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

    def install(
        self, staged: StagedSkill, *, allow_unsigned: bool = False, force: bool = False
    ) -> LockEntry:
        """Put a staged skill in force and into the lock, and return its entry.

        Args:
            allow_unsigned: A person said so of this very skill.
            force: Also over local edits, which the store keeps.

        Raises:
            InstallError: `policy`: nobody signed it, and it is not allowed unsigned, or the name
                is locked to another repository; `place`: as of `Installs.install`.
        """
        report = staged.report
        with install_step("policy"):
            is_required = self._house.config.registry.require_signature
            if report.publisher is None and (is_required or not allow_unsigned):
                why = ", and `registry.require_signature` is set" if is_required else ""
                raise UnsignedError(f"`{staged.name}` is unsigned{why}: nothing was installed")
            check_repository(staged.name, report.installed, report.entry)
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
        self._house.refresh()
        return entry

    def restore(self, staged: StagedSkill, entry: LockEntry, *, force: bool = False) -> None:
        """Put a staged skill in force under the entry that the lock has; errors as `install`."""
        place = staged.report.place
        arguments = {
            "name": staged.name,
            "path": str(place.target(staged.name)),
            "resolved": entry.resolved,
            "tree_digest": entry.tree_digest,
        }
        with install_step("place"), recorded(self._house.audit_log, "install", arguments):
            self._store.put(staged.members, entry.tree_digest)
            self._installs.install(place, staged.name, staged.directory, entry, force=force)
        self._house.refresh()

    def _before(self, report: InstallReport, *, force: bool) -> dict[str, object] | None:
        """Return the entry for a rollback, and keep edited files that are about to go."""
        installed = report.installed
        if installed is None:
            return None
        target = report.place.target(report.facts.name)
        if target.is_dir() and not target.is_symlink():
            tree = self._tree(target)
            if tree is not None and tree.digest not in installed.expected and force:
                _, members = registry.directory_members(target)
                self._store.put(members, tree.digest)
                installed = dataclasses.replace(installed, accepted=tree.digest)
        if report.is_same and not installed.accepted:
            return None if installed.previous is None else dict(installed.previous)
        return registry.entry_value(dataclasses.replace(installed, previous=None))

    def _tree(self, directory: Path) -> Tree | None:
        try:
            return read_tree(directory)
        except TreeError:
            return None

    def uninstall(self, name: str, *, scope: str = "", force: bool = False) -> InstallPlace:
        """Take a skill out of force and out of the lock; its files go to the trash.

        Raises:
            SkillError: it is not installed; LocalEditsError: its files are others, without force.
        """
        place, entry = self.find(name, scope=scope)
        with recorded(self._house.audit_log, "uninstall", {"name": name, "path": entry.path}):
            moved = self._installs.remove(place, name, force=force)
            if moved is not None:
                try:
                    # From the directory that it was in, so that an undo puts it there.
                    trash = self._house.management.trash
                    trash.put(moved, f"{place.scope}:{name}", enabled=True, path=place.target(name))
                finally:
                    shutil.rmtree(moved.parent)
        self._house.refresh()
        return place

    @contextmanager
    def newest(self, name: str, entry: LockEntry, place: InstallPlace) -> Iterator[StagedSkill]:
        """Give what the source of an installed skill has now, staged.

        Raises:
            SourceError: it is not there any more, or has another name; others as of `staged`.
        """
        with self.opened(entry.requested) as found:
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
        place, entry = self.find(name, scope=scope)
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
        with self.opened(entry.resolved, expected=entry.digest) as found:
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

    def pin(
        self, name: str, *, scope: str = "", pinned: bool = True, reason: str = ""
    ) -> LockEntry:
        """Keep a skill at its version, or let it be updated again."""
        place, entry = self.find(name, scope=scope)
        changed = dataclasses.replace(entry, pinned=pinned, pin_reason=reason)
        with recorded(self._house.audit_log, "pin" if pinned else "unpin", {"name": name}):
            self._installs.amend(place, name, changed)
        return changed

    def accept(self, name: str, digest: str, *, scope: str = "") -> LockEntry:
        """Take local edits for what is meant, as they are in the tree of that digest.

        Raises:
            SkillError: the files are not those any more.
        """
        place, entry = self.find(name, scope=scope)
        target = place.target(name)
        tree, members = registry.directory_members(target)
        if tree.digest != digest:
            raise SkillError("changed", target, "the files changed while they were shown")
        accepted = "" if digest == entry.tree_digest else tree.digest
        with recorded(self._house.audit_log, "accept", {"name": name, "tree_digest": digest}):
            self._store.put(members, tree.digest)
            changed = dataclasses.replace(entry, accepted=accepted)
            self._installs.amend(place, name, changed)
        return changed

    def state(self, name: str, entry: LockEntry, place: InstallPlace) -> InstalledState:
        """Compare an installed skill with the lock; nothing is fetched."""
        return compared_state(self._store, self._publishers, name, entry, place)


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


def chosen_by_path(found: OpenSource, inside: str) -> Candidate:
    """Return the candidate at a path of a source; SourceError without one."""
    for candidate in found.candidates:
        if candidate.path == inside:
            return candidate
    raise SourceError(f"no skill at `{inside or '.'}` in `{found.resolved}` any more")
