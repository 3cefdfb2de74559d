"""The verbs that read skills: `catalog`, `search` and `load`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from skillhouse import discovery
from skillhouse import skill as skill_package
from skillhouse.frontends.cli.options import (
    Verb,
    add_common,
    add_skill,
    house_of,
    natural,
    positive,
)
from skillhouse.frontends.cli.progress import prepare_search
from skillhouse.frontends.presentation.json_values import (
    catalog_value,
    content_value,
    meaning_value,
)
from skillhouse.frontends.presentation.skill_lists import search_answer
from skillhouse.frontends.presentation.text import counted, one_line, shown
from skillhouse.retrieval import is_weak

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal

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
        state = None
        if options.request.strip():
            state = prepare_search(house, terminal, agent=options.agent)
        catalog = view.catalog(options.budget, style=options.style, request=options.request)
    if options.json:
        budget = view.budget_tokens if options.budget is None else options.budget
        style = options.style or view.profile.catalog.style
        value = {"agent": options.agent, "request": options.request, "style": style}
        terminal.json(
            {
                **value,
                "budget_tokens": budget,
                **catalog_value(catalog),
                "meaning": meaning_value(state),
            }
        )
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
  skillhouse search "will it rain tomorrow"
  skillhouse search "issues on GitHub" --limit 3 --json
"""


def _configure_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", nargs="+", help="what the skill should be good for")
    parser.add_argument("--limit", type=positive, default=5, metavar="N", help="most hits (5)")
    add_common(parser)


def _search(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print the best skills, best first; 1 when none fits."""
    house = house_of(options)
    state = prepare_search(house, terminal)
    found = search_answer(house, " ".join(options.query), options.limit)
    hits, skills, others = found.hits, found.skills, found.shadowed
    if options.json:
        terminal.json_list("hits", found.values(), {"meaning": meaning_value(state)})
    elif not hits:
        terminal.note("no skill fits; `skillhouse list` shows all")
    else:
        rows = [
            (f"{hit.score:6.2f}  {shown(hit.name)}", one_line(skill.description))
            for hit, skill in zip(hits, skills, strict=True)
        ]
        if is_weak(hits):
            terminal.note("nothing fits well; try other words, or English; the nearest:")
        terminal.rows(rows, indent=0, most=36)
        for hit in hits:
            if hit.alike:
                terminal.note(f"{shown(hit.name)} also: {', '.join(map(shown, hit.alike))}")
    if others and not options.json:
        terminal.line()
        terminal.heading("shadowed, so agents do not see them")
        rows = [
            (shown(one.id), f"by {shown(by)}: {one_line(one.description)}") for one, by in others
        ]
        terminal.rows(rows, most=48)
    return 0 if hits else 1


_LOAD_EXAMPLES = """examples:
  skillhouse load weather
  skillhouse load user:pdf --json
  skillhouse load pdf --anyway       an installed one that agents are refused

An installed skill whose files were edited, or whose signature is refused, is not printed:
`skillhouse verify` says what is wrong with it.
"""


def _configure_load(parser: argparse.ArgumentParser) -> None:
    add_skill(parser)
    parser.add_argument("--raw", action="store_true", help="the whole SKILL.md, frontmatter too")
    parser.add_argument(
        "--anyway", action="store_true", help="also an installed one that is not as it was"
    )
    add_common(parser)


def _load(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print the body, hidden characters as escapes; the first line says so where there are any."""
    if options.anyway:
        from skillhouse.frontends.cli.person import refuse_agents

        refuse_agents("load --anyway")
    content = house_of(options).load(options.skill, anyway=options.anyway)
    if options.json:
        terminal.json(content_value(content))
        return 0
    terminal.document(skill_package.handed_over(content.text if options.raw else content.body))
    return 0


VERBS = {
    "catalog": Verb(_CATALOG_EXAMPLES, _configure_catalog, _catalog),
    "search": Verb(_SEARCH_EXAMPLES, _configure_search, _search),
    "load": Verb(_LOAD_EXAMPLES, _configure_load, _load),
}
