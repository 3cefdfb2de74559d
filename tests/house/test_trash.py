"""Tests of house/trash.py."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from skillhouse.floor import SkillError
from skillhouse.house.trash import RECORD, Trash
from tests.house.places import write_skill


def test_the_latest_of_a_name_comes_back(tmp_path: Path) -> None:
    trash = Trash(tmp_path / "trash")
    for text in ("First.", "Second."):
        trash.put(write_skill(tmp_path / "notes", description=text), "user:notes", enabled=True)
    assert trash.restore(trash.find("notes")) == tmp_path / "notes"
    assert "Second." in (tmp_path / "notes/SKILL.md").read_text()
    assert [found.id for found in trash.deleted()] == ["user:notes"]
    with pytest.raises(SkillError, match="something is there again"):
        trash.restore(trash.find())


def test_a_trash_on_another_file_system_copies_links_as_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write_skill(tmp_path / "notes")
    (directory / "link").symlink_to("/etc/passwd")
    rename = os.rename

    def other_device(source: Path, target: Path) -> None:
        if Path(source).parent != Path(target).parent:
            raise OSError(18, "Invalid cross-device link")
        rename(source, target)

    monkeypatch.setattr(os, "rename", other_device)
    trash = Trash(tmp_path / "trash")
    found = trash.put(directory, "user:notes", enabled=True)
    assert not directory.exists()
    trash.restore(found)
    assert os.readlink(directory / "link") == "/etc/passwd"
    assert trash.deleted() == ()


def test_what_has_no_usable_record_is_left_out(tmp_path: Path) -> None:
    trash = Trash(tmp_path / "trash")
    assert trash.deleted() == ()
    found = trash.put(write_skill(tmp_path / "notes"), "user:notes", enabled=True)
    (tmp_path / "trash" / found.key / RECORD).write_bytes(b"\xc1")
    (tmp_path / "trash/empty").mkdir()
    assert trash.deleted() == ()


def test_a_skill_that_cannot_be_moved_stays(tmp_path: Path) -> None:
    trash = Trash(tmp_path / "trash")
    with pytest.raises(OSError, match="No such file"):
        trash.put(tmp_path / "missing", "user:missing", enabled=True)
    assert list((tmp_path / "trash").iterdir()) == []


def test_what_was_deleted_long_enough_ago_is_removed_for_good(tmp_path: Path) -> None:
    days = iter((1, 2, 20))
    trash = Trash(tmp_path / "trash", now=lambda: datetime(2026, 1, next(days), tzinfo=UTC))
    for name in ("old", "new"):
        trash.put(write_skill(tmp_path / name), f"user:{name}", enabled=True)
    chosen = trash.chosen(days=19)
    assert [found.id for found in chosen] == ["user:old"]
    trash.empty(chosen)
    assert [found.id for found in trash.deleted()] == ["user:new"]


def test_a_removal_that_was_cut_off_offers_no_half_skill_and_is_finished_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trash = Trash(tmp_path / "trash")
    trash.put(write_skill(tmp_path / "notes"), "user:notes", enabled=True)

    def stop(path: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", stop)
        with pytest.raises(KeyboardInterrupt):
            trash.empty(trash.chosen())
    assert trash.deleted() == ()
    assert len(list((tmp_path / "trash").iterdir())) == 1
    trash.empty(())
    assert list((tmp_path / "trash").iterdir()) == []
