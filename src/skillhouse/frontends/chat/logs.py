"""What the program and its libraries log while a person talks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from skillhouse.frontends.chat.screen import Screen
from skillhouse.frontends.presentation.text import one_line


@contextmanager
def shown_logs(screen: Screen) -> Iterator[None]:
    """Have faults that are logged shown in one safe line each.

    Without a handler Python writes them to the terminal as they are, with what a provider said in
    them, and a page of traceback.
    """
    handler = _Shown(screen)
    root = logging.getLogger()
    root.addHandler(handler)
    logging.captureWarnings(capture=True)
    try:
        yield
    finally:
        logging.captureWarnings(capture=False)
        root.removeHandler(handler)


class _Shown(logging.Handler):
    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.ERROR)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0] if record.exc_info else None
        why = f" ({kind.__name__})" if kind is not None else ""
        self._screen.progress(one_line(f"{record.getMessage()}{why}"))
