"""Tests of discovery/watcher.py."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from skillhouse.discovery import Root, watch, watch_use, watcher
from skillhouse.discovery.watcher import WatchUse, own_watches, watch_bound, watches_of_user


@pytest.mark.parametrize(
    ("use", "polls"),
    [
        (WatchUse(used=0, most=200_000, needed=4_096), False),
        (WatchUse(used=0, most=200_000, needed=4_097), True),
        (WatchUse(used=199_990, most=200_000, needed=11), True),
        (WatchUse(used=300_000, most=200_000, needed=1), True),
    ],
)
def test_it_polls_beyond_the_bound_and_beyond_what_is_free(
    use: WatchUse, polls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "watches_of_user", lambda: 200_000)
    assert use.polls is polls


@pytest.mark.parametrize(("text", "found"), [("8192\n", 8192), ("many", None), (None, None)])
def test_a_limit_that_cannot_be_read_is_none(
    tmp_path: Path, text: str | None, found: int | None
) -> None:
    file = tmp_path / "max_user_watches"
    if text is not None:
        file.write_text(text)
    assert watches_of_user(file) == found


@pytest.mark.parametrize(("most", "bound"), [(None, 4_096), (8_192, 2_048), (1_000_000, 4_096)])
def test_a_watch_takes_at_most_a_quarter(
    most: int | None, bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "watches_of_user", lambda: most)
    assert watch_bound() == bound


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts watches")
def test_the_watches_of_this_process_are_counted(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
    before, stop = own_watches(), threading.Event()
    assert before is not None
    changes = watch([Root(tmp_path)], stop=stop, look_milliseconds=50)
    (tmp_path / "x").write_text("x")
    next(changes)
    held, use = own_watches(), watch_use([Root(tmp_path), Root(tmp_path / "gone")])
    stop.set()
    assert held == before + 4
    assert use is not None
    assert (use.needed, use.used >= 4, use.polls) == (4, True, False)
