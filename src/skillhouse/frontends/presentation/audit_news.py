"""Says in a service's log what is wrong with the audit log, once each time it begins."""

from __future__ import annotations

import logging

from skillhouse.audit import AuditLog, Trouble, troubles

logger = logging.getLogger(__name__)


class AuditNews:
    """What was said last, for one log."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self._said: frozenset[str] = frozenset()

    def look(self) -> tuple[Trouble, ...]:
        """Return what is wrong now; what was not wrong at the last look goes to the log."""
        found = troubles(self._log)
        for trouble in found:
            if trouble.code not in self._said:
                logger.warning("audit: %s [%s]", trouble.message, trouble.code)
        if self._said and not found:
            logger.info("audit: all is well again")
        self._said = frozenset(trouble.code for trouble in found)
        return found
