"""A change that a person makes, in the audit log before and after it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import anyio

from skillhouse.audit import AuditDraft
from skillhouse.floor.threads import in_thread

if TYPE_CHECKING:
    from skillhouse.audit import AuditLog


@contextmanager
def recorded(audit: AuditLog, action: str, arguments: Mapping[str, object]) -> Iterator[None]:
    """Record a change before and after it; without a log nothing is changed.

    Raises:
        AuditError: the intent could not be written; the block does not run.
    """
    intent = _begin(audit, action, arguments)
    failed = True
    try:
        yield
        failed = False
    finally:
        _end(audit, action, intent, failed=failed)


@asynccontextmanager
async def recorded_async(
    audit: AuditLog, action: str, arguments: Mapping[str, object]
) -> AsyncIterator[None]:
    """Do as `recorded` does, in an event loop, which goes on while the log is waited for."""
    intent = await in_thread(lambda: _begin(audit, action, arguments))
    failed = True
    try:
        yield
        failed = False
    finally:
        # Also when it is cancelled: what was begun has an outcome.
        with anyio.CancelScope(shield=True):
            await in_thread(lambda: _end(audit, action, intent, failed=failed))


def _begin(audit: AuditLog, action: str, arguments: Mapping[str, object]) -> str:
    tool = f"manage:{action}"
    draft = AuditDraft(kind="intent", tool=tool, user="local", arguments=arguments)
    return audit.write(draft, durable=True)


def _end(audit: AuditLog, action: str, intent: str, *, failed: bool) -> None:
    status = "error" if failed else "ok"
    tool = f"manage:{action}"
    draft = AuditDraft(kind="outcome", tool=tool, user="local", status=status, intent=intent)
    audit.append_read(draft)
