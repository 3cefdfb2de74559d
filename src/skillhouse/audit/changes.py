"""Records a change that a person makes in the audit log, before and after it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

import anyio

from skillhouse.audit.log import AuditLog
from skillhouse.audit.record import AuditDraft
from skillhouse.floor.threads import in_thread


@contextmanager
def recorded(audit: AuditLog, action: str, arguments: Mapping[str, object]) -> Iterator[None]:
    """Record a change before and after it; after `AuditError` the block does not run."""
    intent = _begin(audit, action, arguments)
    failed = True
    try:
        yield
        failed = False
    finally:
        _end(audit, action, intent, sys.exc_info()[1] if failed else None)


@asynccontextmanager
async def recorded_async(
    audit: AuditLog, action: str, arguments: Mapping[str, object]
) -> AsyncIterator[None]:
    """Like `recorded`, without blocking the event loop while the log is written."""
    intent = await in_thread(lambda: _begin(audit, action, arguments))
    failed = True
    try:
        yield
        failed = False
    finally:
        fault = sys.exc_info()[1] if failed else None
        # Also when it is cancelled: each intent gets an outcome.
        with anyio.CancelScope(shield=True):
            await in_thread(lambda: _end(audit, action, intent, fault))


def _begin(audit: AuditLog, action: str, arguments: Mapping[str, object]) -> str:
    tool = f"manage:{action}"
    draft = AuditDraft(kind="intent", tool=tool, user="local", arguments=arguments)
    return audit.write(draft, durable=True)


def _end(audit: AuditLog, action: str, intent: str, fault: BaseException | None) -> None:
    draft = AuditDraft(
        kind="outcome",
        tool=f"manage:{action}",
        user="local",
        status="ok" if fault is None else "error",
        error="" if fault is None else str(fault) or type(fault).__name__,
        intent=intent,
    )
    audit.append_read(draft)
