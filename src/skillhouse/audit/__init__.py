"""Remembers what was decided and what came of it, so that a change shows."""

from skillhouse.audit.export import csv_lines, json_lines, write_gate_lines
from skillhouse.audit.health import Trouble, stuck, troubles
from skillhouse.audit.keys import checkpoint_key
from skillhouse.audit.known import KnownSecrets
from skillhouse.audit.log import AuditLog
from skillhouse.audit.reading import AuditEntry, Query, entries_of, find_record, read_records
from skillhouse.audit.record import (
    AuditDraft,
    AuditError,
    AuditRecord,
    Confirmation,
    DecidedPermission,
    TransactionEntry,
)
from skillhouse.audit.redaction import is_secret_name, redacted, without_secrets
from skillhouse.audit.retention import Retention
from skillhouse.audit.stats import Stats, stats_of
from skillhouse.audit.timestamps import timestamp
from skillhouse.audit.verify import Verification, verify_log
from skillhouse.audit.waiting import Degraded
from skillhouse.audit.walk import LogProblem

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
