"""One test for each trap that the designs or the programs behind them fell into."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from skillhouse.discovery import Root, default_roots, discover
from skillhouse.floor.structs import replace
from skillhouse.skill import (
    DEFAULT_PROFILE,
    Profile,
    SkillIndex,
    load,
    load_profile,
    profile_names,
    read_profile,
)
from tests.discovery.trees import everything, findings, names, probe, write_skill

pytestmark = pytest.mark.slow

DESIGNS = ("default", "owliabot", "opencode", "owliabot-js", "openseed", "claude-desktop")


def found(start: Path, home: Path, profile: Profile) -> SkillIndex:
    roots = default_roots(start=start, home=home, environment={}, profile=profile)
    return discover(roots, profile=profile)


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf---\nname: pdf\ndescription: Reads.\n---\nBody.",
        b"---\r\nname: pdf\r\ndescription: Reads.\r\n---\r\nBody.",
        b"---\nname: pdf\ndescription: Reads.\n---",
        b"\xef\xbb\xbf---\r\nname: pdf\r\ndescription: Reads.\r\n---",
    ],
)
@pytest.mark.parametrize("design", DESIGNS)
def test_trap_02_a_mark_crlf_and_a_missing_last_newline_cost_no_skill(
    tmp_path: Path, data: bytes, design: str
) -> None:
    file = write_skill(tmp_path / "pdf")
    file.write_bytes(data)
    scope = load_profile(design).scopes[0].name
    (skill,) = discover([Root(tmp_path, scope)], profile=design).skills
    assert (skill.name, skill.description) == ("pdf", "Reads.")
    assert "\r" not in load(skill).body


@pytest.mark.parametrize("design", DESIGNS)
def test_trap_03_of_duplicates_the_same_one_is_in_force_at_every_start(
    tmp_path: Path, design: str
) -> None:
    scope = load_profile(design).scopes[0].name
    roots = [Root(tmp_path / name, scope) for name in ("one", "two")]
    for root, directory in itertools.product(roots, ("a", "b", "c")):
        write_skill(root.path / directory, name="pdf", description=f"{root.path.name}-{directory}")
    expected = everything(discover(roots, profile=design))
    assert len({tuple(everything(discover(roots, profile=design))) for _ in range(20)}) == 1
    if design == "default":
        for seed in range(3):
            assert probe(*roots, shuffled=seed).everything == expected


@pytest.mark.parametrize("design", ["default", "opencode"])
def test_trap_04_the_nearer_directory_overrides_the_farther(tmp_path: Path, design: str) -> None:
    (tmp_path / "work" / ".git").mkdir(parents=True)
    start = tmp_path / "work" / "app"
    for at in (tmp_path / "work", start):
        write_skill(at / ".claude" / "skills" / "pdf", description=at.name)
    index = found(start, tmp_path / "home", load_profile(design))
    assert [skill.description for skill in index.skills] == ["app"]


@pytest.mark.parametrize("design", ["default", "opencode", "claude-desktop"])
@pytest.mark.parametrize("below", ["", "app"])
def test_trap_05_a_start_that_is_the_git_root_is_scanned(
    tmp_path: Path, design: str, below: str
) -> None:
    (tmp_path / "work" / ".git").mkdir(parents=True)
    (tmp_path / "work" / below).mkdir(exist_ok=True)
    write_skill(tmp_path / "work" / ".claude" / "skills" / "pdf")
    index = found(tmp_path / "work" / below, tmp_path / "home", load_profile(design))
    assert names(index) == ["pdf"]


@pytest.mark.parametrize("design", ["default", "opencode", "claude-desktop"])
@pytest.mark.parametrize("below", ["", "work/app"])
@pytest.mark.parametrize("linked", [False, True])
def test_trap_06_the_users_skills_are_counted_once_below_home(
    tmp_path: Path, design: str, below: str, linked: bool
) -> None:
    home = tmp_path / "home"
    write_skill(home / ".claude" / "skills" / "pdf")
    (home / below).mkdir(parents=True, exist_ok=True)
    (tmp_path / "link").symlink_to(home)
    # A process is told its home by its name and its directory by the real path.
    index = found(home / below, tmp_path / "link" if linked else home, load_profile(design))
    assert [skill.id for skill in index.skills] == ["user:pdf"]
    assert (index.shadowed, index.diagnostics) == ((), ())


def test_trap_07_what_is_loaded_is_what_was_listed_or_said_to_have_changed(
    tmp_path: Path,
) -> None:
    file = write_skill(tmp_path / "a" / "pdf", body="First.\n")
    index = discover([tmp_path / "a"])
    # A stronger one that appears later does not come in between.
    write_skill(tmp_path / "a" / "a-pdf", name="pdf", body="Other.\n")
    skill = index.get("pdf")
    content = load(skill)
    assert (skill.location, content.body, content.frontmatter_changed) == (file, "First.\n", False)
    write_skill(tmp_path / "a" / "pdf", description="Does more.", body="Second.\n")
    content = load(skill)
    assert (content.body, content.frontmatter_changed) == ("Second.\n", True)
    assert index.get("pdf") is skill


def test_trap_15_a_vendored_tree_of_600_skills_is_not_taken_for_the_projects(
    tmp_path: Path,
) -> None:
    root = tmp_path / "skills"
    write_skill(root / "own")
    for number in range(600):
        write_skill(root / "node_modules" / "package" / "skills" / f"s{number:03}")
    assert names(discover([Root(root, "project")])) == ["own"]
    # Where such a tree stands elsewhere, the bound ends the walk and says so.
    (root / "node_modules").rename(root / "vendor")
    few = tuple(replace(scope, max_directories=100) for scope in DEFAULT_PROFILE.scopes)
    index = discover([Root(root, "project")], profile=replace(DEFAULT_PROFILE, scopes=few))
    assert names(index)[0] == "own"
    assert len(index) < 100
    assert ("warning", "scan-limit", "skills") in findings(index, tmp_path)


def test_trap_27_keys_that_look_like_numbers_keep_their_order(tmp_path: Path) -> None:
    keys = ["10", "9", "x", "1", "01", "-1"]
    lines = "".join(f"  {json.dumps(key)}: v{key}\n" for key in keys)
    file = write_skill(tmp_path / "root" / "pdf")
    file.write_text(f"---\nname: pdf\ndescription: Reads.\nmetadata:\n{lines}---\n")
    for _ in range(2):
        # The second time from the index on the disk.
        (skill,) = discover([tmp_path / "root"], cache=tmp_path / "cache").skills
        assert list(skill.frontmatter.fields["metadata"]) == keys
    profile = tmp_path / "mine.toml"
    profile.write_text("[messages]\n" + "".join(f'{json.dumps(key)} = "v"\n' for key in keys))
    assert list(read_profile(profile).messages) == keys


def test_every_design_is_shipped() -> None:
    assert set(DESIGNS) <= set(profile_names())
