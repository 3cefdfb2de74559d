"""Tests of tiers/stop_mark.py: the stop as a file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from skillhouse.floor import StateError
from skillhouse.tiers.stop_mark import READY, SIZE, STOPPED, StopMark


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
