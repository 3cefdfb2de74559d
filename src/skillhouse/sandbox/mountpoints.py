"""Placeholders at protected paths that do not exist, during a run: mostly empty directories.

Afterwards a result names them where the output does, and what a run made in place of one, such as a
git repository, loses what starts programs.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterable
from pathlib import Path

from skillhouse.floor import spelled
from skillhouse.floor.crash_cleanup import (
    PLACEHOLDER_FILES,
    PLACEHOLDER_NS,
    PLACEHOLDER_SOCKETS,
    STASH_NAME,
    is_placeholder,
    owner_name,
    remove_placeholder,
    sweep_stashes,
)
from skillhouse.floor.errors import first_of
from skillhouse.floor.regex import regex
from skillhouse.sandbox.crash_watch import watch_for_crashes
from skillhouse.sandbox.profile import Directory

__all__ = ["KeptPlaceholders", "is_placeholder"]

_NUMBERS = itertools.count()


class KeptPlaceholders:
    """Makes placeholders and removes them.

    With a directory on the workspace's file system they are moved from there and back: a run
    needs two dozen, and ext4 removes a directory in 0.1 ms but moves one in 0.01 ms.
    """

    def __init__(self, base: Path | None = None) -> None:
        """Sweep the stashes of dead processes from `base`, and begin one there."""
        self._base = base
        self._directory = ""
        self._free: list[str] = []
        self._numbers = itertools.count()
        if base is not None:
            watch_for_crashes().mark(base)
            sweep_stashes(base)
            self._directory = f"{base}/{STASH_NAME}{owner_name()}-{next(_NUMBERS)}"
            os.mkdir(self._directory)

    def record(self, workspace: str, paths: Iterable[str]) -> None:
        """Note where placeholders will be, so that they are removed if we are killed."""
        if self._base is not None:
            watch_for_crashes().record(self._base, workspace, paths)

    def place(self, path: str) -> None:
        content = PLACEHOLDER_FILES.get(os.path.basename(path))
        if content is not None:
            _make_file(path, content)
            return
        if os.path.basename(path) in PLACEHOLDER_SOCKETS and _make_socket(path):
            return
        if self._directory:
            source = self._free.pop() if self._free else self._new()
            try:
                os.rename(source, path)
            except OSError as error:
                self._free.append(source)
                if error.errno != errno.EXDEV:
                    raise
            else:
                return
        _make(path)

    def remove(self, path: str) -> None:
        # A program of the host may have put something into it, or removed it: it is not ours then.
        with contextlib.suppress(FileNotFoundError):
            if not is_placeholder(path):
                return
            is_directory = stat.S_ISDIR(os.lstat(path).st_mode)
            if is_directory and self._directory and self._move_back(path):
                return
            remove_placeholder(path)

    def _move_back(self, path: str) -> bool:
        target = self._unused()
        try:
            os.rename(path, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            return False
        if is_placeholder(target):
            self._free.append(target)
        else:
            os.rename(target, path)
        return True

    def _new(self) -> str:
        path = self._unused()
        _make(path)
        return path

    def _unused(self) -> str:
        return f"{self._directory}/{next(self._numbers)}"


def _make(path: str) -> None:
    os.mkdir(path, 0o755)
    os.utime(path, ns=(PLACEHOLDER_NS, PLACEHOLDER_NS), follow_symlinks=False)


def _make_socket(path: str) -> bool:
    """Make a socket without a listener; False on a file system that has none."""
    try:
        os.mknod(path, stat.S_IFSOCK | 0o444)
    except FileExistsError:
        raise
    except OSError:
        return False
    os.utime(path, ns=(PLACEHOLDER_NS, PLACEHOLDER_NS), follow_symlinks=False)
    return True


def _make_file(path: str, content: bytes) -> None:
    """Make a file that is whole from its first moment on, as programs of the host may read it."""
    flags, is_named = os.O_WRONLY | os.O_CLOEXEC, False
    try:
        handle = os.open(os.path.dirname(path), flags | os.O_TMPFILE, 0o444)
    except OSError:
        # Not every file system has files without a name (open(2)).
        handle, is_named = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o444), True
    try:
        os.write(handle, content)
        os.utime(handle, ns=(PLACEHOLDER_NS, PLACEHOLDER_NS))
        if not is_named:
            # Without a descriptor Python would make a link to the link in /proc.
            os.link(f"/proc/self/fd/{handle}", path, src_dir_fd=handle)
    finally:
        os.close(handle)


SHOWN_MAX = 5
"""Names that a note has."""
_COLOUR = regex(rb"\x1b\[[0-9;]*[mK]")
_NO_WORD = rb"(?<![\w.@%+~/\x80-\xff-])"
_NO_LONGER_WORD = rb"(?![\w@%+~\x80-\xff-]|\.[\w\x80-\xff])"


def placeholder_note(
    output: bytes,
    workspace: str,
    placeholders: Collection[str],
    *,
    directories: Iterable[Directory] = (),
) -> str:
    """Return a note about the placeholders that an output names as paths, or "".

    Args:
        workspace: Its real path.
        placeholders: Those that the run saw, as absolute paths.
        directories: Those of the workspace. A name that one of them really has is not meant,
            unless it is named by its whole path: programs name paths from where they are.
    """
    named = _named(output, workspace, placeholders) if output and placeholders else {}
    if not all(named.values()):
        there = {entry.name for directory in directories for entry in directory.entries}
        named = {n: whole for n, whole in named.items() if whole or n.split("/")[0] not in there}
    names = sorted(named)
    if not names:
        return ""
    shown = first_of([f"`{name}`" for name in names], SHOWN_MAX)
    if len(names) == 1:
        said = "does not exist: skillhouse protects this name, shows a placeholder, and no command "
        said += "can make it"
    else:
        said = "do not exist: skillhouse protects these names, shows placeholders, and no command "
        said += "can make them"
    is_about_git = ".git" in names
    advice = (
        "; `git init` as the whole command makes a repository here, `git init NAME` one below"
        if is_about_git
        else ""
    )
    return f"{shown} {said}{advice}"


def _named(output: bytes, workspace: str, placeholders: Iterable[str]) -> dict[str, bool]:
    """Return the names that an output has, and whether it has the whole path of each."""
    start = f"{workspace}/"
    relative = {os.fsencode(path.removeprefix(start)) for path in placeholders}
    # The longest first: of `.git/config` and `.git` the first is meant.
    words = b"|".join(re.escape(name) for name in sorted(relative, key=len, reverse=True))
    place = re.escape(os.fsencode(start))
    path = re.compile(_NO_WORD + rb"(\./|" + place + rb")?(" + words + rb")" + _NO_LONGER_WORD)
    named: dict[str, bool] = {}
    for before, name in path.findall(_COLOUR.sub(b"", output)):
        text = os.fsdecode(name)
        named[text] = named.get(text, False) or len(before) > len(b"./")
    return named


BARE = ("head", "objects", "refs")
"""Marks of a repository's own directory (gitrepository-layout (5)); `commondir` replaces the last
two."""
OBEYED = frozenset({"config", "config.worktree", "hooks", "commondir"})
"""Names in such a directory that git reads settings or programs from."""
CONFIG_MAX = 262_144
"""Bytes of a `config` that is read; a larger one is replaced."""
DEPTH_MAX = 16
"""Nesting of submodules."""
DEFAULT_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = {bare}\n"

_SECTION = regex(r'\s*\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\](.*)', re.DOTALL)
_HARMLESS = regex(
    # git-config(1): nothing of it names a program or another file of settings.
    r"core\.(?:repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|symlinks|eol"
    r"|precomposeunicode|autocrlf|safecrlf|sparsecheckout|sparsecheckoutcone|abbrev|quotepath)"
    r"|extensions\.(?:objectformat|partialclone|refstorage|noop|preciousobjects)"
    r"|remote\.(?:url|fetch|push|pushurl|mirror|prune|tagopt|promisor|partialclonefilter)"
    r"|branch\.(?:remote|merge|rebase|pushremote|autosetupmerge|autosetuprebase)"
    r"|submodule\.(?:url|active|path|branch|ignore)|user\.(?:name|email)|init\.defaultbranch"
    r"|lfs\.repositoryformatversion|pull\.(?:rebase|ff)|push\.default|gc\.auto|index\.version"
    r"|pack\.threads|receive\.deny[a-z]+|maintenance\.(?:auto|strategy)"
)


def is_repository(names: Collection[str]) -> bool:
    """Whether git takes a directory with these names for a bare repository.

    >>> is_repository({"HEAD", "objects", "refs"}), is_repository({"HEAD", "refs"})
    (True, False)
    """
    # Most directories have no such name, and spelling all of theirs is slow.
    if not any(name[:4].casefold() == BARE[0] or not name.isascii() for name in names):
        return False
    # As a case-insensitive file system compares them.
    spellings = {spelled(name) for name in names if len(name) < 32}
    return "head" in spellings and ({"objects", "refs"} <= spellings or "commondir" in spellings)


def obeyed_names(directory: str) -> frozenset[str]:
    try:
        return frozenset(name for name in os.listdir(directory) if spelled(name) in OBEYED)
    except OSError:
        return frozenset()


def make_readable(path: str, *, writable: bool = True) -> None:
    """Give back to the owner the rights to a directory or file that a run took from him."""
    with contextlib.suppress(OSError):
        mode = os.lstat(path).st_mode
        needed = 0o700 if stat.S_ISDIR(mode) else 0o600 if stat.S_ISREG(mode) else 0
        needed &= 0o700 if writable else 0o500
        if mode & needed != needed:
            os.chmod(path, stat.S_IMODE(mode) | needed)


def disarm(directory: str, *, depth: int = 0) -> str:
    """Remove from a new repository what starts programs; return the removed names, or ""."""
    removed = []
    make_readable(directory)
    for name in sorted(obeyed_names(directory)):
        path = os.path.join(directory, name)
        if is_placeholder(path):
            continue
        make_readable(path)
        kind = spelled(name)
        if kind == "hooks":
            removed += _without_hooks(path)
        elif kind == "config":
            removed += _without_programs(path)
        else:
            remove(path)
            removed.append(name)
    if depth < DEPTH_MAX:
        for inner in _repositories_below(os.path.join(directory, "modules")):
            removed += filter(None, [disarm(inner, depth=depth + 1)])
    return ", ".join(removed)


def _repositories_below(directory: str) -> list[str]:
    repositories = []
    make_readable(directory)
    for place, directories, files in os.walk(directory):
        for name in directories:
            make_readable(os.path.join(place, name))
        if is_repository({*directories, *files}):
            repositories.append(place)
            directories.clear()
    return repositories


def _without_hooks(path: str) -> list[str]:
    """Remove every hook but git's own samples, which it never runs."""
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        remove(path)
        return ["hooks"]
    removed = []
    for name in sorted(os.listdir(path)):
        if not name.endswith(".sample"):
            make_readable(os.path.join(path, name))
            remove(os.path.join(path, name))
            removed.append(f"hooks/{name}")
    return removed


