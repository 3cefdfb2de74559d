"""Applies rules to one command, in either of the two forms of rules.

Also which rule a standing approval of a command writes, and which are narrower.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from skillhouse.floor import SkillhouseError
from skillhouse.floor.rules import Effect, matches
from skillhouse.floor.structs import replace
from skillhouse.permission import hazards
from skillhouse.permission.command_reader import program_of, read_command
from skillhouse.permission.decision import Layer, Rule
from skillhouse.permission.grammar import CommandMeaning, Hazard
from skillhouse.permission.patterns import (
    Breadth,
    CommandPattern,
    command_pattern,
    covers_command,
    denies_command,
    left_uncovered,
    programs_of,
)
from skillhouse.permission.plan import command_resource


def standing_rule(argv: Sequence[str]) -> str:
    """Return the pattern of the rule that a standing approval of a command writes, or "" for none.

    It is the words of the sub-command with the options given, then ` *`. Of a program without a
    grammar, of a group of sub-commands, of what writes files, of code in words and of an
    offline install (`standing_bond`) it is the exact command. There is none for any other
    command with a hazard, such as one that installs, deletes or names an address, and none for
    one that is not understood.

    >>> standing_rule(["git", "log", "--oneline", "main"]), standing_rule(["git", "push"])
    ('git log --oneline *', '')
    """
    words = tuple(argv)
    if not words or not words[0] or any(sign in word for word in words for sign in "*?"):
        return ""
    meaning = read_command(words)
    if not _may_last(meaning):
        return ""
    exact = _exact(meaning)
    rule = command_resource(exact) if exact else f"{command_resource(_named(meaning))} *"
    return rule if _covers(rule, meaning) else ""


def narrows(offered: str, given: str) -> bool:
    """Whether a rule about commands covers no more than the one that was offered.

    A rule without a wildcard is narrowed by itself only. One with ` *` is narrowed by each rule
    of the same words and more, that would itself be offered: more words may name a hazard, which
    the wildcard alone does not cover.

    >>> narrows("git log *", "git log --oneline *"), narrows("git log *", "git *")
    (True, False)
    """
    if given == offered:
        return True
    wide, narrow = command_pattern(offered), command_pattern(given)
    if not wide.is_open or wide.is_wild or narrow.is_wild or not narrow.words:
        return False
    meaning = read_command(narrow.words)
    return (
        _may_last(meaning)
        and covers_command(wide, meaning)
        and not left_uncovered(wide, meaning)
        and (not narrow.is_open or not _is_group(meaning))
    )


_CODE: Mapping[str, tuple[str, frozenset[str]]] = {
    "node": (".js", frozenset({"-e", "--eval", "-p", "--print", "-pe"})),
    "python": (".py", frozenset({"-c"})),
}
"""The suffix of a script in each language whose code may be in words, and the options with it."""


class StandingBond(NamedTuple):
    """What a standing approval of the exact words is bound to besides."""

    suffix: str = ""
    """Of a script with the code."""
    code: str = ""
    files: tuple[tuple[str, ...], ...] = ()
    """The files that an install obeys, the lock first; of each tuple the first that exists."""


@functools.lru_cache(maxsize=256)
def standing_bond(argv: tuple[str, ...]) -> StandingBond | None:
    """Return what a standing approval of code in words, or of an install without network, is bound
    to: whoever runs it asks about these files. None for any other command.

    >>> standing_bond(("node", "-p", "process.version"))
    StandingBond(suffix='.js', code='process.version', files=())
    >>> standing_bond(("npm", "ci")), len(standing_bond(("npm", "ci", "--offline")).files)
    (None, 2)
    """
    meaning = read_command(argv)
    if meaning.unknown or meaning.operands:
        return None
    suffix, code = _code_of(meaning)
    if code:
        return StandingBond(suffix, code)
    files = _install_files(meaning)
    return StandingBond(files=files) if files else None


def _code_of(meaning: CommandMeaning) -> tuple[str, str]:
    """Return the code that a command has in its words and nothing besides, after the suffix that
    a script of it would have."""
    suffix, names = _CODE.get(meaning.program, ("", frozenset[str]()))
    found = [option.value or "" for option in meaning.options if option.name in names]
    is_all = len(found) == 1 and not (meaning.started or meaning.scripts)
    if not is_all or not all(_is_of_code(hazard, names, meaning) for hazard in meaning.hazards):
        return "", ""
    return suffix, found[0]


def _is_of_code(hazard: Hazard, names: frozenset[str], meaning: CommandMeaning) -> bool:
    """Whether a hazard is the code itself, or that there is no script."""
    if hazard.option is not None:
        return hazard.option[0] in names
    return hazard.depth > len(meaning.path)


_INSTALLERS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "npm": (("npm-shrinkwrap.json", "package-lock.json"), ("package.json",)),
    "pnpm": (
        ("pnpm-lock.yaml",),
        ("package.json",),
        ("pnpm-workspace.yaml",),
        (".pnpmfile.cjs",),
        (".pnpmfile.mjs",),
    ),
}
"""The files that say what an install brings and runs, of each tuple the first that exists; the
first tuple is the lock (docs.npmjs.com/cli, package-lock-json; pnpm.io, pnpmfile). `.npmrc` is
written by no tool."""
_INSTALLS = (("install",), ("ci",))
_WITHOUT_LOCK = frozenset(
    "--no-package-lock --no-lockfile --fix-lockfile --no-frozen-lockfile --before "
    "--ignore-workspace".split()
)


def _install_files(meaning: CommandMeaning) -> tuple[tuple[str, ...], ...]:
    names = {option.name for option in meaning.options}
    is_one = (
        meaning.path in _INSTALLS
        and "--offline" in names
        and names.isdisjoint(_WITHOUT_LOCK)
        and not (meaning.directory or meaning.written_values)
        and all(hazard.kind == "installs" and hazard.depth >= 0 for hazard in meaning.hazards)
    )
    return _INSTALLERS.get(meaning.program, ()) if is_one else ()


def _may_last(meaning: CommandMeaning) -> bool:
    if meaning.grammar is None:
        name = hazards.base_name(meaning.argv[0])
        # A program that a path names is one of the workspace, whose bytes are asked about besides.
        return not (
            hazards.running(name)
            or name in hazards.PRIVILEGED
            or hazards.destruction(meaning.argv)
            or meaning.argv[0].startswith(("/", "~"))
        )
    if standing_bond(meaning.argv):
        return not meaning.argv[0].startswith(("/", "~"))
    if meaning.unknown or meaning.hazards or meaning.inner or meaning.environment:
        return False
    if meaning.started is not None or meaning.scripts:
        return False
    return meaning.table is not None and meaning.table.may_last and not _takes_address(meaning)


def _takes_address(meaning: CommandMeaning) -> bool:
    """Whether the grammar has an address of the web in its place, which could be any."""
    table = meaning.table
    if table is None:
        return False
    given = (table.options.get(option.name) for option in meaning.options)
    return "web" in (*table.operands, table.last, *(rule.kind for rule in given if rule))


def _exact(meaning: CommandMeaning) -> tuple[str, ...]:
    """Return all words of a command of which only the exact rule may last; else nothing."""
    is_whole = meaning.grammar is None or _is_group(meaning) or standing_bond(meaning.argv)
    return meaning.argv if is_whole or meaning.writes or meaning.written_values else ()


def _is_group(meaning: CommandMeaning) -> bool:
    """Whether further words could make it another sub-command."""
    return meaning.table is not None and bool(meaning.table.commands)


def _named(meaning: CommandMeaning) -> tuple[str, ...]:
    """Return the program, its sub-command and its options, in the order given."""
    operands = frozenset(meaning.operands)
    words = [word for at, word in enumerate(meaning.argv) if at not in operands]
    return tuple(word for word in words if word != "--")


def _covers(rule: str, meaning: CommandMeaning) -> bool:
    """Whether a rule as it is written covers the command, and no other wildcard is in it."""
    pattern = command_pattern(rule)
    if pattern.is_wild or not covers_command(pattern, meaning) or left_uncovered(pattern, meaning):
        return False
    return pattern.is_open is not bool(_exact(meaning))


GRANTS = "grants"
"""Name of the layer of standing approvals, each of which answers an `ask` and so lifts it."""


class CommandRuleError(SkillhouseError):
    """A rule about commands cannot be read, so that nothing is judged by it."""

    def __init__(self, rule: str, fault: str) -> None:
        super().__init__(f"expected a rule of words, optionally ending in ` *`: {rule!r}: {fault}")
        self.rule = rule


class RuleOutcome(Struct, frozen=True):
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

    def rule(self, argv: tuple[str, ...]) -> RuleOutcome: ...

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

    def rule(self, argv: tuple[str, ...]) -> RuleOutcome:
        if argv in self._exact:
            return RuleOutcome(cover=Breadth.EXACT, literals=len(argv))
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

    def rule(self, argv: tuple[str, ...]) -> RuleOutcome:
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


def _is_whole(ruling: RuleOutcome) -> bool:
    return ruling.cover is not Breadth.NONE and not ruling.left


def _first(effect: Effect, rules: Iterable[_LayerRule], meaning: CommandMeaning) -> str:
    for layer, rule, pattern in rules:
        if rule.effect is effect and (
            pattern.breadth is Breadth.ALL or denies_command(pattern, meaning)
        ):
            return rule.said_in(layer.name)
    return ""


def _ruling(rules: Sequence[_Covering], meaning: CommandMeaning) -> RuleOutcome:
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
    return RuleOutcome(
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
