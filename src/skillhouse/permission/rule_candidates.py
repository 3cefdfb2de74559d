"""The rules that could answer a command from then on, and what each leaves to a person."""

from __future__ import annotations

from collections.abc import Sequence

from skillhouse.floor.rules import Effect
from skillhouse.permission.command_reader import read_command
from skillhouse.permission.command_rules import LayerRules, standing_bond, standing_rule
from skillhouse.permission.decision import Layer, Rule
from skillhouse.permission.grammar import HAZARDS, CommandTable
from skillhouse.permission.judge import judge_argv
from skillhouse.permission.path_policy import PathPolicy
from skillhouse.permission.patterns import command_pattern
from skillhouse.permission.plan import command_resource

COMMANDS_MAX, OPTIONS_MAX = 24, 6
"""Sub-commands, or options, that are named as still asked about."""


def candidate_rules(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns of rules that could answer a command, the narrowest first.

    They are the rule of a standing approval, the one of the same sub-command with any harmless
    options, and the one of the program with any harmless sub-command (`group_rule`). There is none
    where no standing approval is offered, and none for code in words or an install: an approval of
    these is bound to files, which a rule is not.

    >>> candidate_rules(["git", "log", "--oneline", "main"])
    ('git log --oneline *', 'git log *', 'git *')
    >>> candidate_rules(["git", "push"]), candidate_rules(["pytest", "-q"])
    ((), ())
    """
    words = tuple(argv)
    narrow = standing_rule(words)
    if not narrow or standing_bond(words) is not None:
        return ()
    wider = [f"{command_resource((words[0], *read_command(words).path))} *"]
    wider = wider if command_pattern(narrow).is_open else []
    wider += filter(None, (group_rule(words),))
    return tuple(dict.fromkeys((narrow, *(rule for rule in wider if allows(rule, words)))))


def group_rule(argv: Sequence[str]) -> str:
    """Return the rule for all that is harmless of a program with sub-commands; "" for others.

    >>> group_rule(["git", "log"]), group_rule(["ls", "src"])
    ('git *', '')
    """
    meaning = read_command(tuple(argv))
    has_commands = meaning.grammar is not None and bool(meaning.grammar.program.commands)
    return f"{command_resource(argv[:1])} *" if has_commands and meaning.path else ""


def allows(pattern: str, argv: Sequence[str], places: PathPolicy | None = None) -> bool:
    """Whether a rule about commands by itself allows a command.

    >>> allows("git log *", ["git", "-C", "sub", "log"]), allows("git *", ["git", "push"])
    (True, False)
    """
    rule = Rule(effect=Effect.ALLOW, action="exec", pattern=pattern)
    rules = LayerRules([Layer(name="candidate", rules=(rule,))])
    return judge_argv(tuple(argv), rules, places or PathPolicy()).effect is Effect.ALLOW


def why_once(argv: Sequence[str]) -> str:
    """Return why no rule is offered for a command."""
    meaning = read_command(tuple(argv))
    for at in meaning.chain():
        if at.hazards:
            return at.hazards[0].said
        if at.unknown:
            return at.unknown
        if at.scripts:
            return "it runs a script, which is approved by its bytes"
    return f"no approval of `{argv[0][:80]}` lasts"


def still_asked(pattern: str) -> tuple[str, ...]:
    """Return some sub-commands, else options, that a rule with ` *` does not cover, because they
    run, load or send something, delete, or leave the workspace.

    >>> still_asked("git diff *"), still_asked("cp a b")
    (('--ext-diff', '--output', '--textconv'), ())
    >>> still_asked("npm *")[:3]
    ('access', 'adduser', 'approve-scripts')
    """
    read = command_pattern(pattern)
    if not read.is_open or not read.words:
        return ()
    meaning = read_command(read.words)
    if meaning.table is None:
        return ()
    below = sorted(name for name, of in meaning.table.commands.items() if of.does)
    given = frozenset(option.name for option in meaning.options)
    return tuple(below[:COMMANDS_MAX] or _hazardous(meaning.table, given)[:OPTIONS_MAX])


def _hazardous(table: CommandTable, given: frozenset[str]) -> list[str]:
    # Of two spellings the long one says more.
    return [
        name
        for name, rule in sorted(table.options.items())
        if rule.kind in HAZARDS
        and (name.startswith("--") or not rule.spellings)
        and given.isdisjoint({name, *rule.spellings})
    ]
