"""Pages of one server's log for another one: what is asked and answered, and how it is checked.

An answer is signed with a key that is derived from that of the log, so that another server that
writes the state cannot answer in its place. Whether the records are those that were written is said
by who has the log's key, and compared by the reader with the heads that the state has.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Struct, field

from skillhouse.audit.archives import size_of, take_snapshot
from skillhouse.audit.entries import AuditEntry, Query, entries_of
from skillhouse.audit.log import AuditLog
from skillhouse.audit.log_files import read_keys
from skillhouse.audit.record import AuditError
from skillhouse.audit.state_heads import is_sealed_head
from skillhouse.floor import StateError

LOG_PAGE_MAX = 100
LOOKED_AT_MAX = 50_000
"""Records that a question is tried on, from the newest."""
BEHIND_MAX = 1_000
"""Records behind a full page among which younger ones are looked for: what one process kept in
memory while the disk was full comes behind what another one wrote meanwhile."""
BODY_MAX = 512 * 1024
"""Bytes of an answer from which its page ends early."""
WHOLE_BODY_MAX = 2 * BODY_MAX
"""Of one that is read: a last record may be long."""
CHECK_SECONDS = 30.0
"""For which the check of a whole log counts."""
CHECK_MAX = 64 * 1024 * 1024
"""Bytes of a log that is checked for a page: some seconds."""
_UPKEEP = frozenset({"repair", "rotation", "outcome"})
"""What is no call by itself: an outcome is beside its intent unless retention removed that."""
_SAID_MAX = 300
NAME_MAX = 200

Standing = Literal["verified", "new", "unchecked", "changed", "doubtful"]


class LogQuestion(Struct, frozen=True, kw_only=True):
    """What one server asks of the others."""

    query: Query = field(default_factory=Query)
    before: str = ""
    """Id of a record; only those with a smaller one are wanted."""
    limit: int = 50


class LogCheck(Struct, frozen=True, kw_only=True):
    """What the server that has a log's key found of it."""

    state: Literal["whole", "changed", "unchecked"]
    said: str = ""
    """The first problem, or why it was not checked."""
    head_seq: int = 0
    """The newest record of which the state has a head that fits."""
    records: int = 0


class LogPage(Struct, frozen=True, kw_only=True):
    """Part of one log, newest first."""

    log: str
    """Name of its key."""
    server: str
    server_id: str
    """Of the server's row; another one after each start."""
    version: str
    clock_ms: int
    """What the server's own clock said."""
    check: LogCheck
    entries: tuple[AuditEntry, ...] = ()
    horizon: str = ""
    """Id of the last entry of a page that is full; empty where all that fit are here."""
    is_cut: bool = False
    """Whether older ones were not looked at."""


class SeenEntry(Struct, frozen=True, kw_only=True):
    """A call in one of several logs."""

    entry: AuditEntry
    server: str
    """Name of the server that answered for it, whatever the record says."""
    log: str
    standing: Standing
    """verified: the log is whole and a head in the state covers it; new: no head does yet."""


