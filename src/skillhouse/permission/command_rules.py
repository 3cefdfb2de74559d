"""Applies rules to one command, in either of the two forms of rules."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from skillhouse.floor import SkillhouseError
from skillhouse.floor.rules import Effect, matches
from skillhouse.floor.structs import replace
from skillhouse.permission.command_meaning import CommandMeaning
from skillhouse.permission.command_reader import program_of, read_command
from skillhouse.permission.decision import Layer, Rule
from skillhouse.permission.patterns import (
    Breadth,
    CommandPattern,
    command_pattern,
    covers_command,
    denies_command,
    left_uncovered,
    programs_of,
)
from skillhouse.permission.standing_commands import standing_bond

GRANTS = "grants"
"""Name of the layer of standing approvals, each of which answers an `ask` and so lifts it."""


class CommandRuleError(SkillhouseError):
    """A rule about commands cannot be read, so that nothing is judged by it."""

    def __init__(self, rule: str, fault: str) -> None:
        super().__init__(f"expected a rule of words, optionally ending in ` *`: {rule!r}: {fault}")
        self.rule = rule


class Ruling(Struct, frozen=True):
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
    is_granted: bool = False
    """Whether a standing approval covers it and no rule of another layer does."""
    unnamed: tuple[str, ...] = ()
    """The words of programs without a table that the narrowest rule does not name; none where a
    rule with `unbound = true` covers them."""


class CommandRules(Protocol):
    """Rules that can be asked about a command."""

    @property
    def has_denials(self) -> bool: ...

    @property
    def is_fence(self) -> bool:
        """Whether some rule denies or asks, so that what a command starts has to be seen."""
        ...

    def denies(self, argv: tuple[str, ...]) -> str: ...

    def rule(self, argv: tuple[str, ...]) -> Ruling: ...

    def restricted(self, program: str) -> Sequence[CommandMeaning]:
        """Return what the rules that deny or ask name of a program: the words before a wildcard."""
        ...

    def restricted_programs(self) -> Collection[str]: ...


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
        self.has_denials = self.is_fence = bool(deny)
        self._restricted = _by_program(self._deny)

    def restricted(self, program: str) -> Sequence[CommandMeaning]:
        return self._restricted.get(program, ())

    def restricted_programs(self) -> Collection[str]:
        return self._restricted.keys()

    def denies(self, argv: tuple[str, ...]) -> str:
        for pattern in self._deny:
            if not pattern.words or denies_command(pattern, read_command(argv)):
                return f"rule `{pattern.text}` denies it"
        return ""

    def rule(self, argv: tuple[str, ...]) -> Ruling:
        if argv in self._exact:
            return Ruling(cover=Breadth.EXACT, literals=len(argv))
        patterns = [*self._wild.get(argv[0], ()), *self._wild.get("", ())]
        meaning = read_command(argv)
        about = [p for p in patterns if not p.words or covers_command(p, meaning)]
        return _ruling([_Covering(pattern, started=True) for pattern in about], meaning)


class _Covering(NamedTuple):
    """A pattern that allows, and what it covers without naming it (`left_uncovered`)."""

    pattern: CommandPattern
    unbound: bool = False
    started: bool = False
    scripts: bool = False


class _LayerRule(NamedTuple):
    layer: Layer
    rule: Rule
    pattern: CommandPattern


class LayerRules:
    """The `exec` rules of layers: the strictest of all that match wins (decision 6)."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._rules: list[_LayerRule] = []
        self._anywhere: list[int] = []
        """Places of the rules whose first word has a wildcard."""
        self._by_program: dict[str, list[int]] = {}
        self.has_denials = self.is_fence = False
        self._restricted: Mapping[str, Sequence[CommandMeaning]] | None = None
        for layer in layers:
            for rule in layer.rules:
                if not matches(rule.action, "exec"):
                    continue
                if layer.trusted or rule.effect is not Effect.ALLOW:
                    self._add(_LayerRule(layer, rule, command_pattern(rule.pattern)))

    def _add(self, one: _LayerRule) -> None:
        self.has_denials = self.has_denials or one.rule.effect is Effect.DENY
        self.is_fence = self.is_fence or one.rule.effect is not Effect.ALLOW
        place = len(self._rules)
        self._rules.append(one)
        if not one.pattern.words:
            self._anywhere.append(place)
            return
        first = one.pattern.words[0]
        # The tables of programs of which no command is judged are not read.
        for name in {first, program_of(first)}:
            self._by_program.setdefault(name, []).append(place)

    def restricted(self, program: str) -> Sequence[CommandMeaning]:
        return self._strict().get(program, ())

    def restricted_programs(self) -> Collection[str]:
        return self._strict().keys()

    def denied_programs(self) -> frozenset[str]:
        """Return the programs that are denied whatever their words are."""
        return frozenset(
            one.pattern.words[0]
            for one in self._rules
            if one.rule.effect is Effect.DENY
            and one.pattern.is_open
            and len(one.pattern.words) == 1
        )

    def _strict(self) -> Mapping[str, Sequence[CommandMeaning]]:
        if self._restricted is None:
            strict = [one for one in self._rules if one.rule.effect is not Effect.ALLOW]
            self._restricted = _by_program([one.pattern for one in strict])
        return self._restricted

    def _about(self, meaning: CommandMeaning) -> Iterator[_LayerRule]:
        """Yield the rules that may be about a command, in their order."""
        places = set(self._anywhere)
        for name in programs_of(meaning):
            places.update(self._by_program.get(name, ()))
        return map(self._rules.__getitem__, sorted(places))

    def denies(self, argv: tuple[str, ...]) -> str:
        meaning = read_command(argv)
        return _first(Effect.DENY, self._about(meaning), meaning)

    def rule(self, argv: tuple[str, ...]) -> Ruling:
        meaning = read_command(argv)
        about = list(self._about(meaning))
        allowing: list[_Covering] = []
        written: list[_Covering] = []
        for layer, rule, pattern in about:
            if rule.effect is Effect.ALLOW and (
                pattern.breadth is Breadth.ALL or covers_command(pattern, meaning)
            ):
                allowing.append(_Covering(pattern, unbound=rule.unbound, scripts=rule.scripts))
                written += allowing[-1:] if layer.name != GRANTS else ()
        has_grant = len(written) < len(allowing)
        ruling = _ruling(allowing, meaning)
        is_granted = has_grant and not _is_whole(_ruling(written, meaning))
        return replace(
            ruling,
            denied=_first(Effect.DENY, about, meaning),
            asked="" if has_grant else _first(Effect.ASK, about, meaning),
            is_granted=is_granted,
            # An install runs what its packages say, though the words are exact.
            unbound=ruling.unbound or (is_granted and _installs(argv)),
        )


