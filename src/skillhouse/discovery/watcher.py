"""Reports changes below the roots.

By events of the system as far as it lets directories be watched, which it bounds; else by comparing
what is there with what was there.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct, field

from skillhouse.discovery.roots import Root
from skillhouse.floor import needs_extra

ENTRIES_MAX = 500_000
"""Files and directories of one survey; what is beyond is not seen to change."""
LINKED_MAX = 50_000
"""Of them below links. A skill may link to all of a disk, which took half a minute each time."""

Mark = tuple[int, ...]
"""What changes when a file is written or replaced; empty for a directory, whose names are entries
of their own."""


class TreeState(Struct):
    """The entries below real paths, by path."""

    entries: dict[str, Mark] = field(default_factory=dict)
    directories: int = 0
    """The directories that were read, which is how many watches they need."""
    seconds: float = 0.0
    """Processor time of the survey."""

    def changed(self, before: TreeState) -> set[str]:
        """Return the paths that differ from an earlier state: new, gone or written to."""
        then, now = before.entries, self.entries
        found = {path for path, mark in now.items() if then.get(path) != mark}
        found.update(path for path in then if path not in now)
        return found

    def note(self, paths: Iterable[str]) -> None:
        """Take reported paths over as they are now, so that no survey reports them again."""
        for path in paths:
            try:
                info = os.stat(path)
            except OSError:
                self.entries.pop(path, None)
                continue
            if not os.path.isdir(path):
                self.entries[path] = _mark(info)
            elif path not in self.entries:
                # What is in it is for the next survey to find: its own events may be lost.
                self.entries[path] = ()


def survey(
    roots: Iterable[str],
    *,
    is_over: Callable[[], bool] = lambda: False,
    most: int = ENTRIES_MAX,
) -> TreeState:
    """Return what is below the roots; links are followed, each directory is read once.

    A link to a directory above a root is not followed, as no skill is found there either. Of more
    than `LINKED_MAX` entries below links, those nearest to the roots are in the answer. `is_over`
    ends it early, for a watch that is stopped.
    """
    began = time.thread_time()
    found = TreeState()
    places = list(roots)
    entries, seen, linked = found.entries, set[tuple[int, int]](), 0
    above = _above(places)
    pending = deque((place, False) for place in places)
    while pending and len(entries) < most and not is_over():
        place, is_linked = pending.popleft()
        if is_linked and linked >= LINKED_MAX:
            continue
        prefix = place.rstrip("/") + "/"
        try:
            info = os.stat(place)
            if (info.st_dev, info.st_ino) in seen:
                continue
            seen.add((info.st_dev, info.st_ino))
            with os.scandir(place) as names:
                for entry in names:
                    path = prefix + entry.name
                    mark, is_directory = _look(entry)
                    entries[path] = mark
                    linked += is_linked
                    if is_directory and not (
                        entry.is_symlink() and _directory_identity(path) in above
                    ):
                        pending.append((path, is_linked or entry.is_symlink()))
        except OSError:
            # Gone or not readable: what was seen of it before now differs.
            continue
        found.directories += 1
    found.seconds = time.thread_time() - began
    return found


def _above(places: Iterable[str]) -> set[tuple[int, int] | None]:
    """Return the identity of each directory above a root."""
    above: set[tuple[int, int] | None] = set()
    for place in places:
        path = os.path.realpath(place)
        while path != os.path.dirname(path):
            path = os.path.dirname(path)
            above.add(_directory_identity(path))
    return above


def _directory_identity(path: str) -> tuple[int, int] | None:
    """Return device and inode of what is at a path, links followed; None where nothing is."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return (info.st_dev, info.st_ino)


def _look(entry: os.DirEntry[str]) -> tuple[Mark, bool]:
    try:
        if entry.is_dir():
            return (), True
        return _mark(entry.stat()), False
    except OSError:
        # A link to nothing, or gone meanwhile.
        return (0,), False


def _mark(info: os.stat_result) -> Mark:
    return (info.st_ino, info.st_mtime_ns, info.st_ctime_ns, info.st_size)


WATCHES_MAX = 4_096
"""Directories that one watch asks the system to report on; more are polled."""
SHARE_MAX = 4
"""At most a quarter of the user's watches: other programs need them too."""

_LIMIT = Path("/proc/sys/fs/inotify/max_user_watches")
_PROCESSES = Path("/proc")


