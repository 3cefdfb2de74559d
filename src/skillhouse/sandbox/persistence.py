"""Persistent paths, files that take effect after a run: agents' files and git repositories.

Existing ones are mounted read-only. Mounts cannot keep a run from making new ones anywhere, so
changed directories are checked afterwards: a new persistent file is renamed, and a new repository
is disarmed. A file that was moved stays if it has its content and its name.
"""

from __future__ import annotations

import logging
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from skillhouse.floor import DEPENDENCIES, PathGroup, PersistentPaths, name_filter, spelled
from skillhouse.floor.crash_cleanup import PLACEHOLDER_SOCKETS
from skillhouse.floor.errors import first_of
from skillhouse.sandbox.covers import COVERS_MAX, ENTRIES_MAX, read_directory, read_entries
from skillhouse.sandbox.mountpoints import (
    BARE,
    disarm,
    is_placeholder,
    is_repository,
    make_readable,
    obeyed_names,
)
from skillhouse.sandbox.profile import Directory, OpenedProtection, SurveyEntry

logger = logging.getLogger(__name__)

POINTER_BYTES = 8_192
"""How much of a `.git` file is read: more than a path can have."""
SHOWN_MAX = 5
"""Names that one note has."""
WITHHELD = "withheld"
"""Suffix of the new name of a file that a run made without approval."""


_Entry = tuple[str, SurveyEntry, PathGroup | None]
"""A relative path, its entry, and its group."""


class _Known(Struct, frozen=True):
    """What a path was before the run."""

    identity: tuple[Any, ...]
    is_held: bool
    """Whether a mount keeps its content, and its name in its directory."""


