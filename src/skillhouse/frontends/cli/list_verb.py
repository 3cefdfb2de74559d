"""The verb `list`: the skills here, where each comes from, and what is not used and why."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import skillhouse.house
from skillhouse import discovery, manage, registry, remote
from skillhouse.answers.findings import diagnostic_answers
from skillhouse.answers.skills import (
    ListedSkillAnswer,
    absent_skill,
    code_facts,
    listed_skill,
    skill_answer,
)
from skillhouse.floor import ConfigError
from skillhouse.frontends.cli.options import (
    UsageError,
    Verb,
    add_common,
    house_of,
    positive,
    utc_time,
)
from skillhouse.frontends.cli.terminal import finding_line
from skillhouse.presentation.findings import counts, folded_lines
from skillhouse.presentation.library import (
    SkillFilter,
    client_roots,
    list_notes,
    list_summary,
    unlisted,
    unused_code,
    whole_counts,
)
from skillhouse.presentation.short_paths import (
    clients_of,
    short_path,
    some_of,
    unread_folders,
    unread_line,
)
from skillhouse.presentation.text import counted, fitted, moment, one_line, shown

if TYPE_CHECKING:
    from skillhouse.answers.catalogs import ListedSkillsAnswer
    from skillhouse.floor import Diagnostic
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import AbsentSkill, Skillhouse
    from skillhouse.skill import Skill

_EXAMPLES = """examples:
  skillhouse list
  skillhouse list pdf                 those with this word in name, description or path
  skillhouse list --sort name         one list by name, not by place
  skillhouse list --sort size         the largest SKILL.md first, with its size
  skillhouse list --sort description  the longest description first, with its characters
  skillhouse list --sort changed      the one changed last first, with the day
  skillhouse list --sort used         the one used last first, with the day
  skillhouse list --sort source       by what they were installed from
  skillhouse list --sort size --reverse    the smallest SKILL.md first
  skillhouse list --since 7d          those changed in the last seven days
  skillhouse list --unused 30d        those that no call used in the last thirty days
  skillhouse list --scope user --limit 50 --page 2
  skillhouse list --client codex      those in a folder that Codex reads
  skillhouse list --problem           only what is not used, and why
  skillhouse list --problem broken    … of one kind, or with the finding of one code
  skillhouse list --findings          what is wrong, file by file
  skillhouse list --root ./skills --json
"""
ROWS_MAX = 20
"""Skills of one state that are listed beside the others; `--problem STATE` lists every one."""
ANY = "any"


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="TEXT", help="only skills with these words")
    parser.add_argument(
        "--sort",
        choices=("scope", "name", "size", "description", "changed", "used", "source"),
        default="scope",
        help="group by scope, strongest first (default), or sort all by name, by size with the "
        "largest SKILL.md first, by description with the longest first, by the time of SKILL.md or "
        "of the last use with the latest first, or by the address that they were installed or "
        "synced from",
    )
    parser.add_argument("--reverse", action="store_true", help="the last one first")
    parser.add_argument("--scope", metavar="NAME", help="only skills of this scope")
    parser.add_argument(
        "--client", metavar="NAME", help="only skills in folders that this client reads"
    )
    parser.add_argument(
        "--since",
        type=utc_time,
        metavar="TIME",
        help="only skills whose SKILL.md changed since a UTC time (2026-01-31) or 12h, 7d ago",
    )
    parser.add_argument(
        "--unused",
        type=utc_time,
        metavar="TIME",
        help="only skills that no call of the log used since a UTC time or 12h, 7d ago",
    )
    parser.add_argument(
        "--problem",
        nargs="?",
        const=ANY,
        metavar="KIND",
        help="only what is not used: " + ", ".join(manage.STATES) + ", or a finding's code",
    )
    parser.add_argument("--limit", type=positive, metavar="N", help="most skills to list (all)")
    parser.add_argument("--page", type=positive, default=1, metavar="N", help="which N of them (1)")
    parser.add_argument(
        "--findings", action="store_true", help="print every finding about roots and files"
    )
    parser.add_argument("--all", action="store_true", help="fold no findings")
    add_common(parser)


def _filter_of(house: Skillhouse, options: argparse.Namespace) -> SkillFilter:
    """Return what the options leave; UsageError for a scope or client that is not known."""
    roots = None if options.client is None else _roots_of(house, options.client)
    known = [scope.name for scope in house.policy.profile.scopes]
    if options.scope is not None and options.scope not in known:
        raise UsageError(f"expected one of {', '.join(known)} after --scope")
    used = None
    if options.unused is not None:
        uses = _uses(house, options.unused).items()
        used = frozenset(name for name, time in uses if time >= options.unused)
    return SkillFilter(
        words=tuple(options.words),
        scope=options.scope,
        roots=roots,
        since=options.since or "",
        used=used,
    )


def _uses(house: Skillhouse, since: str | None = None) -> Mapping[str, str]:
    """Return when each skill was used last, by its name; of what was used before, not surely."""
    from skillhouse.audit.entries import last_uses

    return last_uses(house.audit_log.path, since=since, key=house.audit_log.key)


def _roots_of(house: Skillhouse, client: str) -> tuple[str, ...]:
    """Return the real paths of a client's roots, each ending in a slash; UsageError for none."""
    try:
        return client_roots(house.config.places, client)
    except ConfigError as error:
        raise UsageError(one_line(str(error))) from error


