"""Words that are replaced by the names of files, of which there may be several."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence

from skillhouse.floor.rules import Effect
from skillhouse.permission.command_meaning import CommandMeaning
from skillhouse.permission.command_reader import read_command
from skillhouse.permission.raw_line import Word

PATTERNS_MAX = 64
"""Patterns of one command that a wildcard covers."""

_OPEN = frozenset(("read", "write", "text", "words", "script", "program", "command", "option"))
"""Roles of words whose text decides about nothing but the file that is meant."""


def pattern_remarks(words: Sequence[Word], guarded: Container[int]) -> Iterator[tuple[Effect, str]]:
    """Yield why the patterns of a command are asked about, whatever rules say."""
    for at, word in enumerate(words):
        if word.pattern and at == 0:
            yield Effect.ASK, "the program's name is a pattern"
        elif _may_be_option(words, at) and at not in guarded:
            said = f"`{word.text[:60]}` may match a name that is an option; write ./ before it"
            yield Effect.ASK, said


def guarded_patterns(
    words: Sequence[Word], names: Callable[[str], Sequence[str] | None]
) -> tuple[int, ...]:
    """Return the places of patterns that could match a name that is an option, and match none now.

    INVARIANT: the runner of the plan looks again, and refuses a name that has come since.

    Args:
        words: The words of a command.
        names: Gives the names that match now, or None where that is not known.
    """
    found = []
    for at in range(1, len(words)):
        if _may_be_option(words, at):
            matching = names(words[at].pattern)
            if matching is not None and not any(name[:1] == "-" for name in matching):
                found.append(at)
    return tuple(found)


def _may_be_option(words: Sequence[Word], at: int) -> bool:
    return words[at].pattern[:1] in ("*", "?", "[", "-") and all(
        word.text != "--" for word in words[:at]
    )


def pattern_concern(meaning: CommandMeaning, words: Sequence[Word]) -> str:
    """Return why a wildcard does not cover the patterns of a command, or nothing.

    Each may become several words. INVARIANT: all of these, and all words behind them, then mean
    what the words as written do: in `uniq ./*` the second name is written to.
    """
    places = [at for at, word in enumerate(words) if word.pattern]
    if not places or meaning.grammar is None:
        return ""
    if len(places) > PATTERNS_MAX:
        return f"more than {PATTERNS_MAX} patterns"
    roles = _roles(meaning)
    twice: list[str] = []
    expected: list[str] = []
    for at, word in enumerate(meaning.argv):
        count = 2 if at in places else 1
        twice += [word] * count
        expected += [roles[at]] * count
    if _roles(read_command(tuple(twice))) != expected:
        return "a pattern that matches several names changes what the words behind it mean"
    for at in places:
        if roles[at] not in _OPEN or (roles[at] in _STARTING and roles[at] not in roles[:at]):
            return f"`{words[at].text[:60]}` may match another name than is judged"
    return ""


_STARTING = ("script", "program", "command")


def _roles(meaning: CommandMeaning) -> list[str]:
    """Return what each word of a command is to its program."""
    roles = ["option"] * len(meaning.argv)
    for at, kind in zip(meaning.operands, meaning.kinds, strict=False):
        roles[at] = kind
    for at in meaning.reads:
        roles[at] = "read"
    for at in meaning.writes:
        roles[at] = "write"
    if meaning.started is not None:
        roles[meaning.at :] = _roles(meaning.started)
    return roles
