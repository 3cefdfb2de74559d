"""The verbs that read skills: `list`, `catalog`, `search` and `load`."""

from __future__ import annotations

import argparse
from itertools import groupby
from typing import TYPE_CHECKING

from skillhouse import discovery, runtime
from skillhouse import skill as skill_package
from skillhouse.frontends.cli.options import (
    Verb,
    add_common,
    add_skill,
    house_of,
    natural,
    positive,
)
from skillhouse.frontends.cli.terminal import finding_line, prepare_search
from skillhouse.frontends.presentation.json_values import (
    catalog_notes,
    catalog_report,
    catalog_value,
    content_value,
    facts_value,
    index_value,
    skill_value,
)
from skillhouse.frontends.presentation.text import counted, one_line, shown

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.runtime import Skillhouse
    from skillhouse.skill import Skill

_LIST_EXAMPLES = """examples:
  skillhouse list
  skillhouse list --sort name         one list by name, not by scope
  skillhouse list --findings          what is wrong, file by file
  skillhouse list --root ./skills --json
"""


def _configure_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sort",
        choices=("scope", "name"),
        default="scope",
        help="group by scope, strongest first (default), or sort all by name",
    )
    parser.add_argument(
        "--findings", action="store_true", help="print every finding about roots and files"
    )
    add_common(parser)


def _list(options: argparse.Namespace, terminal: Terminal) -> int:
    house = house_of(options)
    index = house.index
    code = runtime.offered_code(house) if house.services.runs_code else ()
    if options.json:
        hidden = [skill_value(skill) for skill in house.view().hidden]
        value = index_value(index)
        value["skills"] = [skill_value(skill) for skill in _sorted(house, options.sort)]
        catalog = catalog_report(house.view())
        value |= {"hidden": hidden, "catalog": catalog}
        terminal.json({**value, "code": [facts_value(facts) for facts in code]})
        return 0
    code_findings = [found for facts in code for found in facts.problems]
    if options.findings:
        every = (*index.diagnostics, *code_findings)
        for found in every:
            terminal.line(finding_line(found, terminal))
        terminal.note(counted(len(every), "finding"))
        return 0
    skills = _sorted(house, options.sort)
    if options.sort == "name":
        _print_rows([(f"{skill.name}  {skill.scope}", skill) for skill in skills], terminal)
    else:
        for scope, group in groupby(skills, key=lambda skill: skill.scope):
            terminal.heading(scope)
            _print_rows([(skill.name, skill) for skill in group], terminal)
    if code:
        terminal.heading("with tools of their own")
        terminal.rows([(shown(facts.name), one_line(facts.summary())) for facts in code])
        terminal.line()
    terminal.line(_summary(house))
    for note in catalog_notes(catalog_report(house.view()), house.view()):
        terminal.line(note)
    untrusted = [found for found in index.diagnostics if found.code == "project-untrusted"]
    for found in untrusted:
        terminal.note(f"{shown(str(found.path))}: {found.message}")
    others = len(index.diagnostics) - len(untrusted) + len(code_findings)
    if others:
        terminal.note(f"{counted(others, 'finding')} about files: `skillhouse list --findings`")
    return 0


def _sorted(house: Skillhouse, order: str) -> list[Skill]:
    skills = list(house.view().visible.skills)
    return sorted(skills, key=lambda skill: (skill.name, skill.id)) if order == "name" else skills


def _print_rows(rows: list[tuple[str, Skill]], terminal: Terminal) -> None:
    terminal.rows([(shown(label), one_line(skill.description)) for label, skill in rows])
    terminal.line()


def _summary(house: Skillhouse) -> str:
    index = house.index
    parts = [counted(len(house.view().visible), "skill")]
    if house.view().hidden:
        parts.append(f"{len(house.view().hidden)} denied by rules")
    for_people = len(house.view().for_people)
    if for_people:
        parts.append(f"{for_people} for people alone")
    disabled = len(index.skills) - len(house.view().visible) - len(house.view().hidden) - for_people
    if disabled:
        parts.append(f"{disabled} disabled")
    if index.shadowed:
        parts.append(f"{len(index.shadowed)} shadowed")
    return ", ".join(parts)


