"""Tests of discovery/watcher.py."""

from __future__ import annotations

import os
import queue
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import watchfiles

from skillhouse.discovery import Root, watch, watch_use, watcher
from skillhouse.discovery.watcher import WatchUse, own_watches, survey, watch_bound, watches_of_user
from tests.harness import ran

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
@pytest.mark.parametrize("error", [OSError("watch limit"), RuntimeError("Too many open files")])
def test_what_the_system_cannot_watch_is_polled_and_logged_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    def refused(*_: str, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(watchfiles, "watch", refused)
    file = tmp_path / "SKILL.md"
    texts = iter(range(100))
    with watching(tmp_path) as found:
        until(found, lambda: file.write_text(f"text {next(texts)}"), file)
        until(found, lambda: file.write_text(f"text {next(texts)}"), file)
    assert [r.getMessage().partition(": ")[0] for r in caplog.records] == [
        "the directories of skills are polled for changes"
    ]


@pytest.mark.slow
def test_more_directories_than_the_bound_are_polled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: str, **__: Any) -> Any:
        pytest.fail("a watch was taken")

    monkeypatch.setattr(watchfiles, "watch", refused)
    monkeypatch.setattr(watcher, "watch_bound", lambda: 3)
    for name in "abc":
        (tmp_path / name).mkdir()
    file = tmp_path / "c/SKILL.md"
    texts = iter(range(100))
    with watching(tmp_path) as found:
        until(found, lambda: file.write_text(f"text {next(texts)}"), file)


@pytest.mark.slow
def test_what_changes_before_the_watches_are_set_is_reported(tmp_path: Path) -> None:
    stop = threading.Event()
    changes = watch([Root(tmp_path)], stop=stop, look_milliseconds=50)
    (tmp_path / "SKILL.md").write_text("early")
    assert tmp_path / "SKILL.md" in next(changes)
    stop.set()


@pytest.mark.slow
def test_what_the_system_does_not_report_is_found_by_a_survey(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue that overflows, or a directory for which no watch was left: events are just lost."""

    def silent(*_: str, stop_event: threading.Event, **__: Any) -> Iterator[set[Any]]:
        while not stop_event.wait(0.02):
            yield set()

    monkeypatch.setattr(watchfiles, "watch", silent)
    monkeypatch.setattr(watcher, "SURVEY_SECONDS", 0.1)
    monkeypatch.setattr(watcher, "own_watches", lambda: None)
    file = tmp_path / "deep/SKILL.md"
    file.parent.mkdir()
    texts = iter(range(100))
    with watching(tmp_path) as found:
        until(found, lambda: file.write_text(f"text {next(texts)}"), file)


@pytest.mark.slow
@pytest.mark.parametrize("poll", [False, True], ids=["inotify", "polling"])
def test_a_root_that_is_another_directory_under_its_name_is_watched(
    tmp_path: Path, poll: bool
) -> None:
    parent = tmp_path / "parent"
    root = parent / "skills"
    root.mkdir(parents=True)
    texts = iter(range(100))
    with watching(root, poll=poll) as found:
        until(found, lambda: (root / "a").write_text(f"{next(texts)}"), root / "a")
        parent.rename(tmp_path / "moved")
        root.mkdir(parents=True)
        until(found, lambda: (root / "b").write_text(f"{next(texts)}"), root / "b")
        shutil.rmtree(root)
        root.mkdir()
        until(found, lambda: (root / "c").write_text(f"{next(texts)}"), root / "c")


@pytest.mark.slow
def test_a_single_file_may_come_be_replaced_and_go(tmp_path: Path) -> None:
    file, found, stop = tmp_path / "config.toml", Changes(), threading.Event()
    changes = watch([], files=[file], stop=stop, look_milliseconds=20)

    def run() -> None:
        for changed in changes:
            found.put(changed)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for step in (lambda: file.write_text("a"), lambda: file.write_text("bb"), file.unlink):
            step()
            assert found.get(timeout=20) == {file}
    finally:
        stop.set()
        thread.join(10)


FORTY = """
import sys, threading, time
from pathlib import Path
from skillhouse.discovery import Root, watch, watcher

root, stop, seen = Path(sys.argv[1]), threading.Event(), set()
for number in range(30):
    (root / f"s{number}").mkdir()
changes = watch([Root(root)], stop=stop, look_milliseconds=100)

def run():
    for changed in changes:
        seen.update(changed)

thread = threading.Thread(target=run)
thread.start()
time.sleep(1)
wanted = {root / (f"new{n}" if n % 2 else f"s{n % 30}") / "SKILL.md" for n in range(40)}
for file in sorted(wanted):
    file.parent.mkdir(exist_ok=True)
    file.write_text("changed")
end = time.monotonic() + 20
while wanted - seen and time.monotonic() < end:
    time.sleep(0.05)
stop.set()
thread.join()
print(len(wanted - seen), "lost of", len(wanted))
"""


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
@pytest.mark.parametrize(
    "limit", ["max_inotify_watches 20", "max_inotify_watches 40", "max_inotify_instances 0"]
)
def test_no_change_is_lost_where_the_system_has_no_more_watches(tmp_path: Path, limit: str) -> None:
    """Review H1: with all watches taken 13 of 40 changes were lost silently."""
    name, number = limit.split()
    (tmp_path / "root").mkdir()
    script = tmp_path / "forty.py"
    script.write_text(FORTY)
    command = f'echo {number} > /proc/sys/user/{name} || exit 77; exec "$@"'
    done = ran(
        ["unshare", "-Ur", "sh", "-c", command, "sh", sys.executable, script, tmp_path / "root"],
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("no user namespace can be made here")
    assert done.stdout.startswith("0 lost of 3"), done


def test_a_watch_that_is_stopped_before_it_begins_ends(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    assert list(watch([Root(tmp_path)], stop=stop)) == []


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


def names(root: Path) -> set[str]:
    return {path.removeprefix(f"{root}/") for path in survey([str(root)]).entries}


@pytest.mark.parametrize("target", ["/", "..", "../..", "/proc/self/root", "."])
def test_a_link_to_a_directory_above_is_not_followed(tmp_path: Path, target: str) -> None:
    root = tmp_path / "above/root"
    (root / "skill").mkdir(parents=True)
    (root / "skill/SKILL.md").write_text("x")
    (tmp_path / "above/other").write_text("x")
    (root / "link").symlink_to(target)
    assert names(root) == {"skill", "skill/SKILL.md", "link"}


def test_a_root_above_another_is_read(tmp_path: Path) -> None:
    inner = tmp_path / "a/b"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    found = survey([str(inner), str(tmp_path)])
    assert {str(inner / "file"), str(inner), str(tmp_path / "a")} <= found.entries.keys()


def test_of_many_entries_below_links_the_nearest_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "LINKED_MAX", 20)
    elsewhere = tmp_path / "elsewhere"
    for number in range(5):
        (elsewhere / f"d{number}/deep/deeper").mkdir(parents=True)
        for name in range(9):
            (elsewhere / f"d{number}/deep/deeper/{name}").write_text("x")
    (elsewhere / "SKILL.md").write_text("x")
    root = tmp_path / "root"
    (root / "own/deep/deeper/deepest").mkdir(parents=True)
    (root / "link").symlink_to(elsewhere)
    found = names(root)
    assert {"own/deep/deeper/deepest", "link/SKILL.md", "link/d4/deep"} <= found
    assert len([one for one in found if one.startswith("link/")]) < 30
