"""Which directories of the person's programs a run sees: the PATH of the shell, and what it needs.

A directory counts by where it really is, and only if no one but the person and root can change it.
Of the roots of version managers only what `toolchains.toml` names is shown: beside programs they
hold credentials.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from skillhouse.floor import PathStateCache, directory_problem, is_secret, trail
from skillhouse.floor.errors import first_of
from skillhouse.sandbox.profile import PROGRAM_PATH, VENVS, Toolset
from skillhouse.sandbox.tool_table import ENVIRONMENT, JUDGED, PARTS, VENV_FILE, Toolchain, tables

MOUNTS_MAX = 24
"""Places of tools that a run sees; each costs 0.14 ms."""
ENTRIES_MAX = 4_096
"""Programs of one directory that are looked at."""
NAMED_MAX = 8
"""Names that a note has."""
PATH_MAX = 128
"""Directories of a PATH that are looked at."""

_MARKS = (".gitignore", "CACHEDIR.TAG", ".lock")
"""What makers of environments leave in them."""
_HARMLESS = frozenset(
    (*PARTS, *_MARKS, "man", "LICENSE", "README.md", "CHANGELOG.md", "BUILD", "sbin")
)
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")


class FoundPlaces(Struct):
    """Places of tools, as they are collected."""

    path: list[str] = field(default_factory=list)
    mounts: list[str] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    bases: list[str] = field(default_factory=list)
    """Interpreters of environments that are looked at: two may lead to each other."""


class ToolPlaces:
    """Finds what a run sees for one workspace."""

    def __init__(self, environment: Mapping[str, str], home: Path, workspace: Path) -> None:
        self._environment = environment
        self._home = os.path.realpath(home)
        self._named_home = str(home)
        self._workspace = str(workspace)
        self._states = PathStateCache()
        self._stamps: dict[str, tuple[int, ...]] = {}
        """Of the directories and files that were read."""
        self._rooted = [
            (row, root)
            for row in tables()[0]
            for root in dict.fromkeys(self._roots((*row.root, *self._roots_of_shims(row))))
            if root != "/"
        ]

    def find(
        self, *, own: Sequence[str], mounts: Sequence[str], programs: Sequence[str]
    ) -> FoundPlaces:
        """Return the places.

        Args:
            own: Directories of programs that the operator names, first; they may be in the
                workspace.
            mounts: Further places that the operator names.
            programs: Absolute paths in the workspace of programs that will run, whose base
                interpreter is shown.
        """
        found = FoundPlaces()
        for text in mounts:
            self._mount(found, [self._expanded(text)], f"`{text}` of `[sandbox] mounts`")
        for program in (*programs, *self._environments()):
            self._base(found, program)
        named = [os.path.join(self._workspace, self._expanded(text)) for text in own]
        entries = self._environment.get("PATH", "").split(":")
        for place, is_own in [*((p, True) for p in named), *((p, False) for p in entries)][
            :PATH_MAX
        ]:
            self._directory(found, place, is_own=is_own)
        return found

    def hold(self) -> bool:
        """Whether `find` would return the same now."""
        return self._states.hold() and all(
            _stamp(path) == stamp for path, stamp in self._stamps.items()
        )

    def cache_place(self, texts: Iterable[str], tools: Toolset) -> str:
        """Return the first path of some that is set, if runs can have a directory of theirs there.

        It is in the person's home, and away from the workspace and what runs see of tools.
        """
        paths = (self._expanded(text, home=self._named_home) for text in texts)
        path = next(filter(None, paths), "")
        mounts = [str(mount) for mount in tools.mounts]
        is_own = _is_below(path, (self._named_home, self._home))
        is_free = not _is_below(path, (self._workspace, *tools.links, *mounts))
        is_around = any(_is_below(place, (path,)) for place in (self._workspace, *mounts))
        is_plain = os.path.normpath(path) == path
        return path if is_own and is_free and is_plain and not is_around else ""

    def pinned(self, path: Iterable[str]) -> Mapping[str, str]:
        """Return the judged programs that directories have before the system, with the system's."""
        system = PROGRAM_PATH.split(":")
        names: set[str] = set()
        for place in path:
            if place not in system and not _is_below(place, ("/usr/sbin", "/usr/local/sbin")):
                names |= self._judged_in(place)
        found = {}
        for name in sorted(names):
            places = (f"{place}/{name}" for place in system)
            if program := next((p for p in places if os.access(p, os.X_OK)), None):
                found[name] = program
        return found

    def _judged_in(self, place: str) -> frozenset[str]:
        listed = self._names(place)
        # Not all may be listed, and a directory may be used that is not read.
        is_cut = len(listed) in (0, ENTRIES_MAX)
        more = (name for name in JUDGED if is_cut and os.path.lexists(f"{place}/{name}"))
        return JUDGED.intersection(listed).union(more)

    def _real(self, path: str) -> str:
        return trail(path, self._states).real

    def _exists(self, path: str) -> bool:
        return self._states.at(self._real(path)) is not None

    def _is_directory(self, path: str) -> bool:
        fact = self._states.at(path)
        return fact is not None and stat.S_ISDIR(fact[0].st_mode)

    def _names(self, directory: str) -> tuple[str, ...]:
        self._stamps[directory] = stamp = _stamp(directory)
        return _listed(directory, stamp)

    def _first_words(self, files: Iterable[str]) -> list[str]:
        """Return the words of the first file that is there, without comments."""
        for path in files:
            self._stamps[path] = stamp = _stamp(path)
            if stamp and (words := _words(path, stamp)) is not None:
                return words
        return []

    def _directory(self, found: FoundPlaces, entry: str, *, is_own: bool) -> None:
        shown = f"`{entry}` of PATH"
        if not os.path.isabs(entry):
            if entry not in ("", "."):
                found.notes.append(f"{shown} is left out: it is relative")
            return
        real = self._real(entry)
        if real in found.path or not self._is_directory(real):
            return
        if self._is_led_out(entry, real):
            found.notes.append(f"{shown} is left out: a link there leads to `{real}`")
            return
        if _is_below(real, _SYSTEM):
            if directory_problem(Path(real), states=self._states):
                return
            found.path.append(real)
            return
        for row, root in self._rooted:
            if any(real == self._real(f"{root}/{shims}") for shims in row.shims):
                self._shims(found, row, root, shown)
                return
        problem = self._refusal(real, is_own=is_own)
        if problem:
            found.notes.append(f"{shown} is left out: {problem}")
        elif _is_below(real, (self._workspace,)):
            found.path.append(real)
        elif self._bring(found, real, shown):
            found.path.append(real)
            self._beside(found, real)
            self._targets(found, real)

    def _refusal(self, real: str, *, is_own: bool) -> str:
        """Return why a directory of programs is not shown, or nothing."""
        if _is_below(real, (self._workspace,)):
            return "" if is_own else "it is in the workspace; `[sandbox] path` can name it"
        for place, what in ((self._home, "the home"), (self._workspace, "the workspace")):
            if _is_below(place, (real,)):
                return f"it holds {what}"
        below = real.removeprefix(f"{self._home}/")
        if is_secret(below):
            return "it has a name that secrets have"
        if problem := directory_problem(Path(real), states=self._states):
            return problem
        if names := [n for n in self._names(real) if is_secret(n) or is_secret(f"{below}/{n}")]:
            return f"it holds `{names[0]}`, which has a name that secrets have"
        return ""

    def _is_led_out(self, entry: str, real: str) -> bool:
        """Whether a link that an agent may have made leads a directory to what no row names.

        INVARIANT: an agent writes its workspace, and wrote others, in whose environments `bin` is
        never a link itself.
        """
        steps = trail(entry, self._states).steps
        links = [place for place, info in steps if stat.S_ISLNK(info.st_mode)]
        if not links or _is_below(real, (*_SYSTEM, self._workspace)):
            return False
        above, name = os.path.split(entry.rstrip("/"))
        is_bin = os.path.isfile(f"{above}/{VENV_FILE}") and os.path.islink(f"{above}/{name}")
        if not is_bin and not any(_is_below(link, (self._workspace,)) for link in links):
            return False
        return all(_prefix_of(row, root, real) is None for row, root in self._rooted)

    def _bring(self, found: FoundPlaces, real: str, shown: str) -> bool:
        """Show a directory: by the row that it is of, or else it alone.

        Programs of an npm package are links to the packages beside them, or run what is in these
        (npm's documentation, "folders").
        """
        for row, root in self._rooted:
            prefix = _prefix_of(row, root, real)
            if prefix is not None:
                return self._version(found, row, root, prefix, shown)
        if self._is_environment(real):
            # Managers keep them in places of their own.
            above = os.path.dirname(real)
            root = os.path.dirname(above)
            before = len(found.notes)
            if self._version(found, ENVIRONMENT, root, above, shown):
                return True
            del found.notes[before:]
            return self._mount(found, [real], shown)
        packages = os.path.dirname(real) if real.endswith("/node_modules/.bin") else real
        return self._mount(found, [packages], shown)

    def _is_environment(self, real: str) -> bool:
        """Whether a directory of PATH is that of a virtual environment (PEP 405)."""
        above, name = os.path.split(real)
        # Where everybody's programs are is what everybody's programs keep, too.
        is_own = name == "bin" and above != self._real(f"{self._home}/.local")
        has_file = is_own and os.path.isfile(f"{above}/{VENV_FILE}")
        return has_file and not self._place_problem(above)

    def _version(
        self, found: FoundPlaces, row: Toolchain, root: str, prefix: str, shown: str
    ) -> bool:
        """Show an installed version: its parts, or it as a whole where it has nothing else."""
        names = set(self._names(prefix))
        is_venv = VENV_FILE in names and prefix != root and "" not in row.parts
        wanted = tuple(dict.fromkeys((*row.parts, *PARTS))) if is_venv else row.parts
        parts = [f"{prefix}/{part}".rstrip("/") for part in wanted if not part or part in names]
        if set(wanted) == set(PARTS) and prefix != root and names and names <= _HARMLESS:
            parts = [prefix]
        if is_venv:
            # INVARIANT: a part that leads elsewhere may have been made by what ran there.
            parts = [part for part in parts if _is_below(self._real(part), (prefix, *_SYSTEM))]
        always = [f"{root}/{name}" for name in row.always]
        if not self._mount(found, [*parts, *filter(self._exists, always)], shown):
            return False
        self._set_variables(found, row, root)
        if VENV_FILE in names:
            self._base(found, f"{prefix}/bin/python")
        return True

    def _set_variables(self, found: FoundPlaces, row: Toolchain, root: str) -> None:
        for name, below in row.variables.items():
            found.variables.setdefault(name, f"{root}/{below}".rstrip("/"))

    def _beside(self, found: FoundPlaces, real: str) -> None:
        """Show what belongs to a directory of PATH and is elsewhere."""
        for row, root in self._rooted:
            if real in self._roots(row.beside):
                places = [f"{root}/{name}" for name in row.always]
                if self._mount(found, filter(self._exists, places), f"`{row.name}`"):
                    self._set_variables(found, row, root)

    def _targets(self, found: FoundPlaces, real: str) -> None:
        """Show what the links of a directory lead to, where a row names it."""
        lost = []
        self._names(real)
        for name, target in _links(real, self._stamps[real]):
            if _is_below(target, (*_SYSTEM, *found.mounts, self._workspace)):
                # What is in the workspace is asked about by its bytes (tools/approved_scripts.py).
                continue
            owner = next(
                ((r, root, p) for r, root in self._rooted if (p := _prefix_of(r, root, target))),
                None,
            )
            if owner is None or self._refused_file(target):
                lost.append(name)
            else:
                row, root, prefix = owner
                self._version(found, row, root, prefix, f"`{name}` of `{real}`")
                self._note_links(found, f"{real}/{name}")
        if lost:
            names = first_of([f"`{name}`" for name in lost], NAMED_MAX)
            found.notes.append(f"{names} of `{real}` lead to what is not shown")

    def _refused_file(self, target: str) -> bool:
        return _is_below(target, (self._workspace,)) or bool(
            directory_problem(Path(os.path.dirname(target)), states=self._states)
        )

    def _mount(self, found: FoundPlaces, places: Iterable[str], shown: str) -> bool:
        """Show some places; False, with a note, where one of them cannot be."""
        wanted = []
        for place in places:
            real = self._real(place)
            problem = self._place_problem(real)
            if problem:
                found.notes.append(f"{shown} is left out: {problem}")
                return False
            if not _is_below(real, (*_SYSTEM, *found.mounts)):
                wanted.append(real)
        kept = [each for each in found.mounts if not _is_below(each, wanted)]
        if len(kept) + len(wanted) > MOUNTS_MAX:
            message = f"{shown} is left out: more than {MOUNTS_MAX} places of tools"
            found.notes.append(message)
            return False
        found.mounts[:] = [*kept, *dict.fromkeys(wanted)]
        return True

    def _place_problem(self, real: str) -> str:
        if not self._exists(real):
            return f"`{real}` is not there"
        if _is_below(self._home, (real,)) or _is_below(self._workspace, (real,)):
            return f"`{real}` holds the home or the workspace"
        if _is_below(real, (self._workspace,)):
            return f"`{real}` is in the workspace"
        if is_secret(real.removeprefix(f"{self._home}/")):
            return f"`{real}` has a name that secrets have"
        directory = real if self._is_directory(real) else os.path.dirname(real)
        return directory_problem(Path(directory), states=self._states)

    def _shims(self, found: FoundPlaces, row: Toolchain, root: str, shown: str) -> None:
        """Take, in the place of scripts that find the version, the programs of that version."""
        if not row.version:
            way = "name the directory of the version in `[sandbox] path`"
            found.notes.append(f"{shown} is left out: {row.name}'s scripts need all of it; {way}")
            return
        for version in self._versions(row, root):
            prefix = self._real(f"{root}/versions/{version}")
            place = f"{prefix}/bin"
            if place in found.path or not self._is_directory(self._real(place)):
                continue
            problem = self._refusal(place, is_own=False)
            known = _prefix_of(row, root, place) is not None
            if problem or not known:
                reason = problem or "it leads out of the versions"
                found.notes.append(f"`{place}` is left out: {reason}")
            elif self._bring(found, place, shown):
                found.path.append(place)

    def _versions(self, row: Toolchain, root: str) -> Iterator[str]:
        """Yield the versions that the manager would take, in its order."""
        wanted = self._environment.get(row.version["variable"], "").split(":")
        if wanted == [""]:
            wanted = self._first_words([*self._upward(row.version["file"])])
        if not wanted:
            wanted = self._first_words([f"{root}/{row.version['root_file']}"])
        installed = self._names(f"{root}/versions")
        for text in wanted:
            name = text.removeprefix("python-")
            if name in installed:
                yield name
            else:
                newer = [each for each in installed if each.startswith(f"{name}.")]
                yield from sorted(newer, key=_numbers, reverse=True)[:1]

    def _upward(self, name: str) -> Iterator[str]:
        directory = self._workspace
        while True:
            yield os.path.join(directory, name)
            if directory == "/":
                return
            directory = os.path.dirname(directory)

    def _environments(self) -> Iterator[str]:
        for name in VENVS:
            if self._exists(f"{self._workspace}/{name}/{VENV_FILE}"):
                yield f"{self._workspace}/{name}/bin/python"

    def _base(self, found: FoundPlaces, program: str) -> None:
        """Show the interpreter that a virtual environment was made with.

        INVARIANT: an agent can make the link lead anywhere, so that only what a row names is shown.
        """
        real = self._real(program)
        is_looked_at = real in found.bases or not os.path.isfile(real)
        if is_looked_at or _is_below(real, (*_SYSTEM, self._workspace)):
            return
        shown = f"the interpreter of `{os.path.dirname(os.path.dirname(program))}`"
        for row, root in self._rooted:
            prefix = _prefix_of(row, root, real)
            if prefix is not None and not self._refused_file(real):
                found.bases.append(real)
                if self._version(found, row, root, prefix, shown):
                    self._note_links(found, program)
                found.bases.pop()
                return
        found.notes.append(f"{shown} is left out: no row of the toolchains names `{real}`")

    def _note_links(self, found: FoundPlaces, path: str) -> None:
        """Remember the links on the way that would not be there inside."""
        for place, _ in trail(path, self._states).steps:
            if os.path.islink(place) and not _is_below(
                place, (*_SYSTEM, *found.mounts, self._workspace)
            ):
                found.links[place] = os.readlink(place)

    def _roots_of_shims(self, row: Toolchain) -> Iterator[str]:
        """Yield where PATH has the shims of a manager, as a home or a variable may not say it.

        One that is shown alone starts what is not there.
        """
        names = {os.path.basename(root) for root in row.root}
        for entry in self._environment.get("PATH", "").split(":")[:PATH_MAX]:
            for shims in row.shims:
                root = entry.rstrip("/").removesuffix(f"/{shims}")
                if root != entry.rstrip("/") and os.path.basename(root) in names:
                    yield root

    def _roots(self, texts: Iterable[str]) -> Iterator[str]:
        for text in texts:
            path = self._expanded(text)
            real = self._real(path) if os.path.isabs(path) else ""
            if real and self._is_directory(real):
                yield real

    def _expanded(self, text: str, *, home: str = "") -> str:
        head, sign, rest = text.partition("/")
        if head == "~":
            head = home or self._home
        elif head.startswith("$"):
            head = self._environment.get(head[1:], "")
            if not os.path.isabs(head):
                return ""
        return f"{head}{sign}{rest}"


