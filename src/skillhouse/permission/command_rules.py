"""Rules about commands: what a pattern covers, what it leaves uncovered, and what it denies."""

from __future__ import annotations

import enum
import functools
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from skillhouse.floor import SkillhouseError
from skillhouse.floor.rules import Effect, matches
from skillhouse.permission.command_reader import CommandMeaning, Hazard, read_command
from skillhouse.permission.decision import Layer, Rule, command_resource

GRANTS = "grants"
"""Name of the layer of standing approvals, each of which answers an `ask` and so lifts it."""


class CommandRuleError(SkillhouseError):
    """A rule about commands cannot be read, so that nothing is judged by it."""

    def __init__(self, rule: str, fault: str) -> None:
        super().__init__(f"expected a rule of words, optionally ending in ` *`: {rule!r}: {fault}")
        self.rule = rule


class Breadth(enum.IntEnum):
    """How specifically the rules that allow a command name it."""

    NONE = 0
    PROGRAM = 1
    """A wildcard after the program's name."""
    NARROW = 2
    """A wildcard after more than the program's name."""
    EXACT = 3
    ALL = 4
    """The operator's `*` alone: any command whatever."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """The result of the rules for one argv."""

    denied: str = ""
    """The rule that denies it; empty when none does."""
    asked: str = ""
    cover: Breadth = Breadth.NONE
    literals: int = 0
    """Words that the narrowest rule which allows it names."""
    left: str = ""
    """Why no rule covers all of it, though one covers its words; empty when one does."""
    unbound: bool = False
    """Whether only a rule with `unbound = true` covers it."""


class CommandRules(Protocol):
    """Rules that can be asked about a command."""

    def denies(self, argv: tuple[str, ...]) -> str: ...

    def rule(self, argv: tuple[str, ...]) -> Ruling: ...


@dataclass(frozen=True, slots=True)
class CommandPattern:
    """The pattern of a rule about commands, read once."""

    text: str
    words: tuple[str, ...]
    """The words before the first wildcard."""
    is_open: bool
    """Whether any further words may follow."""
    is_wild: bool = False
    """Whether it has other wildcards than a final ` *`, and is compared as text."""

    @property
    def breadth(self) -> Breadth:
        if not self.words:
            is_all = self.is_wild and not self.text.strip("*")
            return Breadth.ALL if is_all else Breadth.PROGRAM
        if not self.is_open and not self.is_wild:
            return Breadth.EXACT
        return Breadth.NARROW if len(self.words) > 1 else Breadth.PROGRAM


@functools.lru_cache(maxsize=4096)
def command_pattern(text: str) -> CommandPattern:
    """Return the pattern of a layer's rule: `*` and `?` are wildcards wherever they stand."""
    head, is_open = text, False
    if text.endswith(" *"):
        head, is_open = text[:-2], True
    if not any(sign in head for sign in "*?"):
        try:
            words = tuple(shlex.split(head))
        except ValueError:
            words = tuple(head.split(" "))
        if words:
            return CommandPattern(text, words, is_open)
    literal = min((head.find(sign) for sign in "*?" if sign in head), default=len(head))
    return CommandPattern(text, tuple(text[:literal].split(" ")[:-1]), False, is_wild=True)


def covers_command(pattern: CommandPattern, meaning: CommandMeaning) -> bool:
    """Whether a pattern that allows is about a command; what it leaves is another question."""
    argv = meaning.argv
    if pattern.is_wild:
        return matches(pattern.text, command_resource(argv))
    words = pattern.words
    if argv[: len(words)] == words and (pattern.is_open or len(argv) == len(words)):
        return True
    if argv[0] != words[0] or meaning.unknown or meaning.grammar is None:
        return False
    named = read_command(words)
    return _is_about(named, meaning, is_open=pattern.is_open)


def left_uncovered(
    pattern: CommandPattern,
    meaning: CommandMeaning,
    *,
    unbound: bool = False,
    started: bool = False,
) -> str:
    """Return the first thing that a pattern which covers a command's words does not name, or "".

    Args:
        unbound: Whether the rule covers programs that run whatever code the workspace holds.
        started: Whether it covers these where another program that it names starts them.
    """
    if not pattern.is_open and not pattern.is_wild and pattern.words == meaning.argv:
        return ""
    named = read_command(pattern.words) if pattern.words else None
    inside = False
    at: CommandMeaning | None = meaning
    while at is not None:
        for hazard in at.hazards:
            is_free = unbound or (started and inside)
            if not _names(named, hazard) or (hazard.kind == "unbound" and not is_free):
                return hazard.said
        if at.started is not None and at.started.unknown:
            return at.started.unknown
        at, inside = at.started, True
        named = named.started if named is not None else None
    return ""


