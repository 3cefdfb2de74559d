"""Applies rules to one command, in either of the two forms of rules."""

from __future__ import annotations

import enum
import functools
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from skillhouse.floor import SkillhouseError
from skillhouse.floor.rules import Effect, matches
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


class CommandRules(Protocol):
    """Rules that can be asked about a command."""

    def denies(self, argv: tuple[str, ...]) -> str: ...

    def rule(self, argv: tuple[str, ...]) -> Ruling: ...


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
        self._allow = _table(tuple(allow))
        self._deny = tuple(_words(rule) for rule in deny)
        self._deny_texts = tuple(deny)

    def denies(self, argv: tuple[str, ...]) -> str:
        for words, text in zip(self._deny, self._deny_texts, strict=True):
            if _covers(words, argv):
                return f"rule `{text}` denies it"
        return ""

    def rule(self, argv: tuple[str, ...]) -> Ruling:
        cover, literals = Breadth.NONE, 0
        exact, wild = self._allow
        if argv in exact:
            return Ruling(cover=Breadth.EXACT, literals=len(argv))
        for words in wild.get(argv[0], ()):
            if argv[: len(words)] == words:
                cover = max(cover, Breadth.NARROW if len(words) > 1 else Breadth.PROGRAM)
                literals = max(literals, len(words))
        if cover is Breadth.NONE and wild.get(""):
            cover, literals = Breadth.PROGRAM, 0
        return Ruling(cover=cover, literals=literals)


class LayerRules:
    """The `exec` rules of layers: the strictest of all that match wins (decision 6)."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._layers = tuple(layers)
        self._rules = [
            (layer, rule)
            for layer in layers
            for rule in layer.rules
            if matches(rule.action, "exec") and (layer.trusted or rule.effect is not Effect.ALLOW)
        ]

    def denies(self, argv: tuple[str, ...]) -> str:
        resource = command_resource(argv)
        for layer, rule in self._rules:
            if rule.effect is Effect.DENY and matches(rule.pattern, resource):
                return _said(layer, rule)
        return ""

    def rule(self, argv: tuple[str, ...]) -> Ruling:
        resource = command_resource(argv)
        matched = [pair for pair in self._rules if matches(pair[1].pattern, resource)]
        cover, literals, asked, is_granted = Breadth.NONE, 0, "", False
        for layer, rule in matched:
            if rule.effect is Effect.ASK:
                asked = asked or _said(layer, rule)
            elif rule.effect is Effect.ALLOW:
                cover = max(cover, _breadth(rule.pattern))
                literals = max(literals, _literals(rule.pattern))
                is_granted = is_granted or layer.name == GRANTS
        return Ruling(
            denied=next((_said(at, r) for at, r in matched if r.effect is Effect.DENY), ""),
            asked="" if is_granted else asked,
            cover=cover,
            literals=literals,
        )


def _said(layer: Layer, rule: Rule) -> str:
    said = f"rule `{rule.action} {rule.pattern}` of {layer.name} policy"
    return f"{said}: {rule.reason}" if rule.reason else said


def _breadth(pattern: str) -> Breadth:
    if not pattern.strip("*"):
        return Breadth.ALL
    if "*" not in pattern and "?" not in pattern:
        return Breadth.EXACT
    return Breadth.NARROW if _literals(pattern) > 1 else Breadth.PROGRAM


def _literals(pattern: str) -> int:
    """Return how many whole words stand before the first wildcard."""
    head = pattern.split("*", 1)[0].split("?", 1)[0]
    return len(head.split(" ")) - (0 if head == pattern else 1)


Words = tuple[tuple[str, ...], bool]
"""The words of a rule, and whether any others may follow."""


def _covers(rule: Words, argv: tuple[str, ...]) -> bool:
    words, is_open = rule
    return argv[: len(words)] == words and (is_open or len(argv) == len(words))


@functools.lru_cache(maxsize=1024)
def _words(rule: str) -> Words:
    try:
        words = tuple(shlex.split(rule))
    except ValueError as error:
        raise CommandRuleError(rule, str(error).casefold()) from error
    if not words:
        raise CommandRuleError(rule, "it is empty")
    # A star in quotes is an ordinary word.
    is_open = words[-1] == "*" and rule.rstrip().endswith("*")
    return (words[:-1], True) if is_open else (words, False)


@functools.lru_cache(maxsize=64)
def _table(
    rules: tuple[str, ...],
) -> tuple[frozenset[tuple[str, ...]], dict[str, list[tuple[str, ...]]]]:
    """Return the exact rules, and the open ones by their first word."""
    exact = set()
    wild: dict[str, list[tuple[str, ...]]] = {}
    for words, is_open in map(_words, rules):
        if is_open:
            wild.setdefault(words[0] if words else "", []).append(words)
        else:
            exact.add(words)
    return frozenset(exact), wild
