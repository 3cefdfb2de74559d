"""Tests of tools/command_inputs.py: the signature of a workspace."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse.tools import command_inputs
from skillhouse.tools.command_inputs import changed_since, inputs_of_line, sign_workspace


def tree(base: Path) -> Path:
    for name in ("run.py", "lib/a.js", "lib/notes.md", ".git/index", "data.json"):
        path = base / "w" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("one")
    (base / "w/link").symlink_to("run.py")
    return base / "w"


def replace(path: Path) -> None:
    """Put another file with the same bytes, size and modification time in the place of one."""
    info = path.stat()
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(info.st_atime_ns, info.st_mtime_ns))
    other.rename(path)


def relink(path: Path) -> None:
    path.unlink()
    path.symlink_to("data.json")


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        (lambda w: (w / "run.py").write_text("two"), True),
        (lambda w: (w / "lib/b.js").write_text("x"), True),
        (lambda w: (w / "lib/a.js").unlink(), True),
        (lambda w: (w / "run.py").rename(w / "ran.py"), True),
        (lambda w: (w / "run.py").chmod(0o755), True),
        (lambda w: replace(w / "run.py"), True),
        (lambda w: relink(w / "link"), True),
        (lambda w: (w / "lib/notes.md").write_text("two"), False),
        (lambda w: (w / "lib/picture.PNG").write_text("x"), False),
        (lambda w: (w / ".git/index").write_text("two"), False),
        (lambda w: (w / "empty").mkdir(), False),
        (lambda w: None, False),
    ],
)
def test_a_signature_changes_with_what_a_program_could_load(
    tmp_path: Path, change: Callable[[Path], object], counts: bool
) -> None:
    workspace = tree(tmp_path)
    before = sign_workspace(str(workspace))
    change(workspace)
    assert before.digest
    assert (sign_workspace(str(workspace)) != before) is counts


def test_two_changes_within_one_tick_of_the_clock_are_told_apart(tmp_path: Path) -> None:
    workspace = tree(tmp_path)
    slept: list[float] = []
    newest = max(os.lstat(path).st_ctime_ns for path in workspace.rglob("*"))
    sign_workspace(str(workspace), now_ns=lambda: newest + 1, sleep=slept.append)
    assert slept
    assert all(seconds * 1e9 >= command_inputs.TICK_NS for seconds in slept)


def test_a_workspace_beyond_the_bounds_is_not_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tree(tmp_path)
    monkeypatch.setattr(command_inputs, "ENTRIES_MAX", 3)
    found = sign_workspace(str(workspace))
    assert (found.digest, found.unsigned) == ("", "the workspace has more than 3 files")
    monkeypatch.setattr(command_inputs, "SECONDS_MAX", -1.0)
    assert "it takes more than" in sign_workspace(str(workspace)).unsigned


def test_a_busy_machine_does_not_change_whether_a_workspace_is_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tree(tmp_path)
    scandir = os.scandir

    def slowly(path: str) -> object:
        time.sleep(0.1)
        return scandir(path)

    monkeypatch.setattr(command_inputs, "SECONDS_MAX", 0.1)
    monkeypatch.setattr(os, "scandir", slowly)
    assert sign_workspace(str(workspace)).digest
    monkeypatch.setattr(command_inputs, "WAIT_SECONDS_MAX", -1.0)
    assert "it takes more than" in sign_workspace(str(workspace)).unsigned


def test_a_question_says_that_the_look_was_cut_off_and_not_that_a_file_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tree(tmp_path)
    before = inputs_of_line("sh run.sh", str(workspace)).value()
    monkeypatch.setattr(command_inputs, "SECONDS_MAX", -1.0)
    now = inputs_of_line("sh run.sh", str(workspace))
    said = now.changes(before, str(workspace), time.time_ns())
    assert said == "how much of the workspace could be looked at"


def test_what_changed_since_a_moment_is_listed(tmp_path: Path) -> None:
    workspace = tree(tmp_path)
    moment = time.time_ns()
    while (workspace / "run.py").stat().st_ctime_ns <= moment:
        (workspace / "run.py").write_text("two")
    assert changed_since(str(workspace), moment, limit=5) == ("run.py",)
