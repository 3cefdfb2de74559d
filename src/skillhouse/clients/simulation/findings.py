"""Turns what clients make of files into problems: one cause each, with the change that ends it."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from skillhouse.clients.simulation.causes import CAUSES, MISSES, Cause
from skillhouse.clients.simulation.verdicts import (
    Cut,
    Lens,
    LensProblem,
    LensSkill,
    LensState,
    NearMiss,
    Verdict,
)

_EFFECTS = {
    LensState.DROPPED: "dropped by",
    LensState.SEEN: "misread by",
    LensState.UNSEEN: "not looked at by",
}


def problems(lens: Lens) -> tuple[LensProblem, ...]:
    """Return what is wrong in a place: files first, then names, places and budgets."""
    return (
        *_of_files(lens),
        *_near(lens),
        *_names(lens),
        *_copies(lens),
        *unread(lens),
        *_untrusted(lens),
        *_long(lens),
        *_budgets(lens),
    )


def clients_with(lens: Lens, verdicts: Sequence[Verdict], *states: LensState) -> tuple[str, ...]:
    """Return the clients whose verdict has one of these states."""
    pairs = zip(lens.clients, verdicts, strict=True)
    return tuple(client.name for client, verdict in pairs if verdict.state in states)


def _of_files(lens: Lens) -> Iterator[LensProblem]:
    """Group what some client refuses, misreads or does not come to by its cause."""
    groups: dict[str, list[tuple[LensSkill, list[str], Verdict]]] = defaultdict(list)
    for skill in lens.skills:
        by_code: dict[str, list[str]] = defaultdict(list)
        first: dict[str, Verdict] = {}
        for client, verdict in zip(lens.clients, skill.verdicts, strict=True):
            if verdict.code in CAUSES:
                by_code[verdict.code].append(client.name)
                if verdict.line is not None or verdict.code not in first:
                    first[verdict.code] = verdict
        for code, names in by_code.items():
            groups[code].append((skill, names, first[code]))
    for code, cause in CAUSES.items():
        if code in groups:
            yield _grouped(lens, code, cause, groups[code])


def _grouped(
    lens: Lens, code: str, cause: Cause, found: Sequence[tuple[LensSkill, list[str], Verdict]]
) -> LensProblem:
    named = {client for _, clients, _ in found for client in clients}
    effects: dict[str, set[str]] = defaultdict(set)
    for skill, clients, _ in found:
        for client, seen in zip(lens.clients, skill.verdicts, strict=True):
            if client.name in clients and seen.code == code:
                effects[_EFFECTS.get(seen.state, "")].add(client.name)
    lines = []
    for skill, clients, verdict in found:
        place = lens.short(skill.places[0])
        where = place if verdict.line is None else f"{place}:{verdict.line}"
        # Who is concerned is said once where it is the same for all.
        whose = "" if set(clients) == named else f" ({', '.join(clients)})"
        lines.append(where + whose)
    return LensProblem(
        code=code,
        title=cause.title,
        skills=tuple(lines),
        clients=tuple(client.name for client in lens.clients if client.name in named),
        effect="; ".join(
            f"{words} {', '.join(sorted(names))}" for words, names in sorted(effects.items())
        ),
        fix=cause.fix,
    )


def _near(lens: Lens) -> Iterator[LensProblem]:
    groups: dict[str, list[NearMiss]] = defaultdict(list)
    for miss in lens.misses:
        groups[miss.code].append(miss)
    for code, cause in MISSES.items():
        if code in groups:
            yield LensProblem(
                code=code,
                title=cause.title,
                skills=tuple(lens.short(miss.path) for miss in groups[code]),
                clients=tuple(client.name for client in lens.clients),
                fix=cause.fix,
            )


def _names(lens: Lens) -> Iterator[LensProblem]:
    """Report skills that clients call by different names."""
    lines = []
    concerned: set[str] = set()
    for skill in lens.skills:
        called: dict[str, list[str]] = defaultdict(list)
        for client, verdict in zip(lens.clients, skill.verdicts, strict=True):
            if verdict.state in (LensState.SEEN, LensState.MANUAL):
                called[verdict.name].append(client.name)
        # `plugin:skill` is the plugin's way to write the same name.
        bare = [name for name in called if not any(name.endswith(f":{other}") for other in called)]
        if len(bare) < 2:
            continue
        concerned.update(name for names in called.values() for name in names)
        ways = "; ".join(f"`{name}` in {', '.join(names)}" for name, names in called.items())
        lines.append(f"{lens.short(skill.directory)}: {ways}")
    if lines:
        yield LensProblem(
            code="name-mismatch",
            title="clients call it by different names",
            skills=tuple(lines),
            clients=tuple(client.name for client in lens.clients if client.name in concerned),
            fix="give the directory and `name` the same name, of a-z, 0-9 and single hyphens",
        )


def _copies(lens: Lens) -> Iterator[LensProblem]:
    """Report names that several files have, and which file each client takes."""
    by_name: dict[str, list[LensSkill]] = defaultdict(list)
    for skill in lens.skills:
        for name in {verdict.name for verdict in skill.verdicts if verdict.name}:
            by_name[name].append(skill)
    for name, skills in sorted(by_name.items()):
        if len(skills) > 1:
            yield from _copy(lens, name, skills)


def _copy(lens: Lens, name: str, skills: Sequence[LensSkill]) -> Iterator[LensProblem]:
    """Yield the problem of a name, unless every client keeps the same one file."""
    taken: dict[str, list[str]] = {skill.file: [] for skill in skills}
    concerned: list[str] = []
    vary: list[str] = []
    for place, client in enumerate(lens.clients):
        met = [skill for skill in skills if skill.verdicts[place].name == name]
        unsure = len(met) > 1 and client.profile.duplicates_vary
        vary += [client.name] if unsure else []
        concerned += [client.name] if len(met) > 1 else []
        for skill in met:
            if skill.verdicts[place].state in (LensState.SEEN, LensState.MANUAL):
                taken[skill.file].append(client.name + ("?" if unsure else ""))
    used = [names for names in taken.values() if names]
    if not concerned and len(used) < 2:
        return
    same = len({lens.digests.get(file, file) for file in taken}) == 1
    more = f"; {' and '.join(vary)} may take another at the next start" if vary else ""
    yield LensProblem(
        code="duplicate",
        title=f"`{name}` is there {len(skills)} times{more}",
        skills=tuple(
            f"{lens.short(skill.directory)}: taken by {', '.join(taken[skill.file]) or 'nobody'}"
            for skill in skills
        ),
        clients=tuple(client.name for client in lens.clients),
        effect="all are equal" if same else "they are not equal",
        fix="delete all but one, and link it from elsewhere"
        if same
        else "rename all but one, directory and `name`, or delete them",
    )


def _untrusted(lens: Lens) -> Iterator[LensProblem]:
    found = [
        skill for skill in lens.skills if clients_with(lens, skill.verdicts, LensState.UNTRUSTED)
    ]
    if found:
        concerned = {
            name
            for skill in found
            for name in clients_with(lens, skill.verdicts, LensState.UNTRUSTED)
        }
        yield LensProblem(
            code="project-untrusted",
            title="the project's skills are not read before you trust it",
            skills=tuple(lens.short(skill.directory) for skill in found),
            clients=tuple(client.name for client in lens.clients if client.name in concerned),
            fix="look at them, then run `skillhouse trust`",
        )


def _long(lens: Lens) -> Iterator[LensProblem]:
    """Report descriptions that are longer than a client shows."""
    for place, client in enumerate(lens.clients):
        most = client.profile.catalog.description_chars
        if most is None:
            continue
        found = [
            skill
            for skill in lens.skills
            if skill.verdicts[place].cut is not Cut.NOTHING and skill.description_chars > most
        ]
        if found:
            lines = [
                f"{lens.short(skill.places[0])}: shorten by {skill.description_chars - most:,}"
                for skill in found
            ]
            yield LensProblem(
                code="description-cut",
                title=f"a description over {most:,} characters is cut",
                skills=tuple(lines),
                clients=(client.name,),
                fix="say what it does and when to use it first; move the rest into the body",
            )


def _budgets(lens: Lens) -> Iterator[LensProblem]:
    for place, client in enumerate(lens.clients):
        budget = client.budget
        if budget is None or not budget.over:
            continue
        parts = [
            f"{number:,} {words}"
            for number, words in (
                (budget.shortened, "descriptions shortened"),
                (budget.without_description, "descriptions dropped"),
                (budget.omitted, "skills left out"),
            )
            if number
        ]
        own = f", of which its own skills take {budget.reserved:,}" if budget.reserved else ""
        cut = [skill for skill in lens.skills if skill.verdicts[place].cut is not Cut.NOTHING]
        cut.sort(key=lambda skill: (-skill.description_chars, skill.file))
        yield LensProblem(
            code="budget",
            title=f"the list needs {budget.needed + budget.reserved:,} characters and may have "
            f"{budget.limit:,}{own}: {', '.join(parts)}",
            skills=tuple(
                f"{lens.short(skill.directory)}: {skill.description_chars:,} characters"
                for skill in cut
            ),
            clients=(client.name,),
            fix=f"shorten descriptions by {budget.over:,} characters in all, the longest first, "
            "or take skills out",
        )


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
