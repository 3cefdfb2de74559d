"""Which paths of a workspace a sandbox covers below its top level, at a bounded cost.

The names in its directories are cached from run to run: a directory is read again when its times or
its inode have changed, so that a run pays for changes only. The walk is bounded, and counts what it
left out.
"""

from __future__ import annotations

import functools
import os
import stat
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

from skillhouse.floor import (
    DEPENDENCIES,
    PersistentPaths,
    is_public_certificate,
    is_secret,
    may_end_secret,
    name_filter,
)
from skillhouse.floor.ownership import is_settled
from skillhouse.floor.structs import replace
from skillhouse.sandbox.profile import (
    CoveredPaths,
    Directory,
    OpenedProtection,
    SurveyEntry,
    SurveyHit,
    names_like,
)

DIRECTORIES_MAX = 20_000
"""Directories that are read before a run, nearest first."""
ENTRIES_MAX = 200_000
"""Names in them: 0.2 s the first time, and 1 µs a directory afterwards."""

Classify = Callable[[str, SurveyEntry], SurveyHit | None]
"""Takes a directory, relative to the workspace, and an entry; None if the entry does not count."""


class CoverCache(Struct):
    """What was read of a workspace's directories, so that a walk reads changes; thread-safe."""

    _directories: dict[str, Directory] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    left: int = 0
    """Directories that the last walk left out, at least."""

    def walk(
        self, root: str, classify: Classify, key: Hashable
    ) -> list[tuple[str, tuple[SurveyHit, ...]]]:
        """Return each directory with the names in it that count, nearest first.

        Links are not followed. Directories beyond the bounds are counted in `left`.

        Args:
            root: Real path of the workspace.
            classify: Called again only for changed directories.
            key: Anything else that the results of `classify` depend on.
        """
        with self._lock:
            hits: list[tuple[str, tuple[SurveyHit, ...]]] = []
            kept: dict[str, Directory] = {}
            waiting = deque([""])
            entries = 0
            while waiting and len(kept) < DIRECTORIES_MAX and entries < ENTRIES_MAX:
                place = waiting.popleft()
                known = kept[place] = self._known(root, place)
                if known.key != key:
                    _classify(known, place, classify, key)
                entries += len(known.entries)
                if known.hits:
                    hits.append((place, known.hits))
                waiting += known.below
            self._directories = kept
            self.left = len(waiting)
            return hits

    def names_of(self, inodes: frozenset[int]) -> Iterator[str]:
        """Yield the paths, as of the last walk, of files with one of these inodes."""
        with self._lock:
            for place, known in self._directories.items():
                for entry in known.entries:
                    if entry.inode in inodes and not entry.is_directory:
                        yield f"{place}/{entry.name}" if place else entry.name

    @property
    def directories(self) -> Mapping[str, Directory]:
        return self._directories

    def _known(self, root: str, place: str) -> Directory:
        return read_directory(f"{root}/{place}" if place else root, self._directories.get(place))


def _classify(known: Directory, place: str, classify: Classify, key: Hashable) -> None:
    hits = tuple(hit for entry in known.entries if (hit := classify(place, entry)) is not None)
    closed = {hit.name for hit in hits if hit.is_closed}
    prefix = f"{place}/" if place else ""
    known.hits = hits
    known.below = tuple(
        prefix + entry.name
        for entry in known.entries
        if entry.is_directory and entry.name not in closed
    )
    known.key = key


def read_directory(path: str, known: Directory | None = None) -> Directory:
    """Return a directory as it is now, or `known` if it has not changed since that was read."""
    stamp = _stamp(path)
    if known is not None and known.stamp == stamp:
        return known
    entries = read_entries(path)
    # INVARIANT: a directory that could still change within the same tick is not cached.
    proof = stamp if stamp and is_settled(*stamp[2:]) else (0,)
    state = (*stamp[:2], stamp[3]) if stamp else ()
    now = Directory(proof, entries, state)
    if known is not None and known.entries == entries:
        # A run that puts its placeholders there and away again leaves the same names.
        return replace(now, hits=known.hits, below=known.below, key=known.key, kept=known.kept)
    return now


def _stamp(path: str) -> tuple[int, ...]:
    try:
        info = os.stat(path, follow_symlinks=False)
    except OSError:
        return ()
    return info.st_dev, info.st_ino, info.st_mtime_ns, info.st_ctime_ns


def read_entries(path: str) -> tuple[SurveyEntry, ...]:
    try:
        with os.scandir(path) as listing:
            entries = [
                SurveyEntry(e.name, e.is_dir(follow_symlinks=False), e.inode(), e.is_symlink())
                for e in listing
            ]
    except OSError:
        return ()
    return tuple(sorted(entries))