def _installs(argv: tuple[str, ...]) -> bool:
    bond = standing_bond(argv)
    return bond is not None and bool(bond.files)


def _is_whole(ruling: Ruling) -> bool:
    return ruling.cover is not Breadth.NONE and not ruling.left


def _first(effect: Effect, rules: Iterable[_LayerRule], meaning: CommandMeaning) -> str:
    for layer, rule, pattern in rules:
        if rule.effect is effect and (
            pattern.breadth is Breadth.ALL or denies_command(pattern, meaning)
        ):
            return _said(layer, rule)
    return ""


def _ruling(rules: Sequence[_Covering], meaning: CommandMeaning) -> Ruling:
    """Return what rules that allow a command's words come to."""
    cover, literals, left = Breadth.NONE, 0, ""
    whole: list[_Covering] = []
    for rule in rules:
        pattern = rule.pattern
        cover = max(cover, _breadth(pattern, meaning.argv))
        literals = max(literals, len(pattern.words))
        missing = left_uncovered(
            pattern, meaning, unbound=rule.unbound, started=rule.started, scripts=rule.scripts
        )
        whole += () if missing else (rule,)
        left = left or missing
    is_unlisted = any(at.grammar is None for at in meaning.chain())
    is_free = is_unlisted and any(rule.unbound for rule in whole)
    return Ruling(
        cover=cover,
        literals=literals,
        left="" if whole or cover >= Breadth.EXACT else left,
        # An exact rule, and the operator's `*`, leave the network to the rules about it.
        unbound=Breadth.NONE < cover < Breadth.EXACT
        and (is_free or any(h.kind == "unbound" for at in meaning.chain() for h in at.hazards)),
        unnamed=_unnamed(whole, meaning) if is_unlisted and not is_free else (),
    )


def _unnamed(rules: Sequence[_Covering], meaning: CommandMeaning) -> tuple[str, ...]:
    """Return the words of programs without a table that the narrowest rule leaves open."""
    words = max((rule.pattern.words for rule in rules), key=len, default=())
    named = read_command(words) if words else None
    for at in meaning.chain():
        if at.grammar is None:
            return at.argv[len(named.argv) if named is not None else 1 :]
        if at.is_far:
            break  # What runs in a container or on another machine is not of this workspace.
        named = named.started if named is not None else None
    return ()


def _breadth(pattern: CommandPattern, argv: tuple[str, ...]) -> Breadth:
    breadth = pattern.breadth
    # A rule without a wildcard that covers other words does so by the grammar, not as they stand.
    return Breadth.NARROW if breadth is Breadth.EXACT and pattern.words != argv else breadth


def _said(layer: Layer, rule: Rule) -> str:
    said = f"rule `{rule.action} {rule.pattern}` of {layer.name} policy"
    return f"{said}: {rule.reason}" if rule.reason else said


def _by_program(patterns: Sequence[CommandPattern]) -> Mapping[str, Sequence[CommandMeaning]]:
    """Return what patterns name, by the programs that they are about."""
    found: dict[str, list[CommandMeaning]] = {}
    for pattern in patterns:
        if pattern.words:
            meaning = read_command(pattern.words)
            for name in {pattern.words[0], meaning.program}:
                found.setdefault(name, []).append(meaning)
    return found


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
