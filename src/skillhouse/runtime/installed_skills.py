"""Holds installed skills against the lock: for a person who asks, and whenever one is loaded."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse import registry
from skillhouse import tools as toolbox
from skillhouse.floor import (
    MissingExtraError,
    SkillError,
    SkillhouseError,
    StateError,
    TreeError,
    file_stamp,
    read_tree,
)
from skillhouse.registry import (
    InstallPlace,
    LockEntry,
    PackageStore,
    Publisher,
    PublisherCheck,
    TreeChanges,
)
from skillhouse.runtime.config.config_files import project_of

if TYPE_CHECKING:
    from skillhouse.runtime.config import Config
    from skillhouse.runtime.house import Skillhouse
    from skillhouse.skill import Skill

INSTALLS = "installs"
"""The directory of the state with the journal and the packages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledState:
    """An installed skill, compared with the lock."""

    name: str
    entry: LockEntry
    place: InstallPlace
    state: str
    """ok, accepted, edited, missing, unreadable or refused."""
    problem: str = ""
    digest: str = ""
    """Of the files as they are; empty where they cannot be read."""
    changes: TreeChanges | None = None
    """None where what was installed is not known file by file any more."""
    difference: tuple[str, ...] = ()

    @property
    def is_well(self) -> bool:
        return self.state in ("ok", "accepted")


def install_locks(config: Config) -> dict[str, tuple[Path, Path]]:
    """Return for each scope the lock, and the directory that its paths are relative to."""
    places = config.places
    project = project_of(places.start)
    return {
        "user": (places.user_file.parent / registry.LOCK_FILE, places.home),
        "project": (project / registry.LOCK_FILE, project),
    }


def install_places(house: Skillhouse) -> dict[str, InstallPlace]:
    """Return where skills of the scopes user and project are installed."""
    found = {}
    for scope, (lock, base) in install_locks(house.config).items():
        try:
            root = house.management.target(scope).path
        except SkillError:
            # The profile has no such scope.
            continue
        found[scope] = InstallPlace(scope=scope, base=base, root=root, lock=lock)
    return found


def compared_state(
    store: PackageStore,
    check: PublisherCheck,
    name: str,
    entry: LockEntry,
    place: InstallPlace,
) -> InstalledState:
    """Compare an installed skill with the lock."""
    target = place.target(name)
    made = functools.partial(InstalledState, name=name, entry=entry, place=place)
    if not target.is_dir() or target.is_symlink():
        return made(state="missing", problem=f"no directory `{target}`")
    try:
        tree, members = registry.directory_members(target)
    except SkillhouseError as error:
        return made(state="unreadable", problem=str(error))
    if tree.digest not in entry.expected:
        before = store.get(entry.tree_digest)
        if before is None:
            return made(state="edited", problem="its files are others", digest=tree.digest)
        changes = registry.compare_trees(registry.member_tree(before), tree)
        return made(
            state="edited",
            problem=f"its files are others: {changes.summary}",
            digest=tree.digest,
            changes=changes,
            difference=tuple(registry.text_changes(changes, before, members)),
        )
    try:
        publisher = check.publisher_of(target, tree)
    except registry.PublisherError as error:
        return made(state="refused", problem=str(error), digest=tree.digest)
    if problem := _other_publisher(entry, publisher):
        return made(state="refused", problem=problem, digest=tree.digest)
    return made(state="accepted" if entry.accepted else "ok", digest=tree.digest)


class InstalledCheck:
    """Refuses installed skills whose files are not those that were installed."""

    def __init__(
        self,
        state_directory: Path,
        locks: Mapping[str, tuple[Path, Path]],
        *,
        require_signature: bool = False,
    ) -> None:
        """Take for each scope the lock and the directory that its paths are relative to.

        Args:
            require_signature: Refuse what is unsigned, installed or not.
        """
        self._require_signature = require_signature
        self._installs = registry.Installs(state_directory / INSTALLS)
        self._publishers = PublisherCheck(state_directory)
        self._locks = locks
        self._read: dict[Path, tuple[tuple[int, ...], Mapping[str, LockEntry]]] = {}

    def fault(self, skill: Skill) -> str:
        """Return why a skill is not to be loaded; empty where nothing speaks against it."""
        return self._unsigned(skill) or self._changed(skill)

    def _unsigned(self, skill: Skill) -> str:
        """Return why a skill has no signature that counts, where one is required."""
        if not self._require_signature or skill.scope == "builtin":
            return ""
        try:
            found = self._publishers.publisher_of(skill.directory, read_tree(skill.directory))
        except (registry.PublisherError, MissingExtraError, TreeError, SkillError) as error:
            return str(error)
        return "" if found else "it is unsigned, and `registry.require_signature` is set"

    def _changed(self, skill: Skill) -> str:
        """Return why an installed skill is not what was installed; empty for any other skill."""
        if skill.scope not in self._locks:
            return ""
        lock, base = self._locks[skill.scope]
        directory = skill.directory
        try:
            entries = self._entries(lock)
        except StateError as error:
            return str(error)
        for real in {str(base), os.path.realpath(base)}:
            if directory.is_relative_to(real):
                entry = entries.get(directory.relative_to(real).as_posix())
                if entry is not None:
                    return self._compared(directory, entry)
        return ""

    def _entries(self, lock: Path) -> Mapping[str, LockEntry]:
        stamp = file_stamp(lock)
        known = self._read.get(lock)
        if known is None or known[0] != stamp:
            skills = registry.read_lock(lock).skills if stamp else {}
            known = (stamp, {entry.path: entry for entry in skills.values()})
            self._read[lock] = known
        return known[1]

    def _compared(self, directory: Path, entry: LockEntry) -> str:
        try:
            tree = read_tree(directory)
        except (TreeError, OSError) as error:
            return f"its files cannot be compared with those that were installed: {error}"
        if tree.digest not in self._installs.expected(directory, entry):
            return "its files are not those that were installed"
        try:
            publisher = self._publishers.publisher_of(directory, tree)
        except (registry.PublisherError, MissingExtraError) as error:
            return str(error)
        return _other_publisher(entry, publisher)


def _other_publisher(entry: LockEntry, publisher: Publisher | None) -> str:
    """Return what is wrong with who signed it, held against the lock; empty for nothing."""
    if entry.signature is None:
        return ""
    if publisher is None:
        return "its signature is gone"
    if publisher.certificate != entry.signature.cert_sha256:
        return f"it is signed by another certificate than when it was installed: {publisher.handle}"
    return ""


def refuse_changed(check: InstalledCheck, skill: Skill) -> None:
    """Raise RefusedError for an installed skill whose files are others."""
    if fault := check.fault(skill):
        message = f"skill `{skill.name}` is not loaded: {fault}; `skillhouse verify` shows more"
        raise toolbox.RefusedError(message, denied=True)