def _list(options: argparse.Namespace, terminal: Terminal) -> int:
    house = house_of(options)
    if options.findings and not options.json:
        _print_findings(house, options, terminal)
        return 0
    choice = _filter_of(house, options)
    chosen = choice.skills(house.view().visible.skills)
    known = _known(house, chosen, options.sort)
    skills = _sorted(chosen, options.sort, known)
    if options.reverse:
        skills.reverse()
    page, pages = _page(skills, options)
    code = _code(house)
    unused = unused_code(house) if code else {}
    absent = choice.absent([*manage.absent_skills(house), *unused.values()])
    if options.json:
        more = _more(house, absent, code, options=options)
        terminal.json_list("skills", _listed(house, page), more, total=len(skills))
        return 0
    if options.problem is not None:
        return _print_problems(house, absent, options, terminal)
    marks: dict[str, str] = {one.path: one.state for one in absent}
    view = house.view()
    marks |= {skill.file: mark for skill in page for mark in unlisted(view.mark(skill))}
    if options.sort == "source":
        _print_sources(page, known, marks, terminal)
    else:
        _print_skills(house, page, options.sort, known, marks, terminal)
    if pages > 1:
        terminal.note(f"page {min(options.page, pages)} of {pages}, {len(skills)} skills")
    shown_code = choice.code(code, unused)
    if shown_code:
        terminal.heading("with tools of their own")
        terminal.rows([(shown(facts.name), one_line(facts.summary())) for facts in shown_code])
        terminal.line()
    here = [one for one in absent if one.state not in ("untrusted", "code-off")]
    _print_absent(house, here, terminal, ROWS_MAX)
    terminal.line(list_summary(house, len(skills), choice))
    if choice.is_whole:
        trust = map(one_line, manage.trust_notes(house))
        for note in filter(None, (*list_notes(house), unread_line(house), *trust)):
            terminal.line(note)
    _print_notes(house, code, terminal)
    return 0


def _code(house: Skillhouse) -> tuple[manage.CodeFacts, ...]:
    """Return the skills with code; what knows them is loaded only where there may be some."""
    is_here = house.runs_code or manage.may_hold_code(house)
    return manage.listed_code(house) if is_here else ()


