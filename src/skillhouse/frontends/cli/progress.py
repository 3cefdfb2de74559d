"""Shows how far long work is: a bar on a terminal, and a line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from skillhouse.presentation.text import cut

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import Skillhouse
    from skillhouse.retrieval import MeaningState

BEGIN_SECONDS = 1.0
"""What is done sooner needs no word."""
BAR_SECONDS = 0.1
LINE_SECONDS = 10.0
"""How often a bar on a terminal moves, and how often a line goes to a log."""
BAR_WIDTH = 20
NARROW = 60
"""Columns of a terminal below which there is no bar, only its text."""


class _Pace:
    """Says when something is to be shown, and shows it."""

    def __init__(self, terminal: Terminal, clock: Callable[[], float]) -> None:
        self._terminal = terminal
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        self._began = self._clock()
        self._next = self._began + BEGIN_SECONDS

    def show(self, text: Callable[[float], str], done: int, total: int) -> None:
        """Show a text, made of the seconds since the beginning, if it is time to."""
        now = self._clock()
        if now < self._next:
            return
        terminal, said = self._terminal, text(now - self._began)
        if not terminal.is_watched:
            terminal.note(said)
            self._next = now + LINE_SECONDS
            return
        self._next = now + BAR_SECONDS
        if total and terminal.width >= NARROW:
            filled = min(BAR_WIDTH, BAR_WIDTH * done // total)
            said = f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {said}"
        # A line that is full would go on to the next, and stay there.
        terminal.status(cut(said, terminal.width - 1))


class ReadingProgress:
    """The skills that are read for the search index."""

    def __init__(
        self,
        terminal: Terminal,
        clock: Callable[[], float] = time.monotonic,
        what: str = "reading skills for the search index",
    ) -> None:
        self._what = what
        self._terminal = terminal
        self._pace = _Pace(terminal, clock)

    def __call__(self, done: int, total: int) -> None:
        text = f"{self._what}: {done} of {total}"
        self._pace.show(lambda _: text, done, max(total, 1))

    def end(self) -> None:
        self._terminal.clear_status()


class TransferProgress:
    """What arrives from other machines, one transfer after the other."""

    def __init__(self, terminal: Terminal, clock: Callable[[], float] = time.monotonic) -> None:
        self._pace = _Pace(terminal, clock)
        self._terminal = terminal
        self._start: int | None = None
        self._last = 0

    def begin(self) -> None:
        """Expect another transfer."""
        self._terminal.clear_status()
        self._pace.begin()
        self._start = None

    def __call__(self, done: int, total: int, unit: str) -> None:
        if self._start is None or done < self._last:
            # What an earlier run left was not transferred now.
            self._start = done
        self._last = done
        arrived = done - self._start
        self._pace.show(lambda seconds: _amount(done, total, unit, arrived, seconds), done, total)


def _amount(done: int, total: int, unit: str, arrived: int, seconds: float) -> str:
    if unit != "bytes":
        return f"{done} of {total} {unit}" if total else f"{done} {unit}"
    size = f"{size_text(done)} of {size_text(total)}" if total else size_text(done)
    return f"{size}, {size_text(int(arrived / seconds))}/s"


def size_text(count: int) -> str:
    """Return a number of bytes as people read it.

    >>> size_text(999), size_text(1_500), size_text(48_000_000)
    ('999 bytes', '1.5 kB', '48.0 MB')
    """
    if count < 1_000:
        return f"{count} bytes"
    size = count / 1_000
    for unit in ("kB", "MB"):
        if size < 1_000:
            return f"{size:.1f} {unit}"
        size /= 1_000
    return f"{size:.1f} GB"


MEANING_SECONDS = 20.0
"""A person waits so long for vectors; the next search goes on where this one ended."""


def prepare_search(
    house: Skillhouse, terminal: Terminal, *, agent: str = "default"
) -> MeaningState | None:
    """Bring an agent's search index up to date, and return how far search by meaning is.

    Raises:
        MissingExtraError: an encoder that is configured is not installed.
        SearchError: SQLite has no full-text module.
    """
    search = house.view(agent).search
    progress = ReadingProgress(terminal)
    try:
        search.prepare(progress)
    finally:
        progress.end()
    progress = ReadingProgress(terminal, what="encoding skills for search by meaning")
    try:
        state = search.wait_for_meaning(MEANING_SECONDS, progress)
    finally:
        progress.end()
    if state is not None and state.fault:
        terminal.note(f"search by meaning is incomplete: {state.fault}")
    elif state is not None and len(state.ready) < len(state.encoders):
        waiting = "+".join(name for name in state.encoders if name not in state.ready)
        terminal.note(
            f"encoder `{waiting}` is not ready: {state.done} of {state.total} vectors are made,"
            " the next search goes on"
        )
    return state
