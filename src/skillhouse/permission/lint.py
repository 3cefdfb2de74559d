"""Says of rules what is odd about them and what they cover beyond their words; tries examples."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from msgspec import Struct

from skillhouse.floor import ONE_TIME, nearest
from skillhouse.floor.errors import first_of
from skillhouse.floor.regex import regex
from skillhouse.floor.rules import Effect, covers, matches
from skillhouse.permission import hazards
from skillhouse.permission.command_reader import read_command
from skillhouse.permission.command_rules import LayerRules
from skillhouse.permission.decision import ACTIONS, TOOL_ACTIONS, Layer, Rule
from skillhouse.permission.grammar import CommandTable, is_wrapper
from skillhouse.permission.judge import judge_argv
from skillhouse.permission.path_policy import PathPolicy
from skillhouse.permission.patterns import Breadth, command_pattern

_VARIABLE = regex(r"[A-Za-z_]\w*=")
_JOINED = regex(r" (?:&&|\|\||\||&) |[^\s\\'];(?:\s|$)| &$")
_REDIRECTED = regex(r"\s(?:\d?>{1,2}|<{1,3})\s")
_WILD_OR_QUOTE = regex(r"['*?]")
_METHOD = regex(r"[A-Z]*(?:[ *?]|$)")
_WILD_PATH = regex(r"[^ *?]*/[^ *?]*[*?]")
UNKNOWN_ACTION = "rule-unknown-action"
NAMES_MAX = 8
"""Sub-commands that are said by name; the others are counted."""

WITHOUT_GRAMMAR = (
    "has no grammar: plain words, data files of the workspace, and options without values; every "
    "other word of it asks"
)


class RuleFinding(Struct, frozen=True, kw_only=True):
    """What is odd about one rule."""

    code: str
    """rule-unreachable, rule-duplicate, rule-no-effect, rule-allows-all, rule-open-word,
    rule-unbound, rule-no-grammar or rule-unknown-action."""
    layer: str
    rule_index: int
    """Place in its layer, from 0."""
    rule: Rule
    message: str
    by: int | None = None
    """Index of the rule that overrides it."""

    @property
    def is_note(self) -> bool:
        """Whether it only says what the rule means: `unbound = true` is written on purpose."""
        return self.code in ("rule-unbound", "rule-no-grammar")


def lint_rules(layers: Sequence[Layer]) -> tuple[RuleFinding, ...]:
    """Return what is odd about the rules of each layer, in their order; not of the program's own.

    >>> rules = tuple(
    ...     Rule(effect=effect, action="exec", pattern=pattern)
    ...     for effect, pattern in ((Effect.DENY, "rm *"), (Effect.ALLOW, "*"))
    ... )
    >>> [found.code for found in lint_rules([Layer(name="user", rules=rules)])]
    ['rule-unreachable', 'rule-allows-all']
    """
    return tuple(
        finding
        for layer in layers
        if not layer.is_builtin
        for index in range(len(layer.rules))
        for finding in _findings(layer, index)
    )


def _findings(layer: Layer, index: int) -> Iterator[RuleFinding]:
    rule = layer.rules[index]

    def found(code: str, message: str, by: int | None = None) -> RuleFinding:
        return RuleFinding(
            code=code, layer=layer.name, rule_index=index, rule=rule, message=message, by=by
        )

    hiding = _hidden_by(layer, index)
    if hiding is not None:
        other = layer.rules[hiding]
        named = f"rule {hiding + 1} (`{other.effect} {other.action} {other.pattern}`)"
        if (other.effect, other.action, other.pattern) == (rule.effect, rule.action, rule.pattern):
            yield found("rule-duplicate", f"it has the same effect as {named}", hiding)
        else:
            message = f"{named} matches all that it matches, and counts instead"
            yield found("rule-unreachable", message, hiding)
    if rule.effect is Effect.ALLOW and not layer.trusted:
        yield found("rule-no-effect", "a layer that is not trusted allows nothing")
    elif rule.effect is Effect.ALLOW and rule.action in ONE_TIME:
        yield found("rule-no-effect", f"`{rule.action}` is allowed by a person only, each time")
    known = (*ACTIONS, *TOOL_ACTIONS)
    if not any(matches(rule.action, action) for action in known):
        close = nearest(rule.action, known, limit=1)
        hint = f"did you mean `{close[0]}`" if close else "only a program's own tool can have it"
        message = f"no built-in tool needs the action `{rule.action}`; {hint}"
        yield found(UNKNOWN_ACTION, message)
    elif problem := _never(rule):
        yield found("rule-no-effect", problem)
    if _switches_off(layer, index):
        message = "it allows everything that no other layer denies, whatever the rules before say"
        yield found("rule-allows-all", message)
    if rule.unbound and rule.effect is Effect.ALLOW and layer.trusted:
        yield found(
            "rule-unbound",
            f"`{rule.pattern}` may run whatever code the workspace holds, such as tests, build "
            "steps and plugins, also what an agent has just written; it has no network",
        )
    elif layer.trusted and "has no grammar" in (covered := beyond(rule)):
        yield found("rule-no-grammar", covered)
    if _is_open_word(rule):
        word = rule.pattern.split(" ")[-1].rstrip("*")
        message = f"it also matches every program that begins with `{word}`; write `{word} *`"
        yield found("rule-open-word", message)


def _hidden_by(layer: Layer, index: int) -> int | None:
    """Return the rule of the layer that always counts instead, or None."""
    rule = layer.rules[index]
    count = len(layer.rules)
    others = range(index) if layer.match == "first" else range(count - 1, index, -1)
    for other in others:
        by = layer.rules[other]
        # An allow of an untrusted layer is as if it were not there, so it hides nothing.
        is_heard = layer.trusted or by.effect is not Effect.ALLOW
        if is_heard and covers(by.action, rule.action) and covers(by.pattern, rule.pattern):
            return other
    return None


def _never(rule: Rule) -> str:
    """Return why a pattern can match nothing that is ever asked about, or nothing."""
    if rule.pattern == "":
        return "an empty pattern matches nothing"
    if rule.action == "exec" and rule.pattern != rule.pattern.strip():
        return "no command begins or ends with a blank"
    if rule.action in ("read", "write", "list") and rule.pattern[0] not in "/*?":
        return "paths are absolute, so a pattern begins with `/` or a wildcard"
    if rule.action in ("read", "write", "list") and "/../" in rule.pattern + "/":
        return "paths are resolved, so none holds `..`"
    if rule.action == "exec" and (said := _no_command(rule.pattern)):
        return said
    if rule.action == "fetch" and not _METHOD.match(rule.pattern):
        return "a method comes first, as in `GET https://docs.python.org`"
    if rule.action == "exec" and _VARIABLE.match(rule.pattern):
        return "a variable before a command is judged by its value, which no rule names"
    if rule.action == "exec" and rule.effect is Effect.ALLOW and _is_wild_path(rule.pattern):
        return "a program that is named by a path is covered without a wildcard in that path"
    return ""


def _no_command(pattern: str) -> str:
    """Return why no command can be written so; rules see a word with a quote in single quotes."""
    before, after = pattern.partition('"')[0], pattern.rpartition('"')[2]
    around = all(map(_WILD_OR_QUOTE.search, (before, after)))
    if '"' in pattern and not around:
        return "a word with a double quote is seen in single quotes"
    if _JOINED.search(pattern):
        return "each command of a line is judged by itself"
    if _REDIRECTED.search(pattern):
        return "the files that a line reads and writes are judged by themselves"
    return ""


def _is_wild_path(pattern: str) -> bool:
    """Whether the program itself is a path with a wildcard, as in `./tools/* *`."""
    path = _WILD_PATH.match(pattern)
    return path is not None and not command_pattern(pattern).words


def _switches_off(layer: Layer, index: int) -> bool:
    rule = layer.rules[index]
    counts = index == (0 if layer.match == "first" else len(layer.rules) - 1)
    return (
        layer.trusted
        and counts
        and len(layer.rules) > 1
        and rule.effect is Effect.ALLOW
        and not rule.pattern.strip("*")
    )


def _is_open_word(rule: Rule) -> bool:
    """Whether an exec pattern is a program's name with a star right behind it."""
    name = rule.pattern.rstrip("*")
    return (
        rule.action == "exec"
        and rule.effect is Effect.ALLOW
        and rule.pattern.endswith("*")
        and bool(name)
        and not any(sign in name for sign in " *?/")
    )


