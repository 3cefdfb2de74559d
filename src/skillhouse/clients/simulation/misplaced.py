"""What lies in directories of skills, looked at without any client's eyes."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from skillhouse.clients.simulation.verdicts import NearMiss
from skillhouse.skill import SKILL_FILE

DEPTH_MAX = 12
"""Levels below a root that are looked into."""
DIRECTORIES_MAX = 20_000
"""Directories that are looked into, over all roots."""
HEAD_BYTES = 4_096
"""Bytes of a file that traits are looked for in."""

TRAITS = frozenset(
    {
        "bom",
        "colon-unspaced",
        "description-blank",
        "description-empty",
        "fence-blanks",
        "link-file",
        "name-blank",
        "name-long",
        "not-text",
        "one-line-block",
    }
)
"""What `refused` and `accepted` of a profile may name besides findings of our own."""

_NEVER = frozenset({".git", ".hg", ".svn"})
_BOM = b"\xef\xbb\xbf"
_LINES = tuple(
    re.compile(rb"^[ \t]*%s:" % field, re.MULTILINE) for field in (b"name", b"description")
)
"""What a client that reads line by line looks for; without both it has no skill."""
_OF_LINES = frozenset({"colon-unspaced", "description-blank", "name-blank"})
_NO_MORE = rb"(?:\n(?![ \t]+\S)|\Z)"
"""The end of a line that no indented one goes on with."""
_PATTERNS = {
    "one-line-block": re.compile(rb"^[\w-]+:[ \t]*[>|][-+0-9]*[ \t]+[^\s#]", re.MULTILINE),
    "colon-unspaced": re.compile(rb"^[ \t]*(?:name|description):\S", re.MULTILINE),
    "description-blank": re.compile(rb"^[ \t]*description:[ \t]*\r?" + _NO_MORE, re.MULTILINE),
    "name-blank": re.compile(rb"^[ \t]*name:[ \t]*\r?" + _NO_MORE, re.MULTILINE),
    "description-empty": re.compile(rb"^description:[ \t]*(?:\"\"|'')[ \t]*$", re.MULTILINE),
    "not-text": re.compile(
        rb"^(?:name|description):[ \t]*(?:[-+]?[0-9][0-9_.]*|true|false|null|~)[ \t]*$",
        re.MULTILINE,
    ),
}


@dataclass(slots=True)
class MisplacedFiles:
    """What a look around found."""

    files: list[str] = field(default_factory=list)
    """Each SKILL.md."""
    roots: list[str] = field(default_factory=list)
    """Directories of skills that no client looks in."""
    misses: list[NearMiss] = field(default_factory=list)


def look_around(roots: Iterable[str]) -> MisplacedFiles:
    """Return the SKILL.md files below `roots`, and what only looks like skills.

    Links are not followed: what they lead to is found where it lies, or by a client.
    """
    found = MisplacedFiles()
    left = DIRECTORIES_MAX
    for root in roots:
        without: set[str] = set()
        pending = [(root, 0)]
        while pending and left:
            left -= 1
            place, depth = pending.pop()
            try:
                with os.scandir(place) as entries:
                    listed = sorted(entries, key=lambda entry: entry.name)
            except OSError:
                # Whoever reads it says so; here it only means that there is nothing to add.
                continue
            names = {entry.name for entry in listed}
            if SKILL_FILE in names:
                found.files.append(f"{place}/{SKILL_FILE}")
                without.difference_update(_above(place, root))
            else:
                wrong = [name for name in names if name.casefold() == SKILL_FILE.casefold()]
                found.misses += [_miss("wrong-case", f"{place}/{name}") for name in sorted(wrong)]
                if depth == 1 and not wrong:
                    without.add(place)
                elif wrong:
                    without.difference_update(_above(place, root))
            below = [entry for entry in listed if entry.is_dir(follow_symlinks=False)]
            if depth < DEPTH_MAX:
                pending += [
                    (entry.path, depth + 1) for entry in reversed(below) if entry.name not in _NEVER
                ]
        hidden = {place for place in without if os.path.basename(place).startswith(".")}
        found.misses += [_miss("no-skill-file", place) for place in sorted(without - hidden)]
    return found


def unread_roots(places: Iterable[str], known: frozenset[str]) -> Iterator[str]:
    """Yield each `.NAME/skills` of `places` that no client looks in."""
    for place in places:
        try:
            names = sorted(name for name in os.listdir(place) if name.startswith("."))
        except OSError:
            # A directory above the start need not be readable.
            continue
        for name in names:
            root = os.path.join(place, name, "skills")
            if name not in _NEVER and root not in known and os.path.isdir(root):
                yield root


def traits(file: str) -> Mapping[str, int]:
    """Return on what clients differ and we do not judge in a SKILL.md, each with its line."""
    head = read_plainly(file, HEAD_BYTES)
    found = {}
    if head.startswith(_BOM):
        found["bom"] = 1
        head = head[3:]
    lines = head.splitlines()
    if lines and lines[0] != b"---" and lines[0].rstrip(b" \t") == b"---":
        found["fence-blanks"] = 1
    if head.startswith(b"---"):
        block = head[: max(head.find(b"\n---", 3), 0) or len(head)]
        has_lines = all(line.search(block) for line in _LINES)
        for trait, pattern in _PATTERNS.items():
            if trait in _OF_LINES and not has_lines:
                continue
            if match := pattern.search(block):
                found[trait] = block.count(b"\n", 0, match.start()) + 1
    return found


def read_plainly(file: str, most: int) -> bytes:
    """Return the beginning of a regular file; nothing where there is none, or none to be read.

    Clients and discovery say why a file cannot be read; here there is nothing to add.
    """
    try:
        # O_NONBLOCK: a FIFO in the file's place must not hang us.
        handle = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return b""
    try:
        return os.read(handle, most) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(handle)


def _above(place: str, root: str) -> Iterator[str]:
    while len(place) > len(root):
        yield place
        place = os.path.dirname(place)


def _miss(code: str, path: str) -> NearMiss:
    return NearMiss(code=code, path=path)
