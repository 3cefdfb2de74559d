"""Reads the words of one command by its program's grammar: what they mean, and what is risky.

Also programs that only start another one, with the command inside; and how words were read, to be
shown.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from msgspec import Struct

from skillhouse.floor.regex import regex
from skillhouse.permission import hazards
from skillhouse.permission.grammar import (
    HAZARDS,
    CommandMeaning,
    CommandTable,
    Grammar,
    Hazard,
    Option,
    OptionRule,
    grammar_of,
    is_wrapper,
    table_named,
)
from skillhouse.permission.operand_readers import READERS, with_hyphen

INNER_MAX = 4
"""Programs inside one another, as in `uv run python -m pytest`; more are not understood."""


@functools.lru_cache(maxsize=256)
def read_command(argv: tuple[str, ...], depth: int = 0, *, module: bool = False) -> CommandMeaning:
    """Return what a command means; the result is shared, and not to be changed.

    >>> read_command(("git", "--no-pager", "log", "-5")).path
    ('log',)
    """
    name = argv[0].rsplit("/", 1)[-1]
    grammar = grammar_of(name, module=module) or grammar_of(hazards.base_name(name))
    if grammar is not None and grammar.program.reader == "tar":
        argv = with_hyphen(argv)
    meaning = CommandMeaning(argv, grammar)
    if grammar is None:
        if "/" in argv[0]:
            meaning.scripts.append((argv[0],))
    else:
        _Reader(meaning, grammar, depth).read()
    return meaning


def program_of(name: str) -> str:
    """Return what `read_command` calls a program; its grammar is mostly not read for that."""
    return table_named(name.rsplit("/", 1)[-1]) or read_command((name,)).program


class _Reader:
    """Takes the words of one command, from the left."""

    def __init__(self, meaning: CommandMeaning, grammar: Grammar, depth: int) -> None:
        self._meaning = meaning
        self._grammar = grammar
        self._depth = depth
        self._tables = [grammar.program]
        """The program and each sub-command so far."""

    def read(self) -> None:
        self._words()
        table = self._tables[-1]
        if table.reader:
            # It may know words that the table does not, such as the expressions of find.
            READERS[table.reader](self._meaning)

    def _words(self) -> None:
        meaning, argv = self._meaning, self._meaning.argv
        at = 1
        while at < len(argv):
            word = argv[at]
            table = self._tables[-1]
            if word == "--":
                if table.commands and not meaning.operands:
                    meaning.unknown = "`--` before a sub-command"
                    return
                meaning.operands += range(at + 1, len(argv))
                break
            is_option = len(word) > 1 and (
                word[0] == "-" or (word[0] == "+" and word in table.options)
            )
            if is_option:
                used = self._known_option(at)
                if used == 0:
                    return
                at += used
                if meaning.started is not None:
                    break
                continue
            if table.commands and not meaning.operands:
                name = self._command_name(table, word)
                if name:
                    meaning.path += (name,)
                    self._tables.append(table.commands[name])
                    at += 1
                    continue
                if not table.operands:
                    said = " ".join((argv[0], *meaning.path, word))[:60]
                    meaning.unknown = f"`{said}` is not one of the sub-commands known as safe"
                    return
            meaning.operands.append(at)
            at += 1
            if not self._grammar.permutes or self._ends_options():
                meaning.operands += range(at, len(argv))
                break
        meaning.table = table = self._tables[-1]
        if table.same_as:
            meaning.groups, meaning.path = meaning.path[:-1], table.same_as
        if self._grammar.argument_files and (file := _argument_file(meaning)):
            meaning.unknown = f"`{file[:60]}` means the words in a file"
            return
        self._does(table)
        self._operands(table)

    def _known_option(self, at: int) -> int:
        """Return how many words an option is; 0 makes the command unknown."""
        meaning, word = self._meaning, self._meaning.argv[at]
        used = self._option(at)
        if used == 0:
            meaning.unknown = f"the option `{word[:60]}` is not one of those known as safe"
        elif at + used > len(meaning.argv):
            meaning.unknown = f"the option `{word[:60]}` has no value"
            meaning.cut = word
            return 0
        return used

    def _command_name(self, table: CommandTable, word: str) -> str:
        name = table.names.get(word, "")
        if not name and self._grammar.abbreviates:
            fitting = {of for known, of in table.names.items() if known.startswith(word)}
            name = fitting.pop() if len(fitting) == 1 else ""
        return name

    def _ends_options(self) -> bool:
        """Whether all words behind the operand that was just taken belong to what it starts."""
        kind = self._kind_at(self._tables[-1], len(self._meaning.operands) - 1)
        return kind in ("program", "command", "script")

    def _kind_at(self, table: CommandTable, index: int) -> str:
        kinds = table.operands or ("text",)
        if table.first_unless and any(o.name in table.first_unless for o in self._meaning.options):
            kinds = kinds[1:] or ("text",)
        return kinds[min(index, len(kinds) - 1)]

    # Options

    def _option(self, at: int) -> int:
        """Take an option; return how many words it is, or 0 when it is not known."""
        word = self._meaning.argv[at]
        tables = [self._tables[-1]]
        if self._grammar.anywhere:
            tables += reversed(self._tables[:-1])
        for table in tables:
            if used := self._option_of(table, at, word):
                return used
        return 0

    def _option_of(self, table: CommandTable, at: int, word: str) -> int:
        if table.numbers and word[1:].isdigit() and word not in table.options:
            self._take(word, None, OptionRule("plain", ""))
            return 1
        name, sign, value = word.partition("=")
        rule = table.options.get(name)
        if rule is not None and (len(name) > 2 or not sign or not self._grammar.bundles):
            if sign:
                if not rule.takes:
                    return 0
                self._take(name, value, rule)
                return 1
            return self._with_next(name, rule, at)
        for prefix, of_prefix in sorted(table.prefixes.items(), key=lambda one: -len(one[0])):
            if word.startswith(prefix) and len(word) > len(prefix):
                self._take(f"{prefix}*", word[len(prefix) :], of_prefix)
                return 1
        if word[:2] == "--" or word[0] == "+":
            return 0
        return self._letters(table, at, word)

    def _with_next(self, name: str, rule: OptionRule, at: int) -> int:
        """Take an option without a value in its word: the next word may be it."""
        following = self._meaning.argv[at + 1 : at + 2]
        if rule.takes == "=#" and following and following[0].isdigit():
            self._take(name, following[0], rule)
            return 2
        if rule.takes != "=":
            self._take(name, None, rule)
            return 1
        if following and _LIKE_AN_OPTION.match(following[0]):
            return 0  # Programs differ in whether that is the value or another option.
        if following:
            self._take(name, following[0], rule)
            if rule.kind == "module":
                self._module(following[0], at + 2)
        return 2

    def _letters(self, table: CommandTable, at: int, word: str) -> int:
        """Take `-xvf FILE` and `-n5`."""
        taken: list[tuple[str, str | None, OptionRule]] = []
        for place, letter in enumerate(word[1:], start=1):
            rule = table.options.get(f"-{letter}")
            rest = word[place + 1 :]
            if rule is None:
                return 0
            if rest and not (self._grammar.glued if rule.takes else self._grammar.bundles):
                return 0
            if rule.takes and not rest:
                for one in taken:
                    self._take(*one)
                return self._with_next(f"-{letter}", rule, at)
            taken.append((f"-{letter}", rest if rule.takes else None, rule))
            if rule.takes:
                break
        for one in taken:
            self._take(*one)
        if taken[-1][2].kind == "module":
            self._module(taken[-1][1] or "", at + 1)
        return 1

    def _module(self, name: str, at: int) -> None:
        """Read the module that runs, and the words from `at` on, which are its own."""
        meaning, argv = self._meaning, self._meaning.argv
        if self._depth >= INNER_MAX:
            meaning.unknown = f"more than {INNER_MAX} programs inside one another"
            return
        meaning.started = read_command((name, *argv[at:]), self._depth + 1, module=True)
        meaning.at = at
        path = name.replace(".", "/")
        meaning.scripts.append((f"{path}.py", f"{path}/__main__.py"))

    def _take(self, name: str, value: str | None, rule: OptionRule) -> None:
        meaning, kind = self._meaning, rule.kind
        is_before = bool(self._tables[-1].commands)
        is_global = is_before and kind == "plain"
        meaning.options.append(
            Option(name, value, is_global=is_global, twin=rule.twin, spellings=rule.spellings)
        )
        if kind == "module":
            kind = "runs"
        if kind in HAZARDS:
            shown = name if value is None else f"{name} {value}"
            said = HAZARDS[kind].format(shown[:60])
            meaning.hazards.append(Hazard(kind, said, option=(name, value)))
        if value is None:
            return
        if kind in ("read", "write", "directory"):
            # In `-f=x` the sign is part of the value for some programs, and not for others.
            path = value.removeprefix("=") if len(name) == 2 else value
            if said := _not_a_path(path):
                meaning.hazards.append(Hazard("address", said, option=(name, value)))
            of_kind = {
                "read": meaning.read_values,
                "write": meaning.written_values,
                "directory": meaning.directory,
            }
            of_kind[kind].append(path)
        elif kind == "web":
            if said := not_of_the_web(value):
                meaning.hazards.append(Hazard("address", said, option=(name, value)))
        elif kind != "words":
            meaning.values.append(value.removeprefix("="))
            if kind == "plain" and self._is_elsewhere(value.removeprefix("=")):
                said = HAZARDS["address"].format(f"{name} {value}"[:60])
                meaning.hazards.append(Hazard("address", said, option=(name, value)))

    def _is_elsewhere(self, word: str) -> bool:
        """Whether a word that is no path names another host than the program's own."""
        found = _HOST.match(word)
        if found is None and self._grammar.home:
            found = _HOST_FIRST.match(word)
        if found is None:
            return False
        host = found["host"] or found.groupdict().get("other") or ""
        return not self._grammar.home or host.casefold() != self._grammar.home

    # The command and its operands

    def _does(self, table: CommandTable) -> None:
        meaning = self._meaning
        said = " ".join((meaning.argv[0], *meaning.path))[:60]
        if not meaning.operands and [o.name for o in meaning.options] in _TELLING:
            return
        depth = len(meaning.path)
        for kind in table.does:
            meaning.hazards.append(Hazard(kind, HAZARDS[kind].format(said), depth=depth))
        if not (meaning.operands or meaning.started):
            # More words than any rule about it has, so that none but the exact one covers it.
            for kind in table.bare:
                meaning.hazards.append(Hazard(kind, HAZARDS[kind].format(said), depth=depth + 1))

    def _operands(self, table: CommandTable) -> None:
        meaning = self._meaning
        count = len(meaning.operands)
        for index, at in enumerate(meaning.operands):
            kind = self._kind_at(table, index)
            if table.last and index == count - 1 and index > 0:
                kind = table.last
            word = meaning.argv[at]
            meaning.kinds.append(kind)
            if kind in ("read", "write"):
                (meaning.reads if kind == "read" else meaning.writes).append(at)
                if said := _not_a_path(word):
                    self._hazard("address", said, index)
            elif kind in ("web", "remote"):
                self._address(kind, word, index)
            elif kind == "none":
                self._hazard("runs", f"`{word[:60]}` is not expected there", index)
            elif kind == "task":
                self._hazard("runs", f"it runs `{word[:60]}`, which the rule does not name", index)
            elif kind in HAZARDS:
                self._hazard(kind, HAZARDS[kind].format(word[:60]), index)
            elif kind in ("program", "command", "script"):
                self._start(kind, index, at)
                break
            elif kind == "text":
                self._text(word, index, table)
        if table.task_file and (count or table.does):
            prefix = "".join(f"{directory}/" for directory in meaning.directory)
            meaning.scripts.append(tuple(f"{prefix}{name}" for name in table.task_file))

    def _text(self, word: str, index: int, table: CommandTable) -> None:
        self._meaning.values.append(word)
        if "address" not in table.does and self._is_elsewhere(word):
            self._hazard("address", HAZARDS["address"].format(word[:60]), index)

    def _address(self, kind: str, word: str, index: int) -> None:
        if kind == "web":
            said = not_of_the_web(word)
        else:
            is_name = _REMOTE.fullmatch(word) is not None
            said = "" if is_name else HAZARDS["address"].format(word[:60])
        if said:
            self._hazard("address", said, index)

    def _hazard(self, kind: str, said: str, index: int) -> None:
        self._meaning.hazards.append(Hazard(kind, said, operand=index))

    def _start(self, kind: str, index: int, at: int) -> None:
        """Read what a word starts, with all words behind it."""
        meaning, argv = self._meaning, self._meaning.argv
        word = argv[at]
        meaning.kinds += [kind] * (len(meaning.operands) - index - 1)
        if kind == "command":
            meaning.inner = at
        elif kind == "script":
            self._hazard("runs", f"it runs `{word[:60]}`, which the rule does not name", index)
            meaning.scripts.append((word,))
            meaning.values += argv[at + 1 :]
        elif self._depth >= INNER_MAX:
            meaning.unknown = f"more than {INNER_MAX} programs inside one another"
        else:
            self._hazard("runs", f"it runs `{word[:60]}`, which the rule does not name", index)
            if self._tables[-1].reader == "npm_exec" and argv[at - 1] != "--":
                # npm takes the `--` away that ends its own options, also behind the program.
                at += argv[at + 1 : at + 2] == ("--",)
            if word.endswith(".py") and "/" not in word:
                meaning.scripts.append((word,))  # `uv run x.py`
            meaning.started = read_command((word, *argv[at + 1 :]), self._depth + 1)
            meaning.at = at


