"""Tests of install/dry_run.py: the copy is of one moment, while others use the state."""

from __future__ import annotations

import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from skillhouse.house import Skillhouse, configured
from skillhouse.install import dry_run_config
from skillhouse.store import STATE_FILE
from tests.house.places import make_places

ROWS = 3


def write(state: Path, number: int, *, end_log: bool) -> None:
    """Write one number into all rows, as one transaction of another process."""
    with closing(sqlite3.connect(state)) as other, other:
        other.execute("CREATE TABLE IF NOT EXISTS other (a INTEGER PRIMARY KEY, number, filler)")
        for row in range(ROWS):
            values = (row, number, str(number) * 5_000)
            other.execute("INSERT OR REPLACE INTO other VALUES (?, ?, ?)", values)
        other.commit()
        if end_log:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@pytest.mark.file_state
def test_a_state_that_is_written_meanwhile_is_copied_as_of_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Skillhouse(configured(make_places(tmp_path))) as house:
        house.project_trust.trust(house.project_trust.report())
        state = house.config.state_directory / STATE_FILE
        number = 0
        write(state, number, end_log=True)
        copy = shutil.copy2

        def busy(source: Any, target: Any, **options: Any) -> Any:
            """Copy a file, and have another process write before the next one is copied."""
            nonlocal number
            found = copy(source, target, **options)
            number += 1
            write(state, number, end_log=True)
            write(state, number + 1, end_log=False)
            return found

        monkeypatch.setattr(shutil, "copy2", busy)
        with dry_run_config(house) as config:
            taken = config.state_directory / STATE_FILE
            assert stat.S_IMODE(taken.stat().st_mode) == 0o600
            with closing(sqlite3.connect(taken)) as read:
                assert read.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                found = read.execute("SELECT DISTINCT number, filler FROM other").fetchall()
        assert len(found) == 1
        assert found[0][1] == str(found[0][0]) * 5_000


@pytest.mark.file_state
def test_what_another_process_takes_away_meanwhile_stops_no_dry_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Skillhouse(configured(make_places(tmp_path))) as house:
        directory = house.config.state_directory / "given"
        directory.mkdir(parents=True)
        for name in ("a", "b"):
            (directory / name).write_text(name)
        copy = shutil.copy2

        def busy(source: Any, target: Any, **options: Any) -> Any:
            found = copy(source, target, **options)
            for one in directory.iterdir():
                one.unlink()
            return found

        monkeypatch.setattr(shutil, "copy2", busy)
        with dry_run_config(house) as config:
            assert len(list((config.state_directory / "given").iterdir())) == 1
