"""Tests of what is removed after a process of ours was killed, and of what never is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skillhouse.floor.crash_cleanup import (
    COMMON_NAME,
    PLACEHOLDER_NS,
    SANDBOX_NAME,
    clean,
    clean_groups,
    clean_state,
    is_left,
    is_placeholder,
    owner_name,
)
from tests.owners import gone_owner

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")

WAIT = "read line"


def parts() -> list[str]:
    return owner_name().split(".")


def named(**changes: str) -> str:
    names = ("pid", "started", "namespace", "boot")
    return ".".join(changes.get(name, part) for name, part in zip(names, parts(), strict=True))


def test_only_a_process_that_is_known_to_be_gone_has_left_something() -> None:
    started = f"{int(parts()[1], 16) + 1:x}"
    cases = {
        owner_name(): False,
        f"{owner_name()}-7-x": False,
        gone_owner(): True,
        f"{gone_owner()}-7-x": True,
        # Its number belongs to another process by now.
        named(started=started): True,
        # It may run in another container.
        named(pid="fffffff", namespace="00000001"): False,
        # Nothing of another boot runs.
        named(boot="0" * 8, namespace="00000001"): True,
        # What had no namespace when it was named.
        named(boot="0" * 8, namespace="0" * 8): False,
        "": False,
        "12-7": False,
        "../x": False,
        f"{gone_owner()}x": False,
    }
    assert {name: is_left(f"skillhouse-{name}", COMMON_NAME) for name in cases} == cases
    assert not is_left(gone_owner(), COMMON_NAME)


@pytest.fixture
def process() -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Start processes whose command line begins with a word."""
    started: list[subprocess.Popen[bytes]] = []

    def start(word: str) -> subprocess.Popen[bytes]:
        # Not Python, which may find its library by the name that it was called.
        started.append(
            subprocess.Popen((word, "-c", WAIT), executable="/bin/sh", stdin=subprocess.PIPE)
        )
        # The command line is the new one when the program has begun.
        until = time.monotonic() + 10
        line = Path(f"/proc/{started[-1].pid}/cmdline")
        while not line.read_bytes().startswith(word.encode()) and time.monotonic() < until:
            time.sleep(0.001)
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.communicate()


def test_sandboxes_of_gone_processes_are_ended_and_no_others(
    process: Callable[[str], subprocess.Popen[bytes]],
) -> None:
    left = process(f"{SANDBOX_NAME}{gone_owner()}")
    kept = [process(f"{SANDBOX_NAME}{owner_name()}"), process(f"other-{gone_owner()}")]
    clean(())
    assert left.wait(10) == -signal.SIGKILL
    assert [one.poll() for one in kept] == [None, None]


def placeholder(path: Path) -> Path:
    path.mkdir(parents=True)
    os.utime(path, ns=(PLACEHOLDER_NS, PLACEHOLDER_NS))
    return path


def test_placeholders_go_and_what_is_not_ours_stays(tmp_path: Path) -> None:
    work, state = tmp_path / "work", tmp_path / "state"
    state.mkdir()
    ours = placeholder(work / ".git")
    theirs = placeholder(work / ".env")
    (theirs / "file").touch()
    outside = placeholder(tmp_path / "outside")
    value = json.dumps([str(work), *map(str, (ours, theirs, outside, work / "never"))])
    marker = state / f"running-{gone_owner()}"
    marker.write_text(f"placeholder:{value}\n")
    clean_state(state)
    assert sorted(path.name for path in work.iterdir()) == [".env"]
    assert outside.is_dir()
    assert not marker.exists()


@pytest.mark.parametrize(
    ("name", "content", "seconds", "is_ours"),
    [
        ("commondir", b".", 0, True),
        ("config.worktree", b"", 0, True),
        ("commondir", b".", 1, False),
        ("commondir", b"x", 0, False),
        ("commondir", b"../x", 0, False),
        ("config.worktree", b"[core]", 0, False),
        ("other", b".", 0, False),
    ],
)
def test_a_file_is_ours_by_its_name_its_time_and_its_content(
    tmp_path: Path, name: str, content: bytes, seconds: int, is_ours: bool
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    when = PLACEHOLDER_NS + seconds * 1_000_000_000
    os.utime(path, ns=(when, when))
    assert is_placeholder(str(path)) is is_ours
    clean([f"placeholder:{json.dumps([str(tmp_path), str(path)])}"])
    assert path.exists() is not is_ours


def test_a_directory_that_holds_something_or_a_link_is_not_ours(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").touch()
    link = tmp_path / "commondir"
    link.symlink_to("full")
    for path in (full, link):
        os.utime(path, ns=(PLACEHOLDER_NS, PLACEHOLDER_NS), follow_symlinks=False)
        assert not is_placeholder(str(path))
        clean([f"placeholder:{json.dumps([str(tmp_path), str(path)])}"])
        assert os.path.lexists(path)
    assert not is_placeholder(str(tmp_path / "never"))


def test_a_workspace_that_a_run_uses_is_left_to_it(tmp_path: Path) -> None:
    import fcntl  # noqa: PLC0415 - not on Windows.

    ours = placeholder(tmp_path / "work/.git")
    handle = os.open(tmp_path / "work", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    clean([f"placeholder:{json.dumps([str(tmp_path / 'work'), str(ours)])}"])
    os.close(handle)
    assert ours.is_dir()


@pytest.mark.parametrize("kind", ["temporary", "copies", "state"])
def test_directories_of_gone_processes_go_and_others_stay(tmp_path: Path, kind: str) -> None:
    start = {"temporary": "skillhouse-", "copies": "cell-", "state": "placeholders-"}[kind]
    names = {
        f"{start}{gone_owner()}-a": False,
        f"{start}{owner_name()}-a": True,
        f"{start}other": True,
        "mine": True,
    }
    for name in names:
        (tmp_path / name).mkdir()
    target = tmp_path / "mine/file"
    target.touch()
    link = tmp_path / f"{start}{gone_owner()}-link"
    link.symlink_to(tmp_path / "mine")
    clean([f"{kind}:{tmp_path}"])
    assert {name: (tmp_path / name).exists() for name in names} == names
    assert (target.exists(), link.is_symlink()) == (True, True)


def test_a_marker_is_not_followed(tmp_path: Path) -> None:
    ours = placeholder(tmp_path / "work/.git")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(f"placeholder:{json.dumps([str(tmp_path / 'work'), str(ours)])}\n")
    state = tmp_path / "state"
    state.mkdir()
    (state / f"running-{gone_owner()}").symlink_to(elsewhere)
    clean_state(state)
    assert (ours.is_dir(), elsewhere.exists(), list(state.iterdir())) == (True, True, [])


def test_a_control_group_that_only_looks_like_one_of_ours_stays(tmp_path: Path) -> None:
    names = {f"skillhouse-{gone_owner()}-0": False, f"skillhouse-{owner_name()}-0": True}
    for name in (*names, "skillhouse-12-0"):
        (tmp_path / name).mkdir()
    clean_groups((tmp_path, tmp_path / "never"))
    assert {name: (tmp_path / name).exists() for name in names} == names
    assert (tmp_path / "skillhouse-12-0").exists()
