"""Tests of sandbox/covers.py: what is found below the top, and where looking ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.floor import PROTECTED_NAMES
from skillhouse.sandbox import survey
from skillhouse.sandbox.covers import PATHS_MAX, covered_paths


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
        ("a/b", ".env", True),
        ("a/b", ".ssh", True),
        ("a/b", ".vscode", False),
        ("a/module", ".git", False),
    ]


def test_the_nearest_are_found_where_there_are_too_many(tmp_path: Path) -> None:
    make(tmp_path, *(f"r{n:03}/.git" for n in range(PATHS_MAX)), "a/b/c/.git")
    found = covered_paths(str(tmp_path), PROTECTED_NAMES)
    assert (len(found.paths), found.is_all) == (PATHS_MAX, False)
    assert {place for place, _, _ in found.paths} == {f"r{n:03}" for n in range(PATHS_MAX // 4)}
    assert found.left == PATHS_MAX * 3 + 4


def test_looking_ends_in_a_large_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "DIRECTORIES_MAX", 20)
    make(tmp_path, *(f"d{n:04}" for n in range(25)), "d0001/.git", "d0024/.git")
    found = covered_paths(str(tmp_path), PROTECTED_NAMES)
    assert found.left == 6
    assert {place for place, _, _ in found.paths} == {"d0001"}
    exactly = tmp_path / "exactly"
    make(exactly, *(f"d{n:04}" for n in range(19)))
    assert covered_paths(str(exactly), PROTECTED_NAMES).is_all


def test_a_workspace_that_is_closed_or_gone_has_nothing(tmp_path: Path) -> None:
    assert covered_paths(str(tmp_path / "gone"), PROTECTED_NAMES).paths == []
