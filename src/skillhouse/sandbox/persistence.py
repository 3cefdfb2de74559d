"""Persistent paths, files that take effect after a run: agents' files and git repositories.

Existing ones are mounted read-only. Mounts cannot keep a run from making new ones anywhere, so
changed directories are checked afterwards: a new persistent file is renamed, and a new repository
is disarmed: it keeps only configuration that starts no program. A file that was moved stays.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import stat
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from skillhouse.floor import (
    DEPENDENCIES,
    PathGroup,
    PersistentPaths,
    name_filter,
    spelled,
)
from skillhouse.sandbox.covers import COVERS_MAX, ENTRIES_MAX, read_directory, read_entries
from skillhouse.sandbox.mountpoints import is_placeholder
from skillhouse.sandbox.profile import Directory, Opened, SurveyEntry

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

_SECTION = re.compile(r'\s*\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\](.*)', re.DOTALL)
_HARMLESS = re.compile(
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


def disarm(directory: str, *, depth: int = 0) -> str:
    """Remove from a new repository what starts programs; return the removed names, or ""."""
    removed = []
    for name in sorted(obeyed_names(directory)):
        path = os.path.join(directory, name)
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
    for place, directories, files in os.walk(directory):
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


logger = logging.getLogger(__name__)

POINTER_BYTES = 8_192
"""How much of a `.git` file is read: more than a path can have."""
WITHHELD = "withheld"
"""Suffix of the new name of a file that a run made without approval."""


_Entry = tuple[str, SurveyEntry, PathGroup | None]
"""A relative path, its entry, and its group."""


@dataclass(slots=True)
class Census:
    """What acts later in a workspace, before and after a run."""

    workspace: str
    paths: PersistentPaths
    opened: Opened
    known: Mapping[str, Directory] = field(default_factory=dict)
    """Directories that were looked into for this run already; the others are read."""
    is_shielded: Callable[[str], bool] = lambda _: False
    """Whether `shield` covers a name at any depth by itself."""
    covered: list[str] = field(default_factory=list)
    """Absolute paths to be mounted read-only."""
    changes: list[str] = field(default_factory=list)
    """What was written that was opened, relative; known after `check`."""
    notes: list[str] = field(default_factory=list)
    """What was undone, in words; likewise."""
    _directories: dict[str, int] = field(default_factory=dict)
    _present: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _repositories: dict[str, frozenset[str]] = field(default_factory=dict)
    _may_end: Callable[[str], bool] = field(init=False)

    def __post_init__(self) -> None:
        self._may_end = name_filter(self.paths)

    def take(self) -> None:
        left = ENTRIES_MAX
        waiting = deque([""])
        later: deque[str] = deque()
        while waiting or later:
            is_late = not waiting
            place = (later if is_late else waiting).popleft()
            known = self.known.get(place) or read_directory(self._absolute(place))
            left -= len(known.entries)
            if left < 0:
                # Whoever starts a run knows it before, and asks a person (tools/command.py).
                logger.info("only a part of `%s` is watched for what acts later", self.workspace)
                return
            self._directories[place] = known.changed_ns
            is_bare, classified = self._remembered(place, known)
            if is_bare:
                self._note_repository(place)
            for relative, name in self._descended(classified):
                # What is in the packages comes after everything else.
                (later if is_late or name in DEPENDENCIES else waiting).append(relative)

    def check(self) -> None:
        """Look at what changed in a run, and undo what it may not have made."""
        known = {identity[:2] for identity in self._present.values()}
        for place in tuple(self._directories):
            path = self._absolute(place)
            if _changed_ns(path) not in (self._directories[place], 0):
                self._check_directory(place, known, tree="")
        for relative, before in self._present.items():
            if self.opened.frees(relative) and _identity(self._absolute(relative)) != before:
                self.changes.append(relative)
        for place, names in self._repositories.items():
            for name in sorted(obeyed_names(self._absolute(place)) - names):
                self._withhold(f"{place}/{name}", "git obeys it")
        self.changes = sorted(set(self.changes))

    def _absolute(self, relative: str) -> str:
        return f"{self.workspace}/{relative}" if relative else self.workspace

    def _remembered(self, place: str, known: Directory) -> tuple[bool, tuple[_Entry, ...]]:
        is_opened = self._is_opened(place)
        key = (self.paths, is_opened)
        if key not in known.kept:
            is_bare = bool(place) and is_repository([entry.name for entry in known.entries])
            known.kept[key] = is_bare, tuple(self._classified(place, known.entries))
        found: tuple[bool, tuple[_Entry, ...]] = known.kept[key]
        return found

    def _descended(self, classified: Iterable[_Entry]) -> Iterator[tuple[str, str]]:
        """Yield the directories that are looked into; what is protected is noted."""
        for relative, entry, group in classified:
            if group is None or (entry.is_directory and self.opened.frees(relative)):
                if entry.is_directory:
                    yield relative, entry.name
                continue
            path = self._absolute(relative)
            self._present[relative] = _identity(path)
            if spelled(entry.name) == ".git":
                if entry.is_directory:
                    self._repositories[relative] = obeyed_names(path)
                continue
            is_free = self.opened.frees(relative) or entry.is_link
            if is_free or self.is_shielded(entry.name):
                continue
            if len(self.covered) < COVERS_MAX:
                self.covered.append(path)
            else:
                # Those are counted and asked about before as well (`covers.covered_paths`).
                logger.info("`%s` of `%s` is not covered", relative, self.workspace)

    def _is_opened(self, place: str) -> bool:
        """Whether a directory is opened itself, so that any name in it may count."""
        return bool(place) and self.opened.frees(place) and self.paths.group(place) is not None

    def _classified(self, place: str, entries: Iterable[SurveyEntry]) -> Iterator[_Entry]:
        """Yield the directories among some entries, and what acts later, with its group."""
        prefix = f"{place}/" if place else ""
        is_package = not DEPENDENCIES.isdisjoint(place.split("/"))
        is_opened = self._is_opened(place)
        for entry in entries:
            name = entry.name
            group = None
            if is_opened or self._may_end(name):
                group = self.paths.group(prefix + name)
                if is_package and spelled(name) != ".git":
                    group = None
            if entry.is_directory or group is not None:
                yield prefix + name, entry, group

    def _note_repository(self, place: str) -> None:
        path = self._absolute(place)
        self._repositories[place] = obeyed_names(path)
        self.covered += [f"{path}/{name}" for name in sorted(self._repositories[place])]

    def _check_directory(self, place: str, known: set[tuple[int, ...]], *, tree: str) -> None:
        """Look at a directory; `tree` is the outermost new one that it is in, if any."""
        entries = read_entries(self._absolute(place))
        names = [entry.name for entry in entries]
        if place and place not in self._repositories and is_repository(names):
            self._check_repository(place)
        for relative, entry, group in self._classified(place, entries):
            if relative in self._present or relative in self._directories:
                continue
            info = os.lstat(self._absolute(relative))
            if is_placeholder(info) or (info.st_dev, info.st_ino) in known:
                continue
            if spelled(entry.name) == ".git":
                self._check_git(relative, entry)
            elif group is not None and not (entry.is_directory and self.opened.frees(relative)):
                self._check_new(relative, tree=tree)
            elif entry.is_directory:
                self._check_directory(relative, known, tree=tree or relative)

    def _check_new(self, relative: str, *, tree: str) -> None:
        if self.opened.frees(relative):
            self.changes.append(relative)
        elif tree and self.opened.trees and self._is_wholly_in(tree, relative):
            self.notes.append(f"came with it: `{relative}`, which other programs obey")
        else:
            group = self.paths.group(relative)
            self._withhold(relative, group.why if group else "")

    def _is_wholly_in(self, tree: str, relative: str) -> bool:
        """Whether a path acts later also where its tree has another name and place."""
        inner = os.path.relpath(relative, tree)
        return self.paths.group(f"any/{inner}") is not None

    def _check_git(self, relative: str, entry: SurveyEntry) -> None:
        """Disarm a new `.git`; a link, or a file that leads out of the workspace, is renamed."""
        if entry.is_directory:
            self._disarm(relative)
            return
        if not entry.is_link and self._leads_inside(relative):
            return
        self._withhold(relative, "it leads git to another place")

    def _leads_inside(self, relative: str) -> bool:
        try:
            _, target = read_pointer(self._absolute(relative))
        except OSError:
            return False
        return target.startswith(f"{self.workspace}/")

    def _check_repository(self, place: str) -> None:
        if self.opened.repositories:
            self._disarm(place)
            return
        head = next(n for n in os.listdir(self._absolute(place)) if spelled(n) == BARE[0])
        self._withhold(f"{place}/{head}", f"it makes `{place}` a git repository")

    def _disarm(self, relative: str) -> None:
        removed = disarm(self._absolute(relative))
        if removed:
            self.notes.append(f"removed from the new repository `{relative}`: {removed}")

    def _withhold(self, relative: str, why: str) -> None:
        path = self._absolute(relative)
        if not os.path.lexists(path) or is_placeholder(os.lstat(path)):
            return
        target, number = f"{path}.{WITHHELD}", 2
        while os.path.lexists(target):
            target, number = f"{path}.{WITHHELD}-{number}", number + 1
        os.rename(path, target)
        shown = os.path.relpath(target, self.workspace)
        self.notes.append(f"withheld: `{relative}` is now `{shown}` ({why})")


def read_pointer(path: str) -> tuple[bool, str]:
    """Return whether a `.git` file is well-formed, and the real path of what it points to."""
    with open(path, "rb") as file:
        text = os.fsdecode(file.read(POINTER_BYTES))
    relative = text.removeprefix("gitdir:").strip()
    target = os.path.realpath(os.path.join(os.path.dirname(path), relative))
    return text.startswith("gitdir:"), target


def _changed_ns(path: str) -> int:
    """Return when a directory was changed, which no program can set; 0 when it is gone."""
    try:
        info = os.lstat(path)
    except OSError:
        return 0
    return info.st_ctime_ns if stat.S_ISDIR(info.st_mode) else 0


def _identity(path: str) -> tuple[int, ...]:
    try:
        info = os.lstat(path)
    except OSError:
        return ()
    return (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)
