"""A change that a person makes, in the audit log before and after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from skillhouse.audit import AuditDraft, AuditLog


@contextmanager
def recorded(audit: AuditLog, action: str, arguments: Mapping[str, object]) -> Iterator[None]:
    """Record a change before and after it; without a log nothing is changed.

    Raises:
        AuditError: the intent could not be written; the block does not run.
    """
    tool = f"manage:{action}"
    draft = AuditDraft(kind="intent", tool=tool, user="local", arguments=arguments)
    intent = audit.append(draft, durable=True)
    failed = True
    try:
        yield
        failed = False
    finally:
        audit.append_read(
            AuditDraft(
                kind="outcome",
                tool=tool,
                user="local",
                status="error" if failed else "ok",
                intent=intent.id,
            )
        )
