"""The verbs that read skills: `catalog`, `search` and `load`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import UNSET

from skillhouse import discovery
from skillhouse import skill as skill_package
from skillhouse.answers.catalogs import (
    AskedCatalogAnswer,
    ForgottenAnswer,
    FoundSkills,
    LearningAnswer,
    RequestAnswer,
    SearchAnswer,
    catalog_answer,
    meaning_answer,
    request_answer,
    search_skills,
)
from skillhouse.answers.skills import content_answer
from skillhouse.approval import OWNER
from skillhouse.floor import nearest
from skillhouse.frontends.cli.options import (
    UsageError,
    Verb,
    add_common,
    add_skill,
    house_of,
    natural,
    positive,
)
from skillhouse.frontends.cli.progress import prepare_search
from skillhouse.presentation.library import FIT_TEXTS, unlisted, why_parts
from skillhouse.presentation.text import counted, one_line, shown
from skillhouse.retrieval import Fit

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import Skillhouse

TYPED_MIN = 3
"""Letters of a word that may be a misspelt name."""
REASONS_SHOWN = 5
"""Skills of a list for a request of which it is said why they fit."""

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
        is_asked = bool(options.request.strip())
        fitting = request_answer(view, options.request, catalog) if is_asked else None
    if options.json:
        budget = view.budget_tokens if options.budget is None else options.budget
        style = options.style or view.profile.catalog.style
        terminal.json(
            AskedCatalogAnswer(
                agent=options.agent,
                request=options.request,
                style=style,
                budget_tokens=budget,
                catalog=catalog_answer(catalog),
                meaning=meaning_answer(state),
                fitting=UNSET if fitting is None else fitting,
            )
        )
        return 0
    if catalog.text:
        terminal.document(catalog.text)
    facts = f"{counted(len(catalog.included), 'skill')}, about {catalog.tokens:,} tokens"
    if catalog.omitted:
        left_out = counted(len(catalog.omitted), "skill")
        facts += f"; left out: {left_out}, `skillhouse search` finds them"
    terminal.note(facts)
    if waiting := len(view.waiting):
        what = f"{counted(waiting, 'skill')} new or changed since the project was trusted"
        terminal.note(f"{what}: look with `skillhouse trust`")
    if fitting is not None:
        _note_reasons(fitting, terminal)
    return 0


def _note_reasons(fitting: RequestAnswer, terminal: Terminal) -> None:
    """Say why the first skills of a list for a request are the first."""
    hits = fitting.hits[:REASONS_SHOWN]
    if not hits:
        terminal.note("no skill fits the request")
        return
    if fitting.fit.weak:
        terminal.note(FIT_TEXTS[Fit.NONE if fitting.fit.nothing_fits else Fit.WEAK])
    for hit in hits:
        terminal.note(f"{shown(hit.name)}: {shown(hit.hit.reason)}")


_SEARCH_EXAMPLES = """examples:
  skillhouse search "will it rain tomorrow"
  skillhouse search "issues on GitHub" --limit 3 --json
  skillhouse search --learned            what [search] learn has kept of your searches
  skillhouse search --forget-learned     remove it
