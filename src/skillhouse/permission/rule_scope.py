"""Says what a rule that allows commands covers beyond what it names."""

from __future__ import annotations

from skillhouse.floor.rules import Effect, matches
from skillhouse.permission import hazards
from skillhouse.permission.command_reader import read_command
from skillhouse.permission.decision import Rule
from skillhouse.permission.grammar import CommandTable, is_wrapper
from skillhouse.permission.patterns import Breadth, command_pattern

NAMES_MAX = 8
"""Sub-commands that are said by name; the others are counted."""

WITHOUT_GRAMMAR = (
    "has no grammar: plain words, data files of the workspace, and options without values; every "
    "other word of it asks"
)


def beyond(rule: Rule) -> str:
    """Return what a rule covers without naming it; "" where that is nothing, or it allows nothing.

    >>> rule = Rule(effect=Effect.ALLOW, action="exec", pattern="frobnicate *")
    >>> beyond(rule)[:26], beyond(Rule(effect=Effect.ALLOW, action="exec", pattern="ls"))
    ('`frobnicate` has no gramma', '')
    """
    if rule.effect is not Effect.ALLOW or not matches(rule.action, "exec"):
        return ""
    pattern = command_pattern(rule.pattern)
    if pattern.breadth is Breadth.ALL:
        return (
            "any command; beside rules that deny or ask, not code in words or in the input, and of "
            "programs without a grammar no more than a rule of their own covers"
        )
    if pattern.breadth is Breadth.EXACT:
        return ""
    if not pattern.words:
        return "every program whose name fits"
    meaning = read_command(pattern.words)
    while meaning.started is not None:
        meaning = meaning.started
    program = meaning.argv[0][:60]
    if meaning.argv[0] == "cd":
        return "directories of the workspace"
    if meaning.grammar is None:
        if said := hazards.running(program):
            return f"nothing: {said}"
        if rule.unbound:
            return f"`{program}` has no grammar: all its words, and so whatever they run"
        return f"`{program}` {WITHOUT_GRAMMAR}"
    if is_wrapper(meaning.grammar):
        return f"the options of `{program}`; the command behind it needs a rule of its own"
    reader = meaning.grammar.program.reader
    if meaning.unknown and not (meaning.cut or reader):
        return "nothing: its words are not in the grammar"
    if meaning.table is not None and "unbound" in meaning.table.does and not rule.unbound:
        return "nothing: it runs code of the workspace, and needs `unbound = true`"
    free = "all that it runs, " if rule.unbound else ""
    if meaning.table is not None and meaning.table.commands:
        return f"{free}{_sub_commands(meaning.table)}"
    return f"{free}harmless options and operands of `{' '.join((program, *meaning.path))}`"


def _sub_commands(table: CommandTable) -> str:
    quiet = sorted(name for name, of in table.commands.items() if not of.does)
    others = len(table.commands) - len(quiet)
    more = f" and {len(quiet) - NAMES_MAX} more" if len(quiet) > NAMES_MAX else ""
    named = f"harmless options and operands of {', '.join(quiet[:NAMES_MAX])}{more}"
    return f"{named if quiet else 'nothing'}; {others} others have to be named"
