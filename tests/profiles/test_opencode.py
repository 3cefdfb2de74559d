"""Design 001 under its profile: roots by configuration, the nearest wins, fields are required."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from skillhouse.discovery import discover
from skillhouse.floor import UnknownSkillError, structs
from skillhouse.skill import RootRule, load
from tests.discovery.trees import names, write_skill
from tests.profiles.places import Place, codes, descriptions, place, write


@pytest.fixture
def code(tmp_path: Path) -> Place:
    return place(tmp_path, "opencode", explicit=[tmp_path / "given"])


@pytest.mark.req("S001-10", "S001-14", "S001-29", "S001-30")
def test_the_roots_go_from_weak_to_strong(code: Place) -> None:
    assert code.relative_roots() == [
        ("builtin", "core"),
        ("user", "home/.claude/skills"),
        ("user", "home/.agents/skills"),
        ("user", "home/.config/opencode/skill"),
        ("user", "home/.config/opencode/skills"),
        ("project", "work/.claude/skills"),
        ("project", "work/.agents/skills"),
        ("project", "work/.opencode/skill"),
        ("project", "work/.opencode/skills"),
        ("explicit", "given"),
    ]


@pytest.mark.req("S001-14")
def test_both_spellings_are_looked_at(code: Place) -> None:
    write_skill(code.work / ".opencode" / "skill" / "one")
    write_skill(code.work / ".opencode" / "skills" / "two")
    assert names(code.index()) == ["one", "two"]


@pytest.mark.slow
@pytest.mark.req("S001-31", "S001-12")
def test_of_any_two_roots_the_later_overrides_the_earlier(code: Place) -> None:
    for pair in itertools.combinations(code.roots(), 2):
        for root in pair:
            write_skill(root.path / "pdf", description=str(root.path))
        for roots in (pair, pair[::-1]):
            index = discover(roots, profile=code.profile)
            assert descriptions(index) == [str(roots[-1].path)]
            assert codes(index) == ["shadowed"]


@pytest.mark.req("S001-30")
@pytest.mark.parametrize("native_wins", [True, False])
def test_native_over_compatible_is_a_matter_of_the_order_of_roots(
    code: Place, native_wins: bool
) -> None:
    for at in (".claude/skills", ".opencode/skills"):
        write_skill(code.work / at / "pdf", description=at)
    roots = code.profile.roots if native_wins else code.profile.roots[::-1]
    other = structs.replace(code, profile=structs.replace(code.profile, roots=roots))
    expected = ".opencode/skills" if native_wins else ".claude/skills"
    assert descriptions(other.index()) == [expected]


@pytest.mark.req("S001-29", "S001-75")
@pytest.mark.parametrize("stronger", ["project", "user"])
def test_which_of_project_and_user_is_stronger_is_a_setting(code: Place, stronger: str) -> None:
    by_scope = structs.replace(
        code.profile,
        root_order="scope",
        duplicates="first",
        scopes=tuple(sorted(code.profile.scopes, key=lambda scope: scope.name != stronger)),
    )
    other = structs.replace(code, profile=by_scope)
    write_skill(code.work / ".claude" / "skills" / "pdf", description="project")
    write_skill(code.home / ".claude" / "skills" / "pdf", description="user")
    for _ in range(3):
        assert descriptions(other.index()) == [stronger]


@pytest.mark.req("S001-10", "S001-75")
def test_compatible_roots_can_be_left_out(code: Place) -> None:
    write_skill(code.work / ".claude" / "skills" / "pdf")
    native = tuple(rule for rule in code.profile.roots if ".claude" not in rule.path)
    assert names(code.index()) == ["pdf"]
    without = structs.replace(code.profile, roots=native)
    assert names(structs.replace(code, profile=without).index()) == []


@pytest.mark.req("S001-13", "S001-28")
def test_of_two_directories_of_the_walk_the_nearest_wins(code: Place) -> None:
    start = code.work / "packages" / "app"
    for at in (code.work, code.work / "packages", start):
        write_skill(at / ".claude" / "skills" / "pdf", description=at.name)
    write_skill(code.work / ".opencode" / "skills" / "far")
    assert descriptions(code.index(start))[0] == "app"
    assert descriptions(code.index(code.work / "packages"))[0] == "packages"
    assert sorted(names(code.index(start))) == ["far", "pdf"]


@pytest.mark.req("S001-17", "S001-75")
@pytest.mark.parametrize(
    ("symlinks", "found", "said"),
    [
        ("follow", ["linked"], []),
        ("within_root", [], ["link-escape"]),
        ("ignore", [], ["link-ignored"]),
    ],
)
def test_how_links_are_treated_is_a_setting(
    code: Place, symlinks: str, found: list[str], said: list[str]
) -> None:
    file = write_skill(code.base / "shared" / "linked", body="Shared.\n")
    root = code.work / ".opencode" / "skills"
    root.mkdir(parents=True)
    (root / "linked").symlink_to(file.parent)
    changed = structs.replace(code.profile, symlinks=symlinks)  # type: ignore[arg-type]
    index = structs.replace(code, profile=changed).index()
    assert (names(index), codes(index)) == (found, said)
    assert [load(skill).body for skill in index.skills] == ["Shared.\n"] * len(found)


@pytest.mark.req("S001-18")
@pytest.mark.parametrize("dotfiles", [True, False])
def test_whether_hidden_directories_are_entered_is_a_setting(code: Place, dotfiles: bool) -> None:
    root = code.work / ".opencode" / "skills"
    write_skill(root / ".hidden" / "inner")
    write_skill(root / "shown")
    changed = structs.replace(code.profile, dotfiles=dotfiles)
    index = structs.replace(code, profile=changed).index()
    assert sorted(names(index)) == (["inner", "shown"] if dotfiles else ["shown"])


@pytest.mark.req("S001-1", "S001-23")
def test_the_index_gives_name_description_and_location_by_name(code: Place) -> None:
    file = write_skill(code.work / ".opencode" / "skill" / "pdf", body="# Read\n")
    skill = code.index().get("pdf")
    assert (skill.name, skill.description, skill.location) == ("pdf", "Does things.", file)
    assert load(skill).body == "# Read\n"


@pytest.mark.req("S001-26", "S001-22")
@pytest.mark.parametrize(
    "head", ["name: half", "description: No name.", "name: ''\ndescription: x"]
)
def test_a_skill_without_a_field_is_not_there(code: Place, head: str) -> None:
    write(code.work / ".opencode" / "skill" / "half" / "SKILL.md", f"---\n{head}\n---\nBody.\n")
    index = code.index()
    assert (index.skills, index.shadowed) == ((), ())
    with pytest.raises(UnknownSkillError):
        index.get("half")


@pytest.mark.req("S001-77", "S001-75", "S001-10")
def test_a_profile_can_look_anywhere(code: Place) -> None:
    rules = (RootRule(scope="project", path="knowledge"), RootRule(scope="user", path="~/lore"))
    changed = structs.replace(code.profile, roots=rules)
    write_skill(code.work / "knowledge" / "pdf")
    write_skill(code.home / "lore" / "csv")
    assert names(structs.replace(code, profile=changed).index()) == ["pdf", "csv"]
