"""The grammars of programs: what their options, sub-commands and operands mean.

Each is a table in `grammars/`, read when a command of its program is first judged. Their
format is in docs/reference/grammars.md. A `CommandMeaning` is what the words of one command mean,
as far as its grammar says.
"""

from __future__ import annotations

import functools
import re
import threading
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from skillhouse.floor.regex import regex
from skillhouse.floor.structs import replace

HAZARDS: Mapping[str, str] = {
    "runs": "`{}` runs a program or code",
    "config": "`{}` reads settings, which can name programs",
    "address": "`{}` names an address",
    "installs": "`{}` installs",
    "publishes": "`{}` publishes",
    "pushes": "`{}` sends to another place",
    "deletes": "`{}` deletes",
    "rewrites": "`{}` rewrites what is elsewhere or was there before",
    "elsewhere": "`{}` reaches outside the workspace",
    "secret": "`{}` handles credentials",
    "unbound": "`{}` runs whatever code the workspace holds: only a rule with `unbound = true` "
    "covers it",
}
"""Kinds that a wildcard covers only where the rule names the words, and what is said of them."""

OPTION_KINDS = frozenset(
    {"plain", "words", "read", "write", "directory", "web", "module", *HAZARDS} - {"unbound"}
)
OPERAND_KINDS = frozenset(
    {
        "text",
        "words",
        "read",
        "write",
        "web",
        "remote",
        "none",
        "program",
        "command",
        "script",
        "task",
    }
    | HAZARDS.keys()
)
_SPEC = regex(r"(-#|--?[^\s=]+|\+[^\s=]+)(=[?#]?)?")
_DIRECTORY = Path(__file__).parent / "grammars"


class GrammarError(Exception):
    """A table of ours is not as its format says."""


class OptionRule(Struct, frozen=True):
    """What one option means."""

    kind: str
    takes: str
    """"": no value; "=": one, in the same word or the next; "=?": only in the same word; "=#": in
    the next word only where that is digits."""
    twin: str = ""
    """The other spelling of it, as far as the order of the table shows it."""
    spellings: frozenset[str] = frozenset()
    """All its other spellings, the twin among them: a deny sees each."""


class CommandTable(Struct, kw_only=True):
    """A program or sub-command: its options, operands and sub-commands."""

    options: dict[str, OptionRule] = field(default_factory=dict)
    does: tuple[str, ...] = ()
    """Hazards of the command itself."""
    bare: tuple[str, ...] = ()
    """Hazards of it without operands, such as an interpreter that then reads its input."""
    operands: tuple[str, ...] = ()
    """Kinds by position, the last repeats."""
    last: str = ""
    """Kind of the last operand, where it is another one."""
    first_unless: frozenset[str] = frozenset()
    """Options with which the first kind of operand is left out."""
    task_file: tuple[str, ...] = ()
    reader: str = ""
    may_last: bool = True
    commands: dict[str, CommandTable] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """Each word of a sub-command, aliases included, to its name."""
    numbers: bool = False
    """Whether `-5` is an option."""
    prefixes: dict[str, OptionRule] = field(default_factory=dict)
    """Beginnings of options whose rest is the value, as `-Xmx` of `-Xmx512m`."""
    same_as: tuple[str, ...] = ()
    """The sub-command that this is another name of."""
    means: tuple[tuple[str, frozenset[str]], ...] = ()
    """Options that are short for others together, some with a value: `-D` of git branch for `-d`
    with `-f`. A deny of the one sees the others."""


class Grammar(Struct, kw_only=True):
    """The grammar of one program."""

    name: str
    program: CommandTable
    source: str
    bundles: bool = True
    """Whether letters may stand together behind one hyphen."""
    glued: bool = True
    """Whether a value may follow its letter in the same word; as `bundles`, when left out."""
    permutes: bool = True
    """Whether options may stand behind operands."""
    anywhere: bool = False
    """Whether options of the program may stand behind the sub-command."""
    abbreviates: bool = False
    """Whether the beginning of a sub-command is taken for it where no other begins so."""
    same_as: tuple[str, ...] = ()
    """The words that its name is short for, as `npx` is for `npm exec`: a deny sees these too."""
    home: str = ""
    """The host that it talks to by itself; a word that names another is an address."""
    argument_files: bool = False
    """Whether a word `@FILE` means the words in a file."""


def grammar_of(program: str, *, module: bool = False) -> Grammar | None:
    """Return the grammar of a program, by any of its names, or None where there is none.

    Args:
        program: A name without directories.
        module: Whether it is a module of Python; some tables are of modules only.
    """
    entry = _entry(program)
    if entry is not None and (module or not entry[1]):
        return _loaded(entry[0])
    return None if module else _by_other_name(program)


