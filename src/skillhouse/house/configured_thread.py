"""What runs in the background of a process while its configuration wants it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from skillhouse.house.house import Skillhouse

AGAIN_SECONDS = 30.0
logger = logging.getLogger(__name__)


class ConfiguredThread:
    """Does something in the background of a process while its configuration wants that.

    One that does not costs no thread.
    """

    name: str
    """Of the thread."""

    def __init__(self, house: Skillhouse) -> None:
        self._house = house
        self._ended = threading.Event()
        self._changed = threading.Event()
        """The configuration changed, or this has ended."""
        self._thread: threading.Thread | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        self._unsubscribe = self._house.config_reload.subscribe(lambda _: self._follow())
        self._follow()
        return self

    def __exit__(self, *_: object) -> None:
        self._unsubscribe()
        self._ended.set()
        self._changed.set()

    def _follow(self) -> None:
        self._changed.set()
        if self._thread is None and not self._ended.is_set() and self._is_wanted():
            # A daemon: a request that hangs keeps no process from ending.
            self._thread = threading.Thread(target=self._go_on, name=self.name, daemon=True)
            self._thread.start()

    def _go_on(self) -> None:
        while not self._ended.is_set():
            try:
                self._run()
            except Exception:
                # The edge of a thread: after a fault it begins again.
                logger.exception("`%s` in the background", self.name)
                self._ended.wait(AGAIN_SECONDS)

    def _is_wanted(self) -> bool:
        """Whether the configuration that holds now has something to do."""
        raise NotImplementedError

    def _run(self) -> None:
        """Work until `_ended` is set."""
        raise NotImplementedError
