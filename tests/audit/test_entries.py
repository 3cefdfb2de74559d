"""Tests of audit/entries.py: a call is one entry, and filters find it."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.audit import AuditEntry, AuditError, AuditRecord, find_record, read_records
from skillhouse.floor.structs import replace
from tests.audit.logs import intent, log_at, outcome, refusal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def written(path: Path) -> list[AuditRecord]:
    """Write five calls: two done, one refused, one that failed, one that nothing came of."""
    log = log_at(path)
    one = log.append(intent(agent="a"), durable=False)
    two = log.append(intent("read", agent="b", path="x"), durable=False)
    two_done = log.append(outcome(two.id, tool="read"), durable=False)
    one_done = log.append(outcome(one.id), durable=False)
    three = log.append(refusal(), durable=False)
    four = log.append(intent(agent="a"), durable=False)
    four_done = log.append(outcome(four.id, "error"), durable=False)
    five = log.append(intent("write", agent="b", path="y"), durable=False)
    return [one, one_done, two, two_done, three, four, four_done, five]


@pytest.mark.req("S000-119")
def test_an_intent_and_its_outcome_are_one_entry(path: Path) -> None:
    one, one_done, two, two_done, three, four, four_done, five = written(path)
    assert read_records(path) == (
        AuditEntry(record=five, outcome=None, status="unknown"),
        AuditEntry(record=four, outcome=four_done, status="error"),
        AuditEntry(record=three, outcome=None, status="denied"),
        AuditEntry(record=two, outcome=two_done, status="ok"),
        AuditEntry(record=one, outcome=one_done, status="ok"),
    )


@pytest.mark.parametrize(
    ("filters", "places"),
    [
        ({"tool": "exec"}, [6, 1]),
        ({"tool": "nothing"}, []),
        ({"status": "unknown"}, [8]),
        ({"status": "denied"}, [5]),
        ({"status": "ok"}, [2, 1]),
        ({"agent": "a"}, [6, 1]),
        ({"agent": "a", "status": "error"}, [6]),
        ({"since": "2026-01-01T00:00:05"}, [8, 6]),
        ({"since": "2027"}, []),
        ({"limit": 2}, [8, 6]),
        ({"limit": 0}, []),
        ({"limit": 2, "newest_first": False}, [1, 2]),
        ({"newest_first": False}, [1, 2, 5, 6, 8]),
        ({"tool": "exec", "limit": 1}, [6]),
    ],
)
def test_filters_choose_entries(path: Path, filters: dict[str, object], places: list[int]) -> None:
    written(path)
    found = read_records(path, **filters)  # type: ignore[arg-type]
    assert [entry.record.seq for entry in found] == places


def test_a_log_that_is_not_there_has_no_entries(path: Path) -> None:
    assert read_records(path) == ()
    assert find_record(path, "01") is None


def test_an_outcome_whose_intent_is_gone_is_an_entry_by_itself(path: Path) -> None:
    alone = log_at(path).append(outcome("01ARYZ6S410000000000000000"), durable=False)
    entry = AuditEntry(record=alone, outcome=None, status="ok")
    assert read_records(path) == (entry,)
    assert find_record(path, alone.id) == entry


def test_lines_that_are_no_records_are_passed_over(path: Path) -> None:
    *_, five = written(path)
    data = path.read_bytes().replace(b"denied by", b"granted b")
    path.write_bytes(b"x" * 600_000 + b"\n" + data + b"{}\n\n{torn")
    assert [entry.record.seq for entry in read_records(path)] == [8, 6, 2, 1]
    assert read_records(path)[0].record == five


@pytest.mark.slow
def test_a_log_of_several_chunks_is_read_whole(path: Path) -> None:
    log = log_at(path)
    for _ in range(700):
        log.append(replace(refusal(), reason="x" * 900), durable=False)
    assert path.stat().st_size > 2 * (1 << 18)
    found = read_records(path, newest_first=False)
    assert [entry.record.seq for entry in found] == list(range(1, 701))


def test_a_record_is_found_by_the_beginning_of_its_id(path: Path) -> None:
    one, one_done, two, _, three, *_ = written(path)
    whole = AuditEntry(record=one, outcome=one_done, status="ok")
    assert find_record(path, one.id) == whole
    assert find_record(path, one.id[:10].lower()) == whole
    assert find_record(path, one_done.id) == whole
    assert find_record(path, three.id) == AuditEntry(record=three, outcome=None, status="denied")
    assert find_record(path, "ZZZZ") is None
    assert find_record(path, "") is None
    with pytest.raises(AuditError) as caught:
        find_record(path, two.id[:4])
    assert caught.value.code == "record-ambiguous"


def test_a_log_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AuditError) as caught:
        read_records(tmp_path / "file" / "audit.jsonl")
    assert caught.value.code == "log-unreadable"
