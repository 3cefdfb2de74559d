"""What belongs to a project: skills that any client finds in it, and its repository's work trees.

Trust is of the project, not of the profile that is in use when a person gives it
(docs/decisions/0407-trust-is-of-the-project.md). One file may read differently in two clients, so
every text that one of them would show a model is shown to the person, and kept.

Which directories are work trees of one git repository is read from files that prove it both ways.
git is not run: it obeys the configuration of the directory, which is not trusted yet. Its files are
documented in gitrepository-layout(5) and git-worktree(1), "DETAILS": a linked worktree has a file
`.git` that names its own directory `worktrees/NAME` in the repository, whose files `gitdir` and
`commondir` lead back to the worktree and to the repository. An archive brings a `.git` file of any
text; only who can write in the repository makes the way back.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, field

from skillhouse import sandbox
from skillhouse.discovery import Root, default_roots, discover
from skillhouse.floor import ConfigError, Locations, PathError, file_problem
from skillhouse.floor.structs import replace
from skillhouse.house.trusted_text import PROJECT, TrustedText
from skillhouse.skill import DEFAULT_PROFILE, Profile, Skill, load_profile, profile_names


def same_repository(project: Path, others: Iterable[str]) -> tuple[str, ...]:
    """Return those of `others`, sorted, that are now work trees of the project's repository.

    The project itself is none of them. A submodule and what `--separate-git-dir` makes are no work
    trees of the repository that they are in or beside: nothing there leads back.
    """
    real = os.path.realpath(project)
    rest = sorted({os.path.realpath(other) for other in others} - {real})
    common = common_directory(real) if rest else ""
    return tuple(other for other in rest if common and common_directory(other) == common)


def common_directory(place: str) -> str:
    """Return the directory of the repository that a real path is proven to be a work tree of.

    Empty where nothing is proven, and for a repository that never had a linked worktree.
    """
    dot = os.path.join(place, ".git")
    try:
        mode = os.lstat(dot).st_mode
        if stat.S_ISDIR(mode):
            proof = (dot, os.path.join(dot, "worktrees"))
            is_proven = stat.S_ISDIR(os.lstat(proof[1]).st_mode)
            return dot if is_proven and sandbox.of_one_owner(place, *proof) else ""
        return _common_of_linked(place, dot) if stat.S_ISREG(mode) else ""
    except (OSError, ValueError, PathError):
        return ""


def _common_of_linked(place: str, dot: str) -> str:
    common, own = sandbox.linked_directories(place)
    if not common:
        return ""
    files = (dot, os.path.join(own, "gitdir"), os.path.join(own, "commondir"))
    is_proven = sandbox.of_one_owner(place, own, os.path.dirname(own), common, *files)
    return common if is_proven and not any(file_problem(Path(file)) for file in files) else ""


logger = logging.getLogger(__name__)


class ClientReading(Struct, frozen=True, kw_only=True):
    """What a skill is to the profiles that read its file in one way."""

    profiles: tuple[str, ...]
    text: TrustedText
    """Without tools, which no profile reads in another way."""


class ProjectSkills(Struct, frozen=True, kw_only=True):
    """The skills of one project, each once."""

    skills: tuple[Skill, ...] = ()
    """As the profile in use reads them, then those that it does not find."""
    readings: Mapping[str, tuple[ClientReading, ...]] = field(default_factory=dict)
    """How further profiles read a skill, by its file; none where all read it alike."""
    finders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The profiles that find a skill, by the file of each that the one in use does not find."""


class ProfileRoots(NamedTuple):
    """The roots of one profile that may have skills of the project."""

    profile: Profile
    roots: tuple[Root, ...]


def roots_of_clients(
    places: Locations, profile: Profile, own: Sequence[Root], project: Path
) -> tuple[ProfileRoots, ...]:
    """Return the roots in the project of the profile in use, our own, and those of clients.

    Of the others a folder counts that is in the project, and that none of them has as the person's.

    Args:
        places: Where the person works.
        profile: The one in use.
        own: All its roots.
        project: The git root, or the directory that the person works in.
    """
    others: list[ProfileRoots] = []
    for other in _others(places, profile):
        roots = default_roots(
            start=places.start,
            home=places.home,
            environment=places.environment,
            profile=other,
        )
        others.append(ProfileRoots(other, roots))
    every = [*own, *(root for one in others for root in one.roots)]
    theirs = {_real(root) for root in every if root.scope != PROJECT}
    base = os.path.realpath(project)
    # What a person's own folders link to in the project is its own too.
    scopes = (PROJECT, "user")
    found = [ProfileRoots(profile, tuple(root for root in own if root.scope in scopes))]
    for client in others:
        inside = tuple(
            root
            for root in client.roots
            if root.scope == PROJECT
            and _real(root) not in theirs
            and _is_below(str(root.path), str(project))
            and _is_below(_real(root), base)
        )
        found.append(ProfileRoots(client.profile, inside))
    return tuple(found)


def _others(places: Locations, profile: Profile) -> Iterator[Profile]:
    """Yield our own profile and those of clients, without the one in use.

    The designs of frameworks are left out: one of them reads `skills` of any directory, which is
    where many projects keep what they publish.
    """
    if profile.name != DEFAULT_PROFILE.name:
        yield DEFAULT_PROFILE
    for name in profile_names(places.profiles):
        if name in (profile.name, DEFAULT_PROFILE.name):
            continue
        try:
            other = load_profile(name, places.profiles)
        except ConfigError as error:
            # What nothing is found by needs no trust.
            logger.info("a profile is left out of what `trust` shows: %s", error)
            continue
        if other.client:
            yield other


def read_project(places: Sequence[ProfileRoots]) -> ProjectSkills:
    """Return the project's skills, whether it is trusted or not; the first place is in use."""
    skills: dict[str, Skill] = {}
    texts: dict[str, dict[str, TrustedText]] = {}
    for profile, roots in places:
        for skill in _found(profile, roots):
            place = os.path.realpath(os.path.dirname(skill.file))
            skills.setdefault(place, skill)
            texts.setdefault(place, {}).setdefault(profile.name, TrustedText.of(skill))
    used = places[0].profile.name
    return ProjectSkills(
        skills=tuple(skills.values()),
        readings={
            skills[place].file: readings
            for place, by_profile in texts.items()
            if (readings := _readings(skills[place], by_profile))
        },
        finders={
            skills[place].file: tuple(by_profile)
            for place, by_profile in texts.items()
            if used not in by_profile
        },
    )


def _found(profile: Profile, roots: Sequence[Root]) -> list[Skill]:
    if not roots:
        return []
    # Links out of the project are followed, so that `trust` can say what they lead to.
    shown = [replace(root, symlinks="own") if root.scope == PROJECT else root for root in roots]
    index = discover(shown, profile=profile)
    return [one for one in (*index.skills, *index.shadowed) if one.scope == PROJECT]


def _readings(skill: Skill, texts: Mapping[str, TrustedText]) -> tuple[ClientReading, ...]:
    shown = TrustedText.of(skill)
    others: list[tuple[TrustedText, list[str]]] = []
    for name, text in texts.items():
        if text == shown:
            continue
        names = next((names for known, names in others if known == text), None)
        if names is None:
            others.append((text, [name]))
        else:
            names.append(name)
    return tuple(ClientReading(profiles=tuple(names), text=text) for text, names in others)


def _real(root: Root) -> str:
    return str(root.path) if "\0" in str(root.path) else os.path.realpath(root.path)


def _is_below(path: str, place: str) -> bool:
    return path.startswith(place.rstrip("/") + "/")