COVERS_MAX = 48
"""Paths that are mounted read-only, nearest first; bubblewrap needs 0.1 ms for each."""
PATHS_MAX = 200
"""Most covered paths, those of 40 repositories; for 48, 160 and 500 bubblewrap needs 10, 60 and
500 ms."""
HIDDEN_FILES_MAX = 20_000
"""Files in hidden directories that are checked for other hard links: about 40 ms."""
PERSISTENT = "persistent"
_BY_NAME = frozenset({"secret", "protected"})
REPOSITORY = ("/hooks", "/config", "/modules", "/worktrees", "/commondir")
"""Covered in the git directory of a repository in the workspace, also if missing."""


class CoverRules(Protocol):
    @property
    def key(self) -> Hashable: ...

    def concerns(self, path: str, *, is_directory: bool) -> bool:
        """Whether a rule may match a path, relative to the workspace."""
        ...

    def masks(self, path: str) -> bool:
        """Whether the rules forbid to read a path."""
        ...

    def freezes(self, path: str) -> bool:
        """Whether the rules forbid to write a path."""
        ...

    def opens(self, path: str) -> bool:
        """Whether the rules allow to read a secret."""
        ...

    def pins(self, path: str) -> bool:
        """Whether a rule stops matching a path when a directory above it is renamed."""
        ...

    def enters(self, path: str) -> bool:
        """Whether a secret directory is covered file by file, since one of them is allowed."""
        ...


class NoRules:
    key = ()

    def concerns(self, path: str, *, is_directory: bool) -> bool:
        return False

    def masks(self, path: str) -> bool:
        return False

    freezes = opens = enters = pins = masks


def covered_paths(
    workspace: str,
    protected: Sequence[str],
    *,
    cover_cache: CoverCache | None = None,
    rules: CoverRules = NoRules(),  # noqa: B008 - it never changes.
    persistent: PersistentPaths | None = None,
    opened: OpenedProtection = OpenedProtection(),  # noqa: B008 - it never changes.
) -> CoveredPaths:
    """Return the covered paths of a workspace, nearest first, with all hard links of hidden files.

    Links are not followed, and protected directories are not entered. The protected names at the
    top are left out: `ProtectedMounts` covers them, also absent ones. With `persistent`,
    those paths that `PersistentFileScan` cannot cover are counted as left, except the opened ones.
    """
    cover_cache = cover_cache or CoverCache()
    names = tuple(p for p in protected if "/" not in p)
    key = (names, rules.key, persistent)
    walked = cover_cache.walk(workspace, _classifier(names, rules, persistent), key)
    covered = CoveredPaths(
        left=cover_cache.left + _persistent_left(walked, opened),
        directories=cover_cache.directories,
    )
    masked: set[str] = set()
    frozen: set[str] = set()
    for place, hits in walked:
        if not _is_below(place, masked):
            is_frozen = _is_below(place, frozen)
            for hit in hits:
                if "secret" in hit.kinds and is_public_certificate(
                    os.path.join(workspace, place, hit.name)
                ):
                    hit = _public(covered, place, hit)
                _judge(covered, (masked, frozen), place, hit, rules, is_frozen=is_frozen)
    _add_other_names(covered, workspace, cover_cache)
    beyond = len(covered.paths) - PATHS_MAX
    if beyond > 0:
        covered.left += beyond
        del covered.paths[PATHS_MAX:]
    return covered


def _persistent_left(
    walked: Iterable[tuple[str, Sequence[SurveyHit]]], opened: OpenedProtection
) -> int:
    count = 0
    covered: set[str] = set()
    for place, hits in walked:
        if _is_below(place, covered):
            continue
        for hit in hits:
            path = f"{place}/{hit.name}" if place else hit.name
            if PERSISTENT in hit.kinds and not opened.frees(path):
                covered.add(path)
                count += 1
    return max(0, count - COVERS_MAX)


