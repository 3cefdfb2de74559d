"""How the words of a command were read, as values that can be shown."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from skillhouse.permission.command_meaning import CommandMeaning
from skillhouse.permission.command_reader import read_command


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
