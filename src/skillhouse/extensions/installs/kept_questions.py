"""Keeps the questions about installs for some minutes, so that a repeated call fetches nothing."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from skillhouse.extensions.installs.install_question import InstallQuestion

KEPT_SECONDS = 600.0
"""How long a question is asked as it was put together."""
REFUSED_SECONDS = 30.0
"""How long a refusal is; a person may have removed its reason."""
KEPT_MAX = 64

Wish = tuple[str, str]
"""What a model sent: a name, and a repository or nothing."""


class KeptQuestions:
    """What was found out of each name lately: a question, or in words why there is none.

    In memory alone, so what is kept cannot be written to. It decides about no install: what is
    installed is fetched after the approval, and compared with what the question is bound to.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Calls come on threads of their own.
        self._lock = threading.Lock()
        self._kept: OrderedDict[Wish, tuple[float, InstallQuestion | str]] = OrderedDict()

    def get(self, wish: Wish) -> InstallQuestion | str | None:
        """Return the question, or why it is refused; None if it has to be found out."""
        with self._lock:
            until, found = self._kept.get(wish, (0.0, None))
            return found if self._clock() < until else None

    def keep(self, wish: Wish, found: InstallQuestion | str) -> None:
        """Keep a question, or why it is refused."""
        seconds = REFUSED_SECONDS if isinstance(found, str) else KEPT_SECONDS
        with self._lock:
            self._kept[wish] = (self._clock() + seconds, found)
            self._kept.move_to_end(wish)
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)

    def drop(self, wish: Wish) -> None:
        """Have it found out again."""
        with self._lock:
            self._kept.pop(wish, None)
