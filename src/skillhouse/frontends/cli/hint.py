"""`skillhouse hint`: the hint that a coding agent gets beside a prompt."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from skillhouse.answers.findings import HintedSkillAnswer, SkillHintAnswer
from skillhouse.frontends.cli.options import UsageError, Verb, add_common, house_of
from skillhouse.frontends.cli.progress import prepare_search
from skillhouse.house.skill_hints import Hint, SkillHints
from skillhouse.presentation.text import shown

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal

_EXAMPLES = """examples:
  skillhouse hint "fill in this PDF form"
  skillhouse hint "fill in this PDF form" --client claude-code
  skillhouse hint "fill in this PDF form" --named pdf --json

It prints the line, or nothing and ends with 1 where no skill surely fits.
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", nargs="+", help="what a person asks for")
    parser.add_argument("--agent", default="default", metavar="NAME", help="as for this agent")
    parser.add_argument(
        "--client", default="", metavar="NAME", help="for this client's model (`profiles list`)"
    )
    parser.add_argument(
        "--tool", default="", metavar="NAME", help="what that model calls our skill tool"
    )
    parser.add_argument(
        "--named",
        action="append",
        default=[],
        metavar="SKILL",
        help="a skill that this conversation had a hint about",
    )
    add_common(parser)


def _hint(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print the hint; 1 when there is none."""
    prompt = " ".join(options.prompt)
    if not prompt.strip():
        raise UsageError("expected a prompt")
    with house_of(options) as house:
        named = [house.index.get(name).file for name in options.named]
        prepare_search(house, terminal, agent=options.agent)
        found = SkillHints(house).hint(
            prompt,
            agent=options.agent,
            client=options.client,
            own_tool=options.tool,
            named=named,
        )
    if options.json:
        terminal.json(_answer(found))
    elif found is None:
        terminal.note("no hint: no skill surely fits, or none that would be given unasked")
    else:
        terminal.line(shown(found.text))
    return 0 if found is not None else 1


def _answer(found: Hint | None) -> SkillHintAnswer:
    skills = () if found is None else found.skills
    return SkillHintAnswer(
        hint=None if found is None else found.text,
        skills=[
            HintedSkillAnswer(name=one.name, file=one.file, words=tuple(one.words), load=one.load)
            for one in skills
        ],
    )


VERBS = {"hint": Verb(_EXAMPLES, _configure, _hint)}
