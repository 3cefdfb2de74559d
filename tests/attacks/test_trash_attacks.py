"""Attacks by a skill or a project on what a person deletes and puts back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillhouse.floor import SkillError
from skillhouse.house import Skillhouse, configured
from skillhouse.house.trash import Trash
from tests.house.places import make_places, write_skill


def test_a_project_whose_folder_of_skills_is_a_link_cannot_have_others_skills_deleted(
    tmp_path: Path,
) -> None:
    places = make_places(tmp_path)
    own = write_skill(tmp_path / "elsewhere/notes")
    (places.start / ".agents").mkdir(parents=True)
    (places.start / ".agents/skills").symlink_to(own.parent)
    with Skillhouse(configured(places)) as house:
        with pytest.raises(SkillError) as caught:
            house.management.delete("project:notes", scopes=("user", "project"))
        assert caught.value.code == "not-deletable"
    assert own.is_dir()


def test_a_project_that_becomes_a_link_gets_no_skill_into_the_users_folder(tmp_path: Path) -> None:
    """A skill of a project is asked about; in the folder of the user it would be allowed."""
    users = tmp_path / "home/.agents/skills"
    users.mkdir(parents=True)
    root = tmp_path / "project/.agents/skills"
    trash = Trash(tmp_path / "trash")
    found = trash.put(write_skill(root / "notes"), "project:notes", enabled=True)
    root.rmdir()
    root.symlink_to(users)
    with pytest.raises(SkillError) as caught:
        trash.restore(found)
    assert caught.value.code == "moved"
    assert list(users.iterdir()) == []
    assert trash.deleted() == (found,)


def test_a_skill_full_of_links_and_locked_directories_is_removed_and_nothing_else(
    tmp_path: Path,
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("mine")
    directory = write_skill(tmp_path / "notes")
    (directory / "link").symlink_to(outside)
    (directory / "file-link").symlink_to(outside / "kept")
    (directory / "locked/inner").mkdir(parents=True)
    (directory / "locked/inner/file").write_text("x")
    for path in (directory / "locked/inner", directory / "locked"):
        path.chmod(0o000)
    before = os.stat(outside).st_mode
    trash = Trash(tmp_path / "trash")
    trash.put(directory, "user:notes", enabled=True)
    trash.empty(trash.chosen())
    assert list((tmp_path / "trash").iterdir()) == []
    assert (outside / "kept").read_text() == "mine"
    assert os.stat(outside).st_mode == before
