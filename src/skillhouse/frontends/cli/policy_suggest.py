"""`skillhouse policy suggest`: the rules that would have answered what a person allows anyway."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import UNSET

from skillhouse.answers.json_form import ListAnswer, copied, listed
from skillhouse.answers.policy import (
    SeenRequestAnswer,
    SuggestedRuleAnswer,
    SuggestionsAnswer,
    WrittenRuleAnswer,
)
from skillhouse.frontends.cli.configuration import add_rule, text_of
from skillhouse.frontends.cli.options import (
    UsageError,
    add_common,
    house_of,
    positive,
)
from skillhouse.frontends.cli.person import coding_agent, refuse_agents
from skillhouse.frontends.cli.question import answered, can_ask
from skillhouse.house.rule_suggestions import RULES_MAX, RuleSuggestions, Suggestion, suggest_rules
from skillhouse.presentation.text import counted, one_line, shown

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import Skillhouse

DAYS = 7
ONCE_SHOWN = 5
"""Kinds of questions without a suggestion that have a line."""
_LABEL = 13


def configure_suggest(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--days", type=positive, default=DAYS, metavar="N", help=f"of the last N days ({DAYS})"
    )
    parser.add_argument(
        "--limit", type=positive, default=RULES_MAX, metavar="N", help=f"most rules ({RULES_MAX})"
    )
    parser.add_argument(
        "--narrow", action="store_true", help="no rule for a whole program with sub-commands"
    )
    parser.add_argument(
        "--yes",
        nargs="+",
        metavar="N",
        help="add these of the rules without asking, by number or, whatever is asked meanwhile, id",
    )
    add_common(parser)


def suggest(options: argparse.Namespace, terminal: Terminal) -> int:
    """Show the rules, and add those that the person accepts."""
    if options.yes:
        refuse_agents("policy suggest --yes")
    since = f"{datetime.now(UTC) - timedelta(days=options.days):%Y-%m-%dT%H:%M:%S}"
    with house_of(options) as house:
        found = suggest_rules(house, since=since, rules_max=options.limit, narrow=options.narrow)
        # Before anything is written: each of them has to be there.
        accepted = [_named(word, found) for word in options.yes or ()]
        if not options.json:
            _print(found, house, terminal, days=options.days)
        if options.yes:
            added = list(dict.fromkeys(accepted))
            for one in added:
                add_rule(house, one.rule)
        else:
            added = [] if options.json else _asked(found, house, terminal)
        path = str(house.config.places.user_file)
    if options.json:
        terminal.json(_answer(found, added, path))
    elif added:
        terminal.note(f"added to {shown(path)}: {counted(len(added), 'rule')}")
    elif found.rules:
        terminal.note("nothing was written; `--yes N` adds the rule with that number")
    return 0


def _named(word: str, found: RuleSuggestions) -> Suggestion:
    for number, one in enumerate(found.rules, 1):
        if word in (str(number), one.id):
            return one
    raise UsageError(f"no suggestion is `{word}`; `skillhouse policy suggest` lists them")


def _asked(found: RuleSuggestions, house: Skillhouse, terminal: Terminal) -> list[Suggestion]:
    """Ask about one rule after the other, and add each that is accepted."""
    if not found.rules or not can_ask() or coding_agent(os.environ):
        return []
    added = []
    for number, one in enumerate(found.rules, 1):
        question = f"Add {number}, allow {_short(one)}?"
        answer = answered(question, terminal, instead="use --yes N")
        if answer is None:
            break
        if answer:
            add_rule(house, one.rule)
            added.append(one)
    return added


def _print(found: RuleSuggestions, house: Skillhouse, terminal: Terminal, *, days: int) -> None:
    asked = f"{counted(found.questions, 'question')} in the last {counted(days, 'day')}"
    if not found.questions:
        terminal.note(f"no {asked[2:]} that the rules of now would not answer")
        return
    said = (
        f"{asked}: {found.allowed} allowed, {found.refused} refused; "
        f"{found.repeated} of the allowed ones are repeated"
    )
    terminal.indented(said, 0)
    if not found.rules:
        terminal.note("no rule would have answered enough of them")
    else:
        said = (
            f"{counted(len(found.rules), 'rule')} at the end of "
            f"{shown(str(house.config.places.user_file))} would have answered {found.answered} "
            f"of them, {found.answered_repeated} of the repeated ones"
        )
        terminal.indented(said, 0)
    for number, one in enumerate(found.rules, 1):
        terminal.line()
        _print_rule(number, one, terminal)
    _print_once(found, terminal)


def _print_rule(number: int, one: Suggestion, terminal: Terminal) -> None:
    terminal.heading(f"{number}  allow {_short(one)}  ({one.id})")
    for line in text_of(one.rule).splitlines():
        terminal.line(terminal.style(f"  + {shown(line)}", "green"))
    rows = [
        ("answers", _answers(one)),
        ("as in", "; ".join(f"{one_line(text)} ({count})" for text, count in one.seen)),
        ("covers too", one.covers),
        ("still asks", f"about {', '.join(one.asks)} and the like" if one.asks else ""),
    ]
    for label, text in rows:
        if text:
            terminal.indented(shown(text), _LABEL + 2, f"  {label:<{_LABEL}}")


def _answers(one: Suggestion) -> str:
    said = counted(one.answers, "question")
    return f"{said}, and {one.with_others} more with another of these" if one.with_others else said


def _print_once(found: RuleSuggestions, terminal: Terminal) -> None:
    if not found.once:
        return
    terminal.line()
    terminal.heading("repeated, and asked about all the same")
    for group in found.once[:ONCE_SHOWN]:
        text = f"{one_line(group.group)}: {one_line(group.why)}"
        terminal.indented(text, 7, f"{group.count:>5}  ")
    if more := found.once[ONCE_SHOWN:]:
        count = sum(group.count for group in more)
        terminal.line(f"{count:>5}  of {counted(len(more), 'other kind')}")


def _short(one: Suggestion) -> str:
    return one_line(f"{one.rule.action} {one.rule.pattern}")


def _suggested(number: int, one: Suggestion) -> SuggestedRuleAnswer:
    rule = one.rule
    return copied(
        SuggestedRuleAnswer,
        one,
        number=number,
        rule=WrittenRuleAnswer(
            effect=rule.effect.value,
            action=rule.action,
            pattern=rule.pattern,
            reason=rule.reason or UNSET,
        ),
        text=text_of(rule),
        seen=[SeenRequestAnswer(text=text, count=count) for text, count in one.seen],
        asks=tuple(one.asks),
    )


def _answer(found: RuleSuggestions, added: Sequence[Suggestion], path: str) -> ListAnswer:
    more = copied(
        SuggestionsAnswer,
        found,
        path=path,
        once=tuple(found.once),
        added=[one.id for one in added],
    )
    rules = [_suggested(number, one) for number, one in enumerate(found.rules, 1)]
    return listed("suggestions", rules, more)