class LogChecker:
    """Verifies a log now and then, for pages of it."""

    def __init__(self, log: AuditLog, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._found: tuple[float, LogCheck] | None = None

    def check(self) -> LogCheck:
        """Return what was found, not longer ago than `CHECK_SECONDS`."""
        now = self._clock()
        if self._found is None or now - self._found[0] > CHECK_SECONDS:
            self._found = (now, self._checked())
        return self._found[1]

    def _checked(self) -> LogCheck:
        try:
            if _bytes_of(self._log) > CHECK_MAX:
                text = "the log is too long to be verified for a page: `skillhouse audit verify`"
                return LogCheck(state="unchecked", said=text)
            heads = self._log.state_heads()
            found = self._log.verify()
            keys = read_keys(self._log.path, self._log.key)
        except (AuditError, StateError, OSError) as error:
            return LogCheck(state="unchecked", said=str(error)[:_SAID_MAX])
        if found.problems:
            said = f"{found.problems[0].message} [{found.problems[0].code}]"
            return LogCheck(state="changed", said=said[:_SAID_MAX], records=found.records)
        known = (heads or {}).get(found.name, ())
        covered = (one.seq for one in known if keys is not None and is_sealed_head(one, keys))
        return LogCheck(state="whole", head_seq=max(covered, default=0), records=found.records)


def _bytes_of(log: AuditLog) -> int:
    taken = take_snapshot(log.path)
    if taken.handle != -1:
        os.close(taken.handle)
    return taken.size + sum(size_of(one) for one in taken.archives)


def entries_for(log: AuditLog, question: LogQuestion) -> tuple[tuple[AuditEntry, ...], str, bool]:
    """Return a page of a log, its horizon, and whether older records were not looked at."""
    wanted, limit = question.query, _limit(question)
    found: list[AuditEntry] = []
    size, behind, lowest, is_cut = 0, 0, "", False
    for seen, entry in enumerate(entries_of(log.path, Query(since=wanted.since), key=log.key)):
        if len(found) >= limit or size >= BODY_MAX:
            behind += 1
            lowest = lowest or min(one.record.id for one in found)
        if behind > BEHIND_MAX or seen >= LOOKED_AT_MAX:
            is_cut = not behind
            break
        place = entry.record.id
        if entry.record.kind in _UPKEEP or (question.before and place >= question.before):
            continue
        if place > lowest and wanted.fits(entry):
            found.append(entry)
            size += len(msgspec.json.encode(entry))
    found.sort(key=lambda one: one.record.id, reverse=True)
    size = 0
    for at, entry in enumerate(found, start=1):
        size += len(msgspec.json.encode(entry))
        if at < len(found) and (at >= limit or size >= BODY_MAX):
            return tuple(found[:at]), entry.record.id, False
    is_full = len(found) >= limit or size >= BODY_MAX
    return tuple(found), found[-1].record.id if is_full and behind else "", is_cut


def _limit(question: LogQuestion) -> int:
    return max(1, min(question.limit, LOG_PAGE_MAX))


def encoded(page: LogPage | LogQuestion) -> str:
    return msgspec.json.encode(page).decode()


def decoded_page(body: str, question: LogQuestion) -> LogPage | None:
    """Return an answer that fits what was asked; None for anything else."""
    data = body.encode("utf-8", "replace")
    try:
        page = msgspec.json.decode(data, type=LogPage)
    except (msgspec.DecodeError, RecursionError):
        return None
    ids = [one.record.id for one in page.entries]
    bound = question.before or "~"
    fits = (
        len(ids) <= LOG_PAGE_MAX
        and max(map(len, (page.server, page.server_id, page.version, page.log))) <= NAME_MAX
        and len(page.check.said) <= _SAID_MAX
        and all(one.isascii() and one.isalnum() and len(one) <= 64 for one in ids)
        and all(one < bound for one in ids)
        and ids == sorted(set(ids), reverse=True)
        and (not page.horizon or _may_end(page, question, len(data)))
        and all(question.query.fits(one) for one in page.entries)
    )
    return page if fits else None


def _may_end(page: LogPage, question: LogQuestion, size: int) -> bool:
    """Whether a page may end before the log does.

    INVARIANT: it ends all others where it ends, so it does that only if it is full.
    """
    entries = page.entries
    is_full = len(entries) >= _limit(question) or size >= BODY_MAX
    return is_full and bool(entries) and page.horizon == entries[-1].record.id


def seen_entries(
    page: LogPage, heads: Mapping[int, str], *, is_doubtful: bool
) -> tuple[SeenEntry, ...]:
    """Return the entries of a page with what is known of each.

    Args:
        page: The answer.
        heads: Hashes that the state has of this log's records, by their place.
        is_doubtful: Whether another log has the name of this one's server.
    """
    return tuple(
        SeenEntry(
            entry=one,
            server=page.server,
            log=page.log,
            standing="doubtful" if is_doubtful else _standing(one, page, heads),
        )
        for one in page.entries
    )


def _standing(entry: AuditEntry, page: LogPage, heads: Mapping[int, str]) -> Standing:
    records = [entry.record, *([] if entry.outcome is None else [entry.outcome])]
    if any(heads.get(one.seq, one.hash) != one.hash for one in records):
        return "changed"
    if any(one.server not in ("", page.server) for one in records):
        # A server that was renamed, or one that takes another's name into its own log.
        return "doubtful"
    if page.check.state == "whole":
        return "verified" if max(one.seq for one in records) <= page.check.head_seq else "new"
    return "changed" if page.check.state == "changed" else "unchecked"


def merged(
    pages: Sequence[LogPage], seen: Sequence[Sequence[SeenEntry]], limit: int
) -> tuple[tuple[SeenEntry, ...], str]:
    """Return the newest entries of several pages, and the id before which the next page begins.

    A log whose page ended early ends all of them there, so that none of its records is passed over.
    Clocks of servers differ: the order of records of two of them is that of their clocks.
    """
    horizon = max((one.horizon for one in pages), default="")
    every = sorted(
        (one for of_log in seen for one in of_log if one.entry.record.id >= horizon),
        key=lambda one: (one.entry.record.id, one.log),
        reverse=True,
    )
    if len(every) > limit:
        # What has the same id comes along: another log may have it to be rid of the true one.
        horizon = every[limit - 1].entry.record.id
    return tuple(one for one in every if one.entry.record.id >= horizon), horizon
