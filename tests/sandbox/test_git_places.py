"""Tests of sandbox/git_places.py, with repositories that git made."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse.sandbox import GitFinder, GitPlaces, find_git, with_submodules
from tests import repositories
from tests.harness import Need
from tests.repositories import git

pytestmark = pytest.mark.usefixtures("git")

Make = Callable[[Path], Path]


def places_at(workspace: Path) -> GitPlaces:
    return find_git(os.path.realpath(workspace))


def shown(places: GitPlaces, base: Path) -> dict[str, object]:
    """Return what differs from no repository, with paths relative to `base`."""
    top = os.path.realpath(base)
    values: dict[str, object] = {
        "top": places.top,
        "own": places.own,
        "directories": [
            (one.role.value, os.path.relpath(one.path, top)) for one in places.directories
        ],
        "separate": places.separate,
        "alternates": [os.path.relpath(path, top) for path in places.alternates],
        "problem": places.problem,
    }
    return {
        name: os.path.relpath(value, top) if isinstance(value, str) and name != "problem" else value
        for name, value in values.items()
        if value
    }


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (repositories.plain, {"own": "repo/.git"}),
        (
            repositories.linked,
            {
                "own": "repo/.git/worktrees/linked",
                "directories": [("common", "repo/.git"), ("linked", "repo/.git/worktrees/linked")],
            },
        ),
        (
            repositories.linked_by_relative_paths,
            {
                "own": "repo/.git/worktrees/linked",
                "directories": [("common", "repo/.git"), ("linked", "repo/.git/worktrees/linked")],
            },
        ),
        (
            repositories.below_agents_directory,
            {
                "own": "repo/.git/worktrees/one",
                "directories": [("common", "repo/.git"), ("linked", "repo/.git/worktrees/one")],
            },
        ),
        (
            repositories.in_bare_repository,
            {
                "own": "bare.git/worktrees/linked",
                "directories": [("common", "bare.git"), ("linked", "bare.git/worktrees/linked")],
            },
        ),
        (
            repositories.submodule,
            {
                "own": "outer/.git/modules/sub",
                "directories": [("whole", "outer/.git/modules/sub")],
            },
        ),
        (
            repositories.separate,
            {"own": "apart.git", "directories": [("whole", "apart.git")], "separate": "apart.git"},
        ),
        (repositories.shared, {"own": "shared/.git", "alternates": ["repo/.git/objects"]}),
        (
            repositories.part,
            {"own": "repo/.git", "top": "repo", "directories": [("whole", "repo/.git")]},
        ),
        (
            repositories.part_of_linked,
            {
                "own": "repo/.git/worktrees/linked",
                "top": "linked",
                "directories": [("common", "repo/.git"), ("linked", "repo/.git/worktrees/linked")],
            },
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_git_directories_are_found_as_git_finds_them(
    tmp_path: Path, make: Make, expected: dict[str, object]
) -> None:
    assert shown(places_at(make(tmp_path)), tmp_path) == expected


def test_a_submodule_in_the_workspace_is_used_with_its_repository(tmp_path: Path) -> None:
    outer = repositories.with_submodule(tmp_path)
    found = with_submodules(places_at(outer), ["sub", "none"])
    assert shown(found, tmp_path) == {
        "own": "outer/.git",
        "directories": [("whole", "outer/.git/modules/sub")],
    }


def test_a_file_in_the_workspace_that_names_anothers_submodule_is_not_used(tmp_path: Path) -> None:
    outer = repositories.with_submodule(tmp_path)
    shutil.copytree(outer / "sub", outer / "copy")
    assert with_submodules(places_at(outer), ["copy"]).directories == ()


def names_a_repository(place: Path, other: Path) -> None:
    place.joinpath(".git").write_text(f"gitdir: {other}/.git\n", encoding="utf-8")


def names_a_linked_work_tree(place: Path, other: Path) -> None:
    git(other, "worktree", "add", "-q", "../honest", "-b", "honest")
    place.joinpath(".git").write_text(f"gitdir: {other}/.git/worktrees/honest\n", encoding="utf-8")


def names_a_submodule(place: Path, other: Path) -> None:
    base = other.parent / "second"
    base.mkdir()
    outer = repositories.with_submodule(base)
    place.joinpath(".git").write_text(f"gitdir: {outer}/.git/modules/sub\n", encoding="utf-8")


def is_a_link(place: Path, other: Path) -> None:
    place.joinpath(".git").symlink_to(other / ".git")


@pytest.mark.parametrize(
    ("forge", "asked"),
    [
        (names_a_repository, True),
        (names_a_linked_work_tree, False),
        (names_a_submodule, False),
        (is_a_link, True),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_git_file_of_an_archive_is_asked_about_or_refused(
    tmp_path: Path, forge: Callable[[Path, Path], None], asked: bool
) -> None:
    other = repositories.plain(tmp_path)
    place = tmp_path / "archive"
    place.mkdir()
    forge(place, other)
    found = places_at(place)
    if asked:
        assert found.separate == os.path.realpath(other / ".git")
    else:
        assert "nothing there leads back" in found.problem
        assert found.directories == ()


def test_a_repository_of_another_user_is_not_used(tmp_path: Path, need: Need) -> None:
    need(os.geteuid() == 0, "only the superuser gives files away")
    place = repositories.linked(tmp_path)
    for part in ("repo/.git", "repo/.git/worktrees/linked", "linked/.git"):
        os.chown(tmp_path / part, 4_242, -1)
        assert "not all of one owner" in places_at(place).problem, part
        os.chown(tmp_path / part, 0, -1)
    assert places_at(place).problem == ""


def test_objects_are_followed_from_repository_to_repository(tmp_path: Path) -> None:
    place = repositories.shared(tmp_path)
    git(place, "clone", "-q", "--shared", ".", "../third")
    expected = ["shared/.git/objects", "repo/.git/objects"]
    assert shown(places_at(tmp_path / "third"), tmp_path)["alternates"] == expected


def test_what_is_no_repository_has_no_places(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "work/.git").write_text("gitdir: /nonexistent\n", encoding="utf-8")
    assert shown(places_at(tmp_path / "work"), tmp_path) == {}


def rewritten(file: Path, text: str) -> None:
    """Write a file in its place, with the size and times that it had, as an attacker would."""
    info = file.stat()
    file.write_text(text.ljust(info.st_size)[: max(len(text), info.st_size)])
    os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))


def linked_to_another(place: Path, base: Path) -> None:
    other = repositories.linked(base / "other")
    named = (other / ".git").read_text()
    rewritten(place / ".git", named)


def without_a_head(place: Path, base: Path) -> None:
    own = Path((place / ".git").read_text().removeprefix("gitdir: ").strip())
    (own / "HEAD").rename(own / "gone")


def with_another_way_back(place: Path, base: Path) -> None:
    own = Path((place / ".git").read_text().removeprefix("gitdir: ").strip())
    rewritten(own / "gitdir", f"{base}/elsewhere/.git\n")


def with_another_common(place: Path, base: Path) -> None:
    own = Path((place / ".git").read_text().removeprefix("gitdir: ").strip())
    rewritten(own / "commondir", "../..//")
    (own / "commondir").write_text("../../..\n")


def with_borrowed_objects(place: Path, base: Path) -> None:
    own = Path((place / ".git").read_text().removeprefix("gitdir: ").strip())
    lender = base / "lender" / "objects"
    lender.mkdir(parents=True)
    (own.parents[1] / "objects/info/alternates").write_text(f"{lender}\n")


def with_its_repository_swapped(place: Path, base: Path) -> None:
    own = Path((place / ".git").read_text().removeprefix("gitdir: ").strip())
    common = own.parents[1]
    moved = common.with_name("moved.git")
    common.rename(moved)
    common.symlink_to(moved)


def without_its_pointer(place: Path, base: Path) -> None:
    (place / ".git").unlink()


def with_a_repository_of_its_own(place: Path, base: Path) -> None:
    (place / ".git").unlink()
    git(place, "init", "-q")


@pytest.mark.parametrize(
    "change",
    [
        linked_to_another,
        without_a_head,
        with_another_way_back,
        with_another_common,
        with_borrowed_objects,
        with_its_repository_swapped,
        without_its_pointer,
        with_a_repository_of_its_own,
    ],
)
def test_a_kept_find_never_outlives_what_it_went_by_whatever_the_times_say(
    tmp_path: Path, change: Callable[[Path, Path], None]
) -> None:
    place = repositories.linked(tmp_path / "here")
    workspace, finder = os.path.realpath(place), GitFinder()
    before = finder.find(workspace)
    assert finder.find(workspace) is before
    change(place, tmp_path)
    after = finder.find(workspace)
    assert after != before
    assert after == find_git(workspace)
    assert finder.find(workspace) is after


def test_a_kept_find_notices_a_repository_that_is_made_above(tmp_path: Path) -> None:
    place = tmp_path / "a" / "b"
    place.mkdir(parents=True)
    workspace, finder = os.path.realpath(place), GitFinder()
    assert finder.find(workspace).own == ""
    git(tmp_path, "init", "-q")
    assert finder.find(workspace) == find_git(workspace)
    assert finder.find(workspace).top == os.path.realpath(tmp_path)


def test_a_kept_find_notices_another_owner(tmp_path: Path, need: Need) -> None:
    need(os.geteuid() == 0, "not the superuser")
    place = repositories.linked(tmp_path / "here")
    workspace, finder = os.path.realpath(place), GitFinder()
    assert finder.find(workspace).problem == ""
    os.chown(place / ".git", 1234, 1234)
    assert "not all of one owner" in finder.find(workspace).problem
