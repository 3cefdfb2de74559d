"""Persistent paths, files that take effect after a run: agents' files and git repositories.

Existing ones are mounted read-only. Mounts cannot keep a run from making new ones anywhere, so
changed directories are checked afterwards: a new persistent file is renamed, and a new repository
keeps only configuration that starts no program. A file that was moved stays.
"""

from __future__ import annotations

import logging
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from skillhouse.floor import (
    DEPENDENCIES,
    FIXED,
    SECRET_NAMES,
    PathGroup,
    PersistentPaths,
    name_filter,
    named,
    spelled,
)
from skillhouse.sandbox.mountpoints import is_placeholder
from skillhouse.sandbox.repositories import BARE, disarm, is_repository, obeyed_names
from skillhouse.sandbox.survey import Directory, SurveyEntry, read_directory, read_entries

ENTRIES_MAX = 200_000
"""Names of a workspace that are looked at before a run, nearest first; about 0.2 s. As many as in
`survey`, which counts what is beyond, so that a person is asked."""
COVERS_MAX = 48
"""Paths that are mounted read-only, nearest first; bubblewrap needs 0.1 ms for each."""
logger = logging.getLogger(__name__)

WITHHELD = "withheld"
"""Suffix of the new name of a file that a run made without approval."""


_Entry = tuple[str, SurveyEntry, PathGroup | None]
"""A relative path, its entry, and its group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What of the protected paths a run may write."""

    patterns: tuple[str, ...] = ()
    """In the table's language."""
    everything: bool = False
    """Whether that is all that commands can write at all."""
    trees: bool = False
    """Whether the run brings directories of others' files, which may hold such names."""
    repositories: bool = False
    """Whether it makes git repositories."""

    def is_below(self, relative: str) -> bool:
        """Whether a path below this one may be written."""
        if not self.patterns:
            return False
        start = f"/{spelled(relative)}/"
        return any(spelled(pattern).startswith(start) for pattern in self.patterns)

    def frees(self, relative: str) -> bool:
        """Whether a protected path is not covered: it may be written, or holds what may."""
        if not self.patterns and not self.everything:
            return False
        if named(FIXED.patterns, relative):
            return False
        if self.everything and not named(SECRET_NAMES, relative):
            return True
        return named(self.patterns, relative) or self.is_below(relative)


@dataclass(slots=True)
class Census:
    """The paths that act later, of one workspace at one moment."""

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
        """Look at the workspace before a run."""
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
        """Return whether a directory is a repository's own, and what `_classified` says of it."""
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
        """Whether a name in a directory need not be one of the table, as the directory is opened
        itself."""
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
            with open(self._absolute(relative), "rb") as file:
                text = os.fsdecode(file.read(8_192))
        except OSError:
            return False
        above = os.path.dirname(self._absolute(relative))
        target = os.path.realpath(os.path.join(above, text.removeprefix("gitdir:").strip()))
        return target.startswith(f"{self.workspace}/")

    def _check_repository(self, place: str) -> None:
        """Disarm a directory that has become a bare repository, or let it be none."""
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
