"""The sources that are open during one command, and which repository a name is asked of."""

from __future__ import annotations

import shlex
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack

from msgspec import Struct

from skillhouse import registry
from skillhouse.audit import AuditLog
from skillhouse.audit.log import recorded
from skillhouse.floor import isolated, structs
from skillhouse.install.install_steps import InstallError, install_step
from skillhouse.install.skill_sources import OpenSource, SkillSources
from skillhouse.registry import (
    Candidate,
    InstallPlace,
    LockEntry,
    MissingPathError,
    Source,
    SourceError,
)
from skillhouse.registry.releases import locked_place
from skillhouse.skill import SKILL_FILE, ArchiveMember

OPEN_MAX = 8
"""Sources that stay open, so that many skills of one repository are fetched once."""


class NewestSkill(Struct, frozen=True, kw_only=True):
    """What the source of an installed skill has now."""

    found: OpenSource
    candidate: Candidate
    requested: str
    """What is to be asked for from now on."""
    also_at: tuple[str, ...] = ()
    """Other directories with a skill of this name, where it is not at its path any more."""


class OpenSources:
    """Opens each source once; every request to one is in the audit log."""

    def __init__(self, sources: SkillSources, log: AuditLog, store: registry.PackageStore) -> None:
        self._sources = sources
        self._log = log
        self._store = store
        self._open: OrderedDict[object, tuple[ExitStack, OpenSource]] = OrderedDict()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1][0].close()

    def open_text(
        self,
        text: str,
        *,
        expected: str = "",
        is_typed: bool = True,
        repository: str = "",
        place: InstallPlace | None = None,
    ) -> OpenSource:
        """Open the source that a person or a lock names by a text; it stays open as of `open`.

        Args:
            expected: The digest that an archive must have; empty for any.
            is_typed: False for an address of a project's lock, which is untrusted.
            repository: The one in which a name is looked for.
            place: Where it is to be installed: a name stays with the repository of that lock.

        Raises:
            InstallError: it cannot be had (`source`), or is another archive (`digest`).
            OSError: a file cannot be read.
        """
        with install_step("source"):
            source = self._sources.parse(text)
            if repository and source.kind != "name":
                raise SourceError(f"expected the name of a skill of `{repository}`, got `{text}`")
            if source.kind == "name":
                wanted = repository or self._locked_repository(source, place)
                source = structs.replace(source, repository=wanted)
        return self.open(source, expected=expected, is_typed=is_typed, said=text)

    def newest(self, name: str, entry: LockEntry, *, is_typed: bool) -> NewestSkill:
        """Return what the source of an installed skill has now.

        It is at its path, or at another one, where the source has one skill of its name.

        Raises:
            InstallError: it is not there any more, or at several places, which the message names.
        """
        try:
            found = self.open_text(entry.requested, is_typed=is_typed)
            with install_step("source"):
                candidate = chosen_by_path(found, entry.inside)
                return NewestSkill(found=found, candidate=candidate, requested=entry.requested)
        except InstallError as error:
            if not isinstance(error.__cause__, MissingPathError):
                raise
            with install_step("source"):
                return self._moved(name, entry, is_typed=is_typed)

    def _moved(self, name: str, entry: LockEntry, *, is_typed: bool) -> NewestSkill:
        """Return where a skill is in its source by now; SourceError where it is gone."""
        source = self._sources.parse(entry.requested)
        whole = structs.replace(source, path="")
        said = f"git+{whole.location}" if whole.kind == "git" else entry.requested
        said += f"@{whole.ref}" if whole.ref else ""
        found = self.open(whole, expected="", is_typed=is_typed, said=said)
        named = [one for one in found.candidates if name in (one.name, one.installed_as)]
        # The very same files say which one is meant.
        same = [one for one in named if self._is_same(found, one, entry)] if named[1:] else named
        if len(same) == 1:
            return NewestSkill(
                found=found,
                candidate=same[0],
                requested=said if source.path else entry.requested,
                also_at=tuple(one.label for one in named if one is not same[0]),
            )
        flag = " --project" * (not is_typed)
        remove = f"`skillhouse uninstall {name}` removes it here"
        if not named:
            message = (
                f"no skill `{name}` is at `{entry.inside or '.'}` in `{said}` any more, nor "
                f"elsewhere there"
            )
            other = self._renamed(found, entry)
            if other is not None:
                command = _command(said, other) + flag
                message += f", but `{other.label}` has its files: `{command}` brings that"
            keep = f"`skillhouse pin {name}` keeps it"
            raise SourceError(f"{message}{';' if other else ':'} {remove}, and {keep}")
        places = " or ".join(f"`{one.label}`" for one in named)
        command = _command(said, named[0]) + flag
        raise SourceError(f"it moved to {places} at its source: `{command}`")

    def _renamed(self, found: OpenSource, entry: LockEntry) -> Candidate | None:
        """Return the only skill that has all its files but for the head of its SKILL.md."""
        kept = self._store.get(entry.tree_digest)
        if kept is None:
            return None
        wanted = dict(_bodies(kept))
        fitting = []
        for one in found.candidates:
            if {member.path for member in one.members} == set(wanted):
                with isolated():
                    if all(wanted[path] == data for path, data in _bodies(one.members)):
                        fitting.append(one)
        return fitting[0] if len(fitting) == 1 else None

    def _is_same(self, found: OpenSource, one: Candidate, entry: LockEntry) -> bool:
        with isolated():
            tree = registry.member_tree(self.filled(found, one).members)
            return tree.digest == entry.tree_digest
        return False

    def open(
        self,
        source: Source,
        *,
        expected: str,
        is_typed: bool = True,
        allow_yanked: str = "",
        said: str,
    ) -> OpenSource:
        """Return an open source; it stays open until the end, or for the next `OPEN_MAX`. Other
        arguments and errors are those of `open_text`.

        Args:
            allow_yanked: The version that is given although its repository took it back.
            said: How the log calls it.
        """
        key = source, expected, is_typed, allow_yanked
        known = self._open.get(key)
        if known is not None:
            return known[1]
        with ExitStack() as stack:
            with install_step("source"), recorded(self._log, "fetch", {"source": said}):
                opening = self._sources.open(
                    source, expected=expected, is_typed=is_typed, allow_yanked=allow_yanked
                )
                found = stack.enter_context(opening)
            self._open[key] = stack.pop_all(), found
        if len(self._open) > OPEN_MAX:
            self._open.popitem(last=False)[1][0].close()
        return found

    def _locked_repository(self, source: Source, place: InstallPlace | None) -> str:
        """Return the repository that a lock has for a name, so that it is asked and no other."""
        namespace, skill = registry.split_name(source.location)
        entry = None if place is None else registry.read_lock(place.lock).skills.get(skill)
        known = None if entry is None else locked_place(entry.repository)
        is_same = entry is not None and known is not None and known[1] == namespace
        return entry.repository if entry is not None and is_same else ""

    def filled(self, found: OpenSource, candidate: Candidate) -> Candidate:
        """Return a candidate with its files; InstallError where they are not there or refused."""
        if found.offer is None:
            with install_step("archive"):
                return found.filled(candidate)
        fetched = {"source": found.resolved, "digest": found.digest}
        with install_step("source"), recorded(self._log, "fetch", fetched):
            return found.filled(candidate)

    def locked_source(self, name: str, entry: LockEntry) -> Source | None:
        """Return the source of a skill of a repository, by its name and range in the lock; None for
        other sources.

        INVARIANT: a skill of a repository is asked for there, whatever a lock of a project has as
        `requested` and `resolved`.
        """
        place = locked_place(entry.repository)
        if place is None:
            return None
        wanted = ""
        try:
            typed = self._sources.parse(entry.requested)
            if typed.kind == "name" and registry.split_name(typed.location) == (place[1], name):
                wanted = typed.ref
        except SourceError:
            # What was typed is of no use here: the newest version is meant.
            wanted = ""
        location = registry.typed_name(place[1], name)
        return Source(kind="name", location=location, repository=entry.repository, ref=wanted)


def _command(source: str, candidate: Candidate) -> str:
    return shlex.join(("skillhouse", "install", source, "--skill", candidate.label))


def _bodies(members: Iterable[ArchiveMember]) -> Iterator[tuple[str, bytes]]:
    """Yield the path and content of files, of SKILL.md what is below its head."""
    for member in members:
        data = b"".join(member.read())
        yield member.path, data.partition(b"\n---")[2] if member.path == SKILL_FILE else data


def chosen_by_path(found: OpenSource, inside: str) -> Candidate:
    """Return the candidate at a path of a source; SourceError without one."""
    for candidate in found.candidates:
        if candidate.path == inside:
            return candidate
    raise MissingPathError(f"no skill at `{inside or '.'}` in `{found.resolved}` any more")
