"""Groups the verdicts of clients into problems: one cause each, with one fix.

Skills in a folder that some client does not read are one problem for each base.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from skillhouse.clients.verdicts import (
    LISTED,
    ClientReport,
    Cut,
    LensState,
    NearMiss,
    ReportedProblem,
    ReportedSkill,
    Verdict,
)
from skillhouse.floor import InternalFaultError
from skillhouse.skill import CAUSES, ONE_NAME, SKILL_FILE, Cause

_SHARED = ".agents/skills"
"""Chosen where several directories serve the same number of clients (client guide)."""

NAMED_MAX = 6
"""Skills that are named for each directory, at most."""

Readers = Mapping[str, tuple[str, ...]]
"""The clients that read each directory of skills, relative to one base."""
_EFFECTS = {
    LensState.DROPPED: "not loaded by",
    LensState.SEEN: "read differently by",
    LensState.UNSEEN: "not in the folders of",
}


def unread(report: ClientReport) -> Iterator[ReportedProblem]:
    """Report the skills of a base in folders that some client does not read, with one fix."""
    own = frozenset(root for client in report.clients for root in client.own)
    bases = _bases(report)
    groups: dict[str, dict[tuple[str, tuple[str, ...]], list[ReportedSkill]]] = {}
    served = _served(report)
    for skill in report.skills:
        missing = tuple(
            name
            for name, verdict in report.by_client(skill)
            if verdict.state is LensState.UNSEEN
            and verdict.code == "no-root"
            and name not in served.get(_origin(report, skill), ())
        )
        if missing and skill.root not in own:
            base = next((base for base in bases if _is_below(skill.root, base)), "")
            base = base or os.path.dirname(skill.root)
            groups.setdefault(base, {}).setdefault((skill.root, missing), []).append(skill)
    for base, by_root in groups.items():
        yield ReportedProblem(
            code="no-root",
            title=f"some skills in {report.tilde(base)} are in folders that not every client reads",
            skills=tuple(
                f"{report.short(root)}: not read by {_and(missing)} ({_named(root, skills)})"
                for (root, missing), skills in by_root.items()
            ),
            clients=report.in_order({name for _, missing in by_root for name in missing}),
            fix=_fix(report, base, bases, list(by_root)),
        )


def _origin(report: ClientReport, skill: ReportedSkill) -> str:
    """Return the directory of a skill, or of the one that it was copied from by `export`."""
    directory = os.path.dirname(skill.file)
    return report.exported.get(directory, directory)


def _served(report: ClientReport) -> Mapping[str, set[str]]:
    """Return the clients that list a skill or an exported copy of it, by its directory."""
    served: dict[str, set[str]] = defaultdict(set)
    for skill in report.skills if report.exported else ():
        for name, verdict in report.by_client(skill):
            if verdict.state in LISTED:
                served[_origin(report, skill)].add(name)
    return served


def _named(root: str, skills: Sequence[ReportedSkill]) -> str:
    names = [_below(skill.directory, root) for skill in skills[:NAMED_MAX]]
    more = [f"{len(skills) - NAMED_MAX:,} more"] if len(skills) > NAMED_MAX else []
    return ", ".join(names + more)


def _fix(
    report: ClientReport,
    base: str,
    bases: Sequence[str],
    groups: Sequence[tuple[str, tuple[str, ...]]],
) -> str:
    """Return the move that serves the most clients, and links for the others."""
    readers = _readers(report, base, bases)
    here = [os.path.relpath(root, base) for root, _ in groups]
    best = max(
        [*here, *readers],
        key=lambda place: (len(readers.get(place, ())), place == _SHARED, place in here),
    )
    see = readers.get(best, ())
    parts: list[str] = []
    if any(inside != best for inside in here) and see:
        target = report.short(os.path.join(base, best))
        verb = "sees" if len(see) == 1 else "see"
        parts.append(f"have each in `{target}/NAME`: then {_and(see)} {verb} it")
    start = _readers(report, report.start, bases)
    for client in report.clients:
        name = client.name
        if name in see or not any(name in missing or parts for _, missing in groups):
            continue
        way = _way(name, readers)
        if way is not None and client.profile.folders_only:
            # Whether it follows a link is not known.
            parts.append(f"for {name}: skillhouse export NAME --to {name}")
        elif way is not None:
            up = os.path.relpath(best, way)
            link = report.short(os.path.join(base, way))
            parts.append(f"for {name}: ln -s {up}/NAME {link}/NAME")
        elif base != report.home and _way(name, start) is not None:
            parts.append(f"{name} reads only its start folder: start it in {report.tilde(base)}")
        else:
            parts.append(f"{name} reads nothing there")
    return "; ".join(parts)


def _bases(report: ClientReport) -> list[str]:
    """Return the bases of directories of skills, the nearest to the start first."""
    places = [report.start]
    while places[-1] not in (report.project, os.path.dirname(places[-1])):
        places.append(os.path.dirname(places[-1]))
    return sorted({*places, report.home}, key=len, reverse=True)


def _readers(report: ClientReport, base: str, bases: Sequence[str]) -> Readers:
    readers: dict[str, list[str]] = defaultdict(list)
    for client in report.clients:
        for root in client.roots:
            nearest = next((other for other in bases if _is_below(root, other)), "")
            if nearest == base and root not in client.own:
                readers[os.path.relpath(root, base)].append(client.name)
    return {inside: tuple(names) for inside, names in readers.items()}


def client_root(report: ClientReport, skill: ReportedSkill, client: str) -> str:
    """Return the folder of a client near a skill, for a link; empty where there is none."""
    bases = _bases(report)
    base = next((base for base in bases if _is_below(skill.root, base)), "")
    way = _way(client, _readers(report, base, bases)) if base else None
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


def problems(report: ClientReport) -> tuple[ReportedProblem, ...]:
    """Return the problems here: files first, then names, folders and budgets."""
    return (
        *_faults(report),
        *_of_files(report),
        *_near(report),
        *_names(report),
        *_copies(report),
        *unread(report),
        *_untrusted(report),
        *_long(report),
        *_budgets(report),
    )


def _faults(report: ClientReport) -> Iterator[ReportedProblem]:
    for client, fault in report.faults:
        yield ReportedProblem(
            code=InternalFaultError.code,
            title=f"`{client}` could not be checked: {fault}",
            clients=(client,),
            fix="the other clients were; add the report to what you send us",
        )


def _of_files(report: ClientReport) -> Iterator[ReportedProblem]:
    """Group the files that a client refuses, misreads or does not find by cause."""
    groups: dict[str, list[tuple[ReportedSkill, list[str], Verdict]]] = defaultdict(list)
    for skill in report.skills:
        by_code: dict[str, list[str]] = defaultdict(list)
        first: dict[str, Verdict] = {}
        for name, verdict in report.by_client(skill):
            if verdict.code in CAUSES and CAUSES[verdict.code].title:
                by_code[verdict.code].append(name)
                if verdict.line is not None or verdict.code not in first:
                    first[verdict.code] = verdict
        for code, names in by_code.items():
            groups[code].append((skill, names, first[code]))
    for code, cause in CAUSES.items():
        if code in groups:
            yield _grouped(report, code, cause, groups[code])


def _grouped(
    report: ClientReport,
    code: str,
    cause: Cause,
    group: Sequence[tuple[ReportedSkill, list[str], Verdict]],
) -> ReportedProblem:
    named = {client for _, clients, _ in group for client in clients}
    effects: dict[str, set[str]] = defaultdict(set)
    for skill, clients, _ in group:
        for name, seen in report.by_client(skill):
            if name in clients and seen.code == code:
                effects[_EFFECTS.get(seen.state, "")].add(name)
    lines = []
    for skill, clients, verdict in group:
        place = report.short(skill.places[0])
        where = place if verdict.line is None else f"{place}:{verdict.line}"
        # The clients are named per skill only where they differ.
        whose = "" if set(clients) == named else f" ({', '.join(clients)})"
        lines.append(where + whose)
    return ReportedProblem(
        code=code,
        title=cause.title,
        skills=tuple(lines),
        clients=report.in_order(named),
        effect="; ".join(
            f"{words} {', '.join(sorted(names))}" for words, names in sorted(effects.items())
        ),
        fix=cause.hint,
    )


def _near(report: ClientReport) -> Iterator[ReportedProblem]:
    groups: dict[str, list[NearMiss]] = defaultdict(list)
    for miss in report.misses:
        groups[miss.code].append(miss)
    for code, cause in CAUSES.items():
        if code in groups:
            yield ReportedProblem(
                code=code,
                title=cause.title,
                skills=tuple(report.short(miss.path) for miss in groups[code]),
                clients=tuple(client.name for client in report.clients),
                fix=cause.hint,
            )


def _names(report: ClientReport) -> Iterator[ReportedProblem]:
    """Report skills that clients call by different names."""
    lines = []
    concerned: set[str] = set()
    for skill in report.skills:
        called = names_of(report, skill)
        if len(called) < 2:
            continue
        concerned.update(name for names in called.values() for name in names)
        ways = "; ".join(f"`{name}` in {', '.join(names)}" for name, names in called.items())
        lines.append(f"{report.short(skill.directory)}: {ways}")
    if lines:
        yield ReportedProblem(
            code="name-mismatch",
            title="clients call it by different names",
            skills=tuple(lines),
            clients=report.in_order(concerned),
            fix=CAUSES["name-mismatch"].hint,
        )


def names_of(report: ClientReport, skill: ReportedSkill) -> dict[str, list[str]]:
    """Return what clients call a skill, with their names; one entry where they agree."""
    called: dict[str, list[str]] = defaultdict(list)
    for client, verdict in report.by_client(skill):
        if verdict.state in (LensState.SEEN, LensState.MANUAL):
            called[verdict.name].append(client)
    # `plugin:skill` is the same name as `skill`.
    bare = [name for name in called if not any(name.endswith(f":{other}") for other in called)]
    return called if len(bare) > 1 else {}


def _copies(report: ClientReport) -> Iterator[ReportedProblem]:
    """Report names that several files have, and which file each client uses."""
    for name, skills in same_names(report):
        yield from _copy(report, name, skills)


def same_names(report: ClientReport) -> Iterator[tuple[str, list[ReportedSkill]]]:
    """Yield each name that several skills have in some client, without exported copies."""
    by_name: dict[str, list[ReportedSkill]] = defaultdict(list)
    for skill in report.skills:
        for name in {verdict.name for verdict in skill.verdicts if verdict.name}:
            by_name[name].append(skill)
    for name, skills in sorted(by_name.items()):
        meant = [skill for skill in skills if not _is_exported(report, skill)]
        if len(meant) > 1:
            yield name, meant


def _is_exported(report: ClientReport, skill: ReportedSkill) -> bool:
    """Whether a skill is a copy that `export` wrote, of one that is here and reads the same."""
    source = report.exported.get(os.path.dirname(skill.file))
    if source is None:
        return False
    digest = report.digests.get(os.path.join(source, SKILL_FILE))
    return digest is not None and digest == report.digests.get(skill.file)


def _copy(
    report: ClientReport, name: str, skills: Sequence[ReportedSkill]
) -> Iterator[ReportedProblem]:
    """Yield the problem of a name, unless every client uses the same file."""
    taken: dict[str, list[str]] = {skill.file: [] for skill in skills}
    has_several = False
    vary: list[str] = []
    for place, client in enumerate(report.clients):
        met = [skill for skill in skills if skill.verdicts[place].name == name]
        unsure = len(met) > 1 and client.profile.duplicates_vary
        vary += [client.name] if unsure else []
        has_several = has_several or len(met) > 1
        for skill in met:
            if skill.verdicts[place].state in (LensState.SEEN, LensState.MANUAL):
                taken[skill.file].append(client.name + ("?" if unsure else ""))
    if not has_several and sum(map(bool, taken.values())) < 2:
        return
    same = len({report.digests.get(file, file) for file in taken}) == 1
    more = f"; {' and '.join(vary)} may pick another one at the next start" if vary else ""
    yield ReportedProblem(
        code="duplicate",
        title=f"`{name}` exists {len(skills)} times{more}",
        skills=tuple(
            f"{report.short(one.directory)}: used by {', '.join(taken[one.file]) or 'no client'}"
            for one in skills
        ),
        clients=tuple(client.name for client in report.clients),
        effect="all are equal" if same else "they are not equal",
        fix="delete all but one, and link it from elsewhere" if same else ONE_NAME,
    )


def _untrusted(report: ClientReport) -> Iterator[ReportedProblem]:
    skills: list[ReportedSkill] = []
    concerned: set[str] = set()
    for skill in report.skills:
        names = {
            n for n, verdict in report.by_client(skill) if verdict.state is LensState.UNTRUSTED
        }
        concerned |= names
        skills += [skill] if names else []
    if skills:
        yield ReportedProblem(
            code="project-untrusted",
            title="the project's skills are not read before you trust it",
            skills=tuple(report.short(skill.directory) for skill in skills),
            clients=report.in_order(concerned),
            fix="look at them, then run `skillhouse trust`",
        )


def _long(report: ClientReport) -> Iterator[ReportedProblem]:
    """Report descriptions that are longer than a client shows."""
    for place, client in enumerate(report.clients):
        most = client.profile.catalog.description_chars
        if most is None:
            continue
        cut = [
            skill
            for skill in report.skills
            if skill.verdicts[place].cut is not Cut.NOTHING and skill.description_chars > most
        ]
        if cut:
            lines = [
                f"{report.short(skill.places[0])}: shorten by {skill.description_chars - most:,}"
                for skill in cut
            ]
            yield ReportedProblem(
                code="description-cut",
                title=f"a description over {most:,} characters is cut",
                skills=tuple(lines),
                clients=(client.name,),
                fix="say what it does and when to use it first; move the rest into the body",
            )


def _budgets(report: ClientReport) -> Iterator[ReportedProblem]:
    for place, client in enumerate(report.clients):
        budget = client.budget
        if budget is None or not budget.over:
            continue
        parts = [
            f"{number:,} {words}"
            for number, words in (
                (budget.shortened, "descriptions shortened"),
                (budget.without_description, "descriptions left out"),
                (budget.omitted, "skills left out"),
            )
            if number
        ]
        own = f", of which its own skills take {budget.reserved:,}" if budget.reserved else ""
        cut = [skill for skill in report.skills if skill.verdicts[place].cut is not Cut.NOTHING]
        cut.sort(key=lambda skill: (-skill.description_chars, skill.file))
        yield ReportedProblem(
            code="budget",
            title=f"the list needs {budget.needed + budget.reserved:,} characters and may have "
            f"{budget.limit:,}{own}: {', '.join(parts)}",
            skills=tuple(
                f"{report.short(skill.directory)}: {skill.description_chars:,} characters"
                for skill in cut
            ),
            clients=(client.name,),
            fix=f"shorten descriptions by {budget.over:,} characters in all, the longest first, "
            "or take skills out",
        )