def _argument_file(meaning: CommandMeaning) -> str:
    values = [option.value for option in meaning.options if option.value]
    return next((w for w in (*meaning.argv[1:], *values) if w[:1] == "@"), "")


_LIKE_AN_OPTION = regex(r"-(?!\d*\.?\d*$)")
_TELLING = (["--version"], ["--help"])
"""Options with which a program says something of itself and does nothing."""
_ADDRESS = regex(r"[A-Za-z][A-Za-z0-9+.-]+:(//|:)|[\w.-]+@[\w.-]+:|data:|fd:|pipe:", re.ASCII)
_HOST = regex(
    r"(?!(?:file|s3|gs):)[a-z][a-z0-9+.-]*://(?:[^/@]*@)?(?P<host>[^/:?#]*)|[\w.-]+@(?P<other>[\w.-]+\.\w+):",
    re.IGNORECASE | re.ASCII,
)
_HOST_FIRST = regex(r"(?P<host>[\w-]+(?:\.[\w-]+)+(?::\d+)?)/[^/]+/.", re.ASCII)
"""`HOST/OWNER/REPOSITORY` of the programs of forges (gh help repo clone)."""
_REMOTE = regex(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_WEB = regex(r"https?://[^\s@]+|(?![a-z]+:(?!\d))[A-Za-z0-9][^\s@]*", re.IGNORECASE)


def _not_a_path(word: str) -> str:
    """Return why a word that should be a path is none of this machine, or nothing.

    Behind `|` or `!` many programs take a command (strace(1), -o; dvips(1), -o; sox(1)).
    """
    if word[:1] in ("|", "!"):
        return HAZARDS["runs"].format(word[:60])
    return HAZARDS["address"].format(word[:60]) if _ADDRESS.match(word) else ""


def not_of_the_web(address: str) -> str:
    """Return why an address is not one of the web without credentials, or nothing."""
    return "" if _WEB.fullmatch(address) else f"`{address[:60]}` is not an address of the web"


class CommandReading(Struct, frozen=True, kw_only=True):
    """What the grammar of a program makes of a command."""

    argv: tuple[str, ...]
    program: str
    source: str
    """Program, version and manual of the grammar; empty where there is none."""
    sub_command: tuple[str, ...] = ()
    """By its full name, without options before it."""
    options: tuple[tuple[str, str | None], ...] = ()
    """Each with its value, or None."""
    operands: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    """Paths."""
    writes: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    """Where it works, one after the other."""
    variables: tuple[tuple[str, str], ...] = ()
    """Those that a wrapper such as `env` sets."""
    scripts: tuple[tuple[str, ...], ...] = ()
    """Files of the workspace that it runs: of each tuple the first that exists."""
    hazards: tuple[str, ...] = ()
    """What a wildcard does not cover unless its rule names it."""
    unknown: str = ""
    """Why the words are not understood."""
    starts: CommandReading | None = None
    """The command inside it."""


def reading_of(argv: Sequence[str]) -> CommandReading:
    """Return how a command is read.

    >>> found = reading_of(["git", "-C", "sub", "log", "-n", "5"])
    >>> found.sub_command, found.options, found.directories
    (('log',), (('-C', 'sub'), ('-n', '5')), ('sub',))
    """
    return _reading(read_command(tuple(argv)))


def _reading(meaning: CommandMeaning) -> CommandReading:
    starts = meaning.started
    if starts is None and meaning.inner:
        starts = read_command(meaning.argv[meaning.inner :])
    end = meaning.at or meaning.inner or len(meaning.argv)
    return CommandReading(
        argv=meaning.argv,
        program=meaning.program,
        source=meaning.grammar.source if meaning.grammar is not None else "",
        sub_command=meaning.path,
        options=tuple((option.name, option.value) for option in meaning.options),
        operands=meaning.words([place for place in meaning.operands if place < end]),
        reads=(*meaning.words(meaning.reads), *meaning.read_values),
        writes=(*meaning.words(meaning.writes), *meaning.written_values),
        directories=tuple(meaning.directory),
        variables=tuple(meaning.environment),
        scripts=tuple(meaning.scripts),
        hazards=tuple(hazard.said for hazard in meaning.hazards),
        unknown=meaning.unknown,
        starts=None if starts is None else _reading(starts),
    )


DEPTH_MAX = 4
"""Wrappers around a command; more are denied (reference: security 2.3)."""


class Wrapped(Struct, frozen=True, kw_only=True):
    """A wrapper taken off."""

    inner: tuple[str, ...]
    """The command inside; empty when there is none."""
    at: int
    """Place in the arguments where it begins."""
    environment: tuple[tuple[str, str], ...] = ()
    unknown: str = ""
    """The first option whose meaning is not known; what is inside is a guess then."""


def unwrapped(argv: Sequence[str]) -> tuple[str, ...] | None:
    """Return the command inside all wrappers, or None where one of them is not understood.

    >>> unwrapped(("env", "A=1", "nice", "make")), unwrapped(("env", "-C", "sub", "sh", "e.sh"))
    (('make',), None)
    """
    inner = tuple(argv)
    for _ in range(DEPTH_MAX + 1):
        wrapped = unwrap(inner)
        if wrapped is None:
            return inner
        if wrapped.unknown or not wrapped.inner:
            return None
        inner = wrapped.inner
    return None


def unwrap(argv: Sequence[str]) -> Wrapped | None:
    """Return what a wrapper starts, or None when the program is none.

    >>> unwrap(("timeout", "-k", "5", "60", "git", "status")).inner
    ('git', 'status')
    """
    words = tuple(argv)
    meaning = read_command(words)
    if meaning.grammar is None or not is_wrapper(meaning.grammar):
        return None
    if meaning.unknown:
        # What follows the first word that is no option, for what must never run.
        places = [at for at, word in enumerate(words) if at and word[:1] != "-"]
        at = places[0] if places else len(words)
        return Wrapped(inner=words[at:], at=at, unknown=meaning.unknown)
    at = meaning.inner or len(words)
    return Wrapped(inner=words[at:], at=at, environment=tuple(meaning.environment))


def loads_code(argv: Sequence[str]) -> bool:
    """Whether a command may run code from files that its words do not name.

    True for every program without a grammar, and for words that are not understood or run things.

    >>> loads_code(("grep", "-r", "x", ".")), loads_code(("npm", "test"))
    (False, True)
    """
    inner = unwrapped(argv)
    # What a path names may be another program than those of that name.
    return inner is None or "/" in inner[0] or not read_command(inner).is_quiet


def only_reads(argv: Sequence[str]) -> bool:
    """Whether a command is understood and by its words writes no file.

    >>> only_reads(("cat", "a")), only_reads(("cp", "a", "b")), only_reads(("make",))
    (True, False, False)
    """
    inner = unwrapped(argv)
    if inner is None or "/" in inner[0]:
        return False
    meaning = read_command(inner)
    return meaning.is_quiet and not (meaning.writes or meaning.written_values)
