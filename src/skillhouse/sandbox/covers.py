"""Which paths of a workspace a sandbox covers below its top level, at a bounded cost."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Protocol

from skillhouse.floor import DEPENDENCIES, PersistentPaths, is_secret, name_filter
from skillhouse.sandbox.persistence import COVERS_MAX, Opened
from skillhouse.sandbox.profile import names_like
from skillhouse.sandbox.survey import CoveredPaths, Survey, SurveyEntry, SurveyHit

PATHS_MAX = 160
"""Most covered paths; for 48, 160 and 500 bubblewrap needs 10, 60 and 500 ms."""
HIDDEN_FILES_MAX = 20_000
"""Files in hidden directories that are checked for other hard links: about 40 ms."""
PERSISTENT = "persistent"
"""Kind of a path that takes effect later (`floor.persistence`)."""
REPOSITORY = ("/hooks", "/config", "/modules", "/worktrees")
"""Covered in the git directory of a repository in the workspace, also if missing."""


class CoverRules(Protocol):
    """What is covered besides the names that are always protected."""

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
    """The default: only names decide."""

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
    survey: Survey | None = None,
    rules: CoverRules = NoRules(),  # noqa: B008 - it never changes.
    persistent: PersistentPaths | None = None,
    opened: Opened = Opened(),  # noqa: B008 - it never changes.
) -> CoveredPaths:
    """Return the covered paths of a workspace, nearest first, with all hard links of hidden files.

    Links are not followed, and protected directories are not entered. The protected names at the
    top are left out: `shield` covers them, also where they do not exist. With `persistent`, those
    paths that `persistence.Census` cannot cover are counted as left, except the opened ones.
    """
    survey = survey or Survey()
    names = tuple(p for p in protected if "/" not in p)
    key = (names, rules.key, persistent)
    walked = survey.walk(workspace, _classifier(names, rules, persistent), key)
    found = CoveredPaths(
        left=survey.left + _persistent_left(walked, opened),
        directories=survey.directories,
    )
    masked: set[str] = set()
    frozen: set[str] = set()
    for place, hits in walked:
        if not _is_below(place, masked):
            is_frozen = _is_below(place, frozen)
            for hit in hits:
                _judge(found, (masked, frozen), place, hit, rules, is_frozen=is_frozen)
    _add_other_names(found, workspace, survey)
    beyond = len(found.paths) - PATHS_MAX
    if beyond > 0:
        found.left += beyond
        del found.paths[PATHS_MAX:]
    return found


def _persistent_left(walked: Iterable[tuple[str, Sequence[SurveyHit]]], opened: Opened) -> int:
    """Return the number of persistent paths that a census does not mount read-only."""
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

    def classify(place: str, entry: SurveyEntry) -> SurveyHit | None:
        path = f"{place}/{entry.name}" if place else entry.name
        name = entry.name.casefold()
        if name == ".git":
            return SurveyHit(
                entry.name, ("tree" if entry.is_directory else "file",), is_closed=True
            )
        kinds = []
        is_closed = False
        if is_secret(path):
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


def _judge(
    found: CoveredPaths,
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
        found.opened.add(path)
        is_hidden = False
    if is_hidden or (is_about and rules.masks(path)):
        masked.add(path)
        found.paths.append((place, hit.name, True))
        if (is_about and rules.pins(path)) or (is_hidden and not is_secret(hit.name)):
            _pin(found, place)
    elif is_frozen:
        return
    elif place and "tree" in hit.kinds:
        found.paths += [(place, hit.name + below, False) for below in REPOSITORY]
    elif "protected" in hit.kinds or "file" in hit.kinds or (is_about and rules.freezes(path)):
        frozen.add(path)
        if place or is_about:
            found.paths.append((place, hit.name, False))
        if is_about and rules.pins(path):
            _pin(found, place)


def _pin(found: CoveredPaths, place: str) -> None:
    """Add a directory to the pinned ones, after those above it."""
    parts = place.split("/") if place else []
    above = ("/".join(parts[:end]) for end in range(1, len(parts) + 1))
    found.pinned += [path for path in above if path not in found.pinned]


def _is_below(place: str, masked: set[str]) -> bool:
    """Whether a directory is one of `masked`, or inside one."""
    while masked and place:
        if place in masked:
            return True
        place = place.rpartition("/")[0]
    return False


def _add_other_names(found: CoveredPaths, workspace: str, survey: Survey) -> None:
    """Hide the other hard links of hidden files."""
    hidden = {f"{place}/{name}" if place else name for place, name, secret in found.paths if secret}
    inodes = frozenset(_inodes_with_names(found, workspace, hidden))
    for path in survey.names_of(inodes) if inodes else ():
        if path not in hidden and not _is_below(path, hidden):
            place, _, name = path.rpartition("/")
            found.paths.append((place, name, True))


def _inodes_with_names(found: CoveredPaths, workspace: str, hidden: Iterable[str]) -> Iterator[int]:
    """Yield the inodes of the hidden files that have several names."""
    looked_at = 0
    for relative in hidden:
        for path in _files(f"{workspace}/{relative}"):
            looked_at += 1
            if looked_at > HIDDEN_FILES_MAX:
                found.left += 1
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