_CATALOG_EXAMPLES = """examples:
  skillhouse catalog                  what a system prompt would list
  skillhouse catalog --for "merge two PDFs" --style compact
  skillhouse catalog --for "merge two PDFs" --budget 500 --json

The list goes to stdout. --for puts the skills that fit the request first.
"""


def _configure_catalog(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--for", dest="request", default="", metavar="REQUEST", help="what a user asks for"
    )
    parser.add_argument(
        "--budget", type=natural, metavar="TOKENS", help="most tokens of the list (as configured)"
    )
    parser.add_argument(
        "--style", metavar="STYLE", help=f"{', '.join(discovery.STYLES)} (as the profile has it)"
    )
    parser.add_argument("--agent", default="default", metavar="NAME", help="as this agent sees it")
    add_common(parser)


def _catalog(options: argparse.Namespace, terminal: Terminal) -> int:
    with house_of(options) as house:
        view = house.view(options.agent)
        if options.request.strip():
            prepare_search(house, terminal, agent=options.agent)
        catalog = view.catalog(options.budget, style=options.style, request=options.request)
    if options.json:
        budget = view.budget_tokens if options.budget is None else options.budget
        style = options.style or view.profile.catalog.style
        value = {"agent": options.agent, "request": options.request, "style": style}
        terminal.json({**value, "budget_tokens": budget, **catalog_value(catalog)})
        return 0
    if catalog.text:
        terminal.document(catalog.text)
    facts = f"{counted(len(catalog.included), 'skill')}, about {catalog.tokens:,} tokens"
    if catalog.omitted:
        left_out = counted(len(catalog.omitted), "skill")
        facts += f"; left out: {left_out}, `skillhouse search` finds them"
    terminal.note(facts)
    return 0


_SEARCH_EXAMPLES = """examples:
  skillhouse search "merge two PDFs"
  skillhouse search 天气 --limit 3 --json
"""


def _configure_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", nargs="+", help="what the skill should be good for")
    parser.add_argument("--limit", type=positive, default=5, metavar="N", help="most hits (5)")
    add_common(parser)


def _search(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print the best skills, best first; 1 when none fits."""
    house = house_of(options)
    prepare_search(house, terminal)
    hits = house.search(" ".join(options.query), limit=options.limit)
    skills = [house.index.get(hit.id) for hit in hits]
    if options.json:
        terminal.json(
            [
                {**skill_value(skill), "score": hit.score, "fields": list(hit.fields)}
                for hit, skill in zip(hits, skills, strict=True)
            ]
        )
    elif not hits:
        terminal.note("no skill fits; `skillhouse list` shows all")
    else:
        rows = [
            (f"{hit.score:6.2f}  {shown(hit.name)}", one_line(skill.description))
            for hit, skill in zip(hits, skills, strict=True)
        ]
        terminal.rows(rows, indent=0, most=36)
    return 0 if hits else 1


_LOAD_EXAMPLES = """examples:
  skillhouse load weather
  skillhouse load user:pdf --json
"""


def _configure_load(parser: argparse.ArgumentParser) -> None:
    add_skill(parser)
    parser.add_argument("--raw", action="store_true", help="the whole SKILL.md, frontmatter too")
    add_common(parser)


def _load(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print the body, hidden characters as escapes; the first line says so where there are any."""
    content = house_of(options).load(options.skill)
    if options.json:
        terminal.json(content_value(content))
        return 0
    terminal.document(skill_package.handed_over(content.text if options.raw else content.body))
    return 0


VERBS = {
    "list": Verb(_LIST_EXAMPLES, _configure_list, _list),
    "catalog": Verb(_CATALOG_EXAMPLES, _configure_catalog, _catalog),
    "search": Verb(_SEARCH_EXAMPLES, _configure_search, _search),
    "load": Verb(_LOAD_EXAMPLES, _configure_load, _load),
}