def _page(skills: list[Skill], options: argparse.Namespace) -> tuple[list[Skill], int]:
    if options.limit is None:
        return skills, 1
    pages = max(1, -(-len(skills) // options.limit))
    start = (min(options.page, pages) - 1) * options.limit
    return skills[start : start + options.limit], pages


def _known(house: Skillhouse, skills: Sequence[Skill], order: str) -> Mapping[str, str]:
    """Return what an order needs to know: the address of each skill, or when it was used last."""
    if order == "used":
        return _uses(house)
    return _addresses(house, skills) if order == "source" else {}


def _sorted(skills: list[Skill], order: str, known: Mapping[str, str]) -> list[Skill]:
    if order == "name":
        return sorted(skills, key=lambda skill: (skill.name, skill.id))
    if order == "size":
        return sorted(skills, key=lambda one: (-_size_and_time(one.file)[0], one.name, one.id))
    if order == "description":
        return sorted(skills, key=lambda one: (-len(one.description), one.name, one.id))
    if order == "changed":
        return sorted(skills, key=lambda one: (-_size_and_time(one.file)[1], one.name, one.id))
    if order == "used":
        by_name = sorted(skills, key=lambda one: (one.name, one.id))
        return sorted(by_name, key=lambda one: known.get(one.name, ""), reverse=True)
    if order == "source":
        return sorted(skills, key=lambda one: (*_where_from(one, known), one.name, one.id))
    return skills


def _size_and_time(path: str) -> tuple[int, float]:
    """Return the bytes of a SKILL.md and when it was changed last."""
    try:
        found = os.stat(path)
    except OSError:  # It went meanwhile.
        return 0, 0.0
    return found.st_size, found.st_mtime


def _print_sources(
    skills: Sequence[Skill],
    addresses: Mapping[str, str],
    marks: Mapping[str, str],
    terminal: Terminal,
) -> None:
    for (_, address), group in groupby(skills, lambda one: _where_from(one, addresses)):
        terminal.heading(fitted(shown(address), terminal.width))
        _print_rows([(f"{one.name}  {one.scope}", one) for one in group], marks, terminal)


def _print_skills(
    house: Skillhouse,
    skills: Sequence[Skill],
    order: str,
    used: Mapping[str, str],
    marks: Mapping[str, str],
    terminal: Terminal,
) -> None:
    if order != "scope":
        labels = [(f"{one.name}  {one.scope}{_said(one, order, used)}", one) for one in skills]
        _print_rows(labels, marks, terminal)
        return
    urls = _urls(house)
    for (scope, root), group in groupby(skills, key=lambda skill: _source(skill, urls)):
        terminal.heading(fitted(_heading(house, scope, root), terminal.width))
        _print_rows([(skill.name, skill) for skill in group], marks, terminal)


def _said(skill: Skill, order: str, used: Mapping[str, str]) -> str:
    """Return what a list in this order says of a skill beside its name and scope."""
    if order == "name":
        return ""
    if order == "description":
        return "  " + counted(len(skill.description), "character")
    if order == "used":
        return "  " + (used.get(skill.name, "")[:10] or "never")
    size, changed = _size_and_time(skill.file)
    if order == "changed":
        return "  " + (moment(changed)[:10] if changed else "gone")
    from skillhouse.frontends.cli.progress import size_text

    return "  " + size_text(size)


def _urls(house: Skillhouse) -> dict[str, str]:
    """Return the address of each configured server by the root of what was synced from it."""
    directory, bundle = house.config.remote_directory, house.config.skills.source
    places = {remote.skills_place(directory, one): one.url for one in house.config.remotes}
    if bundle:
        places[skillhouse.house.bundle_root(house.config)] = bundle
    return {str(place.resolve()): url for place, url in places.items()}


def _addresses(house: Skillhouse, skills: Sequence[Skill]) -> dict[str, str]:
    """Return what each installed skill is from, by its directory; StateError for a broken lock."""
    from skillhouse.install.installed_skills import install_places

    scopes = {skill.scope for skill in skills}
    return {
        os.path.realpath(place.target(name)): entry.repository
        for scope, place in install_places(house).items()
        if scope in scopes
        for name, entry in registry.read_lock(place.lock).skills.items()
    } | _urls(house)


def _where_from(skill: Skill, addresses: Mapping[str, str]) -> tuple[bool, str]:
    """Return the address that a skill is from, after True and a word where it is from none."""
    if skill.scope == "remote":
        return False, addresses.get(skill.root, "of MCP servers")
    address = addresses.get(os.path.realpath(skill.directory))
    return (False, address) if address else (True, "made here, or built in")


def _source(skill: Skill, urls: Mapping[str, str]) -> tuple[str, str]:
    """Return the scope of a skill, and its root, the server that it is from, or nothing."""
    if skill.scope == "remote":
        # A skill of an MCP server is a root of its own.
        return skill.scope, urls.get(skill.root, "of MCP servers")
    return skill.scope, "" if skill.scope == "builtin" else skill.root


def _heading(house: Skillhouse, scope: str, root: str) -> str:
    if not root:
        return scope
    places = house.config.places
    clients = clients_of(Path(root), places.home)
    # What fits on a line; `--json` has all.
    read_by = f" (also read by {some_of(clients)})" if clients else ""
    return f"{scope}  {shown(short_path(root, places.start, places.home))}{read_by}"


def _print_rows(
    rows: list[tuple[str, Skill]], marks: Mapping[str, str], terminal: Terminal
) -> None:
    def text(skill: Skill) -> str:
        mark = f"[{marks[skill.file]}] " if skill.file in marks else ""
        return mark + one_line(skill.description)

    terminal.rows([(shown(label), text(skill)) for label, skill in rows])
    terminal.line()


def _print_absent(
    house: Skillhouse, absent: Sequence[AbsentSkill], terminal: Terminal, most: int
) -> None:
    """Print what is not used, by state; of many the first ones."""
    for state, title in manage.STATES.items():
        found = [one for one in absent if one.state == state]
        if not found:
            continue
        terminal.heading(f"{title}: {len(found)}")
        for one in found[:most]:
            _print_one(house, one, terminal)
        if (more := len(found) - most) > 0:
            terminal.line(f"  and {more} more: `skillhouse list --problem {state}`")
        terminal.line()


def _print_one(house: Skillhouse, one: AbsentSkill, terminal: Terminal) -> None:
    places = house.config.places
    where = short_path(one.path, places.start, places.home)
    where += f":{one.line}" if one.line else ""
    by_id = ("shadowed", "exported", "disabled", "denied")
    name = one.id if one.state in by_id else one.name
    terminal.line(f"  {terminal.style(shown(name), 'bold')}  {shown(where)}".rstrip())
    terminal.indented(one_line(one.text), 4)


_MEANT = ("exported", "people-only", "code-off")


def _print_problems(
    house: Skillhouse,
    absent: Sequence[AbsentSkill],
    options: argparse.Namespace,
    terminal: Terminal,
) -> int:
    """Print what is not used, or the findings of one code; 1 when there is something."""
    kind = options.problem
    if kind == ANY or kind in manage.STATES:
        # Nothing is wrong with an exported copy, with a skill that its author meant for people, or
        # where skills' code is off.
        wrong = [one for one in absent if one.state not in _MEANT or kind == one.state]
        chosen = [one for one in wrong if kind in (ANY, one.state)]
        _print_absent(house, chosen, terminal, len(chosen))
        terminal.note(counted(len(chosen), "problem"))
        return 1 if chosen else 0
    findings = [diagnostic for diagnostic in _findings(house) if diagnostic.code == kind]
    for diagnostic in findings:
        terminal.line(finding_line(diagnostic, terminal))
    terminal.note(counted(len(findings), "finding"))
    return 1 if findings else 0


def _findings(house: Skillhouse) -> list[Diagnostic]:
    """Return everything that was found: about files, code, and skills inside others."""
    index = house.index
    code = [found for facts in _code(house) for found in facts.problems]
    every = (*index.skills, *index.shadowed)
    inside = discovery.skills_below(
        every,
        known={skill.file for skill in every},
        skipped=house.policy.profile.skipped_directories,
    )
    return [*index.diagnostics, *code, *inside]


def _print_findings(house: Skillhouse, options: argparse.Namespace, terminal: Terminal) -> None:
    every = _findings(house)
    lines = folded_lines(every, lambda found: finding_line(found, terminal), everything=options.all)
    for line in lines:
        terminal.line(line)
    terminal.note(f"{counted(len(every), 'finding')}: {counts(every)}")


def _print_notes(house: Skillhouse, code: Sequence[manage.CodeFacts], terminal: Terminal) -> None:
    codes = ("project-untrusted", "link-untrusted", "linked-changed")
    untrusted = [found for found in house.index.diagnostics if found.code in codes]
    for found in untrusted:
        terminal.note(f"{shown(str(found.path))}: {found.message}")
    project = house.project
    for place in house.services.trust_store.trusted_through(project):
        what = "is trusted as a worktree of the same repository"
        terminal.note(f"{shown(str(project))} {what}: {shown(place)}")
    problems = sum(len(facts.problems) for facts in code)
    others = len(house.index.diagnostics) - len(untrusted) + problems
    if others:
        terminal.note(f"{counted(others, 'finding')} about files: `skillhouse list --findings`")


def _listed(house: Skillhouse, page: Sequence[Skill]) -> list[ListedSkillAnswer]:
    home, view = house.config.places.home, house.view()
    warned = manage.signature_warnings(house)
    return [
        listed_skill(one, clients_of(Path(one.root), home), view.mark(one), warned) for one in page
    ]


def _more(
    house: Skillhouse,
    absent: Sequence[AbsentSkill],
    code: Sequence[manage.CodeFacts],
    *,
    options: argparse.Namespace,
) -> ListedSkillsAnswer:
    from skillhouse.answers.catalogs import (
        ListedSkillsAnswer,
        UnreadFolderAnswer,
        UnvisitedAnswer,
        catalog_bounds,
    )

    view, wanted = house.view(), options.problem
    counts = whole_counts(house)
    findings = _findings(house) if options.findings else house.index.diagnostics
    return ListedSkillsAnswer(
        shadowed=list(map(skill_answer, house.index.shadowed)),
        diagnostics=diagnostic_answers(findings),
        hidden=list(map(skill_answer, view.hidden)),
        absent=[absent_skill(one) for one in absent if wanted in (None, ANY, one.state, one.code)],
        left_out=[UnvisitedAnswer(**left._asdict()) for left in house.index.left_out],
        catalog=catalog_bounds(view),
        unread_folders=[UnreadFolderAnswer(**one._asdict()) for one in unread_folders(house)],
        code=list(map(code_facts, code)),
        states=dict(counts.states),
        listings=dict(counts.listings),
        trust=manage.trust_notes(house),
        repositories=manage.repository_freshness(house),
    )


VERBS = {"list": Verb(_EXAMPLES, _configure, _list)}
