"""Looks at one place with the eyes of several clients, each of them a profile."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from skillhouse.clients.simulation.client_view import ClientView, Reals
from skillhouse.clients.simulation.misplaced import (
    MisplacedFiles,
    look_around,
    read_plainly,
    traits,
    unread_roots,
)
from skillhouse.clients.simulation.verdicts import Lens, LensSkill
from skillhouse.discovery import default_roots, discover, git_root
from skillhouse.skill import SKILL_FILE, SKILL_FILE_MAX, Profile, Skill


def compare(
    *,
    start: Path,
    home: Path,
    environment: Mapping[str, str],
    profiles: Sequence[Profile],
    trusted: bool = True,
    explicit: Sequence[Path] = (),
    cache: Path | None = None,
) -> Lens:
    """Return what each profile makes of the skills of a place.

    Args:
        start: Where the clients are started.
        home: Stands for `~`.
        environment: Where variables of the profiles' roots are looked up.
        profiles: The clients.
        trusted: Whether this house may read the project's skills; it binds only profiles that are
            no other program's, because those ask for trust in their own ways.
        explicit: Roots that were given by hand.
        cache: Directory of the persistent index.
    """
    start, home = Path(os.path.abspath(start)), Path(os.path.abspath(home))
    reals = Reals()
    eyes = []
    for profile in profiles:
        roots = default_roots(
            start=start, home=home, environment=environment, profile=profile, explicit=explicit
        )
        may_read = trusted or bool(profile.client)
        index = discover(roots, profile=profile, trusted=may_read, cache=cache)
        eyes.append(ClientView(profile, roots, index, reals, may_read=may_read))
    found = _around(eyes, start, home, reals)
    rows = _LensRows(eyes, found, reals)
    clients = tuple(eye.judge(rows.traits) for eye in eyes)
    project = str(git_root(start) or start)
    empty = Lens(
        start=str(start),
        project=project,
        home=str(home),
        # The nearer one first, where one lies in the other.
        aliases=((os.path.realpath(project), project), (os.path.realpath(home), str(home))),
        clients=clients,
        skills=(),
    )
    skills = sorted(rows.skills(), key=lambda skill: (empty.short(skill.places[0]), skill.file))
    return replace(
        empty,
        skills=tuple(skills),
        misses=tuple(sorted(found.misses, key=lambda miss: empty.short(miss.path))),
        digests=_digests(skills),
    )


class _LensRows:
    """Every SKILL.md that was met, by its real path."""

    def __init__(self, eyes: Sequence[ClientView], found: MisplacedFiles, reals: Reals) -> None:
        self._eyes = eyes
        self._places: dict[str, set[str]] = defaultdict(set)
        self._skills: dict[str, Skill] = {}
        # As the clients have it, for people: the root itself can be a link.
        self._roots = {reals[root]: root for root in found.roots}
        self._roots |= {reals[str(root.path)]: str(root.path) for eye in eyes for root in eye.roots}
        for file in found.files:
            self._places[reals[file]].add(file)
        for eye in eyes:
            for skill in (*eye.index.skills, *eye.index.shadowed):
                real = reals[skill.file]
                self._places[real].add(skill.file)
                self._skills.setdefault(real, skill)
            for real, fault in eye.faults.items():
                if os.path.basename(real) == SKILL_FILE:
                    self._places[real].add(str(fault.path))
        self.traits = {real: traits(real) for real in self._places}

    def skills(self) -> Iterable[LensSkill]:
        """Yield a row for each file."""
        for real, places in self._places.items():
            skill = self._skills.get(real)
            # A path without links comes first: there the file lies.
            ordered = sorted(places, key=lambda place: (place != real, place))
            described = "" if skill is None else skill.description
            yield LensSkill(
                file=real,
                places=tuple(ordered),
                root=self._root(ordered[0]),
                name=self._name(real),
                description_chars=len(described),
                verdicts=tuple(eye.verdict(real, ordered, self.traits[real]) for eye in self._eyes),
            )

    def _root(self, place: str) -> str:
        """Return the directory of skills that a SKILL.md lies in."""
        above = os.path.dirname(place)
        while above not in self._roots and above != os.path.dirname(above):
            above = os.path.dirname(above)
        return self._roots.get(above, os.path.dirname(os.path.dirname(place)))

    def _name(self, real: str) -> str:
        """Return what the frontmatter says, also where no client asks it."""
        skill = self._skills.get(real)
        named = None if skill is None else skill.frontmatter.fields.get("name")
        return (
            named if isinstance(named, str) and named else os.path.basename(os.path.dirname(real))
        )


def _around(eyes: Sequence[ClientView], start: Path, home: Path, reals: Reals) -> MisplacedFiles:
    """Look into every root of every client, and into those like them that no client reads."""
    known = {str(root.path): None for eye in eyes for root in eye.roots}
    top = git_root(start) or start
    walk = [str(place) for place in (start, *start.parents) if place.is_relative_to(top)]
    unread = list(unread_roots(dict.fromkeys([*walk, str(home)]), frozenset(known)))
    roots = dict.fromkeys(reals[root] for root in [*known, *unread] if os.path.isdir(root))
    # Where we may not read, not even the names of directories are looked at.
    barred = {
        reals[str(root.path)]
        for eye in eyes
        for root in eye.roots
        if root.scope == "project" and not eye.may_read
    }
    allowed = {
        reals[str(root.path)]
        for eye in eyes
        for root in eye.roots
        if root.scope != "project" or eye.may_read
    }
    found = look_around(root for root in roots if root not in barred - allowed)
    found.roots += unread
    return found


def _digests(skills: Sequence[LensSkill]) -> dict[str, str]:
    """Return digests of the files that share a name, to tell copies from others."""
    by_name = defaultdict(list)
    for skill in skills:
        by_name[skill.name].append(skill.file)
    found = {}
    for files in by_name.values():
        for file in files if len(files) > 1 else ():
            # Without a digest a file is taken for another one, never for a copy.
            if data := read_plainly(file, SKILL_FILE_MAX):
                found[file] = hashlib.sha256(data).hexdigest()
    return found
