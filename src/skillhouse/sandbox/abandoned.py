"""Kills the sandboxes of another process, which was told to end them and does not answer."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

_PROC = Path("/proc")
_COMM = "bwrap"


def kill_sandboxes(pid: int, shown_in: Path) -> int:
    """Kill each bubblewrap that a process started, and so all inside; return how many.

    Nothing is killed unless the process holds a file `PID-…` of that directory open: in another
    container the number may be that of a stranger.
    """
    if not _holds(pid, os.fspath(shown_in / f"{pid}-")):
        return 0
    killed = 0
    for place in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(int(place.name))
            try:
                # Looked at while the handle is held, so the number is not another process's by now.
                if _parent_and_name(place) == (pid, _COMM):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    killed += 1
            finally:
                os.close(handle)
    return killed


def _holds(pid: int, start: str) -> bool:
    for link in (_PROC / str(pid) / "fd").glob("*"):
        with contextlib.suppress(OSError):
            if os.readlink(link).startswith(start):
                return True
    return False


def _parent_and_name(place: Path) -> tuple[int, str]:
    head, _, rest = (place / "stat").read_text(errors="replace").rpartition(")")
    return int(rest.split()[1]), head.partition("(")[2]
