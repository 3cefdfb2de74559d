"""Tests of discovery/roots.py: where links of a person's own folders and of projects may lead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillhouse.discovery import LinkPlaces, Root, default_roots, discover
from skillhouse.discovery.roots import LINK_DIRECTORIES_MAX, following_of, project_of
from skillhouse.floor.structs import replace
from skillhouse.skill import DEFAULT_PROFILE, SkillIndex, load
from tests.discovery.trees import findings, names, write_skill


def own(root: Path, **places: object) -> SkillIndex:
    """Discover a person's own folder."""
    return discover([Root(root, "user", places=LinkPlaces(**places))])  # type: ignore[arg-type]


def linked(path: Path, target: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


def test_the_scope_says_which_links_are_followed() -> None:
    scopes = ("user", "project", "explicit", "builtin")
    assert [following_of("by_scope", scope) for scope in scopes] == [
        "own",
        "within_project",
        "within_root",
        "within_root",
    ]
    assert following_of("ignore", "user") == "ignore"


@pytest.mark.parametrize("form", ["absolute", "relative", "chain", "parent"])
def test_a_link_of_a_person_is_followed(tmp_path: Path, form: str) -> None:
    root, real = tmp_path / "skills", write_skill(tmp_path / "src/dev").parent
    if form == "absolute":
        linked(root / "dev", real)
    elif form == "relative":
        linked(root / "dev", Path("../src/dev"))
    elif form == "chain":
        linked(root / "dev", linked(tmp_path / "one", linked(tmp_path / "two", real)))
    else:
        linked(root / "all", real.parent)
    index = own(root)
    (skill,) = index.skills
    assert (skill.name, skill.file, skill.root) == ("dev", f"{real}/SKILL.md", str(root))
    assert skill.link == f"{root}/{'all/dev' if form == 'parent' else 'dev'}/SKILL.md"
    assert (skill.scope, findings(index, tmp_path)) == ("user", [])
    assert load(skill).body == ""


def test_a_skill_file_and_its_resources_may_be_links(tmp_path: Path) -> None:
    package = tmp_path / "dotfiles/skills/pdf"
    write_skill(package, body="Read references/a.md.\n")
    (package / "references").mkdir()
    (package / "references/a.md").write_text("a")
    linked(tmp_path / "skills/pdf/SKILL.md", Path("../../dotfiles/skills/pdf/SKILL.md"))
    linked(tmp_path / "skills/pdf/references", Path("../../dotfiles/skills/pdf/references"))
    index = own(tmp_path / "skills")
    (skill,) = index.skills
    assert skill.file == skill.link == f"{tmp_path}/skills/pdf/SKILL.md"
    content = load(skill)
    assert (content.body, content.resources) == ("Read references/a.md.\n", ("references/a.md",))


def test_one_real_place_is_one_skill_under_its_first_name(tmp_path: Path) -> None:
    write_skill(tmp_path / "agents/pdf")
    write_skill(tmp_path / "dotfiles/csv")
    linked(tmp_path / "claude/pdf", tmp_path / "agents/pdf")
    linked(tmp_path / "claude/csv", tmp_path / "dotfiles/csv")
    linked(tmp_path / "agents/csv", Path("../dotfiles/csv"))
    linked(tmp_path / "other/csv/SKILL.md", tmp_path / "dotfiles/csv/SKILL.md")
    index = discover([Root(tmp_path / name, "user") for name in ("agents", "claude", "other")])
    assert [(skill.id, skill.file) for skill in index.skills] == [
        ("user:csv", f"{tmp_path}/dotfiles/csv/SKILL.md"),
        ("user:pdf", f"{tmp_path}/agents/pdf/SKILL.md"),
    ]
    assert (index.shadowed, findings(index, tmp_path)) == ((), [])


def test_what_is_wrong_with_a_place_is_said_once(tmp_path: Path) -> None:
    write_skill(tmp_path / "agents/pdf", name="PDF_tools")
    linked(tmp_path / "claude/pdf", tmp_path / "agents/pdf")
    linked(tmp_path / "claude/more", tmp_path / "src/bad")
    (tmp_path / "src/bad").mkdir(parents=True)
    (tmp_path / "src/bad/SKILL.md").write_bytes(b"---\nname: 'x\n---\n")
    index = discover([Root(tmp_path / name, "user") for name in ("agents", "claude")])
    assert findings(index, tmp_path) == [
        ("warning", "name-invalid", "agents/pdf/SKILL.md"),
        ("warning", "name-mismatch", "agents/pdf/SKILL.md"),
        ("error", "yaml-error", "claude/more/SKILL.md"),
    ]


def test_behind_a_link_two_directories_deep_is_looked(tmp_path: Path) -> None:
    for depth in ("a", "a/b", "a/b/c"):
        write_skill(tmp_path / "src" / depth / f"at-{depth.count('/') + 1}")
    linked(tmp_path / "skills/src", tmp_path / "src")
    index = own(tmp_path / "skills")
    assert names(index) == ["at-1"]
    assert findings(index, tmp_path) == [("warning", "depth-limit", "skills/src")]
    below = f"{tmp_path}/skills/src/a/b"
    assert index.left_out[0].paths == (f"{below}/at-2", f"{below}/c")


def test_behind_a_link_a_bound_of_directories_counts(tmp_path: Path) -> None:
    for number in range(LINK_DIRECTORIES_MAX + 2):
        (tmp_path / "src" / f"d{number:03}").mkdir(parents=True)
    write_skill(tmp_path / "src/d499")
    write_skill(tmp_path / "src/d501")
    write_skill(tmp_path / "skills/z-own")
    linked(tmp_path / "skills/src", tmp_path / "src")
    index = own(tmp_path / "skills")
    assert names(index) == ["d499", "z-own"]
    assert findings(index, tmp_path) == [("warning", "scan-limit", "skills/src")]
    assert index.left_out[0].paths == (f"{tmp_path}/skills/src/d500", f"{tmp_path}/skills/src/d501")


@pytest.mark.parametrize("place", ["target", "above", "file"])
def test_what_other_users_can_write_is_not_followed(tmp_path: Path, place: str) -> None:
    file = write_skill(tmp_path / "shared/team/pdf")
    linked(tmp_path / "skills/pdf", file.parent)
    linked(tmp_path / "skills/file/SKILL.md", file)
    changed = {"target": file.parent, "above": file.parent.parent, "file": file}[place]
    changed.chmod(0o777)
    index = own(tmp_path / "skills")
    assert names(index) == []
    said = [
        path.removesuffix("/SKILL.md")
        for _, code, path in findings(index, tmp_path)
        if code == "link-owner"
    ]
    assert said == ["skills/file", "skills/pdf"]
    assert "other users can write " in index.diagnostics[0].message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_belongs_to_someone_else_is_not_followed(tmp_path: Path) -> None:
    file = write_skill(tmp_path / "theirs/pdf")
    os.chown(file.parent, 4_242, -1)
    linked(tmp_path / "skills/pdf", file.parent)
    index = own(tmp_path / "skills")
    assert (names(index), [one.code for one in index.diagnostics]) == ([], ["link-owner"])
    assert "belongs to user 4242" in index.diagnostics[0].message


def test_a_target_in_the_project_waits_for_its_trust_and_is_of_its_scope(tmp_path: Path) -> None:
    work, root = tmp_path / "work", tmp_path / "skills"
    linked(root / "dev", write_skill(work / "tools/dev").parent)
    linked(root / "file/SKILL.md", write_skill(work / "tools/file"))
    linked(root / "made", write_skill(tmp_path / "cache/made").parent)
    places = LinkPlaces(project=str(work), written=(str(tmp_path / "cache"),))
    roots = [Root(root, "user", places=places)]
    refused = discover(roots, trusted=False)
    assert names(refused) == []
    assert [(code, place) for _, code, place in findings(refused, tmp_path)] == [
        ("link-untrusted", "skills/dev"),
        ("link-untrusted", "skills/file/SKILL.md"),
        ("link-untrusted", "skills/made"),
    ]
    trusted = discover(roots)
    assert [skill.id for skill in trusted.skills] == ["project:dev", "project:file", "project:made"]


def test_in_a_home_that_is_no_project_links_are_a_persons(tmp_path: Path) -> None:
    assert project_of(tmp_path, tmp_path, None) == ""
    assert project_of(tmp_path / "a", tmp_path / "a/home", None) == ""
    assert project_of(tmp_path / "work/src", tmp_path, tmp_path / "work") == str(tmp_path / "work")


def test_in_a_project_a_link_stays_in_it_unless_the_trust_names_the_target(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / ".git").mkdir(parents=True)
    linked(work / ".agents/skills/in", write_skill(work / "packages/in").parent)
    outside = write_skill(tmp_path / "outside/out").parent
    linked(work / ".agents/skills/out", outside)
    options = {"start": work, "home": tmp_path / "home", "environment": {}}
    for targets, listed in ((frozenset(), ["in"]), (frozenset({str(outside)}), ["in", "out"])):
        roots = default_roots(**options, profile=DEFAULT_PROFILE, targets=targets)  # type: ignore[arg-type]
        index = discover([root for root in roots if root.scope == "project"])
        assert names(index) == listed
        assert {skill.scope for skill in index.skills} == {"project"}
    roots = default_roots(**options, profile=DEFAULT_PROFILE)  # type: ignore[arg-type]
    (found,) = discover([root for root in roots if root.scope == "project"]).diagnostics
    assert (found.code, found.path) == ("link-escape", work / ".agents/skills/out")
    assert "out of the project" in found.message


def test_other_profiles_keep_their_links(tmp_path: Path) -> None:
    linked(tmp_path / "skills/dev", write_skill(tmp_path / "src/dev").parent)
    for symlinks, found in (("within_root", []), ("ignore", []), ("follow", ["dev"])):
        profile = replace(DEFAULT_PROFILE, symlinks=symlinks)  # type: ignore[arg-type]
        assert names(discover([Root(tmp_path / "skills", "user")], profile=profile)) == found