"""


def _configure_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", nargs="*", help="what the skill should be good for")
    parser.add_argument("--limit", type=positive, default=5, metavar="N", help="most hits (5)")
    parser.add_argument(
        "--learned", action="store_true", help="list which skills were loaded after searches"
    )
    parser.add_argument(
        "--forget-learned", action="store_true", help="remove what was learned from searches"
    )
    add_common(parser)


def _search(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print the best skills, best first; 1 when none fits."""
    house = house_of(options)
    if options.learned or options.forget_learned:
        if options.query or (options.learned and options.forget_learned):
            raise UsageError("expected either a request, --learned or --forget-learned")
        return _learned(options, terminal, house)
    if not options.query:
        raise UsageError("expected a request; see `skillhouse search --help`")
    state = prepare_search(house, terminal)
    found = search_skills(house, " ".join(options.query), options.limit)
    hits, others = found.found.hits, found.shadowed
    if found.found.fault:
        terminal.error(found.found.fault)
    if options.json:
        more = SearchAnswer(
            found=found.answer(),
            fault=found.found.fault or None,
            meaning=meaning_answer(state),
        )
        terminal.json_list("hits", found.answers(), more)
    elif not hits and not found.code:
        terminal.note(f"no skill fits{_meant(house, options.query)}; `skillhouse list` shows all")
    else:
        if text := FIT_TEXTS[found.fit]:
            terminal.note(text)
        rows: list[tuple[str, str]] = []
        for hit, skill, mark in zip(hits, found.skills, found.marks, strict=True):
            rows.append((f"{hit.score:6.2f}  {shown(hit.name)}", one_line(skill.description)))
            rows += [("", f"({part})") for part in (*unlisted(mark), *why_parts(hit))]
        terminal.rows(rows, indent=0, most=36)
    _print_code(found, terminal, as_json=options.json)
    if others and not options.json:
        terminal.line()
        terminal.heading("shadowed, so agents do not see them")
        rows = [
            (shown(one.id), f"by {shown(by)}: {one_line(one.description)}") for one, by in others
        ]
        terminal.rows(rows, most=48)
    return 0 if hits or found.code else 1


def _print_code(found: FoundSkills, terminal: Terminal, *, as_json: bool) -> None:
    """Print the skills of code alone that fit, unless they are in the JSON."""
    if as_json or not found.code:
        return
    if found.found.hits:
        terminal.line()
    terminal.heading("with tools of their own, which agents have without a search")
    rows: list[tuple[str, str]] = []
    for match in found.code:
        tools = ", ".join(f"{one.full_name} ({one.level})" for one in match.tools)
        rows.append((shown(match.hit.name), one_line(match.description)))
        rows += [("", part) for part in (one_line(tools), *why_parts(match.hit))]
    terminal.rows(rows, most=36)


def _meant(house: Skillhouse, words: Sequence[str]) -> str:
    """Return the skills whose names the words may have been meant to be; "" without any."""
    names = [skill.name for skill in house.view().visible.skills]
    typed = [word for text in words for word in text.split() if len(word) >= TYPED_MIN]
    close = dict.fromkeys(name for word in typed for name in nearest(word, names, limit=1))
    return f"; did you mean {', '.join(f'`{shown(name)}`' for name in close)}" if close else ""


def _learned(options: argparse.Namespace, terminal: Terminal, house: Skillhouse) -> int:
    """List or remove what was learned from searches."""
    learned = house.services.learned
    if options.forget_learned:
        count = learned.forget(OWNER)
        if options.json:
            terminal.json(ForgottenAnswer(forgotten=count))
        else:
            terminal.note(f"forgot {counted(count, 'choice')} of skills after searches")
        return 0
    choices = learned.choices(OWNER)
    if options.json:
        terminal.json_list("choices", choices, LearningAnswer(learn=house.config.search.learn))
        return 0
    for one in choices:
        day = datetime.fromtimestamp(one.at_ms / 1000, UTC).strftime("%Y-%m-%d")
        terminal.line(f"{day}  {shown(one.file)}  {shown(' '.join(one.words))}")
    state = "on" if house.config.search.learn else "off: set `learn = true` in [search]"
    terminal.note(
        f"{counted(len(choices), 'choice')} of skills after searches; learning is {state}"
    )
    return 0


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
        terminal.json(content_answer(content))
        return 0
    terminal.document(skill_package.handed_over(content.text if options.raw else content.body))
    return 0


VERBS = {
    "catalog": Verb(_CATALOG_EXAMPLES, _configure_catalog, _catalog),
    "search": Verb(_SEARCH_EXAMPLES, _configure_search, _search),
    "load": Verb(_LOAD_EXAMPLES, _configure_load, _load),
}