def _classifier(
    names: tuple[str, ...], rules: CoverRules, persistent: PersistentPaths | None
) -> Callable[[str, SurveyEntry], SurveyHit | None]:
    is_protected = names_like(names).fullmatch
    may_persist = name_filter(persistent) if persistent is not None else None
    # Asked with each name of a directory in turn.
    is_place_secret = functools.lru_cache(maxsize=1)(is_secret)

    def classify(place: str, entry: SurveyEntry) -> SurveyHit | None:
        path = f"{place}/{entry.name}" if place else entry.name
        name = entry.name.casefold()
        if name == ".git":
            return SurveyHit(
                entry.name, ("tree" if entry.is_directory else "file",), is_closed=True
            )
        kinds = []
        is_closed = False
        if (may_end_secret(name) or is_place_secret(place)) and is_secret(path):
            is_closed = not rules.enters(path)
            kinds += ["secret"] if is_closed or not entry.is_directory else []
        if is_protected(name):
            kinds.append("protected")
        if rules.concerns(path, is_directory=entry.is_directory):
            kinds.append("rule")
        # Protected names are covered, and counted, as such.
        if may_persist and may_persist(entry.name) and "protected" not in kinds:
            is_package = not DEPENDENCIES.isdisjoint(place.split("/"))
            if not is_package and persistent and persistent.group(path) is not None:
                kinds.append(PERSISTENT)
        return SurveyHit(entry.name, tuple(kinds), is_closed) if kinds else None

    return classify


def _public(result: CoveredPaths, place: str, hit: SurveyHit) -> SurveyHit:
    """Return what counts of a file of certificates, which can be read.

    What the names of a directory say is kept, so what a file holds is looked at in each run.
    """
    if not is_secret(place):
        result.opened.add(f"{place}/{hit.name}" if place else hit.name)
        # Installers replace those of packages, as they replace their code.
        left_out = {"secret"} if DEPENDENCIES.isdisjoint(place.split("/")) else _BY_NAME
        kinds = tuple(kind for kind in hit.kinds if kind not in left_out)
        return replace(hit, kinds=kinds)
    return hit


def _judge(
    result: CoveredPaths,
    covered: tuple[set[str], set[str]],
    place: str,
    hit: SurveyHit,
    rules: CoverRules,
    *,
    is_frozen: bool,
) -> None:
    masked, frozen = covered
    path = f"{place}/{hit.name}" if place else hit.name
    is_about = "rule" in hit.kinds
    is_hidden = "secret" in hit.kinds
    if (is_hidden and rules.opens(path)) or rules.enters(path):
        result.opened.add(path)
        is_hidden = False
    is_pinned = is_about and rules.pins(path)
    if is_hidden or (is_about and rules.masks(path)):
        masked.add(path)
        result.paths.append((place, hit.name, True))
        if is_pinned or (is_hidden and not is_secret(hit.name)):
            _pin(result, place)
    elif is_frozen:
        return
    elif place and "tree" in hit.kinds:
        result.paths += [(place, hit.name + below, False) for below in REPOSITORY]
    elif _is_kept(hit, path, rules):
        frozen.add(path)
        if place or is_about:
            result.paths.append((place, hit.name, False))
        if is_pinned:
            _pin(result, place)


def _is_kept(hit: SurveyHit, path: str, rules: CoverRules) -> bool:
    if "protected" in hit.kinds or "file" in hit.kinds:
        return True
    return "rule" in hit.kinds and rules.freezes(path)


def _pin(result: CoveredPaths, place: str) -> None:
    parts = place.split("/") if place else []
    above = ("/".join(parts[:end]) for end in range(1, len(parts) + 1))
    result.pinned += [path for path in above if path not in result.pinned]


def _is_below(place: str, masked: set[str]) -> bool:
    while masked and place:
        if place in masked:
            return True
        place = place.rpartition("/")[0]
    return False


def _add_other_names(result: CoveredPaths, workspace: str, cover_cache: CoverCache) -> None:
    hidden = {
        f"{place}/{name}" if place else name for place, name, secret in result.paths if secret
    }
    inodes = frozenset(_inodes_with_names(result, workspace, hidden))
    for path in cover_cache.names_of(inodes) if inodes else ():
        if path not in hidden and not _is_below(path, hidden):
            place, _, name = path.rpartition("/")
            result.paths.append((place, name, True))


def _inodes_with_names(
    result: CoveredPaths, workspace: str, hidden: Iterable[str]
) -> Iterator[int]:
    looked_at = 0
    for relative in hidden:
        for path in _files(f"{workspace}/{relative}"):
            looked_at += 1
            if looked_at > HIDDEN_FILES_MAX:
                result.left += 1
                return
            try:
                info = os.lstat(path)
            except OSError:
                continue
            if stat.S_ISREG(info.st_mode) and info.st_nlink > 1:
                yield info.st_ino


def _files(path: str) -> Iterator[str]:
    if not os.path.isdir(path) or os.path.islink(path):
        yield path
        return
    for place, _, names in os.walk(path):
        yield from (os.path.join(place, name) for name in names)
