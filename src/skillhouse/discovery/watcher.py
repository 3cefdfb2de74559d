"""Reports changes below the roots."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from skillhouse.discovery.roots import Root
from skillhouse.discovery.tree_state import TreeState, survey
from skillhouse.discovery.watch_limits import own_watches, watch_bound
from skillhouse.floor import MissingExtraError

try:
    import watchfiles
except ModuleNotFoundError as error:
    raise MissingExtraError("watch", "watchfiles") from error

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
    # Not in the generator, which would begin only with the first path.
    return _changes(_Watched(roots, files, stop), stop, poll=poll, look=look_milliseconds)


def _changes(
    state: _Watched, stop: threading.Event, *, poll: bool, look: int
) -> Iterator[frozenset[Path]]:
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
