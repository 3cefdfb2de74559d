"""Walks one root for SKILL.md files: bounded, cycle-safe, and in an order of its own."""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from skillhouse.skill import SKILL_FILE, Finding

ENTRIES_MANY = 100_000
"""Entries of one directory from which on a root is said to be slow to scan."""


class Look(Protocol):
    """What a walk does at each place where a SKILL.md may be."""

    def __call__(self, path: str, name: str, *, follow: bool) -> bool:
        """Return whether to look for skills below the directory called `name`.

        Raises:
            OSError: there is no regular file at `path`; `not_regular` makes the error of what is
                there and is none. Links are followed with `follow` only.
        """
        ...


def not_regular(path: str) -> OSError:
    """Return the error of a place that holds something other than a regular file."""
    return OSError(errno.EINVAL, "not a regular file", path)


@dataclass(slots=True)
class Walk:
    """One walk below a real path; what goes wrong on the way is kept with its place."""

    root: str
    """Real path of the root."""
    max_depth: int
    max_directories: int
    skipped: frozenset[str]
    findings: list[tuple[str, Finding]] = field(default_factory=list)
    """(path, finding) in the order in which the places were met."""
    _visited: int = 0
    _too_deep: list[str] = field(default_factory=list)
    _links: dict[tuple[int, int], str] = field(default_factory=dict)
    """Directories that links led to, by device and inode: each is entered once."""

    def run(self, look: Look) -> None:
        """Show each place of a SKILL.md to `look`: shallow ones first, by name in a directory."""
        if not self._is_directory():
            return
        pending = deque([(self.root, 0)])
        while pending:
            place, depth = pending.popleft()
            for path, name in self._directories(place):
                if depth >= self.max_depth:
                    self._too_deep.append(path)
                    break
                self._visited += 1
                if self._visited > self.max_directories:
                    message = f"stopped after {self.max_directories} directories; narrow the root"
                    self._note(self.root, "scan-limit", message)
                    return
                if self._goes_below(path, name, look):
                    pending.append((path, depth + 1))
        if self._too_deep:
            more = f" (and {len(self._too_deep) - 1} more)" if len(self._too_deep) > 1 else ""
            message = f"not looked into: deeper than {self.max_depth} directories{more}"
            self._note(self._too_deep[0], "depth-limit", message)

    def _is_directory(self) -> bool:
        """Whether the root can be scanned; one that is missing is no finding (S000-14)."""
        try:
            mode = os.stat(self.root).st_mode
        except FileNotFoundError:
            return False
        except OSError as error:
            self._unreadable(self.root, error)
            return False
        if not stat.S_ISDIR(mode):
            self._note(
                self.root, "root-not-directory", "expected a directory of skills", fatal=True
            )
        return stat.S_ISDIR(mode)

    def links(self) -> tuple[str, ...]:
        """Return the links to directories that were entered."""
        return tuple(self._links.values())

    def _goes_below(self, path: str, name: str, look: Look) -> bool:
        """Look at the SKILL.md of a directory; whether to look for skills below the directory."""
        file = f"{path}/{SKILL_FILE}"
        try:
            return look(file, name, follow=False)
        except OSError as error:
            return self._without_skill(file, name, look, error)

    def _without_skill(self, file: str, name: str, look: Look, error: OSError) -> bool:
        """Find out why there was no regular file: a link is followed, the rest is noted."""
        try:
            mode = os.lstat(file).st_mode
            if stat.S_ISLNK(mode) and self._is_inside(file):
                return look(file, name, follow=True)
        except (FileNotFoundError, NotADirectoryError):
            if os.path.islink(file):
                self._note(file, "link-broken", "a symbolic link to nothing")
            return True
        except OSError as second:
            mode, error = stat.S_IFREG, second
        if stat.S_ISREG(mode):
            self._unreadable(file, error)
        elif not stat.S_ISLNK(mode):
            kind = "a directory" if stat.S_ISDIR(mode) else "a device, pipe or socket"
            self._note(file, "not-a-file", f"expected a regular file, got {kind}", fatal=True)
        return not isinstance(error, PermissionError)

    def _directories(self, place: str) -> Iterator[tuple[str, str]]:
        """Yield (path, name) of the directories in `place`, sorted by name."""
        names = []
        links = set()
        count = 0
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    count += 1
                    if entry.is_dir(follow_symlinks=False):
                        names.append(entry.name)
                    elif entry.is_symlink():
                        names.append(entry.name)
                        links.add(entry.name)
        except OSError as error:
            self._unreadable(place, error)
            return
        if count > ENTRIES_MANY:
            self._note(place, "many-entries", f"{count} entries make this slow to scan")
        names.sort()
        prefix = place.rstrip("/") + "/"
        for name in names:
            path = prefix + name
            if name in self.skipped:
                continue
            if not name.isprintable() and not _is_utf8(name):
                self._note(path, "path-encoding", "the directory's name is not UTF-8", fatal=True)
            elif name not in links or self._enters_link(path):
                yield path, name

    def _enters_link(self, path: str) -> bool:
        """Whether a link leads to a directory inside the root that no link led to before."""
        try:
            info = os.stat(path)
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                self._note(path, "link-broken", "a symbolic link to nothing")
            else:
                self._unreadable(path, error)
            return False
        if not stat.S_ISDIR(info.st_mode) or not self._is_inside(path):
            return False
        real = os.path.realpath(path)
        if path.startswith(real + "/"):
            self._note(path, "link-cycle", "a symbolic link to a directory above itself")
            return False
        first = self._links.setdefault((info.st_dev, info.st_ino), path)
        if first != path:
            self._note(path, "link-cycle", f"leads where `{first}` has led already")
        return first == path

    def _is_inside(self, path: str) -> bool:
        real = os.path.realpath(path)
        if real == self.root or real.startswith(self.root.rstrip("/") + "/"):
            return True
        self._note(path, "link-escape", f"a symbolic link out of the root, to `{real}`")
        return False

    def _unreadable(self, path: str, error: OSError) -> None:
        self._note(path, "unreadable", (error.strerror or str(error)).lower(), fatal=True)

    def _note(self, path: str, code: str, message: str, *, fatal: bool = False) -> None:
        self.findings.append((path, Finding(code, message, None, fatal)))


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
