"""Remembers what was decided and what came of it, so that a change shows."""

from skillhouse.audit.log import AuditLog
from skillhouse.audit.reading import AuditEntry, find_record, read_records
from skillhouse.audit.record import AuditDraft, AuditError, AuditRecord, DecidedPermission
from skillhouse.audit.redaction import redacted
from skillhouse.audit.verify import Problem, Verification, verify_log

__all__ = [
    "AuditDraft",
    "AuditEntry",
    "AuditError",
    "AuditLog",
    "AuditRecord",
    "DecidedPermission",
    "Problem",
    "Verification",
    "find_record",
    "read_records",
    "redacted",
    "verify_log",
]
