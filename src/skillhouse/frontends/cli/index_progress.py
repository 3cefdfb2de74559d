"""How far the reading of skills is, where that takes long."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.runtime import Skillhouse

BEGIN_SECONDS = 1.0
"""What is done sooner needs no word."""
BAR_SECONDS = 0.1
LINE_SECONDS = 10.0
"""How often a bar on a terminal moves, and how often a line goes to a log."""
BAR_WIDTH = 20


class ReadingProgress:
    """Shows a bar on a terminal, and a line now and then elsewhere."""

    def __init__(self, terminal: Terminal, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the terminal and a clock of seconds."""
        self._terminal = terminal
        self._clock = clock
        self._next = clock() + BEGIN_SECONDS
        self._is_shown = False

    def __call__(self, done: int, total: int) -> None:
        """Say that `done` of `total` skills have been read."""
        now = self._clock()
        if now < self._next:
            return
        text = f"reading skills for the search index: {done} of {total}"
        if self._terminal.is_watched:
            filled = BAR_WIDTH * done // max(total, 1)
            bar = "#" * filled + "." * (BAR_WIDTH - filled)
            self._terminal.prompt(f"\r[{bar}] {text}\x1b[K")
            self._is_shown = True
            self._next = now + BAR_SECONDS
        else:
            self._terminal.note(text)
            self._next = now + LINE_SECONDS

    def end(self) -> None:
        """Take the bar away."""
        if self._is_shown:
            self._terminal.prompt("\r\x1b[K")
            self._is_shown = False


def prepare_search(house: Skillhouse, terminal: Terminal) -> None:
    """Bring the search index up to date, saying how far that is.

    Raises:
        SearchError: this Python's SQLite has no full-text module.
    """
    progress = ReadingProgress(terminal)
    try:
        house.view().search.index(progress)
    finally:
        progress.end()
