"""What the words of one command mean, as far as the grammar of its program says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from skillhouse.permission.grammar import CommandTable, Grammar


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
