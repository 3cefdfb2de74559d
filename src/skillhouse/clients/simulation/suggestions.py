"""Where skills would have to lie to be seen by the most clients."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from skillhouse.clients.simulation.verdicts import Lens, LensProblem, LensSkill, LensState

_SHARED = ".agents/skills"
"""What is chosen where several directories serve the same number of clients (client guide)."""

NAMED_MAX = 6
"""Skills that are named for each directory."""

Readers = Mapping[str, tuple[str, ...]]
"""The clients that look in each directory of skills, relative to one base."""


def unread(lens: Lens) -> Iterator[LensProblem]:
    """Report the skills of a base that lie where some client does not look, and one way out."""
    own = frozenset(root for client in lens.clients for root in client.own)
    bases = _bases(lens)
    groups: dict[str, dict[tuple[str, tuple[str, ...]], list[LensSkill]]] = {}
    for skill in lens.skills:
        missing = tuple(
            client.name
            for client, verdict in zip(lens.clients, skill.verdicts, strict=True)
            if verdict.state is LensState.UNSEEN and verdict.code == "no-root"
        )
        if missing and skill.root not in own:
            base = next((base for base in bases if _is_below(skill.root, base)), "")
            base = base or os.path.dirname(skill.root)
            groups.setdefault(base, {}).setdefault((skill.root, missing), []).append(skill)
    for base, found in groups.items():
        yield LensProblem(
            code="no-root",
            title=f"skills of {lens.tilde(base)} lie where not every client looks",
            skills=tuple(
                f"{lens.short(root)}: not read by {_and(missing)} ({_named(root, skills)})"
                for (root, missing), skills in found.items()
            ),
            clients=tuple(
                client.name
                for client in lens.clients
                if any(client.name in missing for _, missing in found)
            ),
            fix=_fix(lens, base, bases, list(found)),
        )


def _named(root: str, skills: Sequence[LensSkill]) -> str:
    names = [_below(skill.directory, root) for skill in skills[:NAMED_MAX]]
    more = [f"{len(skills) - NAMED_MAX:,} more"] if len(skills) > NAMED_MAX else []
    return ", ".join(names + more)


def _fix(
    lens: Lens, base: str, bases: Sequence[str], found: Sequence[tuple[str, tuple[str, ...]]]
) -> str:
    """Return the one move that serves the most clients, and a link for each of the others."""
    readers = _readers(lens, base, bases)
    here = [os.path.relpath(root, base) for root, _ in found]
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
        if name in see or not any(name in missing or parts for _, missing in found):
            continue
        way = _way(name, readers)
        if way is not None:
            up = os.path.relpath(best, way)
            link = lens.short(os.path.join(base, way))
            parts.append(f"for {name}: ln -s {up}/NAME {link}/NAME")
        elif base != lens.home and _way(name, start) is not None:
            parts.append(f"{name} looks only where it is started: start it in {lens.tilde(base)}")
        else:
            parts.append(f"{name} reads nothing there")
    return "; ".join(parts)


def _bases(lens: Lens) -> list[str]:
    """Return what directories of skills are relative to, the nearest to the start first."""
    places = [lens.start]
    while places[-1] not in (lens.project, os.path.dirname(places[-1])):
        places.append(os.path.dirname(places[-1]))
    return sorted({*places, lens.home}, key=len, reverse=True)


def _readers(lens: Lens, base: str, bases: Sequence[str]) -> Readers:
    found: dict[str, list[str]] = defaultdict(list)
    for client in lens.clients:
        for root in client.roots:
            nearest = next((other for other in bases if _is_below(root, other)), "")
            if nearest == base and root not in client.own:
                found[os.path.relpath(root, base)].append(client.name)
    return {inside: tuple(names) for inside, names in found.items()}


def _way(client: str, readers: Readers) -> str | None:
    """Return the directory in which to link something for a client: the most shared one."""
    places = [inside for inside, names in readers.items() if client in names]
    return min(places, key=lambda inside: (-len(readers[inside]), inside), default=None)


def _is_below(path: str, base: str) -> bool:
    return path.startswith(base.rstrip("/") + "/")


def _below(path: str, root: str) -> str:
    """Return a skill's directory as people name it: by what follows the directory of skills."""
    return os.path.relpath(path, root) if _is_below(path, root) else os.path.basename(path)


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
