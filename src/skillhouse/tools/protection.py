"""What no tool writes: protected names at any depth, skills, and the state of skillhouse itself."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from skillhouse.floor import PathClass, PathStateCache, PersistentPaths, is_below, spelled, trail
from skillhouse.tools.call import RefusedError

SKILL_FILE = "skill.md"
ENTRIES_MAX = 200_000
"""Names of a workspace that are looked through for other names of a file, before each command:
about 0.2 s. Only where a skill's file has several names."""
REPOSITORY_PARTS = frozenset(
    {"head", "objects", "refs", "commondir", "config", "config.worktree", "hooks", "modules"}
)
"""Names in a git directory that make it one, or that git obeys (gitrepository-layout (5))."""
LOADED_ENTRIES_MAX = 2_000
"""Names of a loaded skill that are looked at for links."""


class OwnFiles(Protocol):
    """The files that decide about a workspace's tools, read when one is about to act."""

    def places(self) -> Iterable[Path]: ...

    @property
    def skill_files(self) -> frozenset[str]:
        """The SKILL.md of each skill that is a person's own: those of the program are left out."""
        ...

    def problem(self, states: PathStateCache) -> str:
        """Return why nothing may act now, from `places` and what is at the paths; or ""."""
        ...


class NoFiles:
    def places(self) -> Iterable[Path]:
        return ()

    @property
    def skill_files(self) -> frozenset[str]:
        return frozenset()

    def problem(self, states: PathStateCache) -> str:
        return ""


class Guarded:
    """Places that no tool writes to, whatever rules and persons say.

    Names are those of the command judge, so that `write` and `cp` get the same answer. The places
    are those of skills (skills cannot edit skills) and of the settings,
    approvals and log of skillhouse, whether they exist yet or not.
    """

    def __init__(
        self,
        root: Path,
        places: Iterable[Path] = (),
        *,
        paths: PersistentPaths = PersistentPaths(),  # noqa: B008 - a frozen value.
        states: PathStateCache | None = None,
    ) -> None:
        self._paths = paths
        states = states or PathStateCache()
        self._root = str(root)
        self._prefix = self._root.rstrip("/") + "/"
        self._places: dict[str, str] = {}
        self._around = False
        self._passed: dict[str, str] = {}
        self._above: dict[str, str] = {}
        for place in places:
            if "\0" in str(place):
                # No file has such a name.
                continue
            real = self._real(str(place), states)
            if self._prefix.startswith(f"{real.rstrip('/')}/"):
                # Work in a root of skills: its files are work, what makes a skill is not.
                self._around = True
            elif real.startswith(self._prefix):
                self._places[spelled(os.path.relpath(real, self._root))] = real

    def _real(self, place: str, states: PathStateCache) -> str:
        """Follow a place, and note what is passed; a shared parent costs once."""
        directory, name = os.path.split(place)
        if directory not in self._above:
            self._above[directory] = self._followed(directory, states)
        real = os.path.join(self._above[directory], name)
        seen = states.at(real)
        if not name or name == ".." or (seen is not None and stat.S_ISLNK(seen[0].st_mode)):
            return self._followed(place, states)
        return real

    def _followed(self, place: str, states: PathStateCache) -> str:
        way = trail(place, states)
        for step, _ in way.steps:
            if step.startswith(self._prefix) and not f"{way.real}/".startswith(f"{step}/"):
                self._passed.setdefault(os.path.relpath(step, self._root), place)
        return way.real

    @property
    def below(self) -> tuple[str, ...]:
        """Relative to the workspace, sorted."""
        return tuple(sorted(os.path.relpath(real, self._root) for real in self._places.values()))

    @property
    def is_around(self) -> bool:
        return self._around

    def detour(self) -> str:
        """Return why nothing may act; or "". A link or directory that is only passed could be
        replaced, and the place would be another. The place itself is protected, and so are the
        directories above it."""
        for passed, place in self._passed.items():
            is_above = any(below.startswith(f"{passed}/") for below in self.below)
            if not is_above and not self.reason(passed):
                return (
                    f"`{place}` is reached through `{passed}` in the workspace: "
                    "ask the user to make it a link to the file itself, or a file of its own"
                )
        return ""

    def reason(self, relative: str) -> str:
        spelling = spelled(relative)
        # All of it, at any depth, also where it is no directory: git takes its settings, and so
        # programs to run, from `config`, `commondir`, `config.worktree` and a `.git` file's target.
        if ".git" in spelling.split("/"):
            return "is protected; use git"
        group = self._paths.group(relative)
        if group is not None and group.path_class is PathClass.NEVER:
            return f"is protected ({group.why}); ask the user to change it"
        if makes_repository(self._root, relative):
            return "is protected: its directory would be a git repository; use `git init`"
        if self._around and spelling.rsplit("/", 1)[-1] == SKILL_FILE:
            return "is protected: it would make or change a skill; ask the user to change it"
        if self._is_in_a_place(spelling, relative):
            return "is protected: it belongs to a skill or to skillhouse; ask the user to change it"
        return ""

    def _is_in_a_place(self, spelling: str, relative: str) -> bool:
        parts = spelling.split("/")
        if any("/".join(parts[:end]) in self._places for end in range(1, len(parts) + 1)):
            return True
        # By whatever name it is reached: another mount, or a file system that folds names.
        known = {_identity(real) for real in self._places.values()} - {None}
        here = Path(self._root, relative)
        return any(
            _identity(str(place)) in known
            for place in (here, *here.parents)
            if known and is_below(place, self._root)
        )


