"""Reports changes below the roots."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from skillhouse.discovery.roots import Root
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
"""Interval of the check for new and removed roots, which no watch reports."""
POLL_MILLISECONDS = 500
"""Interval of polling where the system does not report changes."""


def watch(
    roots: Sequence[Root],
    *,
    stop: threading.Event,
    poll: bool = False,
    look_milliseconds: int = LOOK_MILLISECONDS,
) -> Iterator[frozenset[Path]]:
    """Yield the changed paths after each change, until `stop` is set, which may take the interval.

    A new or removed root, of which no watch reports, is a change of the root itself. Without
    watches from the system, or when it has no more of them, the files are polled; `poll` does so
    from the start, for file systems without notifications.
    """
    there = _existing(roots)
    while not stop.is_set():
        if not there:
            stop.wait(look_milliseconds / 1_000)
        else:
            try:
                for changes in watchfiles.watch(
                    *there,
                    watch_filter=None,
                    debounce=GATHER_MILLISECONDS,
                    step=QUIET_MILLISECONDS,
                    stop_event=stop,
                    rust_timeout=look_milliseconds,
                    yield_on_timeout=True,
                    force_polling=poll,
                    poll_delay_ms=POLL_MILLISECONDS,
                    raise_interrupt=False,
                    ignore_permission_denied=True,
                ):
                    if changes:
                        yield frozenset(Path(path) for _, path in changes)
                    if _existing(roots) != there:
                        break
            except OSError:
                # No watches left (fs.inotify.max_user_watches), or a root was removed meanwhile.
                poll = poll or _existing(roots) == there
        before, there = there, _existing(roots)
        if before != there:
            yield frozenset(Path(path) for path in before ^ there)


def _existing(roots: Sequence[Root]) -> frozenset[str]:
    """Return the real paths of the roots that exist; the target of a link is watched."""
    return frozenset(os.path.realpath(root.path) for root in roots if os.path.isdir(root.path))
