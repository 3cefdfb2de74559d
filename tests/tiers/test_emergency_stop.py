"""Tests of tiers/emergency_stop.py: the file of the stop, and the calls that it ends."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from skillhouse.floor import StateError
from skillhouse.tiers.emergency_stop import (
    CALLS,
    KEPT_SECONDS,
    READY,
    SIZE,
    STOPPED,
    OwnLine,
    StopMark,
    lines,
)


@pytest.fixture
def mark(tmp_path: Path) -> StopMark:
    return StopMark(tmp_path / "stop")


def test_a_stop_is_given_once_and_lifted_once(mark: StopMark) -> None:
    mark.prepare()
    mark.prepare()
    before = (mark.directory / READY).stat()
    assert (before.st_size, before.st_mode & 0o777) == (SIZE, 0o600)
    assert mark.directory.stat().st_mode & 0o777 == 0o700
    assert (mark.reason(), mark.lift()) == ("", False)
    assert mark.give("local", "a test")
    # The same file, renamed: nothing was taken from the disk.
    assert (mark.directory / STOPPED).stat().st_ino == before.st_ino
    assert (mark.reason(), mark.give("noa", "again")) == ("a test (by local)", False)
    mark.prepare()
    assert os.listdir(mark.directory) == [STOPPED]
    assert (mark.lift(), mark.reason()) == (True, "")
    assert os.listdir(mark.directory) == [READY]


def test_a_stop_needs_no_prepared_file(mark: StopMark) -> None:
    assert mark.give("local", "x" * 600 + "\udc80")
    assert mark.reason() == "x" * 500 + " (by local)"


@pytest.mark.parametrize("reason", ["\udc80" * 500, '"\\\n\0' * 125, "é" * 500])
def test_a_reason_of_any_signs_fits_and_is_read_again(mark: StopMark, reason: str) -> None:
    mark.give(reason[:200], reason)
    assert mark.reason() == f"{reason} (by {reason[:200]})"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"by": "local"}', b"\xff", None])
def test_the_name_stops_whatever_the_file_holds(mark: StopMark, content: bytes | None) -> None:
    mark.directory.mkdir()
    place = mark.directory / STOPPED
    place.mkdir() if content is None else place.write_bytes(content)
    assert mark.reason() == f"the file `{place}` says so"


def test_a_link_that_leads_nowhere_stops_and_a_linked_file_is_not_written_to(
    mark: StopMark, tmp_path: Path
) -> None:
    mark.directory.mkdir()
    (tmp_path / "other").write_text("as it was")
    (mark.directory / READY).symlink_to(tmp_path / "other")
    assert mark.give("local", "a test")
    assert (tmp_path / "other").read_text() == "as it was"
    (tmp_path / "other").unlink()
    assert mark.reason().endswith("says so")
    assert mark.lift()


def test_a_place_that_is_none_can_be_neither_read_nor_written(tmp_path: Path) -> None:
    (tmp_path / "stop").write_text("")
    mark = StopMark(tmp_path / "stop")
    for act in (mark.reason, mark.lift, lambda: mark.give("local", "a test")):
        with pytest.raises(StateError, match="cannot be"):
            act()


def test_what_is_written_is_json(mark: StopMark) -> None:
    mark.give("local", "a test")
    said = (mark.directory / STOPPED).read_bytes()
    assert (json.loads(said), len(said)) == ({"by": "local", "reason": "a test"}, SIZE)


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