def makes_repository(root: str, relative: str) -> bool:
    """Whether a file belongs to a bare repository, or would make a directory one.

    git takes a directory for one that has `HEAD`, and `objects` and `refs` or a `commondir`; then
    it obeys the `config` there (gitrepository-layout (5)). The file need not exist.
    """
    parts = relative.split("/")
    for at, part in enumerate(parts):
        if spelled(part) in REPOSITORY_PARTS:
            names = {spelled(part), *_names(os.path.join(root, *parts[:at]))}
            if "head" in names and ({"objects", "refs"} <= names or "commondir" in names):
                return True
    return False


def _names(directory: str) -> set[str]:
    return {spelled(entry.name) for entry in _entries(directory)}


def links_below(directory: Path) -> Iterator[Path]:
    """Yield the links, and the files with several names, in a skill's directory."""
    left = LOADED_ENTRIES_MAX
    for place, directories, files in os.walk(directory):
        left -= len(directories) + len(files)
        for name in (*directories, *files):
            path = os.path.join(place, name)
            info = _info(path)
            if info is not None and (stat.S_ISLNK(info.st_mode) or _has_names(info)):
                yield Path(path)
        if left < 0:
            raise RefusedError(
                f"denied: `{directory}` has more than {LOADED_ENTRIES_MAX} files, too many "
                "to look for links: ask the user to unload the skill",
                denied=True,
            )


def other_names(root: Path, paths: Collection[str]) -> tuple[str, ...]:
    """Return the names in a workspace, relative to it, of files with several. Raises RefusedError
    where it is too large to look through."""
    wanted = {
        info.st_ino: path
        for path in paths
        if (info := _info(path)) is not None and _has_names(info)
    }
    device = os.lstat(root).st_dev
    wanted = {number: path for number, path in wanted.items() if os.lstat(path).st_dev == device}
    names: list[str] = []
    left = ENTRIES_MAX if wanted else 0
    waiting = [str(root)] if wanted else []
    while waiting:
        for entry in _entries(waiting.pop()):
            left -= 1
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            elif entry.inode() in wanted:
                names.append(os.path.relpath(entry.path, root))
        if left < 0:
            path = next(iter(wanted.values()))
            raise RefusedError(
                f"denied: `{path}` has other names (hard links), and the workspace is too large to "
                "look for them: ask the user to make it a file of its own",
                denied=True,
            )
    return tuple(names)


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        # Gone since, or closed to us and so to commands.
        return []


def _has_names(info: os.stat_result) -> bool:
    return stat.S_ISREG(info.st_mode) and info.st_nlink > 1


def _identity(path: str) -> tuple[int, int] | None:
    info = _info(path)
    return None if info is None else (info.st_dev, info.st_ino)


def _info(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (OSError, ValueError):
        return None