def denies_command(pattern: CommandPattern, meaning: CommandMeaning) -> bool:
    """Whether a pattern that denies or asks is about a command, however it is spelt."""
    if pattern.is_wild:
        texts = [command_resource(meaning.argv), *map(command_resource, _plain_words(meaning))]
        return any(matches(pattern.text, text) for text in texts)
    words = pattern.words
    at: CommandMeaning | None = meaning
    while at is not None:
        if at.argv[: len(words)] == words and (pattern.is_open or len(at.argv) == len(words)):
            return True
        named = read_command(words)
        if named.program == at.program and at.grammar is not None:
            if at.unknown or named.unknown:
                if pattern.is_open and _follow(words[1:], at.argv[1:]):
                    return True
            elif _is_about(named, at, is_open=pattern.is_open, is_denial=True):
                return True
        at = at.started
    return False


def applies_to_command(rule: Rule, argv: tuple[str, ...]) -> bool:
    """Whether a rule about commands matches: an allow where it covers all, others however spelt."""
    pattern, meaning = command_pattern(rule.pattern), read_command(argv)
    if rule.effect is not Effect.ALLOW:
        return pattern.breadth is Breadth.ALL or denies_command(pattern, meaning)
    return pattern.breadth is Breadth.ALL or covers_command(pattern, meaning)


def _plain_words(meaning: CommandMeaning) -> Iterator[tuple[str, ...]]:
    """Yield a command's words by the full names of its sub-command, without what is before it."""
    if meaning.grammar is None:
        return
    yield (meaning.program, *meaning.path, *meaning.words(meaning.operands))
    if meaning.path:
        rest = [w for w in meaning.argv[1:] if w[:1] == "-"]
        yield (meaning.program, *meaning.path, *rest, *meaning.words(meaning.operands))
    if meaning.started is not None:
        yield meaning.started.argv
        yield from _plain_words(meaning.started)


def _is_about(
    named: CommandMeaning, meaning: CommandMeaning, *, is_open: bool, is_denial: bool = False
) -> bool:
    """Whether the words of a rule are those of a command, by its grammar."""
    if named.unknown and not (named.cut and is_open):
        return False
    if named.path != meaning.path[: len(named.path)]:
        return False
    ours, theirs = _own_operands(named), _own_operands(meaning)
    if ours != theirs[: len(ours)] or (ours and named.path != meaning.path):
        return False
    given = {(option.name, option.value) for option in meaning.options}
    names = {option.name for option in meaning.options}
    if is_denial:
        given |= {(option.twin, option.value) for option in meaning.options if option.twin}
        names |= {option.twin for option in meaning.options}
    for option in named.options:
        if (option.name, option.value) not in given and not (is_denial and option.is_global):
            return False
    if named.cut and named.cut not in names:
        return False
    if named.started is not None:
        if meaning.started is None:
            return False
        if not _starts(named.started, meaning.started, is_open=is_open, is_denial=is_denial):
            return False
    if is_open:
        return True
    if named.path != meaning.path or len(ours) != len(theirs):
        return False
    if named.started is None and meaning.started is not None:
        return False
    return is_denial or _local(named) == _local(meaning)


def _starts(
    named: CommandMeaning, meaning: CommandMeaning, *, is_open: bool, is_denial: bool
) -> bool:
    count = len(named.argv)
    if meaning.argv[:count] == named.argv and (is_open or len(meaning.argv) == count):
        return True
    same = named.program == meaning.program if is_denial else named.argv[0] == meaning.argv[0]
    if not same or meaning.grammar is None or meaning.unknown:
        return False
    return _is_about(named, meaning, is_open=is_open, is_denial=is_denial)


def _own_operands(meaning: CommandMeaning) -> tuple[str, ...]:
    """Return the operands that are not words of what the command starts."""
    places = meaning.operands
    if meaning.started is not None:
        places = [place for place in places if place < meaning.at]
    return meaning.words(places)


def _local(meaning: CommandMeaning) -> list[tuple[str, str]]:
    return sorted((o.name, o.value or "") for o in meaning.options if not o.is_global)


def _names(named: CommandMeaning | None, hazard: Hazard) -> bool:
    """Whether the words of a rule name what a hazard is about."""
    if named is None:
        return False
    if hazard.option is not None:
        return any((o.name, o.value) == hazard.option for o in named.options)
    if hazard.operand >= 0:
        return len(named.operands) > hazard.operand
    return len(named.path) >= hazard.depth


def _follow(words: Sequence[str], argv: Sequence[str]) -> bool:
    """Whether all words stand in a command in this order, a long option perhaps cut short."""
    rest = iter(argv)
    return all(any(_is_word(word, given) for given in rest) for word in words)


def _is_word(word: str, given: str) -> bool:
    if given == word:
        return True
    name = given.partition("=")[0]
    return word[:2] == "--" and len(name) > 2 and word.partition("=")[0].startswith(name)


