"""The workspace's memory: which files it is, and the passages that they hold."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from skillhouse.floor import PathError, open_directory_beneath
from skillhouse.skill import find_hidden
from skillhouse.tools.call import RefusedError
from skillhouse.tools.workspace import is_text

MEMORY_FILE = "MEMORY.md"
"""What is always to be remembered (reference/seeds.md section 1.4)."""
MEMORY_DIRECTORY = "memory"
"""Beside it: notes by day or by subject."""
MEMORY_DEPTH = 4
"""Directories below each other, `memory` itself among them."""
MEMORY_FILES_MAX = 1_000
"""Files that are looked at (as of a skill: DESIGN, bounds)."""
MEMORY_FILE_MAX = 1_048_576
"""Bytes of one file that is searched, or that a note may make."""
MEMORY_BYTES_MAX = 4_194_304
"""Bytes of all files together that are searched."""
ENTRIES_MAX = 10_000
"""Names that are looked at to find them."""
PASSAGE_CHARS = 1_000
"""Characters after which a passage ends with its line; a longer line is several passages."""

_HEADING = re.compile(r"#{1,6}\s+(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Some lines of one file that belong together."""

    file: str
    first: int
    last: int
    heading: str
    text: str


def memory_files(root: Path) -> tuple[str, ...]:
    """Return the memory files below a workspace, relative to it: regular files, in order.

    Links are none, wherever they lead; names that cannot be shown as they are, neither.
    """
    found = [MEMORY_FILE] if _is_file(root / MEMORY_FILE) else []
    pending, seen = [MEMORY_DIRECTORY], 0
    while pending and seen < ENTRIES_MAX:
        directory = pending.pop(0)
        files, directories, looked = _entries(root, directory, ENTRIES_MAX - seen)
        seen += looked
        found += files
        if directory.count("/") + 1 < MEMORY_DEPTH:
            pending += directories
    return tuple(found[:MEMORY_FILES_MAX])


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _entries(root: Path, directory: str, most: int) -> tuple[list[str], list[str], int]:
    """Return the memory files and directories of one directory, and how many names it has."""
    files: list[str] = []
    directories: list[str] = []
    try:
        handle = open_directory_beneath(root, directory)
    except PathError:
        return files, directories, 0
    looked = 0
    try:
        with os.scandir(handle) as entries:
            for entry in entries:
                looked += 1
                if looked > most:
                    break
                if not is_shown(entry.name):
                    continue
                relative = f"{directory}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    directories.append(relative)
                elif entry.name.endswith(".md") and entry.is_file(follow_symlinks=False):
                    files.append(relative)
    finally:
        os.close(handle)
    return sorted(files), sorted(directories), looked


def is_shown(name: str) -> bool:
    """Whether a name of the file system is one that a model and a person read alike."""
    return is_text(name) and name.isprintable() and find_hidden(name) is None and name[:1] != "."


def checked_file(file: str) -> str:
    """Return a path that a note may be written to.

    Raises:
        RefusedError: it is no memory file.
    """
    parts = file.split("/")
    is_one = file == MEMORY_FILE or (
        parts[0] == MEMORY_DIRECTORY
        and 2 <= len(parts) <= MEMORY_DEPTH + 1
        and all(part and is_shown(part) and len(part.encode()) <= 255 for part in parts)
        and file.endswith(".md")
    )
    if not is_one:
        raise RefusedError(
            f"expected `{MEMORY_FILE}` or a file below `{MEMORY_DIRECTORY}/` that ends in `.md`"
        )
    return file


def passages(file: str, text: str) -> Iterator[Passage]:
    """Yield the passages of a file: they begin at headings, and after some lines at a blank one."""
    heading, first, held = "", 1, ""
    last = 0
    for last, line in enumerate(text.splitlines(), 1):
        found = _HEADING.match(line)
        is_full = len(held) + len(line) > PASSAGE_CHARS or (
            not line.strip() and len(held) > PASSAGE_CHARS // 2
        )
        if held.strip() and (found or is_full):
            yield Passage(file=file, first=first, last=last - 1, heading=heading, text=held)
            held = ""
        if not held.strip():
            first, held = last, ""
        if found:
            heading = found[1].strip()
        while len(line) > PASSAGE_CHARS:
            part, line = line[:PASSAGE_CHARS], line[PASSAGE_CHARS:]
            yield Passage(file=file, first=last, last=last, heading=heading, text=part)
        held += f"{line}\n"
    if held.strip():
        yield Passage(file=file, first=first, last=last, heading=heading, text=held)


def is_seen(letter: str) -> bool:
    """Whether a character shows, or is a blank, a tab or the end of a line.

    A joiner may: `find_hidden` says whether it is between two emoji.
    """
    return letter.isprintable() or letter in "\n\r\t\u200d" or unicodedata.category(letter) == "Zs"


def visible(text: str) -> str:
    """Return a text in which what a person would not see can be seen.

    >>> visible("a\\u200bb\\x1b[2J")
    'a\\ufffdb\\ufffd[2J'
    """
    shown = "".join(letter if is_seen(letter) else "\ufffd" for letter in text)
    at = find_hidden(shown)
    while at is not None:
        shown = f"{shown[:at]}\ufffd{shown[at + 1 :]}"
        at = find_hidden(shown)
    return shown
