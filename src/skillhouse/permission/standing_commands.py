"""The rule that a standing approval of a command writes, and the rules that are narrower."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from skillhouse.permission import hazards
from skillhouse.permission.command_meaning import CommandMeaning, Hazard
from skillhouse.permission.command_reader import read_command
from skillhouse.permission.patterns import command_pattern, covers_command, left_uncovered
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
