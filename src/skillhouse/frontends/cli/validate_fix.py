"""`validate --fix`: fixes what can be fixed without changing what a skill says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skillhouse.floor import PathError, read_beneath, write_atomically
from skillhouse.frontends.cli.question import confirmed, need_terminal
from skillhouse.presentation.text import counted, shown
from skillhouse.skill import SKILL_FILE, SKILL_FILE_MAX, repaired_file
from skillhouse.tools.difference import difference

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal


class FileFix(NamedTuple):
    file: Path
    data: bytes
    """What it holds now; it is not written to if it holds something else by then."""
    after: str
    codes: tuple[str, ...]
    difference: str


def fixes_of(places: Sequence[Path]) -> list[FileFix]:
    """Return what would be written to the SKILL.md of each of these directories."""
    found = []
    for place in places:
        try:
            # Never through a link: the file would be another one than the skill's.
            data = read_beneath(place, SKILL_FILE, max_bytes=SKILL_FILE_MAX)
        except PathError:
            continue
        made = repaired_file(data, directory=place.resolve().name)
        if made is not None:
            file = place / SKILL_FILE
            text = difference(made.before, made.after, str(file))
            found.append(FileFix(file, data, made.after, made.codes, text))
    return found


def fix(places: Sequence[Path], terminal: Terminal, *, yes: bool, quiet: bool) -> list[FileFix]:
    """Show what would change, ask, and write it; return what was written.

    Raises:
        UsageError: there is no terminal to ask at, and `--yes` was not given.
    """
    found = fixes_of(places)
    if not found:
        return []
    if not quiet:
        for one in found:
            for line in one.difference.rstrip("\n").split("\n"):
                terminal.line(shown(line))
    if not yes:
        instead = "use --yes, or look at the difference"
        need_terminal(instead, as_json=quiet)
        question = f"Write {counted(len(found), 'file')}?"
        if not confirmed(question, terminal, instead=instead):
            terminal.note("nothing was written")
            return []
    written = []
    for one in found:
        try:
            is_same = (
                read_beneath(one.file.parent, SKILL_FILE, max_bytes=SKILL_FILE_MAX) == one.data
            )
        except PathError:
            is_same = False
        if is_same:
            with write_atomically(one.file, mode=one.file.stat().st_mode & 0o777) as file:
                file.write(one.after.encode())
            written.append(one)
        else:
            terminal.error(f"not written, it has changed meanwhile: `{one.file}`")
    return written
