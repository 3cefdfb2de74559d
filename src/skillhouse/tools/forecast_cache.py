"""What several forecasts about one moment share: the disk is looked at once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class ForecastCache:
    """Keeps what was seen for the forecasts of one rehearsal.

    INVARIANT: a call has none: what it meets is looked at when it is made.
    """

    def __init__(self) -> None:
        self._seen: dict[Hashable, Any] = {}

    def once(self, key: Hashable, look: Callable[[], T]) -> T:
        """Return what `look` returned the first time; `key` names all that it depends on."""
        if key not in self._seen:
            self._seen[key] = look()
        found: T = self._seen[key]
        return found
