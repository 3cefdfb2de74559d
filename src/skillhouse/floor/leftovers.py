"""What programs leave in a directory of someone else's: the one table of it.

An installed skill stays the skill that was installed with these files in it. So that none of them
is a way in, the table is strict about kind and place, what it does not know counts as any other
file, and nothing of these names is read, packed, mounted or run.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator

from skillhouse.floor.regex import regex

LEFTOVERS_MAX = 50_000
"""Entries of a skill that are looked at as leftovers; `.mypy_cache` has thousands."""

_SYSTEM = r"\.DS_Store|\._.+|(?i:thumbs\.db|ehthumbs\.db|desktop\.ini)"
"""Finder, its files beside those of file systems without resource forks, and Explorer."""
_EDITORS = (
    # Vim: swap files, undo files and backups; Emacs: backups and autosaves; Kate; LibreOffice.
    r"\..+\.sw[a-p]|.+~|#.+#|\..+\.kate-swp|\.~lock\..+#"
)
_LOCKS = r"\.#.+"
"""Emacs: a link to nothing that says who edits a file; where no link can be made, a file."""
_LOCK_TARGET = regex(r"[^/\s]+@[^/\s]+\.[0-9]+(:[0-9]+)?")
_VIM_TRIAL = "4913"
"""Vim makes it, empty, to see whether it can make files."""
_CACHE_FILE = (
    r"(\.gitignore|CACHEDIR\.TAG|README\.md)"
    r"|(?:[^/]+/)*(?:[^/.]+|[^/]+\.(?:json|ff|db|db-wal|db-shm|db-journal))"
)
_INSIDE = {
    "__pycache__": regex(r"[^/]+\.py[co](\.[0-9]+)?"),
    ".ipynb_checkpoints": regex(r"[^/]+-checkpoint(\.[^/]+)?"),
    ".mypy_cache": regex(_CACHE_FILE),
    ".pytest_cache": regex(_CACHE_FILE),
    ".ruff_cache": regex(_CACHE_FILE),
}
"""What programs make in each directory of theirs, by the path below it."""
_FILE = regex(rf"(?:{_SYSTEM}|{_EDITORS}|{_LOCKS})", re.DOTALL)
_OF_SYSTEM = regex(_SYSTEM, re.DOTALL)
_OF_PERSON = regex(_EDITORS, re.DOTALL)
_PROGRAMS = (b"#!", b"\x7fELF", b"MZ", b"PK", b"\xca\xfe\xba\xbe", b"\xfe\xed\xfa", b"\0asm")
_MACH_O = (b"\xce\xfa\xed\xfe", b"\xcf\xfa\xed\xfe")
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_FLAGS |= getattr(os, "O_NONBLOCK", 0)

BYTECODE_ENDS = (".pyc", ".pyo")


def is_leftover_name(relative: str) -> bool:
    """Whether a path has a name that programs leave: nothing of it is given to anyone.

    >>> is_leftover_name("scripts/__pycache__/a.py"), is_leftover_name(".DS_Store/run.py")
    (True, True)
    >>> is_leftover_name("scripts/run.py"), is_leftover_name("4913/a.txt")
    (False, False)
    """
    parts = relative.rstrip("/").split("/")
    return parts[-1] == _VIM_TRIAL or any(
        part in _INSIDE or _FILE.fullmatch(part) is not None for part in parts
    )


def holds_leftovers(name: str) -> bool:
    """Whether a directory of this name is a program's own."""
    return name in _INSIDE


def is_leftover(entry: os.DirEntry[str]) -> bool:
    """Whether an entry, which is no directory, is a file that a program left beside others."""
    name = entry.name
    if name != _VIM_TRIAL and _FILE.fullmatch(name) is None:
        return False
    info = entry.stat(follow_symlinks=False)
    if stat.S_ISLNK(info.st_mode):
        return name.startswith(".#") and _LOCK_TARGET.fullmatch(os.readlink(entry.path)) is not None
    if not stat.S_ISREG(info.st_mode):
        return False
    if name == _VIM_TRIAL:
        return info.st_size == 0
    return _OF_SYSTEM.fullmatch(name) is None or not _is_program(entry.path)


def is_cached(directory: str, below: str, entry: os.DirEntry[str]) -> bool:
    """Whether an entry is what a program makes in its directory.

    Args:
        directory: The name of the directory, of which `holds_leftovers` is true.
        below: The entry's path from there, with `/`.
        entry: It is no directory.
    """
    if not entry.is_file(follow_symlinks=False) or _INSIDE[directory].fullmatch(below) is None:
        return False
    # Of the others there are thousands.
    return directory != "__pycache__" or not _is_program(entry.path)


def leftover_unit(relative: str) -> str:
    """Return a leftover as it is shown: a program's directory instead of each file in it.

    >>> leftover_unit("a/__pycache__/x.pyc"), leftover_unit("a/.DS_Store")
    ('a/__pycache__/', 'a/.DS_Store')
    """
    parts = relative.split("/")
    end = next((place for place, name in enumerate(parts, 1) if name in _INSIDE), 0)
    return "/".join(parts[:end]) + "/" if end else relative


def persons_leftovers(paths: tuple[str, ...]) -> Iterator[str]:
    """Yield those that can have a person's own text: of editors, and what notebooks were."""
    for path in paths:
        *above, name = path.split("/")
        if ".ipynb_checkpoints" in above or _OF_PERSON.fullmatch(name):
            yield path


def unread_paths(directory: str) -> Iterator[tuple[str, bool]]:
    """Yield what of a skill's directory no command sees: (path, whether it is a directory).

    Bytecode is, besides leftovers, under any name: what it does is not in any file that is read.
    """
    waiting, seen = [directory], 0
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    seen += 1
                    if seen > LEFTOVERS_MAX:
                        return
                    is_directory = entry.is_dir(follow_symlinks=False)
                    is_code = not is_directory and entry.name.endswith(BYTECODE_ENDS)
                    if is_code or is_leftover_name(entry.name):
                        yield entry.path, is_directory
                    elif is_directory:
                        waiting.append(entry.path)
        except OSError:
            continue


def _is_program(path: str) -> bool:
    """Whether a system could run a file as it is."""
    handle = os.open(path, _FLAGS)
    try:
        head = os.read(handle, 4)
    finally:
        os.close(handle)
    return head.startswith((*_PROGRAMS, *_MACH_O))