class PersistentFileScan(Struct):
    """What acts later in a workspace, before and after a run."""

    workspace: str
    paths: PersistentPaths
    opened: OpenedProtection
    known: Mapping[str, Directory] = field(default_factory=dict)
    """Directories that were looked into for this run already; the others are read."""
    is_shielded: Callable[[str], bool] = lambda _: False
    """Whether `protected_mounts` covers a name at any depth by itself."""
    places: tuple[str, ...] = ("",)
    """The directories that the run can write, relative; "" is the workspace."""
    placeholders: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """Identity of each relative path that the run sees something empty in place of."""
    covered: list[str] = field(default_factory=list)
    """Absolute paths to be mounted read-only."""
    changes: list[str] = field(default_factory=list)
    """What was written that was opened, relative; known after `check`."""
    notes: list[str] = field(default_factory=list)
    """What was undone, in words; likewise."""
    _directories: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _present: dict[str, _Known] = field(default_factory=dict)
    _names: dict[tuple[int, ...], list[str]] = field(default_factory=dict)
    """The relative paths in `_present` of each device and inode."""
    _repositories: dict[str, frozenset[str]] = field(default_factory=dict)
    _inodes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Device and inode of each of the repositories."""
    _emptied: list[str] = field(default_factory=list)
    _may_end: Callable[[str], bool] = lambda _: True

    def __post_init__(self) -> None:
        self._may_end = name_filter(self.paths)

    def take(self) -> None:
        left = ENTRIES_MAX
        waiting = deque(self.places)
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
            self._directories[place] = known.state
            is_bare, classified = self._remembered(place, known)
            if is_bare:
                self._note_repository(place)
            for relative, name in self._descended(classified):
                # What is in the packages comes after everything else.
                (later if is_late or name in DEPENDENCIES else waiting).append(relative)

    def note_placeholders(self, paths: Iterable[str]) -> None:
        """Remember what is at these absolute paths now."""
        start = len(f"{self.workspace}/")
        self.placeholders = {path[start:]: _identity(path) for path in paths}

    def check(self) -> None:
        """Look at what changed in a run, and undo what it may not have made."""
        for relative, before in self._present.items():
            self._names.setdefault(before.identity[:2], []).append(relative)
        for place in tuple(self._directories):
            if _state(self._absolute(place)) not in (self._directories[place], ()):
                self._check_directory(place)
        for relative, before in self._present.items():
            is_written = _identity(self._absolute(relative)) != before.identity
            if is_written and self.opened.frees(relative):
                self.changes.append(relative)
        for place, names in self._repositories.items():
            self._check_obeyed(place, names)
        if self.opened.top_repository and ".git" not in self._present:
            # Its own directory may not have changed, where an empty one was there.
            self._disarm(".git")
        self._note_emptied()
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
            is_free = self.opened.frees(relative)
            if entry.is_directory and (group is None or is_free):
                yield relative, entry.name
                continue
            path = self._absolute(relative)
            is_top = relative == ".git" and self.opened.top_repository
            if is_top and _is_empty_directory(path):
                # What git puts into it is a new repository.
                continue
            is_held = not (is_free or entry.is_link)
            self._present[relative] = _Known(_identity(path), is_held)
            if spelled(entry.name) == ".git":
                if entry.is_directory:
                    self._remember_repository(relative)
                continue
            if not is_held or self.is_shielded(entry.name):
                continue
            if len(self.covered) < COVERS_MAX:
                self.covered.append(path)
            else:
                self._present[relative] = _Known(_identity(path), is_held=False)
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
            is_way = entry.is_link and not is_package and self.paths.leads_to_group(prefix + name)
            if entry.is_directory or group is not None or is_way:
                yield prefix + name, entry, group

    def _remember_repository(self, place: str) -> None:
        path = self._absolute(place)
        self._repositories[place] = obeyed_names(path)
        self._inodes[place] = _identity(path)[:2]

    def _note_repository(self, place: str) -> None:
        path = self._absolute(place)
        self._remember_repository(place)
        self.covered += [f"{path}/{name}" for name in sorted(self._repositories[place])]

    def _check_directory(self, place: str) -> None:
        """Look at a directory, and at the new ones below it, however deep."""
        # Each with the outermost new one that it is in.
        waiting = deque([(place, "")])
        while waiting:
            here, tree = waiting.popleft()
            waiting += [(new, tree or new) for new in self._check_entries(here, tree)]

    def _check_entries(self, place: str, tree: str) -> Iterator[str]:
        """Look at what is in a directory, and yield the directories that were not there before."""
        make_readable(self._absolute(place), writable=False)
        entries = read_entries(self._absolute(place))
        names = [entry.name for entry in entries]
        if place and is_repository(names) and not self._is_same_repository(place):
            self._check_repository(place)
        for relative, entry, group in self._classified(place, entries):
            path = self._absolute(relative)
            is_entered = entry.is_directory and (group is None or self.opened.frees(relative))
            if spelled(entry.name) != ".git" and is_entered:
                # One that was there before is looked at by itself, if it changed.
                if relative not in self._directories:
                    yield relative
            elif self._is_covered(relative, path) or self._is_as_before(relative, path, group):
                continue
            elif spelled(entry.name) == ".git":
                self._check_git(relative, entry)
            else:
                self._check_new(relative, tree=tree)

    def _is_covered(self, relative: str, path: str) -> bool:
        """Whether something was mounted over a path all the time, so that no run wrote to it: it
        is a placeholder, or another program's that put something into one.

        Whatever removes a placeholder takes away the mount, so that it is the same directory.
        """
        return is_placeholder(path) or self.placeholders.get(relative) == _identity(path)

    def _is_as_before(self, relative: str, path: str, group: PathGroup | None) -> bool:
        """Whether a path has the content and the name that it had, here or where it was moved."""
        now = _identity(path)
        before = self._present.get(relative)
        if before is not None and before.identity == now:
            return True
        above = os.path.dirname(relative)
        if before is not None and before.is_held and self._is_same_directory(above):
            # The run could not put it there: a program of the host did.
            return True
        name = os.path.basename(relative)
        for old in self._names.get(now[:2], ()):
            is_kept = self._present[old].is_held or self._present[old].identity == now
            is_same = spelled(os.path.basename(old)) == spelled(name)
            if is_kept and is_same and self.paths.group(old) == group:
                if old in self._repositories:
                    self._check_obeyed(relative, self._repositories[old])
                return not self.opened.frees(old)
        return False

    def _is_same_directory(self, place: str) -> bool:
        return _state(self._absolute(place))[:2] == self._directories.get(place, ())[:2]

    def _is_same_repository(self, place: str) -> bool:
        return self._inodes.get(place) == _identity(self._absolute(place))[:2]

    def _check_obeyed(self, place: str, names: frozenset[str]) -> None:
        for name in sorted(obeyed_names(self._absolute(place)) - names):
            self._withhold(f"{place}/{name}", "git obeys it")

    def _check_new(self, relative: str, *, tree: str) -> None:
        if self.opened.frees(relative):
            self.changes.append(relative)
        elif self._is_removed_empty(relative):
            return
        elif tree and self.opened.trees and self._is_wholly_in(tree, relative):
            self.notes.append(f"came with it: `{relative}`, which other programs obey")
        else:
            group = self.paths.group(relative)
            self._withhold(relative, group.why if group else "it leads to names that count")

    def _is_removed_empty(self, relative: str) -> bool:
        """Remove a copy of a placeholder: a directory, or such a file, with nothing in it."""
        path = self._absolute(relative)
        make_readable(os.path.dirname(path))
        try:
            info = os.lstat(path)
            if stat.S_ISREG(info.st_mode) and os.path.basename(path) in PLACEHOLDER_SOCKETS:
                if info.st_size:
                    return False
                os.unlink(path)
            else:
                os.rmdir(path)
        except OSError:
            return False
        self._emptied.append(relative)
        return True

    def _note_emptied(self) -> None:
        if not self._emptied:
            return
        shown = first_of([f"`{name}`" for name in self._emptied], SHOWN_MAX)
        self.notes.append(f"removed, as empty files or directories with protected names: {shown}")

    def _is_wholly_in(self, tree: str, relative: str) -> bool:
        """Whether a path acts later also where its tree has another name and place."""
        inner = os.path.relpath(relative, tree)
        return self.paths.group(f"any/{inner}") is not None

    def _check_git(self, relative: str, entry: SurveyEntry) -> None:
        """Disarm a new `.git`; a link, or a file that leads out of the workspace, is renamed."""
        if entry.is_directory:
            if not self._is_removed_empty(relative):
                self._disarm(relative)
            return
        if not entry.is_link and self._leads_inside(relative):
            return
        self._withhold(relative, "it leads git to another place")

    def _leads_inside(self, relative: str) -> bool:
        path = self._absolute(relative)
        try:
            # To open anything else may wait for a program that writes into it.
            if not stat.S_ISREG(os.lstat(path).st_mode):
                return False
            _, target = read_pointer(path)
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
        try:
            removed = disarm(self._absolute(relative))
        except OSError:
            # What cannot be read as one is none that may stay.
            self._withhold(relative, "its settings cannot be read")
            return
        if removed:
            self.notes.append(f"removed from the new repository `{relative}`: {removed}")

    def _withhold(self, relative: str, why: str) -> None:
        path = self._absolute(relative)
        if not os.path.lexists(path) or self._is_covered(relative, path):
            return
        directory, name = os.path.split(path)
        make_readable(directory)
        # A name has at most 255 bytes.
        start = f"{os.fsdecode(os.fsencode(name)[:200])}.{WITHHELD}"
        target, number = f"{directory}/{start}", 2
        while os.path.lexists(target):
            target, number = f"{directory}/{start}-{number}", number + 1
        try:
            os.rename(path, target)
        except OSError as error:
            # INVARIANT: the others are still looked at.
            self.notes.append(f"not withheld, remove it: `{relative}` ({why}): {error.strerror}")
            return
        shown = os.path.relpath(target, self.workspace)
        self.notes.append(f"withheld: `{relative}` is now `{shown}` ({why})")


def read_pointer(path: str) -> tuple[bool, str]:
    """Return whether a `.git` file is well-formed, and the real path of what it points to."""
    with open(path, "rb") as file:
        text = os.fsdecode(file.read(POINTER_BYTES))
    relative = text.removeprefix("gitdir:").strip()
    target = os.path.realpath(os.path.join(os.path.dirname(path), relative))
    return text.startswith("gitdir:"), target


def _is_empty_directory(path: str) -> bool:
    try:
        return not os.path.islink(path) and not os.listdir(path)
    except OSError:
        return False


def _state(path: str) -> tuple[int, ...]:
    """Return what no program can set of a directory (`Directory.state`)."""
    try:
        info = os.lstat(path)
    except OSError:
        return ()
    is_directory = stat.S_ISDIR(info.st_mode)
    return (info.st_dev, info.st_ino, info.st_ctime_ns) if is_directory else ()


def _identity(path: str) -> tuple[Any, ...]:
    """Return device, inode, kind, and what shows of the content of a file or link."""
    try:
        info = os.lstat(path)
        kind = stat.S_IFMT(info.st_mode)
        if stat.S_ISDIR(kind):
            return (info.st_dev, info.st_ino, kind)
        if stat.S_ISLNK(kind):
            return (info.st_dev, info.st_ino, kind, os.readlink(path))
    except OSError:
        return ()
    return (info.st_dev, info.st_ino, kind, info.st_size, info.st_mtime_ns)
