"""Remembers what was decided and what came of it, so that a change shows."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.audit.entries import AuditEntry as AuditEntry
    from skillhouse.audit.entries import Query as Query
    from skillhouse.audit.entries import Stats as Stats
    from skillhouse.audit.entries import csv_lines as csv_lines
    from skillhouse.audit.entries import entries_of as entries_of
    from skillhouse.audit.entries import find_record as find_record
    from skillhouse.audit.entries import json_lines as json_lines
    from skillhouse.audit.entries import read_records as read_records
    from skillhouse.audit.entries import stats_of as stats_of
    from skillhouse.audit.entries import write_gate_lines as write_gate_lines
    from skillhouse.audit.log import AuditLog as AuditLog
    from skillhouse.audit.peer_pages import LOG_PAGE_MAX as LOG_PAGE_MAX
    from skillhouse.audit.peer_pages import LogQuestion as LogQuestion
    from skillhouse.audit.record import AuditDraft as AuditDraft
    from skillhouse.audit.record import AuditError as AuditError
    from skillhouse.audit.record import AuditRecord as AuditRecord
    from skillhouse.audit.record import Confirmation as Confirmation
    from skillhouse.audit.record import DecidedPermission as DecidedPermission
    from skillhouse.audit.record import TransactionEntry as TransactionEntry
    from skillhouse.audit.record import timestamp as timestamp
    from skillhouse.audit.redaction import KnownSecrets as KnownSecrets
    from skillhouse.audit.redaction import is_secret_name as is_secret_name
    from skillhouse.audit.redaction import redacted as redacted
    from skillhouse.audit.redaction import without_secrets as without_secrets
    from skillhouse.audit.retention import Retention as Retention
    from skillhouse.audit.series import BUCKETS_MAX as BUCKETS_MAX
    from skillhouse.audit.series import Bucket as Bucket
    from skillhouse.audit.series import Series as Series
    from skillhouse.audit.series import first_moment as first_moment
    from skillhouse.audit.series import last_moment as last_moment
    from skillhouse.audit.series import series_of as series_of
    from skillhouse.audit.state_heads import StateHead as StateHead
    from skillhouse.audit.verify import LogProblem as LogProblem
    from skillhouse.audit.verify import Trouble as Trouble
    from skillhouse.audit.verify import Verification as Verification
    from skillhouse.audit.verify import stuck as stuck
    from skillhouse.audit.verify import troubles as troubles
    from skillhouse.audit.verify import verify_log as verify_log
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
