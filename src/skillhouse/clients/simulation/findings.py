"""Turns what clients make of files into problems: one cause each, with the change that ends it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from skillhouse.clients.simulation.suggestions import unread
from skillhouse.clients.simulation.verdicts import (
    Cut,
    Lens,
    LensProblem,
    LensSkill,
    LensState,
    NearMiss,
    Verdict,
)
from skillhouse.clients.simulation.causes import CAUSES, MISSES, Cause

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
