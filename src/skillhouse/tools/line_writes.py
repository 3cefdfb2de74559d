"""What the commands of a line may write, as far as their grammars say."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence

from skillhouse.permission import SimpleCommand, only_reads, read_command, unwrapped

_SHOWING = frozenset(
    "echo printf cat head tail grep rg uniq wc cut tr ls pwd date true false test [ jq nl tac "
    "column basename dirname which".split()
)
_GIT_SHOWS = (("log",), ("status",), ("diff",), ("show",))
_WRITING = frozenset("mkdir touch tee cp mv rm".split())
"""Programs whose grammar says all that they write."""


def changed_by(
    commands: Iterable[SimpleCommand],
    paths: Collection[str],
    argv: Sequence[str],
    base: str,
    passed: Collection[tuple[str, ...]] = (),
) -> str:
    """Return why a line itself may decide what a script is, or nothing.

    A sealed copy keeps a file, but not the names of the directories above it, and there is none of
    a file that only comes to be.

    Args:
        commands: Those of the line.
        paths: Where the script is, or would be, and what it loads.
        argv: The command that runs it.
        base: The directory in which they run.
        passed: Commands of which only what they name to write counts.
    """
    seen = False
    for command in commands:
        inner = unwrapped(command.argv) or command.argv
        # A path may have been judged by the name of its program.
        is_same = os.path.basename(inner[0]) == os.path.basename(argv[0])
        is_own = not seen and is_same and inner[1:] == tuple(argv[1:])
        seen = seen or is_own
        written = list(command.redirected) if is_own else _all_written(command)
        if written is None and tuple(command.argv) in passed:
            named = (name for one in read_command(command.argv).chain() for name in one.written)
            written = [*command.redirected, *named]
        if written is None:
            return "another command of the line may change it"
        if any(_covers(target, path, base) for target in written for path in paths):
            return "the line writes it"
    return ""


def may_be_made(path: str, commands: Iterable[SimpleCommand], base: str) -> bool:
    """Whether one of some commands that run in `base` may write a path, as far as is known."""
    for command in commands:
        written = _all_written(command)
        if written is None or any(_covers(target, path, base) for target in written):
            return True
    return False


def _covers(target: str, path: str, base: str) -> bool:
    real = os.path.realpath(os.path.join(base, target))
    return path == real or path.startswith(f"{real}/")


def _all_written(command: SimpleCommand) -> list[str] | None:
    """Return all that a command writes, or None where that is not known."""
    argv = unwrapped(command.argv) or command.argv
    if "/" in argv[0]:
        return None
    if _only_shows(argv):
        return list(command.redirected)
    known = _written(command)
    return None if known is None else [*command.redirected, *known]


def _written(command: SimpleCommand) -> list[str] | None:
    """Return all that a command writes, or None where its grammar does not say."""
    meaning = read_command(unwrapped(command.argv) or command.argv)
    is_known = meaning.is_quiet and not (command.patterns or meaning.directory)
    if not is_known or meaning.program not in _WRITING:
        return None
    if meaning.program in ("mv", "cp") and len(meaning.argv) > 3:
        # With options a link may be copied as one.
        return None
    return list(meaning.written)


def _only_shows(argv: tuple[str, ...]) -> bool:
    meaning = read_command(argv)
    named = meaning.path[:1] in _GIT_SHOWS if meaning.program == "git" else argv[0] in _SHOWING
    return named and only_reads(argv)
