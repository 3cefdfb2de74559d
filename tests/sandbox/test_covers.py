"""Tests of sandbox/covers.py: what is found, where looking ends, and what is read again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from skillhouse.floor import PROTECTED_NAMES, PersistentPaths
from skillhouse.sandbox import covers
from skillhouse.sandbox.covers import PATHS_MAX, CoverCache, covered_paths
from skillhouse.sandbox.persistence import PersistentFileScan
from skillhouse.sandbox.profile import OpenedProtection, SurveyEntry, SurveyHit


def make(base: Path, *paths: str) -> None:
    for path in paths:
        (base / path).mkdir(parents=True)


def test_what_lies_deeper_is_found_and_what_lies_in_it_is_not_looked_at(tmp_path: Path) -> None:
    make(tmp_path, ".git/modules/m/.git", "a/.git/hooks", "a/b/.ssh/.git", "a/b/.vscode")
    (tmp_path / "a/b/.env").touch()
    (tmp_path / "a/module").mkdir()
    (tmp_path / "a/module/.git").write_text("gitdir: elsewhere\n")
    (tmp_path / "link").symlink_to("a")
    found = covered_paths(str(tmp_path), PROTECTED_NAMES)
    assert found.is_all
    assert found.paths == [
        ("a", ".git/hooks", False),
        ("a", ".git/config", False),
        ("a", ".git/modules", False),
        ("a", ".git/worktrees", False),
        ("a", ".git/commondir", False),
        ("a/b", ".env", True),
        ("a/b", ".ssh", True),
        ("a/b", ".vscode", False),
        ("a/module", ".git", False),
    ]


@pytest.mark.slow
def test_the_nearest_are_found_where_there_are_too_many(tmp_path: Path) -> None:
    make(tmp_path, *(f"r{n:03}/.git" for n in range(PATHS_MAX)), "a/b/c/.git")
    found = covered_paths(str(tmp_path), PROTECTED_NAMES)
    assert (len(found.paths), found.is_all) == (PATHS_MAX, False)
    assert {place for place, _, _ in found.paths} == {f"r{n:03}" for n in range(PATHS_MAX // 5)}
    assert found.left == PATHS_MAX * 4 + 5


def test_looking_ends_in_a_large_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covers, "DIRECTORIES_MAX", 20)
    make(tmp_path, *(f"d{n:04}" for n in range(25)), "d0001/.git", "d0024/.git")
    found = covered_paths(str(tmp_path), PROTECTED_NAMES)
    assert found.left == 6
    assert {place for place, _, _ in found.paths} == {"d0001"}
    exactly = tmp_path / "exactly"
    make(exactly, *(f"d{n:04}" for n in range(19)))
    assert covered_paths(str(exactly), PROTECTED_NAMES).is_all


def test_a_workspace_that_is_closed_or_gone_has_nothing(tmp_path: Path) -> None:
    assert covered_paths(str(tmp_path / "gone"), PROTECTED_NAMES).paths == []


def wanted(place: str, entry: SurveyEntry) -> SurveyHit | None:
    return SurveyHit(entry.name, ("wanted",), is_closed=False) if entry.name == "x" else None


def found(cover_cache: CoverCache, root: Path) -> list[str]:
    return [place for place, _ in cover_cache.walk(str(root), wanted, "wanted")]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the directories that are read, as they are read; every clock is far ahead."""
    seen: list[str] = []
    scandir = os.scandir

    def noted(path: str) -> Any:
        seen.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", noted)
    monkeypatch.setattr(covers, "is_settled", lambda *_: True)
    return seen


def test_only_what_changed_is_read_again(tmp_path: Path, reads: list[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "y").touch()
    cover_cache = CoverCache()
    assert found(cover_cache, tmp_path) == []
    assert len(reads) == 3
    reads.clear()
    assert found(cover_cache, tmp_path) == []
    assert reads == []
    (tmp_path / "a/x").touch()
    assert found(cover_cache, tmp_path) == ["a"]
    assert reads == [f"{tmp_path}/a"]


def test_a_directory_that_was_replaced_is_read_again(tmp_path: Path, reads: list[str]) -> None:
    for name in ("a", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "other/x").touch()
    cover_cache = CoverCache()
    assert found(cover_cache, tmp_path) == ["other"]
    (tmp_path / "a").rmdir()
    (tmp_path / "other").rename(tmp_path / "a")
    # A time can be set back, the inode and the change time cannot.
    os.utime(tmp_path / "a", ns=(0, 0))
    assert found(cover_cache, tmp_path) == ["a"]


def test_what_may_change_within_the_same_tick_is_not_kept(tmp_path: Path) -> None:
    cover_cache = CoverCache()
    for _ in range(20):
        assert found(cover_cache, tmp_path) == []
        (tmp_path / "x").touch()
        assert found(cover_cache, tmp_path) == [""]
        (tmp_path / "x").unlink()


def test_another_question_is_asked_of_every_directory(tmp_path: Path, reads: list[str]) -> None:
    (tmp_path / "x").touch()
    cover_cache = CoverCache()
    assert found(cover_cache, tmp_path) == [""]
    assert cover_cache.walk(str(tmp_path), lambda place, entry: None, "nothing") == []
    assert len(reads) == 1


def test_other_names_of_a_file_are_known(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "x").touch()
    os.link(tmp_path / "x", tmp_path / "a/y")
    cover_cache = CoverCache()
    found(cover_cache, tmp_path)
    inode = (tmp_path / "x").stat().st_ino
    assert list(cover_cache.names_of(frozenset({inode}))) == ["x", "a/y"]


def persistent_scan(root: Path, cover_cache: CoverCache) -> PersistentFileScan:
    known = covered_paths(str(root), PROTECTED_NAMES, cover_cache=cover_cache).directories
    scan = PersistentFileScan(str(root), PersistentPaths(), OpenedProtection(), known)
    scan.take()
    return scan


def test_what_acts_later_is_looked_for_in_the_same_walk(tmp_path: Path, reads: list[str]) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/AGENTS.md").touch()
    cover_cache = CoverCache()
    assert persistent_scan(tmp_path, cover_cache).covered == [f"{tmp_path}/a/AGENTS.md"]
    assert len(reads) == 3
    reads.clear()
    again = persistent_scan(tmp_path, cover_cache)
    assert (again.covered, reads) == ([f"{tmp_path}/a/AGENTS.md"], [])
    (tmp_path / "a/b/CLAUDE.md").touch()
    again.check()
    assert not (tmp_path / "a/b/CLAUDE.md").exists()
    assert (tmp_path / "a/b/CLAUDE.md.withheld").exists()
    assert reads == [f"{tmp_path}/a/b"]
    (tmp_path / "a/b/CLAUDE.md").touch()
    assert f"{tmp_path}/a/b/CLAUDE.md" in persistent_scan(tmp_path, cover_cache).covered
