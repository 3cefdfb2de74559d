"""A process that goes on when its verb is over, for a command in the background.

The verb itself runs in it, so that its questions are asked at the terminal; once it has printed its
result it leaves the terminal, and the process that the person started ends.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

LINGER_SECONDS = 600.0
"""How long the output of a command that has ended can still be read."""
_FAULT = 70


class Kept:
    """The process that goes on."""

    def __init__(self, parent: int) -> None:
        """`parent` is the pipe on which the process of the person hears the exit code."""
        self._parent = parent

    def detach(self, code: int) -> None:
        """Leave the terminal, and let the person's process end with an exit code."""
        sys.stdout.flush()
        sys.stderr.flush()
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        os.close(null)
        os.setsid()
        os.write(self._parent, bytes([code]))
        os.close(self._parent)

    def linger(self) -> None:
        """Stay for those who read the output later."""
        time.sleep(LINGER_SECONDS)


def keep_running(verb: Callable[[Kept], int]) -> int:
    """Run a verb in a process that may go on; return its exit code.

    INVARIANT: called before anything starts a thread, which a fork would leave behind.
    """
    ours, theirs = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(ours)
        return verb(Kept(theirs))
    os.close(theirs)
    # A Ctrl-C reaches both: the verb ends by it, and its exit code is ours.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        said = os.read(ours, 1)
        if said:
            return said[0]
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else _FAULT
    finally:
        signal.signal(signal.SIGINT, before)
        os.close(ours)