def table_named(program: str) -> str:
    """Return the name of the grammar of a program, without reading it; empty for other names."""
    stem, is_module = _entry(program) or ("", False)
    return "" if is_module else stem.rpartition("/")[2]


_VERSIONED = regex(r"([A-Za-z][\w+-]*?[A-Za-z+])-?\d+(\.\d+)*w?")
_TARGET = regex(
    r"x86_64|amd64|i[3-6]86|aarch64|arm\w*|riscv\w*|powerpc\w*|ppc\w*|mips\w*|s390x?|sparc\w*|avr|"
    r"xtensa|m68k|sh4|loongarch\w*|wasm(32|64)|hppa|alpha|ia64|llvm"
)


@functools.lru_cache(maxsize=1024)
def _by_other_name(program: str) -> Grammar | None:
    """Return the grammar of a program under a name that packages give it: with a version, for a
    target (`x86_64-linux-gnu-gcc-12`), or with the `g` of GNU (`gsed`)."""
    found = _VERSIONED.fullmatch(program)
    others = [found[1]] if found else []
    target, *parts = program.split("-")
    if _TARGET.fullmatch(target):
        others += ["-".join(parts[at:]) for at in range(min(len(parts), 4))]
    for other in others:
        if grammar := grammar_of(other):
            return grammar
    if program[:1] == "g" and (entry := _entry(program[1:])) and not entry[1]:
        grammar = _loaded(entry[0])
        return grammar if "GNU" in grammar.source else None
    return None


def is_wrapper(grammar: Grammar) -> bool:
    """Whether a program only starts another command, which rules judge for itself."""
    return "command" in grammar.program.operands


def all_grammars() -> tuple[str, ...]:
    """Return the stems of all tables with a file of their own, for tests and documents."""
    return tuple(sorted(path.stem for path in _DIRECTORY.glob("[!_]*.toml")))


def names_of(stem: str) -> tuple[str, ...]:
    """Return the names that a table's program goes by."""
    return tuple(sorted(name for name, (of, _) in _names().items() if of == stem))


_NAMES = regex(r"^names\s*=\s*\[(.*?)\]", re.MULTILINE | re.DOTALL)
_MODULE_ONLY = regex(r"^module_only\s*=\s*true", re.MULTILINE)
_ROW = regex(r"^\[([\w+-]+)\]$", re.MULTILINE)


@functools.lru_cache(maxsize=1024)
def _entry(program: str) -> tuple[str, bool] | None:
    """Return the table of a name. Where a file has the name, no other is read: three hundred
    are a tenth of the time of a start that judges one command."""
    if program in _stems():
        words, is_module = _head(program, _text(program).partition("\n[")[0])
        if program in words:
            return program, is_module
    return _names().get(program)


@functools.cache
def _stems() -> frozenset[str]:
    # Of the directory, as some file systems open `GIT.toml` too.
    return frozenset(all_grammars())


def _text(file: str) -> str:
    return (_DIRECTORY / f"{file}.toml").read_text(encoding="utf-8")


def _head(stem: str, head: str) -> tuple[list[str], bool]:
    """Return the names of a table, and whether it is of modules only; it is not parsed."""
    named = _NAMES.search(head)
    words = re.findall(r'"([^"]+)"', named[1]) if named else [stem.rpartition("/")[2]]
    return words, bool(_MODULE_ONLY.search(head))


@functools.cache
def _names() -> Mapping[str, tuple[str, bool]]:
    """Return the table of each name; the heads of the files are searched and not parsed."""
    names: dict[str, tuple[str, bool]] = {}
    heads = []
    for path in _DIRECTORY.glob("*.toml"):
        text = path.read_text(encoding="utf-8")
        if path.stem[0] == "_":
            heads += [(f"{path.stem}/{stem}", row) for stem, row in _rows(text)]
        else:
            heads.append((path.stem, text.partition("\n[")[0]))
    for stem, head in heads:
        words, is_module = _head(stem, head)
        for word in words:
            if word in names:
                raise GrammarError(f"`{word}` is in the tables {names[word][0]} and {stem}")
            names[word] = (stem, is_module)
    return names


def _rows(text: str) -> Iterator[tuple[str, str]]:
    """Yield each table of a file of several, as text: most are never needed."""
    parts = _ROW.split(text)
    yield from zip(parts[1::2], parts[2::2], strict=True)


_READING = threading.Lock()
"""Held while a table is read: twenty calls at once would each read it."""


def _loaded(stem: str) -> Grammar:
    with _READING:
        return _read(stem)


@functools.cache
def _read(stem: str) -> Grammar:
    file, _, row = stem.partition("/")
    text = _text(file)
    if not row:
        return read_grammar(stem, tomllib.loads(text))
    return read_grammar(row, _in_full(tomllib.loads(dict(_rows(text))[row])))


