"""Brings the skills of another installer's lock the way of every other install."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from msgspec import Struct

from skillhouse import registry
from skillhouse.floor import SkillhouseError
from skillhouse.house.config import Locations
from skillhouse.install.change_plan import ChangeRequest, WantedChange
from skillhouse.install.install_steps import install_step
from skillhouse.install.installer import Installer
from skillhouse.install.opened_sources import chosen_by_path
from skillhouse.install.skill_sources import OpenSource
from skillhouse.install.skill_stage import StagedSkill
from skillhouse.registry import (
    Candidate,
    Comparison,
    InstallPlace,
    OtherEntry,
    SourceError,
)

_USERS_LOCK = ".skill-lock.json"


class ChangedSourceError(SkillhouseError):
    """The files are not those that another installer's lock has the hash of."""


class RestoredSkill(Struct, frozen=True, kw_only=True):
    """A skill of another lock, staged."""

    staged: StagedSkill
    comparison: Comparison
    """With the hash of the lock, which decides nothing by itself."""


def named_entries(entries: Sequence[OtherEntry], names: Sequence[str]) -> Sequence[OtherEntry]:
    """Return the entries of these names, or all of them without any; SourceError for another.

    Those of one source come together, so that it is fetched once however many others there are.
    """
    first: dict[str, int] = {}
    for number, one in enumerate(entries):
        first.setdefault(one.source, number)
    entries = sorted(entries, key=lambda one: first[one.source])
    if not names:
        return entries
    known = {entry.name: entry for entry in entries}
    for name in names:
        if name not in known:
            raise SourceError(f"no skill `{name}` in the lock")
    return [one for one in entries if one.name in names]


def known_locks(places: Locations) -> tuple[Path, ...]:
    """Return the locks of other installers that are where those keep them."""
    usual = (
        places.start / "skills-lock.json",
        places.start / ".clawhub/lock.json",
        *_users_locks(places),
    )
    return tuple(path for path in usual if path.is_file())


def lock_changes(installer: Installer, request: ChangeRequest) -> Iterator[WantedChange]:
    """Yield the skills of another installer's lock that a request is about.

    Raises:
        StateError: the lock cannot be read; SourceError: it has no skill of that name.
    """
    places = installer.places
    path = places.start / Path(request.lock).expanduser()
    place = installer.installed.place(request.scope)
    is_typed = is_users_lock(path, places)
    for entry in named_entries(registry.read_other_lock(path).entries, request.skills):
        stage = partial(_staged, installer, entry, place, is_typed=is_typed)
        yield WantedChange(name=entry.name, stage=stage, entry=entry)


@contextmanager
def _staged(
    installer: Installer, entry: OtherEntry, place: InstallPlace, *, is_typed: bool
) -> Iterator[StagedSkill]:
    with restored(installer, entry, place, is_typed=is_typed) as found:
        yield found.staged


def is_users_lock(path: Path, places: Locations) -> bool:
    """Return whether a lock is the user's own: only then may it lead to addresses near by.

    Any other one may have come with a project.
    """
    return path.resolve() in [one.resolve() for one in _users_locks(places)]


def _users_locks(places: Locations) -> list[Path]:
    state = places.environment.get("XDG_STATE_HOME", "")
    known = [places.home / ".agents" / _USERS_LOCK]
    if state:
        known.append(Path(state) / "skills" / _USERS_LOCK)
    return known


@contextmanager
def restored(
    installer: Installer, entry: OtherEntry, place: InstallPlace, *, is_typed: bool
) -> Iterator[RestoredSkill]:
    """Give a skill of another lock, staged; nothing of it is in force.

    Raises:
        InstallError: it cannot be had, is refused, or has another name by now.
    """
    with install_step("source"):
        if entry.fault:
            raise SourceError(entry.fault)
        found = installer.opened(entry.source, is_typed=is_typed, place=place)
        candidate = _chosen(found, entry)
    with installer.staged(found, candidate, place, requested=entry.source) as staged:
        if entry.name not in (staged.name, staged.report.facts.name):
            message = f"`{entry.name[:80]}` is called `{staged.name}` at its source"
            with install_step("source"):
                raise SourceError(message)
        yield RestoredSkill(staged=staged, comparison=registry.compare_hash(entry, staged.members))


def _chosen(found: OpenSource, entry: OtherEntry) -> Candidate:
    if entry.inside is not None:
        return chosen_by_path(found, entry.inside)
    fitting = [one for one in found.candidates if one.folder == entry.name]
    if not fitting and len(found.candidates) == 1:
        fitting = list(found.candidates)
    if len(fitting) != 1:
        count = f"{len(fitting)} skills are" if fitting else "no skill is"
        raise SourceError(f"{count} called `{entry.name[:80]}` in `{found.resolved}`")
    return fitting[0]
