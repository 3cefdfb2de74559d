"""Remembers what was decided and what came of it, so that a change shows."""

from skillhouse.audit.entries import AuditEntry, Query, entries_of, find_record, read_records
from skillhouse.audit.health import Degraded, Trouble, stuck, troubles
from skillhouse.audit.log import AuditLog
from skillhouse.audit.log_keys import checkpoint_key
from skillhouse.audit.record import (
    AuditDraft,
    AuditError,
    AuditRecord,
    Confirmation,
    DecidedPermission,
    TransactionEntry,
    timestamp,
)
from skillhouse.audit.redaction import KnownSecrets, is_secret_name, redacted, without_secrets
from skillhouse.audit.reports import Stats, csv_lines, json_lines, stats_of, write_gate_lines
from skillhouse.audit.retention import Retention
from skillhouse.audit.verify import LogProblem, Verification, verify_log

__all__ = [
    "AuditDraft",
    "AuditEntry",
    "AuditError",
    "AuditLog",
    "AuditRecord",
    "Confirmation",
    "DecidedPermission",
    "Degraded",
    "KnownSecrets",
    "LogProblem",
    "Query",
    "Retention",
    "Stats",
    "TransactionEntry",
    "Trouble",
    "Verification",
    "checkpoint_key",
    "csv_lines",
    "entries_of",
    "find_record",
    "is_secret_name",
    "json_lines",
    "read_records",
    "redacted",
    "stats_of",
    "stuck",
    "timestamp",
    "troubles",
    "verify_log",
    "without_secrets",
    "write_gate_lines",
]