def _in_full(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table as it would be in a file of its own.

    In a row the keys of the program stand beside those of the grammar, and `sub` has the words of
    its sub-commands by what they do, which have no options of their own.
    """
    table = {key: value for key, value in row.items() if key in GRAMMAR_KEYS}
    table["program"] = {key: row[key] for key in row.keys() - GRAMMAR_KEYS - {"sub"}}
    if "sub" in row:
        table["anywhere"] = True
        table["commands"] = {
            word: {} if kind == "quiet" else {"does": kind}
            for kind, words in row["sub"].items()
            for word in words.split()
        }
    return table


_SWITCHES = frozenset({"argument_files", "bundles", "permutes", "anywhere", "abbreviates"})
GRAMMAR_KEYS = _SWITCHES | {
    *("source", "names", "module_only", "same_as", "glued", "home", "program", "commands")
}
COMMAND_KEYS = OPTION_KINDS | frozenset(
    "does bare operands first_unless task_file reader lasting aliases same_as same means".split()
)


def read_grammar(name: str, table: Mapping[str, Any]) -> Grammar:
    """Return a grammar from its table; raises GrammarError where the format is not kept."""
    if unknown := table.keys() - GRAMMAR_KEYS:
        raise GrammarError(f"{name}: unknown key {min(unknown)}")
    if not table.get("source"):
        raise GrammarError(f"{name}: no source")
    grammar = Grammar(
        name=name,
        source=table["source"],
        program=_command(name, table.get("program", {})),
        same_as=tuple(table.get("same_as", ())),
        home=table.get("home", ""),
        glued=table.get("glued", table.get("bundles", True)),
        **{switch: table[switch] for switch in _SWITCHES & table.keys()},
    )
    for words, content in table.get("commands", {}).items():
        at = grammar.program
        *groups, last = words.split(" ")
        for group in groups:
            at = _sub_command(at, at.names.get(group, group))
        known = at.commands.get(last)
        made = _command(f"{name} {words}", content)
        if known is not None:  # A group that was made for a sub-command that was listed before it.
            made.commands, made.names = known.commands, known.names
        at.commands[last] = made
        for word in (last, *content.get("aliases", ())):
            if at.names.setdefault(word, last) != last:
                raise GrammarError(f"{name}: `{word}` means two sub-commands")
    return grammar


def _sub_command(at: CommandTable, word: str) -> CommandTable:
    at.names.setdefault(word, word)
    return at.commands.setdefault(word, CommandTable())


def _command(where: str, table: Mapping[str, Any]) -> CommandTable:
    if unknown := table.keys() - COMMAND_KEYS:
        raise GrammarError(f"{where}: unknown key {min(unknown)}")
    does = tuple(table.get("does", "").split())
    kinds = table.get("operands", "").split()
    last = ""
    if "..." in kinds:
        at = kinds.index("...")
        if at != len(kinds) - 2:
            raise GrammarError(f"{where}: `...` must be the last but one")
        kinds, last = kinds[:at], kinds[-1]
    for kind in (*kinds, *filter(None, (last,))):
        if kind not in OPERAND_KINDS:
            raise GrammarError(f"{where}: unknown kind of operand {kind}")
    bare = tuple(table.get("bare", "").split())
    if unknown := {*does, *bare} - HAZARDS.keys():
        raise GrammarError(f"{where}: unknown hazard {min(unknown)}")
    made = CommandTable(
        does=does,
        bare=bare,
        operands=tuple(kinds),
        last=last,
        first_unless=frozenset(word.rstrip("=?") for word in table.get("first_unless", "").split()),
        task_file=tuple(table.get("task_file", ())),
        reader=table.get("reader", ""),
        may_last=table.get("lasting", True),
        same_as=tuple(table.get("same_as", "").split()),
    )
    for kind in table.keys() & OPTION_KINDS:
        _add_options(where, made, kind, table[kind].split())
    _join_spellings(where, made, [group.split() for group in table.get("same", ())])
    means = [words.split() for words in table.get("means", ())]
    if unknown := {w.partition("=")[0] for one in means for w in one} - made.options.keys():
        raise GrammarError(f"{where}: `{min(unknown)}` of `means` is no option")
    made.means = tuple((short, frozenset(parts)) for short, *parts in means)
    return made


def _join_spellings(where: str, made: CommandTable, groups: list[list[str]]) -> None:
    """Give each option all its other spellings: those of the table's order and of `same`."""
    if unknown := {word for group in groups for word in group} - made.options.keys():
        raise GrammarError(f"{where}: `{min(unknown)}` of `same` is no option")
    joined = {word: {word, rule.twin} - {""} for word, rule in made.options.items()}
    for group in groups:
        whole = set().union(*(joined[word] for word in group))
        joined.update(dict.fromkeys(whole, whole))
    for word, whole in joined.items():
        if len(whole) > 1:
            made.options[word] = replace(made.options[word], spellings=frozenset(whole - {word}))


def _add_options(where: str, made: CommandTable, kind: str, specs: list[str]) -> None:
    before = ""
    for spec in specs:
        found = _SPEC.fullmatch(spec)
        if found is None:
            raise GrammarError(f"{where}: `{spec}` is no option")
        word, takes = found[1], found[2] or ""
        if word == "-#":
            made.numbers = True
            continue
        if word[-1] == "*":
            made.prefixes[word[:-1]] = OptionRule(kind, "=?")
            continue
        if word in made.options:
            raise GrammarError(f"{where}: `{word}` is there twice")
        twin = ""
        if before and _is_short(before) and word[:2] == "--":
            twin = before
            short = made.options[before]
            made.options[before] = OptionRule(short.kind, short.takes, word)
        made.options[word] = OptionRule(kind, takes, twin)
        before = word


def _is_short(word: str) -> bool:
    return len(word) == 2 and word[0] == "-"


class Option(Struct, frozen=True):
    """One option as given."""

    name: str
    value: str | None
    """None where it takes none or has none."""
    is_global: bool = False
    """Whether it comes before the sub-command, and is harmless."""
    twin: str = ""
    spellings: frozenset[str] = frozenset()
    """Its other names, the twin among them."""


class Hazard(Struct, frozen=True):
    """Why a wildcard does not cover a command, unless its rule names what is in the way."""

    kind: str
    said: str
    depth: int = -1
    """Words of the sub-command that a rule must name; -1 when it is not about these."""
    option: tuple[str, str | None] | None = None
    """The option, with its value, that a rule must name."""
    operand: int = -1
    """Place among the operands of the last one that a rule must name."""


class CommandMeaning(Struct):
    """What the words of a command mean, as far as its program's grammar says."""

    argv: tuple[str, ...]
    grammar: Grammar | None
    path: tuple[str, ...] = ()
    """The words of the sub-command, each by its full name."""
    groups: tuple[str, ...] = ()
    """The groups that the sub-command was written under, where its full name has none."""
    table: CommandTable | None = None
    options: list[Option] = field(default_factory=list)
    operands: list[int] = field(default_factory=list)
    """Places of the operands in argv."""
    kinds: list[str] = field(default_factory=list)
    """Kind of each operand."""
    hazards: list[Hazard] = field(default_factory=list)
    cut: str = ""
    """The last word, when it is an option without the value that it takes."""
    unknown: str = ""
    """Why the words are not understood; what follows it was not looked at."""
    reads: list[int] = field(default_factory=list)
    """Places in argv of files and directories that are read."""
    writes: list[int] = field(default_factory=list)
    read_values: list[str] = field(default_factory=list)
    """Paths in values of options, or in parts of words."""
    written_values: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    """Values that are no paths by the grammar; checked as words of an unknown program are."""
    directory: list[str] = field(default_factory=list)
    """Directories that the program changes to, one after the other, before its paths are read."""
    scripts: list[tuple[str, ...]] = field(default_factory=list)
    """Files of the workspace that run: of each tuple the first that exists."""
    inner: int = 0
    """Place in argv where a command begins that rules judge for itself; 0 when there is none."""
    environment: list[tuple[str, str]] = field(default_factory=list)
    """Variables that a wrapper sets."""
    started: CommandMeaning | None = None
    """What this program starts, when the grammar says where it is named: part of this command."""
    at: int = 0
    """Place in argv where `started` begins."""

    @property
    def program(self) -> str:
        return self.grammar.name if self.grammar is not None else self.argv[0].rsplit("/", 1)[-1]

    def words(self, places: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.argv[place] for place in places)

    @property
    def written(self) -> tuple[str, ...]:
        """Files and directories that its words say are written."""
        return (*self.words(self.writes), *self.written_values)

    @property
    def is_quiet(self) -> bool:
        """Whether it is understood and has no hazard: what it does is its reads and writes."""
        return self.grammar is not None and not (self.unknown or self.hazards or self.scripts)

    @property
    def is_far(self) -> bool:
        """Whether what it starts runs in a container or on another machine."""
        return any(h.kind in ("runs", "elsewhere") for h in self.hazards if h.depth >= 0)

    def chain(self) -> Iterator[CommandMeaning]:
        """Yield it, what it starts, what that starts, and so on."""
        at: CommandMeaning | None = self
        while at is not None:
            yield at
            at = at.started