def _without_programs(path: str) -> list[str]:
    text = _text(path)
    kept, removed = _filtered(text) if text is not None else ("", ["config"])
    if not removed:
        return []
    bare = str(os.path.basename(os.path.dirname(path)) != ".git").lower()
    remove(path)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(kept or DEFAULT_CONFIG.format(bare=bare))
    return removed


def _text(path: str) -> str | None:
    """Return the text of a regular file; None of anything else, which git must not read."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return None
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        data = file.read(CONFIG_MAX + 1)
    return None if len(data) > CONFIG_MAX else data.decode("utf-8", "surrogateescape")


def _filtered(text: str) -> tuple[str, list[str]]:
    """Return the harmless part of a `config`, and the keys of the rest."""
    kept: list[str] = []
    removed: list[str] = []
    section = ""
    for line in re.sub(r"\\\r?\n", "", text.removeprefix("\ufeff")).splitlines():
        rest = line
        while (header := _SECTION.fullmatch(rest)) is not None:
            section, rest = header[1].casefold(), header[3]
            heading = f'[{header[1]} "{header[2]}"]' if header[2] is not None else f"[{header[1]}]"
            if section.count(".") == 0:
                kept.append(heading)
        rest = rest.strip()
        if not rest or rest[0] in "#;":
            continue
        key, _, value = rest.partition("=")
        name = f"{section}.{key.strip().casefold()}"
        if _HARMLESS.fullmatch(name) and "::" not in value and value.strip()[:1] not in ("!", "-"):
            kept.append(f"\t{rest}")
        else:
            removed.append(name)
    return "".join(f"{line}\n" for line in kept), list(dict.fromkeys(removed))


def remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
