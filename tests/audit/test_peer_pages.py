"""Tests of audit/peer_pages.py: pages of one log, and several as one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse.audit import AuditEntry, AuditRecord
from skillhouse.audit.log import AuditLog
from skillhouse.audit.peer_pages import (
    LogCheck,
    LogPage,
    LogQuestion,
    decoded_page,
    encoded,
    entries_for,
    merged,
    seen_entries,
)
from skillhouse.floor.structs import replace
from tests.audit.logs import refusal


def page(log: str, *ids: str) -> LogPage:
    records = [
        AuditRecord(id=one, seq=1, ts="", kind="refusal", tool="exec", status="denied")
        for one in ids
    ]
    return LogPage(
        log=log,
        server=log,
        server_id="",
        version="1",
        clock_ms=1,
        check=LogCheck(state="whole"),
        entries=tuple(AuditEntry(record=one, outcome=None, status="denied") for one in records),
    )


def test_a_record_with_the_id_of_another_log_s_does_not_hide_it() -> None:
    """A replica knows the ids of others, and fills a page so that it ends between the two."""
    pages = [page("true", "05", "03"), page("zz", "09", "05")]
    seen = [seen_entries(one, {}, is_doubtful=False) for one in pages]
    shown, following = merged(pages, seen, 2)
    assert [(one.log, one.entry.record.id) for one in shown] == [
        ("zz", "09"),
        ("zz", "05"),
        ("true", "05"),
    ]
    assert following == "05"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what writes records of these moments, each by a process of its own."""

    def write(*moments: float) -> None:
        for moment in moments:
            # One that kept its record in memory has an id of before.
            monkeypatch.setattr("skillhouse.audit.chain.ulid", lambda ms, _, after: f"{ms:026d}")
            with AuditLog(tmp_path / "audit.jsonl", clock=lambda: moment) as audit:  # noqa: B023
                audit.append(refusal(reason=f"{moment:g}"), durable=True)

    return write


def test_records_that_were_written_late_are_in_their_place(
    tmp_path: Path, log: Callable[..., None]
) -> None:
    """Two processes kept theirs in memory while the disk was full, and write them afterwards."""
    log(1, 2, 6, 7, 5, 8, 4, 3, 9)
    audit = AuditLog(tmp_path / "audit.jsonl")
    found, before = list[str](), ""
    for _ in range(9):
        question = LogQuestion(limit=2, before=before)
        entries, horizon, is_cut = entries_for(audit, question)
        answered = replace(page("log"), entries=entries, horizon=horizon, is_cut=is_cut)
        assert decoded_page(encoded(answered), question) == answered
        found += [one.record.reason for one in entries]
        before = horizon
        if not before:
            break
    assert found == [str(number) for number in range(9, 0, -1)]
