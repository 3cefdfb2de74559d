"""Tests of verify.py: what is wrong with a log, said before it costs anything."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillhouse.audit import (
    AuditDraft,
    AuditError,
    AuditLog,
    Query,
    entries_of,
    stats_of,
    stuck,
    troubles,
)
from skillhouse.audit import verify as subject

READ = AuditDraft(kind="intent", tool="read")


def quiet(text: str) -> None:
    """Where the log says by itself that it is down."""


@pytest.fixture
def blocked(tmp_path: Path) -> Iterator[Path]:
    """A log's place at which a directory stands, which also stops the superuser."""
    path = tmp_path / "state/audit.jsonl"
    path.mkdir(parents=True)
    yield path
    if path.is_dir():
        path.rmdir()


def test_a_log_that_is_well_has_no_troubles_and_nothing_is_made(tmp_path: Path):
    path = tmp_path / "state/audit.jsonl"
    assert stuck(path, tmp_path / "state/audit-checkpoints") == ()
    assert list(tmp_path.iterdir()) == []
    with AuditLog(path) as log:
        log.append(READ, durable=True)
        assert troubles(log) == ()


def test_what_stops_the_next_record_shows_before_it(blocked: Path, tmp_path: Path):
    (found,) = stuck(blocked, tmp_path / "second")
    assert found.code == "log-unwritable"
    assert found.message == (
        "the audit log cannot be written (is a directory): effects are refused until it is"
    )
    assert str(tmp_path) not in found.message


def test_a_link_in_the_logs_place_is_one_too(tmp_path: Path):
    (tmp_path / "audit.jsonl").symlink_to(tmp_path / "elsewhere")
    (found,) = stuck(tmp_path / "audit.jsonl", tmp_path / "second")
    assert found.code == "log-unwritable"


def test_a_disk_that_is_nearly_full_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subject, "FREE_MIN", 1 << 62)
    assert [one.code for one in stuck(tmp_path / "a", tmp_path / "b")] == ["log-disk-full"]


def test_a_second_place_that_cannot_be_written_is_said(tmp_path: Path):
    place = tmp_path / "second"
    place.mkdir()
    place.chmod(stat.S_IRUSR)
    found = [one.code for one in stuck(tmp_path / "audit.jsonl", place)]
    # The superuser may write everywhere.
    assert found == ([] if os.geteuid() == 0 else ["checkpoints-unwritable"])


def test_what_an_outage_costs_is_said_while_it_lasts_and_counted_after_it(blocked: Path):
    with AuditLog(blocked, warn=quiet, retry_seconds=0) as log:
        log.append_or_keep(READ)
        with pytest.raises(AuditError):
            log.append(AuditDraft(kind="intent", tool="exec"), durable=True)
        (found,) = troubles(log)
        assert found.message.endswith("UTC: effects refused 1, records that wait in memory 1")
        blocked.rmdir()
        log.append(READ, durable=True)
        assert troubles(log) == ()
        stats = stats_of(entries_of(log.path, Query(), key=log.key))
    assert (stats.total, stats.outages, stats.refused, stats.dropped) == (2, 1, 1, 0)