def _prefix_of(row: Toolchain, root: str, real: str) -> str | None:
    """Return the installed version that a path is of, if what is shown of it holds the path."""
    if not _is_below(real, (root,)):
        return None
    parts = real[len(root) :].strip("/").split("/")
    for pattern in row.prefixes:
        wanted = pattern.split("/") if pattern else []
        if len(parts) < len(wanted) or not all(map(fnmatch.fnmatchcase, parts, wanted)):
            continue
        rest = parts[len(wanted) :]
        is_top = not rest or rest == [""]
        if is_top or "" in row.parts or rest[0] in row.parts:
            return "/".join((root, *parts[: len(wanted)]))
    return None


def _is_below(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(f"{place.rstrip('/')}/") for place in places)


@functools.lru_cache(maxsize=256)
def _listed(directory: str, stamp: tuple[int, ...]) -> tuple[str, ...]:
    try:
        return tuple(sorted(os.listdir(directory))[:ENTRIES_MAX])
    except OSError:
        return ()


@functools.lru_cache(maxsize=256)
def _links(directory: str, stamp: tuple[int, ...]) -> tuple[tuple[str, str], ...]:
    """Return the links of a directory that lead out of it, with where each leads."""
    found = []
    for name in _listed(directory, stamp):
        path = f"{directory}/{name}"
        if os.path.islink(path):
            target = os.path.realpath(path)
            if not _is_below(target, (directory,)) and os.path.isfile(target):
                found.append((name, target))
    return tuple(found)


def _stamp(directory: str) -> tuple[int, ...]:
    try:
        info = os.stat(directory)
    except (OSError, ValueError):
        return ()
    return info.st_dev, info.st_ino, info.st_mtime_ns, info.st_ctime_ns


@functools.lru_cache(maxsize=64)
def _words(path: str, stamp: tuple[int, ...]) -> list[str] | None:
    """Return the first word of each line of a file; None where it is none that can be read."""
    try:
        if not os.path.isfile(path):
            return None
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read(4_096).splitlines()
    except OSError:
        return None
    words = [word for line in lines for word in line.partition("#")[0].split()[:1]]
    return [word for word in words if "/" not in word and word != ".."]


def _numbers(version: str) -> list[int]:
    return [int(part) if part.isdecimal() else -1 for part in version.split(".")]
