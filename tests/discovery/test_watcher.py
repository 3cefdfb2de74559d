"""Tests of discovery/watcher.py."""

from __future__ import annotations

import queue
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import watchfiles

from skillhouse.discovery import Root, watch

Changes = queue.Queue[frozenset[Path]]


@contextmanager
def watching(*paths: Path, poll: bool = False) -> Iterator[Changes]:
    """Watch these roots in a thread; the queue gets what changed."""
    stop, found = threading.Event(), Changes()

    def run() -> None:
        roots = [Root(path) for path in paths]
        for changed in watch(roots, stop=stop, poll=poll, look_milliseconds=50):
            found.put(changed)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join(10)
        assert not thread.is_alive(), "the watch did not stop"


def until(found: Changes, change: Callable[[], Any], path: Path) -> None:
    """Make a change, again and again until the watch stands, and wait to be told of the path."""
    for _ in range(50):
        change()
        try:
            while path not in found.get(timeout=0.5):
                pass
        except queue.Empty:
            continue
        return
    pytest.fail(f"never told of {path}")


@pytest.mark.slow
@pytest.mark.parametrize("poll", [False, True], ids=["inotify", "polling"])
def test_a_changed_file_is_told_with_its_path(tmp_path: Path, poll: bool) -> None:
    (tmp_path / "pdf").mkdir()
    file = tmp_path / "pdf/SKILL.md"
    texts = iter(range(100))
    with watching(tmp_path, poll=poll) as found:
        until(found, lambda: file.write_text(f"text {next(texts)}"), file)


@pytest.mark.slow
def test_a_root_that_comes_and_goes_is_a_change(tmp_path: Path) -> None:
    root, other = tmp_path / "later", tmp_path / "there"
    other.mkdir()
    texts = iter(range(100))
    with watching(root, other, tmp_path / "never") as found:
        # From here on the watch stands, so that the coming is seen.
        until(found, lambda: (other / "x").write_text(f"{next(texts)}"), other / "x")
        until(found, lambda: root.mkdir(exist_ok=True), root)
        until(found, lambda: shutil.rmtree(root, ignore_errors=True), root)


@pytest.mark.slow
def test_without_watches_left_the_files_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = watchfiles.watch
    modes = []

    def counted(*paths: str, force_polling: bool, **options: Any) -> Any:
        modes.append(force_polling)
        if not force_polling:
            raise OSError("OS file watch limit reached")
        return real(*paths, force_polling=True, **options)

    monkeypatch.setattr(watchfiles, "watch", counted)
    file = tmp_path / "SKILL.md"
    texts = iter(range(100))
    with watching(tmp_path) as found:
        until(found, lambda: file.write_text(f"text {next(texts)}"), file)
    assert modes[:2] == [False, True]


def test_a_watch_that_is_stopped_before_it_begins_ends(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    assert list(watch([Root(tmp_path)], stop=stop)) == []
