"""How many directories may be watched: the system's limits, and how much of them is used.

Linux gives each user a number of inotify watches (`fs.inotify.max_user_watches`), for all of the
user's programs together; an editor needs them as well.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from skillhouse.discovery.roots import Root
from skillhouse.discovery.tree_state import survey

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
