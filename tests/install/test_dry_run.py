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

MADE = """
CREATE TABLE account (id INTEGER PRIMARY KEY, amount INTEGER, filler TEXT);
INSERT INTO account SELECT value, 0, printf('%3000c', 'x') FROM json_each('[0, 1, 2]');
"""


def move(state: Path, source: int, target: int, *, end_log: bool) -> None:
    """Move one from a row to another, as one transaction of another process: their sum stays 0."""
    change = "UPDATE account SET amount = amount + ? WHERE id = ?"
    with closing(sqlite3.connect(state)) as other:
        other.execute(change, (-1, source))
        other.execute(change, (1, target))
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
        (state.parent / "another").write_text("file")
        with closing(sqlite3.connect(state)) as other:
            other.executescript(MADE)
        copy = shutil.copy2

        def busy(source: Any, target: Any, **options: Any) -> Any:
            """Copy a file, and have another process write before the next one is copied."""
            found = copy(source, target, **options)
            move(state, 1, 2, end_log=True)
            move(state, 0, 1, end_log=False)
            return found

        monkeypatch.setattr(shutil, "copy2", busy)
        with dry_run_config(house) as config:
            taken = config.state_directory / STATE_FILE
            assert stat.S_IMODE(taken.stat().st_mode) == 0o600
            with closing(sqlite3.connect(taken)) as read:
                assert read.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                assert read.execute("SELECT sum(amount) FROM account").fetchone() == (0,)


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
