"""Tells when anything below the roots changes."""

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
"""How long nothing may have changed before a change is told: editors write in several steps."""
GATHER_MILLISECONDS = 1_000
"""How long a stream of changes is gathered at most."""
LOOK_MILLISECONDS = 1_000
"""How often it is looked whether a root has come or gone, which no watch tells of."""
POLL_MILLISECONDS = 500
"""How often all files are looked at where the system cannot tell of changes."""


def watch(
    roots: Sequence[Root],
    *,
    stop: threading.Event,
    poll: bool = False,
    look_milliseconds: int = LOOK_MILLISECONDS,
) -> Iterator[frozenset[Path]]:
    """Yield after each change the paths that changed, until `stop` is set.

    A root that comes or goes is a change of the root itself. Where the system has no more watches
    to give, or gives none at all, the files are looked at again and again instead.

    Args:
        roots: What to watch, whether it exists or not.
        stop: Ends the iteration within `look_milliseconds`.
        poll: Look at the files from the start; for file systems that tell of nothing.
        look_milliseconds: How often to look for roots that came or went.
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
                # No watches left (fs.inotify.max_user_watches), or a root went while we began.
                poll = poll or _existing(roots) == there
        before, there = there, _existing(roots)
        if before != there:
            yield frozenset(Path(path) for path in before ^ there)


def _existing(roots: Sequence[Root]) -> frozenset[str]:
    """Return the real paths of the roots that are there; a link's end is what is watched."""
    return frozenset(os.path.realpath(root.path) for root in roots if os.path.isdir(root.path))
