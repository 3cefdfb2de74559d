"""Ends the process soon after its client closed a pipe, whatever the process does meanwhile.

A blocking import cannot be interrupted, and what a client wrote before it left may be much to read.
So a thread waits for the end of either pipe itself, without reading. Before anything is served the
process ends at once, as nothing has to be recorded; later calls record their outcomes first.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from skillhouse.floor.machine import signals_to

DRAIN_SECONDS = 0.2
"""How long messages that were written before the end may still be answered."""
END_SECONDS = 0.45
"""When the process ends at the latest, unless a call still has to record its outcome."""
CLOSING_SECONDS = 2.0
"""And how long it may take to close its files once nothing is served."""
POLL_SECONDS = 0.02

_READ_ENDED = getattr(select, "POLLRDHUP", 0)
"""The other end of a socket writes no more; Linux has it."""
_FAILED = select.POLLHUP | select.POLLERR | select.POLLNVAL if hasattr(select, "poll") else 0


class ClosedPipeWatch:
    """Waits until the client has closed `source` or `sink`, and then ends the process.

    While nothing is served, no call has begun, so nothing has to be recorded: the process may end
    at any point, as by a signal. Later `serving` decides, until `is_idle` says that no call runs.
    """

    def __init__(
        self, source: int, sink: int, *, leave: Callable[[int], object] = os._exit
    ) -> None:
        self._source = source
        self._sink = sink
        self._leave = leave
        self._lock = threading.Lock()
        self._end: Callable[[], object] | None = None
        self._is_idle: Callable[[], bool] = lambda: True
        self._is_over = False

    def start(self) -> None:
        """Start; without `poll` (Windows) only a read finds out that the client is gone."""
        if hasattr(select, "poll"):
            threading.Thread(target=self._run, name="mcp-watch", daemon=True).start()

    def serving(self, end: Callable[[], object], is_idle: Callable[[], bool]) -> None:
        """From now on end by `end`, which is called in the thread of the watch."""
        with self._lock:
            self._end, self._is_idle = end, is_idle

    def over(self) -> None:
        """Serving has ended by itself; only a slow end is still cut short."""
        with self._lock:
            self._end = None
            self._is_over = True

    def source_is_read(self) -> None:
        """All that the client wrote is answered, and it has closed its end."""
        with self._lock:
            if self._end is None and not self._is_over:
                self.exit()

    def _run(self) -> None:
        is_sink = self._wait()
        began = time.monotonic()
        if not is_sink:
            time.sleep(DRAIN_SECONDS)
        with self._lock:
            end = self._end
            if end is None and not self._is_over:
                self.exit()
        if end is not None:
            end()
        time.sleep(max(0.0, began + END_SECONDS - time.monotonic()))
        while not self._is_idle():
            time.sleep(POLL_SECONDS)
        if self._is_over:
            time.sleep(CLOSING_SECONDS)
        self.exit()

    def _wait(self) -> bool:
        """Wait for the end; whether the client reads no more answers."""
        poll = select.poll()
        poll.register(self._source, _READ_ENDED)
        if self._sink != self._source:
            poll.register(self._sink, 0)
        while True:
            for descriptor, event in poll.poll():
                if event & (_FAILED | _READ_ENDED):
                    return descriptor == self._sink

    def ended_by_signals(self) -> AbstractContextManager[None]:
        """End on SIGINT and SIGTERM as on a closed pipe, until serving takes the signals itself."""
        if os.name != "posix":
            return contextlib.nullcontext()
        return signals_to(lambda *_: self.exit())

    def exit(self) -> None:
        """End the process here and now; anything that has to be recorded is recorded."""
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        self._leave(0)
