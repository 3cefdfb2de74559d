"""Servers, executors, the database and a disk are broken under calls, and nothing is done twice.

What is broken, when, and what callers do follows from a seed, which a failure prints:
`SKILLHOUSE_TEST_CHAOS=SEED ./x test tests/test_chaos.py` repeats it, as far as processes can.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos import FAULTS, OF_DISKS, can_mount, run_chaos, schedule
from tests.frontends.mcp_peer import has_sandbox
from tests.harness import Need
from tests.postgres import program

SHORT_SECONDS, LONG_SECONDS = 75, 600
SEED = 7


def broken(place: Path, seconds: float, seed: int, need: Need) -> None:
    need(program("pg_basebackup"), "no PostgreSQL server with its programs")
    need(has_sandbox(), "no sandbox here")
    seed = int(os.environ.get("SKILLHOUSE_TEST_CHAOS", seed))
    report = run_chaos(place, seconds, seed, has_disk=can_mount())
    print(report)
    assert not report.wrong, str(report)
    assert sum(report.faults.values()) >= seconds / 8, str(report)
    # It was broken while calls ran, and calls went on: else there is nothing to compare.
    assert report.seen["ok"] > seconds / 4, str(report)
    assert report.seen["ok"] < report.seen.total(), str(report)
    assert report.facts["approvals used"] > seconds / 15, str(report)
    if sum(report.faults.values()) >= len(FAULTS) and can_mount():
        assert set(report.faults) == set(FAULTS), str(report)


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.takes(600)
def test_a_minute_of_faults(tmp_path: Path, need: Need) -> None:
    broken(tmp_path, SHORT_SECONDS, SEED, need)


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.nightly
@pytest.mark.takes(1_800)
def test_ten_minutes_of_faults(tmp_path: Path, need: Need) -> None:
    broken(tmp_path, LONG_SECONDS, time.time_ns() % 10**6, need)


def test_a_seed_repeats_its_faults_and_each_kind_comes_before_any_comes_again() -> None:
    found = schedule(3, 120, has_disk=True)
    assert found == schedule(3, 120, has_disk=True) != schedule(4, 120, has_disk=True)
    assert {fault.what for fault in found[: len(FAULTS)]} == set(FAULTS)
    times = Counter(fault.what for fault in found)
    assert max(times.values()) - min(times.values()) <= 1
    without = {fault.what for fault in schedule(3, 120, has_disk=False)}
    assert without == set(FAULTS) - set(OF_DISKS)
