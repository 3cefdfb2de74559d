"""Tests of registry/lock_merge.py, with the marks that git itself makes."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from skillhouse.floor import StateError
from skillhouse.floor.structs import replace
from skillhouse.registry import Lock, LockEntry, LockMerge, merge_lock, read_lock
from skillhouse.registry.lock import write_lock


def entry(number: int, version: str = "") -> LockEntry:
    return LockEntry(
        tree_digest=f"skilltree1:{number:064}",
        repository="https://one.test",
        resolved=f"x@{number}",
        version=version,
    )


ONE, TWO, THREE = entry(1), entry(2), entry(3)
Skills = Mapping[str, LockEntry]


def merged(
    place: Path,
    before: Skills,
    ours: Skills,
    theirs: Skills,
    *,
    style: str = "--diff3",
    here: LockEntry = ONE,
    side: str = "",
) -> LockMerge | None:
    paths = []
    for name, skills in (("ours", ours), ("base", before), ("theirs", theirs)):
        write_lock(place / name, Lock(skills=skills))
        paths.append(str(place / name))
    command = ["git", "merge-file", *([style] if style else []), "-p", *paths]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode > 0, "expected a conflict"
    (place / "skills.lock").write_bytes(done.stdout)
    return merge_lock(place / "skills.lock", lambda _, one: one == here, side=side)


@pytest.mark.parametrize("style", ["", "--diff3", "--zdiff3"])
def test_skills_of_each_side_are_both_taken(tmp_path: Path, style: str) -> None:
    found = merged(tmp_path, {}, {"a": ONE}, {"b": TWO}, style=style)
    assert found is not None
    assert (dict(found.lock.skills), found.unclear) == ({"a": ONE, "b": TWO}, ())


@pytest.mark.parametrize(
    ("ours", "theirs", "taken"),
    [
        (entry(1, "1.0"), entry(2, "1.1"), entry(2, "1.1")),
        (entry(1, "2.0"), entry(2, "1.1"), entry(2, "1.1")),
        (entry(3, "2.0"), entry(4, "1.1"), entry(3, "2.0")),
        (replace(ONE, pinned=True), ONE, replace(ONE, pinned=True)),
        (ONE, TWO, None),
        (entry(1, "x"), entry(3, "y"), None),
    ],
    ids=["newer", "here", "newer of ours", "same files", "nothing", "odd versions"],
)
def test_of_two_entries_that_are_here_or_newer_counts(
    tmp_path: Path, ours: LockEntry, theirs: LockEntry, taken: LockEntry | None
) -> None:
    here = entry(2, "1.1")
    found = merged(tmp_path, {}, {"a": ours}, {"a": theirs}, style="", here=here)
    assert found is not None
    assert found.lock.skills.get("a") == taken
    assert found.unclear == (() if taken else ("a",))
    for side, wanted in {"ours": ours, "theirs": theirs}.items():
        forced = merged(tmp_path, {}, {"a": ours}, {"a": theirs}, here=here, side=side)
        assert forced is not None
        assert forced.lock.skills["a"] == (taken or wanted)


def test_what_one_side_alone_changed_counts_where_git_wrote_what_was_before(
    tmp_path: Path,
) -> None:
    before = {"a": ONE, "b": ONE, "c": ONE}
    found = merged(tmp_path, before, {"a": TWO, "b": ONE}, {"a": ONE, "b": THREE, "c": TWO})
    assert found is not None
    assert (dict(found.lock.skills), found.unclear) == ({"a": TWO, "b": THREE}, ("c",))


def test_the_marks_are_named_wherever_the_lock_is_read(tmp_path: Path) -> None:
    merged(tmp_path, {}, {"a": ONE}, {"b": TWO})
    path = tmp_path / "skills.lock"
    message = r"marks of a merge in line \d+: `skillhouse lock --merge` fixes it"
    with pytest.raises(StateError, match=message):
        read_lock(path)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    with pytest.raises(StateError, match=message):
        read_lock(path)
    assert merge_lock(path, lambda *_: False) is not None


def test_a_lock_without_marks_and_one_that_is_not_there_stay(tmp_path: Path) -> None:
    assert merge_lock(tmp_path / "skills.lock", lambda *_: False) is None
    write_lock(tmp_path / "skills.lock", Lock(skills={"a": ONE}))
    assert merge_lock(tmp_path / "skills.lock", lambda *_: False) is None


@pytest.mark.parametrize("text", ["<<<<<<< a\n{}\n=======\n", "<<<<<<< a\n{\n=======\n>>>>>>> b\n"])
def test_a_side_that_is_no_lock_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "skills.lock").write_text(text)
    with pytest.raises(StateError, match="a side of the merge is no lock"):
        merge_lock(tmp_path / "skills.lock", lambda *_: False)