def example_holds(rule: Rule, example: str) -> bool:
    """Whether a rule is about an example; one that allows a command, whether it alone allows it.

    Examples of `exec` are single commands. They are judged in no directory, so that a path below
    it is one of the workspace and every other is outside.

    >>> rule = Rule(effect=Effect.ALLOW, action="exec", pattern="git *")
    >>> example_holds(rule, "git -C sub log"), example_holds(rule, "git push")
    (True, False)
    """
    if rule.action != "exec":
        return matches(rule.pattern, example)
    try:
        argv = tuple(shlex.split(example))
    except ValueError:
        argv = tuple(example.split())
    if not argv:
        return False
    rules = LayerRules([Layer(name="example", rules=(rule,))])
    verdict = judge_argv(argv, rules, PathPolicy())
    if rule.effect is Effect.ALLOW:
        return verdict.effect is Effect.ALLOW
    # Some commands are denied, and all others asked about, without any rule.
    said = f"rule `{rule.action} {rule.pattern}` of example policy"
    return any(said in reason for reason in verdict.reasons)


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
    if problem := _never(rule):
        return f"nothing: {problem}"
    if not pattern.words:
        return "every program whose name fits"
    meaning = read_command(pattern.words)
    while meaning.started is not None:
        meaning = meaning.started
    program = meaning.argv[0][:60]
    if meaning.grammar is None:
        return _without_grammar(program, is_unbound=rule.unbound)
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


def _without_grammar(program: str, *, is_unbound: bool) -> str:
    if program == "cd":
        return "directories of the workspace"
    if said := hazards.running(program):
        return f"nothing: {said}"
    if is_unbound:
        return f"`{program}` has no grammar: all its words, and so whatever they run"
    return f"`{program}` {WITHOUT_GRAMMAR}"


def _sub_commands(table: CommandTable) -> str:
    quiet = sorted(name for name, of in table.commands.items() if not of.does)
    others = len(table.commands) - len(quiet)
    named = f"harmless options and operands of {first_of(quiet, NAMES_MAX)}"
    return f"{named if quiet else 'nothing'}; {others} others have to be named"
