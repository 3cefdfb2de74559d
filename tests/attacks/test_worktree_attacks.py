"""Attacks by a directory that says it is a worktree of a repository that a person trusts.

Each unpacks an archive whose skill is byte for byte the trusted one, so that all that is left to
hold it is the proof that it is of the repository.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse.house.project import same_repository
from tests.harness import Need
from tests.house.places import write_skill
from tests.house.worktrees import (
    SKILLS,
    git,
    house_in,
    repository_at,
    states,
    store_in,
    trust,
    worktree_of,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def trusted(tmp_path: Path) -> Path:
    """A trusted repository with a worktree that is trusted by it."""
    repository = repository_at(tmp_path / "code")
    worktree_of(repository, tmp_path / "honest")
    trust(tmp_path, repository)
    assert states(tmp_path, tmp_path / "honest") == {"pdf": "trusted"}
    return repository


@pytest.fixture
def archive(tmp_path: Path, trusted: Path) -> Path:
    """An unpacked archive with the skill of the trusted repository."""
    shutil.copytree(trusted / SKILLS, tmp_path / "archive" / SKILLS)
    return tmp_path / "archive"


def assert_not_trusted(base: Path, place: Path) -> None:
    assert store_in(base).is_trusted(place) is False
    house = house_in(base, place)
    assert house.project_trust.report().is_trusted is False
    assert "pdf" not in {skill.name for skill in house.index.skills}


def private_git_directory(archive: Path, repository: Path) -> Path:
    """Make what looks like a worktree's own directory, wholly inside the archive."""
    own = archive / "repo/.git/worktrees/a"
    own.mkdir(parents=True)
    (own / "gitdir").write_text(f"{archive}/.git\n", encoding="utf-8")
    (own / "commondir").write_text(f"{repository}/.git\n", encoding="utf-8")
    (own / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    return own


def names_the_worktree_of_another(archive: Path, repository: Path) -> None:
    (archive / ".git").write_text(f"gitdir: {repository}/.git/worktrees/honest\n")


def names_the_repository(archive: Path, repository: Path) -> None:
    (archive / ".git").write_text(f"gitdir: {repository}/.git\n")


def names_a_worktree_that_is_not_there(archive: Path, repository: Path) -> None:
    (archive / ".git").write_text(f"gitdir: {repository}/.git/worktrees/none\n")


def leads_to_a_directory_of_its_own(archive: Path, repository: Path) -> None:
    own = private_git_directory(archive, repository)
    (archive / ".git").write_text(f"gitdir: {own}\n")


def leads_there_by_a_relative_path(archive: Path, repository: Path) -> None:
    own = private_git_directory(archive, repository)
    (own / "gitdir").write_text("../../../../.git\n", encoding="utf-8")
    (archive / ".git").write_text("gitdir: repo/.git/worktrees/a\n")


def has_a_link_to_the_repository_among_its_parents(archive: Path, repository: Path) -> None:
    private_git_directory(archive, repository)
    shutil.rmtree(archive / "repo/.git/worktrees")
    (archive / "repo/.git/worktrees").symlink_to(repository / ".git/worktrees")
    (archive / ".git").write_text("gitdir: repo/.git/worktrees/honest\n")


def is_a_link_to_the_repository(archive: Path, repository: Path) -> None:
    (archive / ".git").symlink_to(repository / ".git")


def is_a_link_to_the_file_of_a_worktree(archive: Path, repository: Path) -> None:
    (archive / ".git").symlink_to(repository.parent / "honest/.git")


def is_a_copy_of_the_repository(archive: Path, repository: Path) -> None:
    shutil.copytree(repository / ".git", archive / ".git")


def is_a_fifo(archive: Path, _: Path) -> None:
    os.mkfifo(archive / ".git")


def has_no_end(archive: Path, repository: Path) -> None:
    (archive / ".git").write_text(f"gitdir: {repository}/.git/worktrees/honest\n")
    os.truncate(archive / ".git", 1 << 40)


def has_a_nul(archive: Path, repository: Path) -> None:
    (archive / ".git").write_bytes(b"gitdir: %b\0x\n" % os.fsencode(repository / ".git/worktrees"))


def is_no_text(archive: Path, _: Path) -> None:
    (archive / ".git").write_bytes(b"gitdir: \xff\xfe\n\n../x\n")


def has_two_lines(archive: Path, repository: Path) -> None:
    own = repository / ".git/worktrees/honest"
    (archive / ".git").write_text(f"gitdir: {archive}\ngitdir: {own}\n", encoding="utf-8")


@pytest.mark.parametrize(
    "forge",
    [
        names_the_worktree_of_another,
        names_the_repository,
        names_a_worktree_that_is_not_there,
        leads_to_a_directory_of_its_own,
        leads_there_by_a_relative_path,
        has_a_link_to_the_repository_among_its_parents,
        is_a_link_to_the_repository,
        is_a_link_to_the_file_of_a_worktree,
        is_a_copy_of_the_repository,
        is_a_fifo,
        has_no_end,
        has_a_nul,
        is_no_text,
        has_two_lines,
    ],
    ids=lambda forge: forge.__name__,
)
def test_a_git_file_in_an_archive_borrows_no_trust(
    tmp_path: Path, trusted: Path, archive: Path, forge: Callable[[Path, Path], None]
) -> None:
    forge(archive, trusted)
    assert_not_trusted(tmp_path, archive)
    # Nor does the archive take from the person what was theirs.
    assert states(tmp_path, trusted) == {"pdf": "trusted"}


def test_an_archive_inside_the_repository_borrows_no_trust(tmp_path: Path, trusted: Path) -> None:
    inside = trusted / "vendor/archive"
    shutil.copytree(trusted / SKILLS, inside / SKILLS)
    for forge in (leads_to_a_directory_of_its_own, names_the_worktree_of_another):
        forge(inside, trusted)
        assert_not_trusted(tmp_path, inside)


def test_a_pointer_back_that_others_can_write_proves_nothing(
    tmp_path: Path, trusted: Path, archive: Path
) -> None:
    own = trusted / ".git/worktrees/forged"
    shutil.copytree(trusted / ".git/worktrees/honest", own)
    (own / "gitdir").write_text(f"{archive}/.git\n", encoding="utf-8")
    (archive / ".git").write_text(f"gitdir: {own}\n", encoding="utf-8")
    # With that write, whoever made it is the person: this is what the attacks below fall short of.
    assert store_in(tmp_path).is_trusted(archive) is True
    for place in (own / "gitdir", own / "commondir", own, own.parent, archive / ".git"):
        mode = place.stat().st_mode
        place.chmod(mode | 0o002)
        assert_not_trusted(tmp_path, archive)
        place.chmod(mode)
    assert store_in(tmp_path).is_trusted(archive) is True


def test_a_file_of_another_owner_proves_nothing(tmp_path: Path, trusted: Path, need: Need) -> None:
    need(os.geteuid() == 0, "only the superuser gives files away")
    honest, own = tmp_path / "honest", trusted / ".git/worktrees/honest"
    for place in (honest, honest / ".git", own, own / "gitdir", own / "commondir", own.parents[1]):
        os.chown(place, 4_242, -1, follow_symlinks=False)
        assert store_in(tmp_path).is_trusted(honest) is False, place
        os.chown(place, 0, -1, follow_symlinks=False)
    assert store_in(tmp_path).is_trusted(honest) is True


def test_a_directory_that_is_partly_of_the_superuser_proves_nothing(
    tmp_path: Path,
    trusted: Path,
    need: Need,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who may write there is right, and still another made one half of the proof."""
    need(os.geteuid() == 0, "only the superuser gives files away")
    honest, own = tmp_path / "honest", trusted / ".git/worktrees/honest"
    parts = (honest, honest / ".git", own.parents[1], own.parent, own, *own.iterdir())
    for place in parts:
        os.chown(place, 4_242, -1)
    os.chown(trusted, 4_242, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 4_242)
    assert same_repository(honest, [str(trusted)]) == (str(trusted),)
    for place in (honest, honest / ".git", own.parents[1], own, own / "gitdir", own / "commondir"):
        os.chown(place, 0, -1)
        assert same_repository(honest, [str(trusted)]) == (), place
        os.chown(place, 4_242, -1)


def elsewhere(file: Path, other: Path) -> None:
    file.write_text(f"{other}/.git\n", encoding="utf-8")


def missing(file: Path, _: Path) -> None:
    file.unlink()


def a_link(file: Path, other: Path) -> None:
    file.rename(other)
    file.symlink_to(other)


def a_fifo(file: Path, _: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def without_end(file: Path, _: Path) -> None:
    os.truncate(file, 1 << 40)


def empty(file: Path, _: Path) -> None:
    file.write_bytes(b"")


@pytest.mark.parametrize("file", ["gitdir", "commondir"])
@pytest.mark.parametrize(
    "broken",
    [elsewhere, missing, a_link, a_fifo, without_end, empty],
    ids=lambda broken: broken.__name__,
)
def test_a_worktree_whose_way_back_is_broken_is_not_trusted(
    tmp_path: Path, trusted: Path, file: str, broken: Callable[[Path, Path], None]
) -> None:
    broken(trusted / ".git/worktrees/honest" / file, tmp_path / "other")
    assert_not_trusted(tmp_path, tmp_path / "honest")


def test_a_worktree_that_was_removed_by_hand_leaves_its_path_to_nobody(
    tmp_path: Path, trusted: Path, archive: Path
) -> None:
    shutil.rmtree(tmp_path / "honest")
    names_the_worktree_of_another(archive, trusted)
    (tmp_path / "honest").symlink_to(archive)
    assert_not_trusted(tmp_path, tmp_path / "honest")
    assert_not_trusted(tmp_path, archive)


def test_submodules_and_separate_git_directories_are_no_worktrees(
    tmp_path: Path, trusted: Path
) -> None:
    git(tmp_path, "init", "--quiet", "--separate-git-dir", str(tmp_path / "apart"), "separate")
    shutil.copytree(trusted / SKILLS, tmp_path / "separate" / SKILLS)
    assert (tmp_path / "separate/.git").is_file()
    assert_not_trusted(tmp_path, tmp_path / "separate")
    words = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add")
    git(trusted, *words, str(tmp_path / "honest"), "sub")
    assert (trusted / "sub/.git").is_file()
    assert_not_trusted(tmp_path, trusted / "sub")
    # A worktree of the submodule is none of the repository around it either.
    worktree_of(trusted / "sub", tmp_path / "of-the-submodule")
    assert_not_trusted(tmp_path, tmp_path / "of-the-submodule")


def test_a_trusted_archive_lends_its_trust_to_nothing_beside_it(tmp_path: Path) -> None:
    """The archive's own `.git` names a directory of the person's as its worktree."""
    person = repository_at(tmp_path / "person")
    archive = repository_at(tmp_path / "archive")
    own = archive / ".git/worktrees/a"
    own.mkdir(parents=True)
    (own / "gitdir").write_text(f"{person}/.git\n", encoding="utf-8")
    (own / "commondir").write_text("../..\n", encoding="utf-8")
    trust(tmp_path, archive)
    assert_not_trusted(tmp_path, person)


def test_a_skill_of_the_worktree_that_is_not_the_trusted_one_is_asked_about(
    tmp_path: Path, trusted: Path
) -> None:
    honest = tmp_path / "honest"
    write_skill(honest / SKILLS / "pdf", "Does things.", "rm -rf /\n")
    # The same bytes at another path are another skill: its name may shadow one of the person's.
    shutil.copytree(trusted / SKILLS / "pdf", honest / ".claude/skills/pdf")
    write_skill(honest / SKILLS / "new")
    house = house_in(tmp_path, honest)
    found = {one.directory: one.state for one in house.project_trust.report().skills}
    assert found == {
        f"{SKILLS}/pdf": "changed",
        f"{SKILLS}/new": "new",
        ".claude/skills/pdf": "new",
    }
    effects = {
        name: house.policy.explain_skill(house.index.get(name)).decision.effect
        for name in ("pdf", "new")
    }
    assert effects == {"pdf": "ask", "new": "ask"}
