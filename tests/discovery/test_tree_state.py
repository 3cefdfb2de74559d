"""Tests of discovery/watcher.py: what a survey reads, and what it does not follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.discovery import watcher
from skillhouse.discovery.watcher import survey


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
