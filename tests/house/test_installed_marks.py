"""Tests of house/installed_check.py: files are read where their marks differ, and only there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillhouse.floor import tree_digest
from skillhouse.house.installed_check import MARKS_FILE, InstalledMarks, Judgement
from skillhouse.registry import LockEntry

LATER = 4_000_000_000_000_000_000
"""A moment at which every file is old."""
DAY = 86_400_000_000_000


class Scene:
    """One installed skill, and how often its files were read."""

    def __init__(self, place: Path) -> None:
        self.base = place / "home"
        self.skill = self.base / "skills/notes"
        self.skill.mkdir(parents=True)
        (self.skill / "SKILL.md").write_text("Body.")
        self.trusted = place / "trusted"
        self.cache: Path | None = place / "cache"
        self.reads = 0
        self.now = LATER
        self.entry = LockEntry(tree_digest=tree_digest(self.skill), repository="x", resolved="x")

    def state(self) -> str:
        def judge(directory: Path, entry: LockEntry) -> Judgement:
            self.reads += 1
            is_same = tree_digest(directory) == entry.tree_digest
            return Judgement("ok") if is_same else Judgement("edited", "others")

        # Another process each time.
        marks = InstalledMarks(
            judge,
            lambda _: {"skills/notes": self.entry},
            {"user": self.base},
            trusted=self.trusted,
            cache=self.cache,
            clock=lambda: self.now,
        )
        [found] = marks.of(["user", "unknown"])
        return found.state


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_what_is_known_is_not_read_again(scene: Scene) -> None:
    assert [scene.state() for _ in range(3)] == ["ok"] * 3
    assert scene.reads == 1


def test_a_change_that_hides_its_time_is_seen(scene: Scene) -> None:
    file = scene.skill / "SKILL.md"
    before = file.stat()
    assert scene.state() == "ok"
    file.write_text("Evil.")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [scene.state() for _ in range(2)] == ["edited"] * 2
    assert scene.reads == 2


def test_a_file_that_just_changed_is_read_each_time(scene: Scene) -> None:
    scene.now = max(one.stat().st_ctime_ns for one in scene.skill.rglob("*"))
    assert [scene.state() for _ in range(2)] == ["ok"] * 2
    assert scene.reads == 2


def test_signatures_are_judged_again_each_day_and_when_trust_changes(scene: Scene) -> None:
    scene.state()
    scene.now += DAY
    scene.state()
    assert scene.reads == 2
    scene.trusted.mkdir()
    (scene.trusted / "root.crt").write_text("x")
    scene.state()
    scene.state()
    assert scene.reads == 3


@pytest.mark.parametrize("data", [b"", b"[]", b'{"x": 1}', b"\xff" * 100, None])
def test_a_broken_cache_only_means_more_reading(scene: Scene, data: bytes | None) -> None:
    assert scene.cache is not None
    scene.state()
    file = scene.cache / MARKS_FILE
    if data is None:
        file.unlink()
        file.mkdir()
    else:
        file.write_bytes(data)
    assert scene.state() == "ok"
    assert scene.reads == 2


def test_without_a_cache_everything_is_read(scene: Scene) -> None:
    scene.cache = None
    assert [scene.state() for _ in range(2)] == ["ok"] * 2
    assert scene.reads == 2


@pytest.mark.parametrize("path", ["../out", "/etc", "skills/gone", "skills/link"])
def test_a_directory_outside_is_missing_and_never_read(scene: Scene, path: str) -> None:
    (scene.skill.parent / "link").symlink_to("/etc")
    (scene.base.parent / "out").mkdir()
    marks = InstalledMarks(
        lambda *_: pytest.fail("it was read"),
        lambda _: {path: scene.entry},
        {"user": scene.base},
        trusted=scene.trusted,
        cache=None,
    )
    [found] = marks.of(["user"])
    assert (found.state, found.is_well) == ("missing", False)
