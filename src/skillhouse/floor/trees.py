"""The files of a directory as a tree: names, modes, sizes and digests, and one digest of it all.

What programs leave in a directory of someone else's is no part of a tree; its one table is here.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NewType

from msgspec import Struct

from skillhouse.floor.digests import canonical_json, sha256
from skillhouse.floor.errors import TreeError
from skillhouse.floor.paths import descriptor, is_utf8
from skillhouse.floor.regex import regex
from skillhouse.floor.structs import PartialStruct

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


TreeDigest = NewType("TreeDigest", str)

TREE_MAX_FILES = 1_000
"""Files of one skill (docs/reference/limits.md)."""
TREE_MAX_BYTES = 50_000_000
"""Bytes of one skill (docs/reference/limits.md)."""
TREE_MAX_DEPTH = 16
"""Directories below each other (reference/registry.md section 3, rule 1)."""

_CHUNK = 1 << 20
SIGNATURE_FILE = "skill.sig"
"""The signature of a skill, at its top; no part of what is signed."""
INSTALL_DIRECTORY = ".skill"
"""Notes of an installer at the top of a skill; no part of it."""
FILE_MODE, EXECUTABLE_MODE = "100644", "100755"
"""The modes of a tree, as git writes them."""

_LEFT_OUT = {(SIGNATURE_FILE, stat.S_IFREG), (INSTALL_DIRECTORY, stat.S_IFDIR)}
# Opening a FIFO that took the file's place must not hang.
_FLAGS |= getattr(os, "O_NONBLOCK", 0)


class TreeFile(Struct, frozen=True, kw_only=True):
    """One file of a tree."""

    path: str
    """Relative to the top, with `/`, in NFC."""
    mode: str
    """100755 where the owner may execute it, else 100644."""
    size: int
    sha256: str
    """64 lowercase hex digits."""


class Tree(PartialStruct, frozen=True, kw_only=True):
    """The files of a skill, sorted by the UTF-8 bytes of their paths."""

    UNCOMPARED = frozenset({"left"})

    files: tuple[TreeFile, ...]
    left: tuple[str, ...] = ()
    """Paths of what programs left there, which are no part of it; sorted."""

    @property
    def digest(self) -> TreeDigest:
        """`skilltree1:` and the SHA-256 of the RFC 8785 JSON of `[{mode, path, sha256, size}]`."""
        listed = [
            {"mode": one.mode, "path": one.path, "sha256": one.sha256, "size": one.size}
            for one in self.files
        ]
        return TreeDigest("skilltree1:" + sha256(canonical_json(listed)).hexdigest())

    @property
    def size(self) -> int:
        return sum(one.size for one in self.files)

    @property
    def by_path(self) -> Mapping[str, TreeFile]:
        return {one.path: one for one in self.files}


def tree_of(files: Iterable[TreeFile], left: Iterable[str] = ()) -> Tree:
    """Return the tree of files in any order.

    >>> tree_of([]).digest[:19]
    'skilltree1:4f53cda1'
    """
    by_bytes = tuple(sorted(files, key=lambda one: one.path.encode()))
    return Tree(files=by_bytes, left=tuple(sorted(left)))


def without_leftovers(tree: Tree) -> Tree:
    """Return a tree without the files whose names are those of leftovers."""
    return Tree(files=tuple(one for one in tree.files if not is_leftover_name(one.path)))


def tree_digest(directory: Path) -> TreeDigest:
    """Return the `skilltree1:` digest of the files below `directory`; errors as of `read_tree`."""
    return read_tree(directory).digest


def read_tree(directory: Path, *, whole: bool = False) -> Tree:
    """Return the files below `directory` (vectors/tree_digest.jsonl).

    Directories do not count, and the file `skill.sig` and the directory `.skill` of the top are
    left out. The `code` of a `TreeError` says what is no tree.

    Args:
        directory: Where the files are.
        whole: Count what programs left there, too: in a package that was made
            elsewhere it is a part of what its digest is about.
    """
    entries: dict[str, TreeFile] = {}
    left: list[str] = []
    total = 0

    def leave(relative: str) -> None:
        left.append(relative)
        if len(left) > LEFTOVERS_MAX:
            message = f"programs left more than {LEFTOVERS_MAX} files"
            raise TreeError("tree-too-large", directory, message)

    try:
        for path, relative in _files(str(directory), "", 0, leave=None if whole else leave):
            name = unicodedata.normalize("NFC", relative)
            if name in entries:
                raise TreeError("tree-name-clash", Path(path), f"two files are named {name!r}")
            mode, size, content = _read(path, TREE_MAX_BYTES - total)
            total += size
            if len(entries) >= TREE_MAX_FILES or total > TREE_MAX_BYTES:
                raise TreeError(
                    "tree-too-large",
                    directory,
                    f"more than {TREE_MAX_FILES} files or {TREE_MAX_BYTES} bytes",
                )
            entries[name] = TreeFile(path=name, mode=mode, size=size, sha256=content)
    except OSError as error:
        place = Path(os.fsdecode(error.filename)) if error.filename else directory
        raise TreeError("unreadable", place, error.strerror or "unreadable") from error
    return tree_of(entries.values(), left)


def matching_tree(
    directory: Path, expected: Collection[str], packed: Callable[[str], Tree | None]
) -> Tree:
    """Return what is in a directory as one of the expected trees, whatever programs left there.

    A package may have been made with such files in it. They are a part of what its digest is
    about, and programs change them all the same: they are no edits.

    Args:
        directory: Where the files are.
        expected: Digests of trees.
        packed: Returns the tree with a digest, as it was packed, as far as it is known.

    Returns:
        The tree that was expected; or the own files of the directory, which no one expected.
    """
    own = read_tree(directory)
    if own.digest in expected:
        return own
    for digest in expected:
        known = packed(digest)
        if known is not None and own == without_leftovers(known):
            return Tree(files=known.files, left=own.left)
    if own.left:
        try:
            whole = read_tree(directory, whole=True)
        except TreeError:
            return own
        if whole.digest in expected:
            return Tree(files=whole.files, left=own.left)
    return own


def _files(
    directory: str,
    prefix: str,
    depth: int,
    *,
    leave: Callable[[str], None] | None,
    cache: tuple[str, int] | None = None,
) -> Iterator[tuple[str, str]]:
    """Yield (path, relative path) of each file; what is not one is refused.

    Args:
        directory: The path.
        prefix: Its relative path, with `/`.
        depth: How many are above it.
        leave: Takes what programs left; None where that counts as any other file.
        cache: The name of the program's directory that this is, or is in, and how long the
            prefix is up to there.
    """
    if depth > TREE_MAX_DEPTH:
        place = Path(directory)
        raise TreeError("tree-too-deep", place, f"deeper than {TREE_MAX_DEPTH} directories")
    with os.scandir(directory) as entries:
        for item in entries:
            relative = prefix + item.name
            path = item.path
            info = item.stat(follow_symlinks=False)
            # By name and kind: files below a directory `skill.sig` are not hidden from the digest.
            if (relative, stat.S_IFMT(info.st_mode)) in _LEFT_OUT:
                continue
            if stat.S_ISDIR(info.st_mode):
                below = relative + "/"
                is_cache = cache is None and leave is not None and holds_leftovers(item.name)
                inside = (item.name, len(below)) if is_cache else cache
                yield from _files(path, below, depth + 1, leave=leave, cache=inside)
            elif leave is not None and (
                is_cached(cache[0], relative[cache[1] :], item) if cache else is_leftover(item)
            ):
                leave(relative)
            elif stat.S_ISREG(info.st_mode):
                if not is_utf8(relative):
                    raise TreeError("tree-name-encoding", Path(path), "a name that is not UTF-8")
                yield path, relative
            else:
                kind = "a symbolic link" if item.is_symlink() else "a special file"
                raise TreeError("tree-special", Path(path), f"{kind} in a skill")


def _read(path: str, left: int) -> tuple[str, int, str]:
    """Return (mode, size, SHA-256) of a file, of which at most one byte over `left` is read."""
    hasher = sha256()
    size = 0
    with descriptor(os.open(path, _FLAGS)) as handle:
        mode = os.fstat(handle).st_mode
        while chunk := os.read(handle, min(_CHUNK, left + 1 - size)):
            size += len(chunk)
            hasher.update(chunk)
    kind = EXECUTABLE_MODE if mode & stat.S_IXUSR else FILE_MODE
    return kind, size, hasher.hexdigest()
