"""Tests of discovery/roots.py."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from skillhouse.discovery import Root, default_roots, git_root, project_roots
from skillhouse.skill import DEFAULT_PROFILE, Profile

PLACES = (".skillhouse/skills", ".agents/skills", ".claude/skills")


def roots_of(
    start: Path,
    home: Path,
    *,
    environment: Mapping[str, str] | None = None,
    profile: Profile = DEFAULT_PROFILE,
    explicit: Sequence[Path] = (),
    builtin: Path | None = None,
) -> list[tuple[str, str]]:
    """Return the roots as (scope, path), paths below the parent of `home` relative to it."""
    found = default_roots(
        start=start,
        home=home,
        environment=environment or {},
        profile=profile,
        explicit=explicit,
        builtin=builtin,
    )
    return [(root.scope, os.path.relpath(root.path, home.parent)) for root in found]


def repository(base: Path, below: str = "") -> Path:
    """Make a git repository and return a directory in it."""
    (base / "work" / ".git").mkdir(parents=True)
    (base / "work" / below).mkdir(parents=True, exist_ok=True)
    return base / "work" / below


@pytest.mark.req("S001-8", "S001-9", "S001-11", "S001-12")
def test_the_scopes_come_strongest_first_and_their_roots_in_order(tmp_path: Path) -> None:
    assert roots_of(
        repository(tmp_path),
        tmp_path / "home",
        environment={"SKILLHOUSE_SKILLS_DIR": f"{tmp_path}/one{os.pathsep}{tmp_path}/two"},
        explicit=[tmp_path / "given"],
        builtin=tmp_path / "builtin",
    ) == [
        ("project", "work/.skillhouse/skills"),
        ("project", "work/.agents/skills"),
        ("project", "work/.claude/skills"),
        ("explicit", "given"),
        ("explicit", "one"),
        ("explicit", "two"),
        ("user", "home/.config/skillhouse/skills"),
        ("user", "home/.agents/skills"),
        ("user", "home/.claude/skills"),
        ("builtin", "builtin"),
    ]


@pytest.mark.req("S001-13")
def test_a_start_below_finds_the_roots_of_each_directory_up_to_the_git_root(
    tmp_path: Path,
) -> None:
    start = repository(tmp_path, "packages/app")
    expected = [tmp_path / "work" / at / place for at in ("packages/app", "packages", "")
                for place in PLACES]  # fmt: skip
    assert project_roots(start, DEFAULT_PROFILE) == tuple(expected)


def test_outside_git_only_the_start_directory_is_a_project(tmp_path: Path) -> None:
    start = tmp_path / "a" / "b"
    start.mkdir(parents=True)
    assert project_roots(start, DEFAULT_PROFILE) == tuple(start / place for place in PLACES)


def test_the_nearest_git_root_ends_the_project(tmp_path: Path) -> None:
    inner = repository(tmp_path, "vendor/lib")
    (inner / ".git").write_text("gitdir: ../../.git/modules/lib")  # As a submodule has it.
    assert git_root(inner / "src") == inner
    assert git_root(tmp_path / "work" / "vendor") == tmp_path / "work"


def test_a_broken_link_named_git_ends_the_project_too(tmp_path: Path) -> None:
    (tmp_path / ".git").symlink_to(tmp_path / "nowhere")
    assert git_root(tmp_path / "src") == tmp_path


def test_there_is_no_git_root_where_no_directory_has_one() -> None:
    assert git_root(Path("/nowhere/at/all")) is None


def test_a_relative_start_is_taken_from_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository(tmp_path, "src"))
    assert project_roots(Path(), DEFAULT_PROFILE)[3] == tmp_path / "work" / PLACES[0]


def test_empty_parts_of_the_variable_are_passed_over(tmp_path: Path) -> None:
    for value in ("", os.pathsep, f"{os.pathsep}{tmp_path}/one{os.pathsep}"):
        found = roots_of(tmp_path, tmp_path / "home", environment={"SKILLHOUSE_SKILLS_DIR": value})
        explicit = [path for scope, path in found if scope == "explicit"]
        assert explicit == (["one"] if "one" in value else [])


def test_a_root_named_twice_is_listed_once_with_its_stronger_scope(tmp_path: Path) -> None:
    found = roots_of(
        tmp_path / "start",
        tmp_path / "home",
        explicit=[tmp_path / "home/.agents/skills", tmp_path / "x/../home/.agents/skills"],
    )
    assert [scope for scope, path in found if path == "home/.agents/skills"] == ["explicit"]


@pytest.mark.parametrize("git", [True, False], ids=["a repository", "no repository"])
def test_at_home_the_users_own_roots_stay_the_users(tmp_path: Path, git: bool) -> None:
    home = tmp_path / "home"
    (home / ".git" if git else home).mkdir(parents=True)
    assert roots_of(home, home) == [
        ("project", "home/.skillhouse/skills"),
        ("user", "home/.config/skillhouse/skills"),
        ("user", "home/.agents/skills"),
        ("user", "home/.claude/skills"),
    ]


def test_a_directory_of_the_project_that_a_person_named_is_explicit(tmp_path: Path) -> None:
    start = repository(tmp_path)
    found = roots_of(start, tmp_path / "home", explicit=[start / ".claude/skills"])
    assert [scope for scope, path in found if path == "work/.claude/skills"] == ["explicit"]


def test_the_profile_says_where_to_look_and_in_which_order(tmp_path: Path) -> None:
    profile = Profile(
        scopes=tuple(reversed(DEFAULT_PROFILE.scopes)),
        project_directories=("skills",),
        user_directories=("~/mine", "/opt/skills"),
        environment_variable="ELSEWHERE",
    )
    environment = {"ELSEWHERE": str(tmp_path / "x"), "SKILLHOUSE_SKILLS_DIR": str(tmp_path / "y")}
    found = default_roots(
        start=tmp_path, home=tmp_path / "home", environment=environment, profile=profile
    )
    assert found == (
        Root(tmp_path / "home" / "mine", "user"),
        Root(Path("/opt/skills"), "user"),
        Root(tmp_path / "x", "explicit"),
        Root(tmp_path / "skills", "project"),
    )
