"""Removes from a git repository that a run made what starts programs.

What stays is known to start nothing; of the rest git gets new settings with every version.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Collection

from skillhouse.floor import spelled
from skillhouse.floor.regex import regex
from skillhouse.sandbox.mountpoints import is_placeholder

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