class WatchUse(Struct, frozen=True, kw_only=True):
    """The user's watches, on systems that count them."""

    used: int
    """By all processes of this user that can be looked at."""
    most: int
    needed: int
    """Directories below the roots."""

    @property
    def free(self) -> int:
        return max(0, self.most - self.used)

    @property
    def polls(self) -> bool:
        """Whether a watch that begins now polls the files."""
        return self.needed > min(watch_bound(), self.free)


def watch_bound() -> int:
    """Return how many directories one watch may take here."""
    most = watches_of_user()
    return WATCHES_MAX if most is None else min(WATCHES_MAX, most // SHARE_MAX)


def watches_of_user(limit: Path = _LIMIT) -> int | None:
    """Return the system's limit for one user; None where the system has none that is known."""
    try:
        return int(limit.read_text())
    except (OSError, ValueError):
        return None


def watch_use(roots: Iterable[Root]) -> WatchUse | None:
    """Return what a watch of the roots needs and what is left; None where the system has no limit.

    It looks at every directory below the roots.
    """
    most = watches_of_user()
    if most is None or sys.platform == "win32":
        return None
    own = os.geteuid()
    needed = survey(os.path.realpath(root.path) for root in roots if root.path.is_dir()).directories
    used = sum(_watches(process) for process in _processes(own))
    return WatchUse(used=used, most=most, needed=needed)


def own_watches() -> int | None:
    """Return how many watches this process has; None where the system does not say."""
    own = _PROCESSES / "self"
    return _watches(own) if (own / "fdinfo").is_dir() else None


def _processes(user: int) -> Iterator[Path]:
    with os.scandir(_PROCESSES) as entries:
        for entry in entries:
            try:
                if entry.name.isdigit() and entry.stat().st_uid == user:
                    yield Path(entry.path)
            except OSError:
                continue


def _watches(process: Path) -> int:
    count = 0
    try:
        with os.scandir(process / "fd") as handles:
            numbers = [one.name for one in handles if "inotify" in _target(one.path)]
        for number in numbers:
            lines = (process / "fdinfo" / number).read_bytes()
            count += lines.count(b"\ninotify wd:") + lines.startswith(b"inotify wd:")
    except OSError:
        # It has ended, or is not for us to look at.
        return count
    return count


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


QUIET_MILLISECONDS = 100
"""Time without changes before a change is reported: editors write in several steps."""
GATHER_MILLISECONDS = 1_000
"""Longest time that a stream of changes is gathered."""
LOOK_MILLISECONDS = 1_000
"""Interval of the check for new, replaced and removed roots, which no watch reports, and least
interval of polling."""
SURVEY_SECONDS = 5.0
"""Least interval of the surveys that find what the system did not report."""
SURVEY_SHARE = 50
"""A watched tree is surveyed for at most 1/50 of one processor, ..."""
POLL_SHARE = 20
"""... and a polled one for at most 1/20."""

logger = logging.getLogger(__name__)


def watch(
    roots: Sequence[Root],
    *,
    files: Iterable[Path] = (),
    stop: threading.Event,
    poll: bool = False,
    look_milliseconds: int = LOOK_MILLISECONDS,
) -> Iterator[frozenset[Path]]:
    """Yield the changed paths after each change, until `stop` is set, which may take the interval.

    What changes after this call is reported, also before the first path is asked for. A new,
    replaced or removed root is a change of the root itself. The trees are also surveyed from time
    to time, since the system does not report every change. They are polled only, without watches,
    if they have more than `watch_bound` directories or the system has no more watches; `poll` does
    so from the start, for file systems without notifications.

    Args:
        roots: The directories; those that are missing may come.
        files: Single files that are looked at too, present or not.
        stop: Ends the watch.
        poll: Use no notifications of the system.
        look_milliseconds: Interval of the looks at the roots themselves and at `files`.
    """
    # Neither in the generator, which would begin only with the first path.
    with needs_extra("watch"):
        import watchfiles  # noqa: F401, PLC0415 - of an extra.
    return _changes(_Watched(roots, files, stop), stop, poll=poll, look=look_milliseconds)


def _changes(
    state: _Watched, stop: threading.Event, *, poll: bool, look: int
) -> Iterator[frozenset[Path]]:
    import watchfiles  # noqa: PLC0415 - of an extra.

    while not stop.is_set():
        reason = "" if poll else state.too_many()
        if poll or reason or not state.places:
            if reason:
                _say_polling(reason)
                poll = True
            if stop.wait(look / 1_000):
                return
            if changes := state.look() | state.due(POLL_SHARE, look / 1_000):
                yield changes
            continue
        places = state.places
        # What changed until the watches are set is found by a survey when they are.
        state.survey_soon()
        try:
            for reported in watchfiles.watch(
                *places,
                watch_filter=None,
                debounce=GATHER_MILLISECONDS,
                step=QUIET_MILLISECONDS,
                stop_event=stop,
                rust_timeout=look,
                yield_on_timeout=True,
                raise_interrupt=False,
                ignore_permission_denied=True,
            ):
                changes = state.noted(path for _, path in reported) | state.look()
                changes |= state.due(SURVEY_SHARE, SURVEY_SECONDS)
                if changes:
                    yield changes
                if state.places != places or state.too_many():
                    break
                if state.lacks_watches():
                    _say_polling("the system has no more watches (fs.inotify.max_user_watches)")
                    poll = True
                    break
        except (OSError, RuntimeError) as error:
            # No watch (OSError) or instance (RuntimeError) is left, or a root has been removed.
            changes = state.look()
            if state.places == places:
                _say_polling(f"the system cannot watch them: {error}")
                poll = True
            if changes:
                yield changes


def _say_polling(reason: str) -> None:
    logger.warning("the directories of skills are polled for changes: %s", reason)


class _Watched:
    """What is watched, as it was at the last look."""

    def __init__(self, roots: Sequence[Root], files: Iterable[Path], stop: threading.Event) -> None:
        self._roots = tuple(roots)
        self._stop = stop
        self._files = {path: _identity(path) for path in files}
        self.places = _existing(roots)
        """The real paths of the roots that exist, each with what it is."""
        self._tree = self._survey()
        self._surveyed_at = time.monotonic()
        self._is_complete = False
        """Whether the tree was surveyed since the watches are set."""

    def _survey(self) -> TreeState:
        return survey(self.places, is_over=self._stop.is_set)

    def too_many(self) -> str:
        """Return why the directories are not watched; or ""."""
        bound, count = watch_bound(), self._tree.directories
        return f"{count} directories, and at most {bound} are watched" if count > bound else ""

    def lacks_watches(self) -> bool:
        """Whether this process has fewer watches than directories, right after a survey."""
        if not self._is_complete or time.monotonic() - self._surveyed_at > 1.0:
            return False
        held = own_watches()
        return held is not None and held < self._tree.directories

    def noted(self, paths: Iterable[str]) -> frozenset[Path]:
        """Return what the system reported; no survey reports it again."""
        found = tuple(paths)
        self._tree.note(found)
        return frozenset(map(Path, found))

    def look(self) -> frozenset[Path]:
        """Return the roots and single files that are others than at the last look."""
        before, self.places = self.places, _existing(self._roots)
        found = {Path(path) for path, _ in before.items() ^ self.places.items()}
        for path, known in self._files.items():
            now = _identity(path)
            if now != known:
                self._files[path] = now
                found.add(path)
        if before != self.places:
            self.survey_soon()
        return frozenset(found)

    def survey_soon(self) -> None:
        self._surveyed_at = float("-inf")
        self._is_complete = False

    def due(self, share: int, least_seconds: float) -> frozenset[Path]:
        """Return what a survey finds, if it is time for one; its cost sets the interval."""
        pause = max(least_seconds, self._tree.seconds * share)
        if time.monotonic() - self._surveyed_at < pause:
            return frozenset()
        before, now = self._tree, self._survey()
        if self._stop.is_set():
            return frozenset()
        self._tree = now
        self._surveyed_at = time.monotonic()
        self._is_complete = True
        return frozenset(map(Path, now.changed(before)))


def _existing(roots: Iterable[Root]) -> dict[str, tuple[int, int]]:
    """Return the real paths of the roots that exist; the target of a link is watched."""
    found = {}
    for root in roots:
        path = os.path.realpath(root.path)
        try:
            info = os.stat(path)
        except (OSError, ValueError):
            continue
        if os.path.isdir(path):
            found[path] = (info.st_dev, info.st_ino)
    return found


def _identity(path: Path) -> tuple[int, ...]:
    """Return what changes when a file is written, replaced, or another's."""
    try:
        info = os.stat(path)
    except OSError:
        return ()
    return (info.st_dev, info.st_ino, info.st_mtime_ns, info.st_ctime_ns, info.st_size)
