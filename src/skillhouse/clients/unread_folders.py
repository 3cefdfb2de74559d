"""Skills in folders that some client does not read: one problem for each base, with one fix."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from skillhouse.clients.verdicts import LISTED, Lens, LensProblem, LensSkill, LensState

_SHARED = ".agents/skills"
"""Chosen where several directories serve the same number of clients (client guide)."""

NAMED_MAX = 6
"""Skills that are named for each directory, at most."""

Readers = Mapping[str, tuple[str, ...]]
"""The clients that read each directory of skills, relative to one base."""


def unread(lens: Lens) -> Iterator[LensProblem]:
    """Report the skills of a base in folders that some client does not read, with one fix."""
    own = frozenset(root for client in lens.clients for root in client.own)
    bases = _bases(lens)
    groups: dict[str, dict[tuple[str, tuple[str, ...]], list[LensSkill]]] = {}
    served = _served(lens)
    for skill in lens.skills:
        missing = tuple(
            name
            for name, verdict in lens.by_client(skill)
            if verdict.state is LensState.UNSEEN
            and verdict.code == "no-root"
            and name not in served.get(_origin(lens, skill), ())
        )
        if missing and skill.root not in own:
            base = next((base for base in bases if _is_below(skill.root, base)), "")
            base = base or os.path.dirname(skill.root)
            groups.setdefault(base, {}).setdefault((skill.root, missing), []).append(skill)
    for base, by_root in groups.items():
        yield LensProblem(
            code="no-root",
            title=f"some skills in {lens.tilde(base)} are in folders that not every client reads",
            skills=tuple(
                f"{lens.short(root)}: not read by {_and(missing)} ({_named(root, skills)})"
                for (root, missing), skills in by_root.items()
            ),
            clients=lens.in_order({name for _, missing in by_root for name in missing}),
            fix=_fix(lens, base, bases, list(by_root)),
        )


def _origin(lens: Lens, skill: LensSkill) -> str:
    """Return the directory of a skill, or of the one that it was copied from by `export`."""
    directory = os.path.dirname(skill.file)
    return lens.exported.get(directory, directory)


def _served(lens: Lens) -> Mapping[str, set[str]]:
    """Return the clients that list a skill or an exported copy of it, by its directory."""
    served: dict[str, set[str]] = defaultdict(set)
    for skill in lens.skills if lens.exported else ():
        for name, verdict in lens.by_client(skill):
            if verdict.state in LISTED:
                served[_origin(lens, skill)].add(name)
    return served


def _named(root: str, skills: Sequence[LensSkill]) -> str:
    names = [_below(skill.directory, root) for skill in skills[:NAMED_MAX]]
    more = [f"{len(skills) - NAMED_MAX:,} more"] if len(skills) > NAMED_MAX else []
    return ", ".join(names + more)


def _fix(
    lens: Lens, base: str, bases: Sequence[str], groups: Sequence[tuple[str, tuple[str, ...]]]
) -> str:
    """Return the move that serves the most clients, and links for the others."""
    readers = _readers(lens, base, bases)
    here = [os.path.relpath(root, base) for root, _ in groups]
    best = max(
        [*here, *readers],
        key=lambda place: (len(readers.get(place, ())), place == _SHARED, place in here),
    )
    see = readers.get(best, ())
    parts: list[str] = []
    if any(inside != best for inside in here) and see:
        target = lens.short(os.path.join(base, best))
        verb = "sees" if len(see) == 1 else "see"
        parts.append(f"have each in `{target}/NAME`: then {_and(see)} {verb} it")
    start = _readers(lens, lens.start, bases)
    for client in lens.clients:
        name = client.name
        if name in see or not any(name in missing or parts for _, missing in groups):
            continue
        way = _way(name, readers)
        if way is not None and client.profile.folders_only:
            # Whether it follows a link is not known.
            parts.append(f"for {name}: skillhouse export NAME --to {name}")
        elif way is not None:
            up = os.path.relpath(best, way)
            link = lens.short(os.path.join(base, way))
            parts.append(f"for {name}: ln -s {up}/NAME {link}/NAME")
        elif base != lens.home and _way(name, start) is not None:
            parts.append(f"{name} reads only its start folder: start it in {lens.tilde(base)}")
        else:
            parts.append(f"{name} reads nothing there")
    return "; ".join(parts)


def _bases(lens: Lens) -> list[str]:
    """Return the bases of directories of skills, the nearest to the start first."""
    places = [lens.start]
    while places[-1] not in (lens.project, os.path.dirname(places[-1])):
        places.append(os.path.dirname(places[-1]))
    return sorted({*places, lens.home}, key=len, reverse=True)


def _readers(lens: Lens, base: str, bases: Sequence[str]) -> Readers:
    readers: dict[str, list[str]] = defaultdict(list)
    for client in lens.clients:
        for root in client.roots:
            nearest = next((other for other in bases if _is_below(root, other)), "")
            if nearest == base and root not in client.own:
                readers[os.path.relpath(root, base)].append(client.name)
    return {inside: tuple(names) for inside, names in readers.items()}


def client_root(lens: Lens, skill: LensSkill, client: str) -> str:
    """Return the folder of a client near a skill, for a link; empty where there is none."""
    bases = _bases(lens)
    base = next((base for base in bases if _is_below(skill.root, base)), "")
    way = _way(client, _readers(lens, base, bases)) if base else None
    return "" if way is None else os.path.join(base, way)


def _way(client: str, readers: Readers) -> str | None:
    """Return the directory for a client's link: the one that most clients read."""
    places = [inside for inside, names in readers.items() if client in names]
    return min(places, key=lambda inside: (-len(readers[inside]), inside), default=None)


def _is_below(path: str, base: str) -> bool:
    return path.startswith(base.rstrip("/") + "/")


def _below(path: str, root: str) -> str:
    """Return a skill's directory relative to the directory of skills."""
    return os.path.relpath(path, root) if _is_below(path, root) else os.path.basename(path)


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
