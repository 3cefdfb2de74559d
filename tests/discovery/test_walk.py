"""Tests of discovery/walk.py through `discover`: what is entered, and what is said of the rest."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from skillhouse.discovery import Root
from skillhouse.discovery.walk import RootWalk
from skillhouse.floor.structs import replace
from skillhouse.skill import DEFAULT_PROFILE, Profile, load
from tests.discovery.trees import (
    discover,
    findings,
    names,
    place_for_all,
    probe_as_nobody,
    write_refused,
    write_skill,
)

pytestmark = pytest.mark.slow


def deep(base: Path, depth: int) -> Path:
    """Return a directory `depth` levels below `base`."""
    return base.joinpath(*(f"d{level}" for level in range(1, depth + 1)))


@pytest.mark.under("opencode")
@pytest.mark.req("S001-15")
def test_skills_are_found_at_every_depth_up_to_the_bound(tmp_path: Path) -> None:
    for depth in range(1, 7):
        write_skill(deep(tmp_path, depth - 1) / f"at-{depth}")
    index = discover([Root(tmp_path, "user")])
    assert names(index) == [f"at-{depth}" for depth in range(1, 7)]
    assert findings(index, tmp_path) == []


@pytest.mark.parametrize(("scope", "bound"), [("user", 6), ("project", 6), ("explicit", 12)])
def test_what_lies_deeper_than_the_bound_is_named(tmp_path: Path, scope: str, bound: int) -> None:
    write_skill(tmp_path / "shallow")
    write_skill(deep(tmp_path, bound))
    write_skill(deep(tmp_path / "other", bound))
    index = discover([Root(tmp_path, scope)])
    assert names(index) == [f"d{bound}", "shallow"]
    too_deep = deep(Path("other"), bound).as_posix()
    assert findings(index, tmp_path) == [("warning", "depth-limit", too_deep)]
    assert index.diagnostics[0].message == f"not looked into: deeper than {bound} directories"


def test_several_places_beyond_the_bound_are_counted(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        deep(tmp_path / name, 6).mkdir(parents=True)
    (found,) = discover([Root(tmp_path, "user")]).diagnostics
    assert found.message == "not looked into: deeper than 6 directories (and 2 more)"


@pytest.mark.under("owliabot")
@pytest.mark.req("S000-11", "S003-22")
def test_a_file_in_the_root_is_no_skill(tmp_path: Path) -> None:
    write_skill(tmp_path / "pdf")
    (tmp_path / "SKILL.md").write_text("---\nname: root\ndescription: Lies in the root.\n---\n")
    (tmp_path / "notes.md").write_text("notes")
    for scope in ("project", "user"):
        index = discover([Root(tmp_path, scope)])
        assert names(index) == ["pdf"]
        assert findings(index, tmp_path) == []


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_directory_named_by_hand_can_be_a_skill_itself(tmp_path: Path, is_linked: bool) -> None:
    write_skill(tmp_path / "whole")
    write_skill(tmp_path / "whole" / "skills" / "pdf")
    place = tmp_path / "whole"
    if is_linked:
        place = tmp_path / "link"
        place.symlink_to("whole")
    index = discover([place])
    assert names(index) == ["pdf", "whole"]
    assert index.get("whole").directory == tmp_path / "whole"
    assert load(index.get("whole")).resources == ("skills/pdf/SKILL.md",)
    assert findings(index, tmp_path) == []


def test_a_refused_file_in_a_root_named_by_hand_is_a_finding(tmp_path: Path) -> None:
    write_refused(tmp_path)
    write_skill(tmp_path / "pdf")
    index = discover([tmp_path])
    assert names(index) == ["pdf"]
    assert findings(index, tmp_path) == [("error", "yaml-error", "SKILL.md")]


@pytest.mark.under("owliabot")
@pytest.mark.req("S000-13", "S001-16")
def test_other_file_names_are_passed_over_and_named_where_only_the_case_differs(
    tmp_path: Path,
) -> None:
    write_skill(tmp_path / "pdf")
    for name in ("README.md", "skill.md", "Skill.md", "SKILL.MD", "SKILL.md.bak"):
        (tmp_path / name.replace(".", "-")).mkdir()
        (tmp_path / name.replace(".", "-") / name).write_text("---\nname: x\ndescription: x\n---\n")
    (tmp_path / "empty").mkdir()
    index = discover([tmp_path])
    assert names(index) == ["pdf"]
    assert findings(index, tmp_path) == [
        ("error", "wrong-case", "SKILL-MD/SKILL.MD"),
        ("error", "wrong-case", "Skill-md/Skill.md"),
        ("error", "wrong-case", "skill-md/skill.md"),
    ]
    assert names(discover([tmp_path], profile=under(any_case=True))) == ["pdf", "x"]
    # A page about skills is no skill of another name.
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/skill.md").write_text("# What a skill is\n")
    assert len(discover([tmp_path]).diagnostics) == 3


@pytest.mark.under("owliabot")
@pytest.mark.req("S000-14", "S001-19")
def test_a_root_that_is_missing_is_no_finding_and_a_broken_one_costs_no_other(
    tmp_path: Path,
) -> None:
    write_skill(tmp_path / "good" / "pdf")
    (tmp_path / "file").write_text("a file")
    (tmp_path / "loop").symlink_to("loop")
    roots = [tmp_path / name for name in ("missing", "file", "file/below", "loop", "good")]
    index = discover(roots)
    assert names(index) == ["pdf"]
    assert findings(index, tmp_path) == [
        ("error", "root-not-directory", "file"),
        ("error", "unreadable", "file/below"),
        ("error", "unreadable", "loop"),
    ]


def test_a_skill_is_not_looked_into_and_a_refused_file_does_not_hide_what_is_below(
    tmp_path: Path,
) -> None:
    write_skill(tmp_path / "outer")
    write_skill(tmp_path / "outer" / "inner")
    write_refused(tmp_path / "broken")
    write_skill(tmp_path / "broken" / "below")
    index = discover([tmp_path])
    assert names(index) == ["below", "outer"]
    assert findings(index, tmp_path) == [("error", "yaml-error", "broken/SKILL.md")]
    nested = discover([tmp_path], profile=Profile(nested_skills=True))
    assert names(nested) == ["below", "inner", "outer"]


def test_the_profile_says_which_directories_are_passed_over(tmp_path: Path) -> None:
    for name in (".git", "node_modules", ".hidden"):
        write_skill(tmp_path / name / f"in-{name.strip('.')}")
    assert names(discover([tmp_path])) == ["in-hidden"]
    profile = Profile(skipped_directories=frozenset({".hidden"}))
    assert names(discover([tmp_path], profile=profile)) == ["in-git", "in-node_modules"]


@pytest.mark.req("S001-17")
def test_links_to_skills_and_to_their_files_are_followed_inside_the_root(tmp_path: Path) -> None:
    real = write_skill(tmp_path / ".git" / "pdf")  # Passed over itself, so only links lead there.
    (tmp_path / "linked").symlink_to(real.parent)
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "SKILL.md").symlink_to("../.git/csv.md")
    (tmp_path / ".git" / "csv.md").write_text("---\nname: csv\ndescription: Reads.\n---\n")
    index = discover([tmp_path])
    assert [(skill.name, skill.file) for skill in index.skills] == [
        ("csv", f"{tmp_path}/csv/SKILL.md"),
        ("pdf", f"{tmp_path}/linked/SKILL.md"),
    ]
    assert findings(index, tmp_path) == [("warning", "name-mismatch", "linked/SKILL.md")]


def test_a_skill_that_links_lead_to_as_well_is_listed_once_where_it_is(tmp_path: Path) -> None:
    write_skill(tmp_path / "store" / "pdf")
    (tmp_path / "a-link").symlink_to("store/pdf")
    (tmp_path / "b-link").symlink_to("store")
    index = discover([tmp_path])
    assert [skill.file for skill in index.skills] == [f"{tmp_path}/store/pdf/SKILL.md"]
    assert index.shadowed == ()
    assert sorted(findings(index, tmp_path)) == [
        ("info", "same-directory", "a-link/SKILL.md"),
        ("info", "same-directory", "b-link/pdf/SKILL.md"),
        ("warning", "name-mismatch", "a-link/SKILL.md"),
    ]


def test_two_links_that_lead_to_one_skill_list_it_once(tmp_path: Path) -> None:
    write_skill(tmp_path / ".git" / "store" / "pdf")
    (tmp_path / "pdf").symlink_to(".git/store/pdf")
    (tmp_path / "again").symlink_to(".git/store")
    index = discover([tmp_path])
    assert [skill.file for skill in index.skills] == [f"{tmp_path}/again/pdf/SKILL.md"]
    assert findings(index, tmp_path) == [("info", "same-directory", "pdf/SKILL.md")]


@pytest.mark.under("opencode")
@pytest.mark.req("S001-20")
def test_links_in_circles_end_and_are_named(tmp_path: Path) -> None:
    write_skill(tmp_path / "a" / "pdf")
    (tmp_path / "a" / "up").symlink_to("..")
    (tmp_path / "a" / "self").symlink_to("self")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "to-c").symlink_to("../c")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "to-b").symlink_to("../b")
    index = discover([tmp_path])
    assert names(index) == ["pdf"]
    assert findings(index, tmp_path) == [
        ("warning", "link-cycle", "a/self"),
        ("warning", "link-cycle", "a/up"),
        ("warning", "link-cycle", "b/to-c/to-b"),
        ("warning", "link-cycle", "c/to-b/to-c"),
    ]


def test_two_links_to_one_directory_are_entered_once(tmp_path: Path) -> None:
    write_skill(tmp_path / ".git" / "store" / "pdf")
    (tmp_path / "one").symlink_to(".git/store")
    (tmp_path / "two").symlink_to(".git/store")
    index = discover([tmp_path])
    assert [skill.file for skill in index.skills] == [f"{tmp_path}/one/pdf/SKILL.md"]
    assert findings(index, tmp_path) == [("info", "same-directory", "two")]


def test_links_out_of_the_root_and_to_nothing_are_named_and_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    outside = write_skill(tmp_path / "outside")
    write_skill(root / "good")
    (root / "directory").symlink_to(outside.parent)
    (root / "chain").symlink_to("chain-2")
    (root / "chain-2").symlink_to("directory")
    (root / "file").mkdir()
    (root / "file" / "SKILL.md").symlink_to(outside)
    (root / "nothing").symlink_to("nowhere")
    (root / "no-file").mkdir()
    (root / "no-file" / "SKILL.md").symlink_to("nowhere")
    (root / "to-a-file").symlink_to("good/SKILL.md")
    (root / "too-long").symlink_to("x" * 300)
    (root / "windows").mkdir()
    (root / "windows" / "SKILL.md").symlink_to("a\\b.md")
    write_skill(root / "other").rename(root / "windows" / "a\\b.md")
    index = discover([root])
    assert names(index) == ["good"]
    assert findings(index, root) == [
        ("warning", "link-escape", "chain"),
        ("warning", "link-escape", "chain-2"),
        ("warning", "link-escape", "directory"),
        ("warning", "link-escape", "file/SKILL.md"),
        ("warning", "link-broken", "no-file/SKILL.md"),
        ("warning", "link-broken", "nothing"),
        ("error", "unreadable", "too-long"),
        ("error", "unreadable", "windows/SKILL.md"),
    ]


def test_a_neighbour_whose_name_begins_like_the_root_is_outside(tmp_path: Path) -> None:
    outside = write_skill(tmp_path / "root-of-others" / "pdf")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "pdf").symlink_to(outside.parent)
    index = discover([tmp_path / "root"])
    assert findings(index, tmp_path) == [("warning", "link-escape", "root/pdf")]


def test_a_root_that_is_a_link_is_the_directory_it_leads_to(tmp_path: Path) -> None:
    write_skill(tmp_path / "real" / "pdf")
    (tmp_path / "link").symlink_to("real")
    index = discover([tmp_path / "link", tmp_path / "real"])
    assert [(skill.file, skill.root) for skill in index.skills] == [
        (f"{tmp_path}/real/pdf/SKILL.md", f"{tmp_path}/real")
    ]
    assert findings(index, tmp_path) == []


def test_the_bound_on_directories_counts_links_and_is_named(tmp_path: Path) -> None:
    for number in range(10):
        write_skill(tmp_path / f"s{number}")
        (tmp_path / f"link{number}").symlink_to("nowhere")
    walk = RootWalk(str(tmp_path), max_depth=3, max_directories=15, skipped=frozenset())
    seen: list[str] = []

    def look(path: str, name: str, end: str | None) -> bool:
        seen.append(name)
        return False

    walk.run(look)
    assert seen == [f"s{number}" for number in range(5)]
    codes = [(code, finding.code) for code, finding in walk.findings]
    assert codes[-1] == (str(tmp_path), "scan-limit")
    assert len(codes) == 11


def test_a_directory_with_very_many_entries_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skillhouse.discovery.walk.ENTRIES_MANY", 20)
    write_skill(tmp_path / "good")
    for number in range(20):
        (tmp_path / f"file-{number}").touch()
    index = discover([tmp_path])
    assert names(index) == ["good"]
    assert findings(index, tmp_path) == [("warning", "many-entries", ".")]
    (tmp_path / "file-1").unlink()
    assert findings(discover([tmp_path]), tmp_path) == []


def test_a_skill_in_a_directory_named_with_other_characters_is_found(tmp_path: Path) -> None:
    for name in ("имя", "a b", "new\nline", "\u202edlo"):
        write_skill(tmp_path / name / "below")
    index = discover([tmp_path])
    assert names(index) == ["below"]
    assert len(index.shadowed) == 3


def test_a_name_that_is_not_utf8_is_named_and_costs_no_other(tmp_path: Path) -> None:
    write_skill(tmp_path / "good")
    write_skill(tmp_path / os.fsdecode(b"b\xffd"), name="bad")
    os.symlink("good", os.fsencode(tmp_path) + b"/l\xffnk")
    index = discover([tmp_path])
    assert names(index) == ["good"]
    assert [found.code for found in index.diagnostics] == ["path-encoding", "path-encoding"]


@pytest.mark.parametrize("mode", [0o000, 0o444, 0o111], ids=["nothing", "list only", "enter only"])
def test_a_directory_that_may_not_be_read_is_named_and_costs_no_other(mode: int) -> None:
    with place_for_all() as root:
        write_skill(root / "good")
        write_skill(root / "closed" / "below")
        (root / "closed").chmod(mode)
        report = probe_as_nobody(root)
        (root / "closed").chmod(0o755)
        place = "closed" if mode == 0o111 else "closed/SKILL.md"
        assert report.findings == [["error", "unreadable", str(root / place)]]
        assert report.skills == ["good"]


def test_a_file_that_may_not_be_read_is_named_and_its_directory_left_alone() -> None:
    with place_for_all() as root:
        write_skill(root / "good")
        closed = write_skill(root / "closed")
        write_skill(root / "closed" / "below")
        closed.chmod(0o000)
        report = probe_as_nobody(root)
        assert report.findings == [["error", "unreadable", str(closed)]]
        assert report.skills == ["good"]


def under(**changes: Any) -> Profile:
    return replace(DEFAULT_PROFILE, **changes)


@pytest.mark.under("opencode")
@pytest.mark.req("S001-17", "S001-20")
def test_links_are_followed_out_of_the_root_where_the_profile_says_so(tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    write_skill(out / "linked", body="Outside.\n")
    write_skill(out / "group" / "deep")
    (out / "group" / "back").symlink_to(out)
    file = write_skill(out / "file")
    (root / "own").mkdir(parents=True)
    (root / "linked").symlink_to(out / "linked")
    (root / "group").symlink_to(out / "group")
    (root / "own" / "SKILL.md").symlink_to(file)
    write_skill(root / "inside")
    index = discover([Root(root, "user")], profile=under(symlinks="follow"))
    # The walk ends although `back` leads above where it came from.
    assert names(index) == ["deep", "file", "inside", "linked"]
    assert findings(index, tmp_path) == [
        ("info", "same-directory", "root/group/back/group/back"),
        ("warning", "name-mismatch", "root/own/SKILL.md"),
        ("info", "same-directory", "root/group/deep/SKILL.md"),
        ("info", "same-directory", "root/linked/SKILL.md"),
        ("info", "same-directory", "root/group/back/file/SKILL.md"),
    ]
    for skill in index.skills:
        assert load(skill).skill is skill
    assert index.get("inside").root == str(root)


def test_no_link_is_followed_where_the_profile_says_so(tmp_path: Path) -> None:
    write_skill(tmp_path / "a" / "pdf")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "SKILL.md").symlink_to("../a/pdf/SKILL.md")
    (tmp_path / "notes").symlink_to("a/pdf/SKILL.md")
    index = discover([Root(tmp_path, "user")], profile=under(symlinks="ignore"))
    assert names(index) == ["pdf"]
    assert findings(index, tmp_path) == [
        ("warning", "link-ignored", "b"),
        ("warning", "link-ignored", "c/SKILL.md"),
    ]


@pytest.mark.under("opencode")
@pytest.mark.req("S001-18")
def test_hidden_directories_are_not_entered_where_the_profile_says_so(tmp_path: Path) -> None:
    write_skill(tmp_path / ".hidden" / "inner")
    write_skill(tmp_path / ".direct")
    write_skill(tmp_path / "shown")
    index = discover([Root(tmp_path, "user")], profile=under(dotfiles=False))
    assert (names(index), index.diagnostics) == (["shown"], ())
    assert len(discover([Root(tmp_path, "user")])) == 3
