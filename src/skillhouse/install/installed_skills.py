"""What a person does with skills that are installed: compare, remove, pin, accept their edits."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from skillhouse import registry
from skillhouse.audit.log import recorded
from skillhouse.floor import SkillError, TreeError, UnknownSkillError, matching_tree, structs
from skillhouse.house.house import Skillhouse
from skillhouse.house.installed_check import (
    INSTALLS,
    InstalledState,
    compared_state,
    install_locks,
)
from skillhouse.registry import InstallPlace, LockEntry, LockMerge, PackageStore
from skillhouse.skill import install_name


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


class InstalledSkills:
    """The installed skills of one configuration."""

    def __init__(self, house: Skillhouse) -> None:
        self._house = house
        directory = house.config.state_directory / INSTALLS
        self.installs = registry.Installs(directory)
        self.store = PackageStore(directory / registry.PACKAGES)
        self._check = house.services.installed_check
        self.publishers = self._check.publishers
        self.taken_down = self._check.taken_down
        """Why the repository of an entry took it down; empty where it did not."""
        self.memory = self._check.memory
        self._places = install_places(house)

    def place(self, scope: str) -> InstallPlace:
        """Return where skills of a scope are installed; SkillError if the profile has none."""
        if scope not in self._places:
            message = f"the profile has no place for skills of scope {scope}"
            raise SkillError("no-place", self._house.config.places.start, message)
        return self._places[scope]

    def has_place(self, scope: str) -> bool:
        return scope in self._places

    def entries(self) -> Iterator[tuple[InstallPlace, str, LockEntry]]:
        """Yield what is installed, the project's first; StateError if a lock cannot be used."""
        self.installs.recover()
        for scope in ("project", "user"):
            if scope in self._places:
                place = self._places[scope]
                skills = registry.read_lock(place.lock).skills
                yield from ((place, name, skills[name]) for name in sorted(skills))

    def find(self, name: str, *, scope: str = "") -> tuple[InstallPlace, LockEntry]:
        """Return an installed skill; SkillError if there is none of that name."""
        entries: list[tuple[InstallPlace, str]] = []
        for place, known, entry in self.entries():
            if known == name and scope in ("", place.scope):
                return place, entry
            entries.append((place, known))
        for place, known in entries:
            if known == name:
                message = (
                    f"`{name}` is installed for scope {place.scope}, not {scope}; `skillhouse "
                    f"info {place.scope}:{name}` shows it, and `skillhouse uninstall "
                    f"{place.scope}:{name}` removes it"
                )
                raise SkillError("not-installed", place.target(name), message)
        # All skills are read only for what the message says.
        plain = install_name(name, "")
        directory: Path | None = None
        with suppress(UnknownSkillError):
            directory = Path(self._house.index.get(name).directory)
        others = (
            f"{at.scope}:{known}"
            for at, known in entries
            if scope in ("", at.scope) and (plain == known or at.target(known) == directory)
        )
        other = next(others, "")
        lock = self._places["user"].lock if "user" in self._places else Path(registry.LOCK_FILE)
        if other:
            message = f"no installed skill `{name}`: it is installed as `{other}`"
            raise SkillError("not-installed", lock, message)
        if directory is not None:
            message = (
                f"it was not installed by skillhouse; `skillhouse show {name}` has the rest, "
                f"and `skillhouse delete {name}` removes it"
            )
            raise SkillError("not-installed", directory, message)
        raise SkillError("not-installed", lock, f"no installed skill `{name}`")

    def state(self, name: str, entry: LockEntry, place: InstallPlace) -> InstalledState:
        """Compare an installed skill with the lock; nothing is fetched."""
        return compared_state(self.store, self._check, name, entry, place)

    def uninstall(self, name: str, *, scope: str = "", force: bool = False) -> InstallPlace:
        """Take a skill out of force and out of the lock; its files go to the trash.

        Raises:
            SkillError: it is not installed; LocalEditsError: its files are others, without force.
        """
        place, entry = self.find(name, scope=scope)
        if force and self.state(name, entry, place).state == "edited":
            # Before anything is removed: the trash may be full by then.
            tree, members = registry.directory_members(place.target(name))
            self.store.put(members, tree.digest)
        with recorded(self._house.audit_log, "uninstall", {"name": name, "path": entry.path}):
            moved = self.installs.remove(place, name, force=force)
            if moved is not None:
                try:
                    # From the directory that it was in, so that an undo puts it there.
                    trash = self._house.management.trash
                    trash.put(
                        moved,
                        f"{place.scope}:{name}",
                        enabled=True,
                        path=place.target(name),
                        lock=str(place.lock),
                        entry=json.dumps(registry.entry_value(entry)),
                    )
                finally:
                    shutil.rmtree(moved.parent)
        return place

    def merge(
        self, place: InstallPlace, *, side: str = "", is_dry: bool = False
    ) -> LockMerge | None:
        """Fix a lock that has the marks of a merge; None where it has none.

        Nothing is written while a skill of it is unclear.

        Args:
            side: `ours` or `theirs`, for what nothing else decides.

        Raises:
            StateError: it cannot be read, or a side of it is no lock.
        """

        def is_here(name: str, entry: LockEntry) -> bool:
            return self.state(name, entry, place).is_well

        found = registry.merge_lock(place.lock, is_here, side=side)
        if found is None or found.unclear or is_dry:
            return found
        lock = found.lock
        with recorded(self._house.audit_log, "merge-lock", {"path": str(place.lock)}):
            self.installs.replace_lock(place.lock, lock)
        return found

    def pin(
        self, name: str, *, scope: str = "", pinned: bool = True, reason: str = ""
    ) -> LockEntry:
        """Keep a skill at its version, or let it be updated again."""
        place, entry = self.find(name, scope=scope)
        changed = structs.replace(entry, pinned=pinned, pin_reason=reason)
        with recorded(self._house.audit_log, "pin" if pinned else "unpin", {"name": name}):
            self.installs.amend(place, name, changed)
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
            self.store.put(members, tree.digest)
            changed = structs.replace(entry, accepted=accepted)
            self.installs.amend(place, name, changed)
        return changed


def keep_edits(store: PackageStore, target: Path, expected: tuple[str, ...]) -> str:
    """Keep the files of a directory if they are others than expected; return their digest.

    Empty for files that are as expected, and for what is no tree, which nothing replaces.
    """
    if not target.is_dir() or target.is_symlink():
        return ""
    try:
        if matching_tree(target, expected, store.tree).digest in expected:
            return ""
        tree, members = registry.directory_members(target)
    except TreeError:
        return ""
    store.put(members, tree.digest)
    return tree.digest


def with_edits(store: PackageStore, target: Path, entry: LockEntry) -> LockEntry:
    """Return a lock's entry under which a rollback gives the edits that are at `target` now."""
    edits = keep_edits(store, target, (entry.tree_digest,))
    if not edits:
        return entry
    before = structs.replace(entry, accepted=edits, previous=None)
    return structs.replace(entry, accepted="", previous=registry.entry_value(before))
