"""Design 000 under its profile: roots, override by directory, required fields."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.discovery import Root, discover, render_catalog
from skillhouse.floor import structs
from skillhouse.house import Locations, Skillhouse, load_config
from skillhouse.skill import load, parse
from tests.discovery.trees import names, write_skill
from tests.profiles.places import Place, codes, descriptions, place, write


@pytest.fixture
def bot(tmp_path: Path) -> Place:
    return place(tmp_path, "owliabot")


@pytest.mark.req("S000-3")
def test_builtin_user_and_workspace_are_looked_at_in_that_order(bot: Place) -> None:
    assert bot.relative_roots() == [
        ("builtin", "core"),
        ("user", "home/.owliabot/skills"),
        ("project", "work/skills"),
    ]
    assert bot.profile.scope("project").source == "workspace"


@pytest.mark.req("S000-3")
def test_each_of_the_three_can_lie_elsewhere(bot: Place) -> None:
    elsewhere = structs.replace(
        bot, environment={"OWLIABOT_HOME": str(bot.base / "owl")}, explicit=[bot.base / "given"]
    )
    assert elsewhere.relative_roots(bot.base / "other") == [
        ("builtin", "core"),
        ("user", "owl/skills"),
        ("project", "other/skills"),
        ("explicit", "given"),
    ]


@pytest.mark.req("S000-15", "S000-16", "S000-20")
def test_of_three_weather_skills_only_that_of_the_workspace_is_left(bot: Place) -> None:
    for root in bot.roots():
        write_skill(root.path / "weather", description=f"From {root.scope}.")
    index = bot.index()
    assert descriptions(index) == ["From project."]
    assert [skill.id for skill in index.shadowed] == ["builtin:weather", "user:weather"]
    assert codes(index) == ["shadowed", "shadowed"]


@pytest.mark.req("S000-15")
def test_of_given_roots_the_later_overrides_whatever_their_scopes(bot: Place) -> None:
    roots = [Root(bot.base / "one", "project"), Root(bot.base / "two", "builtin")]
    for root in roots:
        write_skill(root.path / "weather", description=str(root.path.name))
    assert descriptions(discover(roots, profile="owliabot")) == ["two"]
    assert descriptions(discover(roots[::-1], profile="owliabot")) == ["one"]


@pytest.mark.req("S000-20")
def test_what_overrides_takes_the_place_of_what_it_overrides(bot: Place) -> None:
    for name in ("a", "b", "c"):
        write_skill(bot.core / name)
    write_skill(bot.work / "skills" / "b", name="B of the workspace")
    assert names(bot.index()) == ["a", "B of the workspace", "c"]


@pytest.mark.req("S000-12", "S000-17")
def test_directories_of_one_name_both_stay(bot: Place) -> None:
    first = write_skill(bot.core / "one", name="My Skill")
    second = write_skill(bot.work / "skills" / "two", name="My Skill")
    index = bot.index()
    assert names(index) == ["My Skill", "My Skill"]
    assert codes(index) == []
    assert [index.get(directory).location for directory in ("one", "two")] == [first, second]


@pytest.mark.req("S000-12", "S000-16")
def test_one_directory_name_is_one_skill_whatever_it_is_called(bot: Place) -> None:
    write_skill(bot.core / "weather", name="Weather")
    write_skill(bot.work / "skills" / "weather", name="My weather")
    assert names(bot.index()) == ["My weather"]


@pytest.mark.req("S000-5", "S000-27", "S000-29", "S000-6", "S000-28")
@pytest.mark.parametrize(
    ("head", "code"),
    [
        ("description: Has no name.", "name-missing"),
        ("name: ''\ndescription: Has an empty name.", "name-missing"),
        ("name: nameless", "description-missing"),
        ("name: nameless\ndescription: ''", "description-missing"),
        ("name:\ndescription:", "name-missing"),
    ],
)
def test_name_and_description_are_required(bot: Place, head: str, code: str) -> None:
    file = write(bot.core / "bad" / "SKILL.md", f"---\n{head}\n---\nBody.\n")
    write_skill(bot.core / "good")
    index = bot.index()
    assert names(index) == ["good"]
    assert index.diagnostics[0].code == code
    policy = bot.profile.parse_policy
    assert parse(file.read_bytes(), directory="bad", policy=policy).skill is None


@pytest.mark.req("S000-21")
def test_a_skill_has_id_meta_and_location_and_gives_its_body(bot: Place) -> None:
    text = "---\nname: My Skill\ndescription: Says hello.\nversion: 1.2.0\n---\nSay hello.\n"
    file = write(bot.work / "skills" / "hello" / "SKILL.md", text)
    (skill,) = bot.index().skills
    assert (skill.directory.name, skill.name, skill.description) == (
        "hello", "My Skill", "Says hello.",
    )  # fmt: skip
    assert (skill.frontmatter.version, skill.location) == ("1.2.0", file)
    assert load(skill).body == "Say hello.\n"


@pytest.mark.req("S000-69")
def test_a_skill_written_by_hand_with_a_chinese_description_is_listed(bot: Place) -> None:
    assert bot.index().skills == ()
    write(
        bot.home / ".owliabot" / "skills" / "my-skill" / "SKILL.md",
        "---\nname: my-skill\ndescription: 查询天气并用中文回答\n---\n# 步骤\n",
    )
    index = bot.index()
    assert descriptions(index) == ["查询天气并用中文回答"]
    assert "<description>查询天气并用中文回答</description>" in render_catalog(index).text


def test_links_to_directories_are_passed_over_and_named(bot: Place) -> None:
    write_skill(bot.base / "elsewhere" / "linked")
    (bot.work / "skills").mkdir()
    (bot.work / "skills" / "linked").symlink_to(bot.base / "elsewhere" / "linked")
    index = bot.index()
    assert (names(index), codes(index)) == ([], ["link-ignored"])


def test_only_direct_subdirectories_are_skills(bot: Place) -> None:
    write_skill(bot.core / "group" / "nested")
    write_skill(bot.core / "flat")
    assert names(bot.index()) == ["flat"]


@pytest.mark.req("S000-71")
def test_markdown_and_the_built_in_tools_suffice(
    bot: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "---\nname: hello\ndescription: Says hello.\n---\nSay hello.\n"
    file = write(bot.home / ".owliabot" / "skills" / "hello" / "SKILL.md", text)
    # Without programs there is no sandbox either.
    monkeypatch.setenv("PATH", "")
    places = Locations(
        start=bot.work, home=bot.home, environment={}, managed_file=bot.base / "none.toml"
    )
    with Skillhouse(load_config(places), profile="owliabot") as house:
        assert f"<location>{file}</location>" in house.catalog().text
        assert {tool.name for tool in house.tools()} == {
            *("read", "list", "write", "edit_file", "exec", "exec_output", "exec_stop"),
            *("web_fetch", "web_search", "memory_search", "memory_write"),
        }
        result = house.call_sync("read", {"path": str(file)})
    assert (result.status, result.content) == ("ok", text)
