"""Tests of tiers/call_table.py: which processes run calls."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillhouse.tiers.call_table import CALLS, KEPT_SECONDS, OwnLine, lines


def found(directory: Path) -> list[tuple[int, int, bool]]:
    return [(line.running, line.ended, line.is_alive) for line in lines(directory)]


def test_a_process_shows_while_it_lives_and_after_a_stop_ended_its_calls(tmp_path: Path) -> None:
    assert found(tmp_path) == []
    first, second = OwnLine(tmp_path), OwnLine(tmp_path)
    assert found(tmp_path) == [(0, 0, True), (0, 0, True)]
    first.write(2, 0)
    second.write(0, 1)
    assert sorted(found(tmp_path)) == [(0, 1, True), (2, 0, True)]
    assert {line.pid for line in lines(tmp_path)} == {os.getpid()}
    first.close()
    assert found(tmp_path) == [(0, 1, True)]
    second.close()
    assert found(tmp_path) == [(0, 1, False)]


def test_the_next_process_removes_what_ended_long_ago(tmp_path: Path) -> None:
    for _ in range(2):
        line = OwnLine(tmp_path)
        line.write(0, 1)
        line.close()
    old, new = sorted((tmp_path / CALLS).iterdir())
    past = new.stat().st_mtime - KEPT_SECONDS - 1
    os.utime(old, (past, past))
    line = OwnLine(tmp_path)
    assert sorted(one.name for one in lines(tmp_path)) == sorted((new.name, line.name))
    line.close()


def test_files_of_others_are_passed_over(tmp_path: Path) -> None:
    line = OwnLine(tmp_path)
    for name, text in ((".1-made", "0 0"), ("notes", "none"), ("1-empty", "")):
        (tmp_path / CALLS / name).write_text(text)
    assert [one.name for one in lines(tmp_path)] == [line.name]
    line.close()


def test_a_line_that_cannot_be_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(OwnLine, "write", full)
    with pytest.raises(OSError, match="No space"):
        OwnLine(tmp_path)
    assert list((tmp_path / CALLS).iterdir()) == []
