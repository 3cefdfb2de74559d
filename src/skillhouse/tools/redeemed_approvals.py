"""The yeses of persons that the door has taken and that a tool may now use, each once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class RedeemedApprovals:
    """Hands a yes from the gate, which took it, to the plan that it is about."""

    def __init__(self) -> None:
        self._yeses: dict[str, list[str]] = {}
        # INVARIANT: held to look or change; a house may be used from several event loops.
        self._lock = threading.Lock()

    def take(self, binding: str) -> str:
        """Return the id of the yes to exactly this content, and forget it; "" when there is none.

        >>> agreed = RedeemedApprovals()
        >>> with agreed.giving("sha256:1", "yes-1"):
        ...     agreed.take("sha256:2"), agreed.take("sha256:1"), agreed.take("sha256:1")
        ('', 'yes-1', '')
        """
        with self._lock:
            found = self._yeses.get(binding)
            return found.pop() if found else ""

    @contextmanager
    def giving(self, binding: str, approval_id: str) -> Iterator[None]:
        """Offer a yes while its call runs; empty texts offer nothing."""
        if not (binding and approval_id):
            yield
            return
        with self._lock:
            self._yeses.setdefault(binding, []).append(approval_id)
        try:
            yield
        finally:
            with self._lock:
                left = [yes for yes in self._yeses.pop(binding) if yes != approval_id]
                if left:
                    self._yeses[binding] = left
