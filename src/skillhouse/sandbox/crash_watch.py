"""A small process that cleans up after this one if it is killed, and waits for nothing else.

It is a shell that reads from a pipe whose other end only this process has. The kernel closes that
end whatever ends this process, and then the shell becomes `crash_cleanup.py`. bubblewrap binds its
life to ours by itself, but the first process inside does so only when its namespaces are made.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path

from skillhouse.floor import crash_cleanup, make_private
from skillhouse.floor.crash_cleanup import END, MARKER_NAME, STASH_NAME, owner_name
from skillhouse.sandbox.interpreters import own_python

_SCRIPT = (
    f'while IFS= read -r line; do [ "$line" = {END} ] && exit 0; set -- "$@" "$line"; done; '
    'exec "$@"'
)


class CrashWatch:
    """Knows where this process leaves things; one for each process, from `watch_for_crashes`."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._lines: dict[str, None] = {}
        self._markers: list[Path] = []
        self._recorded: set[tuple[str, str]] = set()
        self._handle = -1
        self._watcher = 0
        atexit.register(self._end)

    def start(self) -> None:
        """Have a watching process; called before each sandbox, as it may have been killed."""
        if sys.platform != "linux" or self._is_watching():
            return
        with self._lock:
            if self._is_watching():
                return
            self._close()
            theirs, self._handle = os.pipe()
            try:
                self._watcher = self._spawn(theirs)
            finally:
                os.close(theirs)
            self._send(self._lines)

    def note(self, *lines: str) -> None:
        """Note places "kind:value" where this process leaves things, see `crash_cleanup.clean`.

        INVARIANT: before anything is made there, so that at no moment a killed process leaves
        what is not removed.
        """
        self.start()
        with self._lock:
            new = dict.fromkeys(
                line for line in lines if line not in self._lines and "\n" not in line
            )
            self._lines |= new
            for marker in self._markers:
                _append(marker, new)
            self._send(new)

    def mark(self, state: Path) -> None:
        """Leave a marker in a state directory, for the next start if the machine crashes."""
        marker = state / f"{MARKER_NAME}{owner_name()}"
        if marker in self._markers:
            return
        make_private(state)
        self.note(f"state:{state}", f"temporary:{tempfile.gettempdir()}")
        with self._lock:
            _append(marker, self._lines)
            self._markers.append(marker)

    def record(self, state: Path, workspace: str, paths: Iterable[str]) -> None:
        """Note placeholders, before they are made; each is written once."""
        new = [path for path in paths if (workspace, path) not in self._recorded]
        if not new:
            return
        self.mark(state)
        line = f"placeholder:{json.dumps([workspace, *new])}"
        with self._lock:
            _append(state / f"{MARKER_NAME}{owner_name()}", (line,))
            self._recorded.update((workspace, path) for path in new)

    def _is_watching(self) -> bool:
        if self._handle < 0:
            return False
        try:
            return os.waitid(os.P_PID, self._watcher, os.WEXITED | os.WNOHANG) is None
        except ChildProcessError:
            # The program that we are in reaps all of its children.
            return os.path.exists(f"/proc/{self._watcher}")

    def _spawn(self, theirs: int) -> int:
        script = Path(crash_cleanup.__file__)
        argv = ("sh", "-c", _SCRIPT, "sh", str(own_python()[1]), "-I", "-S", str(script))
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            return os.posix_spawn(
                "/bin/sh",
                argv,
                {},
                file_actions=(
                    (os.POSIX_SPAWN_DUP2, theirs, 0),
                    (os.POSIX_SPAWN_DUP2, null, 1),
                    (os.POSIX_SPAWN_DUP2, null, 2),
                ),
                # What ends us by the terminal or by a service's stop is not for the watcher.
                setpgroup=0,
                setsigmask=(signal.SIGHUP, signal.SIGINT, signal.SIGTERM),
            )
        finally:
            os.close(null)

    def _send(self, lines: Iterable[str]) -> None:
        data = os.fsencode("".join(f"{line}\n" for line in lines))
        if data and self._handle >= 0:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._handle, data)

    def _close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _end(self) -> None:
        """End the watcher; a fork of this process has inherited this call, and is not meant."""
        if self._pid != os.getpid():
            return
        own = f"{STASH_NAME}{owner_name()}-"
        is_ours = lambda name: name.startswith(own)  # noqa: E731
        with self._lock:
            for marker in self._markers:
                crash_cleanup.remove_stashes(marker.parent, is_ours)
                with contextlib.suppress(OSError):
                    marker.unlink()
            self._markers.clear()
            # INVARIANT: last, as we may be killed in each of these steps.
            self._send((END,))
            self._close()


def _append(marker: Path, lines: Iterable[str]) -> None:
    data = os.fsencode("".join(f"{line}\n" for line in lines))
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    with contextlib.suppress(OSError):
        handle = os.open(marker, flags, 0o600)
        try:
            os.write(handle, data)
        finally:
            os.close(handle)


@functools.cache
def _watch_of(pid: int) -> CrashWatch:
    return CrashWatch()


def watch_for_crashes() -> CrashWatch:
    """Return the watch of this process, whichever launcher or cell asks; a fork has its own."""
    return _watch_of(os.getpid())