class ArgumentRules:
    """Rules by argument: a final `*` is any further words; without one the words are all.

    >>> ArgumentRules(["git log *"]).rule(("git", "log", "-5")).cover.name
    'NARROW'
    """

    def __init__(self, allow: Sequence[str], deny: Sequence[str] = ()) -> None:
        """Read the rules.

        Raises:
            CommandRuleError: a rule cannot be taken apart into words.
        """
        self._exact, self._wild = _table(tuple(allow))
        self._deny = tuple(_words(rule) for rule in deny)

    def denies(self, argv: tuple[str, ...]) -> str:
        for pattern in self._deny:
            if not pattern.words or denies_command(pattern, read_command(argv)):
                return f"rule `{pattern.text}` denies it"
        return ""

    def rule(self, argv: tuple[str, ...]) -> Ruling:
        if argv in self._exact:
            return Ruling(cover=Breadth.EXACT, literals=len(argv))
        patterns = [*self._wild.get(argv[0], ()), *self._wild.get("", ())]
        return _ruling([(pattern, False, True) for pattern in patterns], argv)


class LayerRules:
    """The `exec` rules of layers: the strictest of all that match wins (decision 6)."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._rules = [
            (layer, rule, command_pattern(rule.pattern))
            for layer in layers
            for rule in layer.rules
            if matches(rule.action, "exec") and (layer.trusted or rule.effect is not Effect.ALLOW)
        ]

    def denies(self, argv: tuple[str, ...]) -> str:
        return self._first(Effect.DENY, read_command(argv))

    def rule(self, argv: tuple[str, ...]) -> Ruling:
        meaning = read_command(argv)
        allowing: list[tuple[CommandPattern, bool, bool]] = []
        is_granted = False
        for layer, rule, pattern in self._rules:
            if rule.effect is Effect.ALLOW and (
                pattern.breadth is Breadth.ALL or covers_command(pattern, meaning)
            ):
                allowing.append((pattern, rule.unbound, False))
                is_granted = is_granted or layer.name == GRANTS
        ruling = _ruling(allowing, argv)
        return Ruling(
            denied=self._first(Effect.DENY, meaning),
            asked="" if is_granted else self._first(Effect.ASK, meaning),
            cover=ruling.cover,
            literals=ruling.literals,
            left=ruling.left,
            unbound=ruling.unbound,
        )

    def _first(self, effect: Effect, meaning: CommandMeaning) -> str:
        for layer, rule, pattern in self._rules:
            if rule.effect is effect and (
                pattern.breadth is Breadth.ALL or denies_command(pattern, meaning)
            ):
                return _said(layer, rule)
        return ""


def _ruling(patterns: Sequence[tuple[CommandPattern, bool, bool]], argv: tuple[str, ...]) -> Ruling:
    """Return what patterns come to, each with its `unbound` and `started` (`left_uncovered`)."""
    meaning = read_command(argv)
    cover, literals, left, is_whole = Breadth.NONE, 0, "", False
    for pattern, unbound, started in patterns:
        if pattern.words and not covers_command(pattern, meaning):
            continue
        cover = max(cover, _breadth(pattern, argv))
        literals = max(literals, len(pattern.words))
        missing = left_uncovered(pattern, meaning, unbound=unbound, started=started)
        is_whole = is_whole or not missing
        left = left or missing
    return Ruling(
        cover=cover,
        literals=literals,
        left="" if is_whole or cover >= Breadth.EXACT else left,
        unbound=cover is not Breadth.NONE and _is_unbound(meaning),
    )


def _breadth(pattern: CommandPattern, argv: tuple[str, ...]) -> Breadth:
    breadth = pattern.breadth
    # A rule without a wildcard that covers other words does so by the grammar, not as they stand.
    return Breadth.NARROW if breadth is Breadth.EXACT and pattern.words != argv else breadth


def _is_unbound(meaning: CommandMeaning | None) -> bool:
    while meaning is not None:
        if any(hazard.kind == "unbound" for hazard in meaning.hazards):
            return True
        meaning = meaning.started
    return False


def _said(layer: Layer, rule: Rule) -> str:
    said = f"rule `{rule.action} {rule.pattern}` of {layer.name} policy"
    return f"{said}: {rule.reason}" if rule.reason else said


@functools.lru_cache(maxsize=1024)
def _words(rule: str) -> CommandPattern:
    """Return the pattern of a rule by argument: nothing but a final `*` is a wildcard."""
    try:
        words = tuple(shlex.split(rule))
    except ValueError as error:
        raise CommandRuleError(rule, str(error).casefold()) from error
    if not words:
        raise CommandRuleError(rule, "it is empty")
    # A star in quotes is an ordinary word.
    is_open = words[-1] == "*" and rule.rstrip().endswith("*")
    return CommandPattern(rule, words[:-1] if is_open else words, is_open)


@functools.lru_cache(maxsize=64)
def _table(
    rules: tuple[str, ...],
) -> tuple[frozenset[tuple[str, ...]], dict[str, list[CommandPattern]]]:
    """Return the exact rules, and all by their first word."""
    exact = set()
    by_word: dict[str, list[CommandPattern]] = {}
    for pattern in map(_words, rules):
        if not pattern.is_open:
            exact.add(pattern.words)
        by_word.setdefault(pattern.words[0] if pattern.words else "", []).append(pattern)
    return frozenset(exact), by_word
