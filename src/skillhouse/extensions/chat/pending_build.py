"""Builds a chat on a thread of its own, while the user types the first line.

The library of the models, the provider's package and the skills take a second or more; the prompt
needs none of them.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class PendingBuild(Generic[T]):
    """What is being built, or has been, or why it cannot be."""

    def __init__(self, build: Callable[[], T]) -> None:
        """Store what builds; nothing is done before the context is entered."""
        self._build = build
        self._built: list[T] = []
        self._error: Exception | None = None
        self._waits = threading.main_thread()
        self._thread = threading.Thread(target=self._run, name="chat-opening")
        self._is_left = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for the end: a thread that still loads packages would crash the end of Python."""
        self._is_left = True
        self._thread.join()
        if self._error is not None and kind is KeyboardInterrupt:
            raise self._error

    @property
    def is_done(self) -> bool:
        return bool(self._built)

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    def result(self) -> T:
        """Wait for what was built, or raise why it was not."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._built[0]

    def _run(self) -> None:
        try:
            self._built.append(self._build())
        except Exception as error:  # noqa: BLE001 - whatever it is, the user's thread raises it.
            self._error = error
            if not self._is_left and self._waits.ident is not None:
                # The prompt reads a line and notices nothing else.
                signal.pthread_kill(self._waits.ident, signal.SIGINT)
