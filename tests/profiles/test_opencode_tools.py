"""The skill tool of design 001 under its profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.approval import Answer
from tests.golden.places import golden, in_place, two_skills
from tests.house.places import write_skill
from tests.profiles.houses import house_under, opened_files, rule
from tests.tools.houses import Person
from tests.tools.test_skills import tool

ALLOW = rule("allow", "*")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    two_skills(tmp_path / "home/.config/opencode/skills")
    return tmp_path / "home/.config/opencode/skills"


@pytest.mark.req("S001-39", "S001-40", "S001-41")
def test_the_tool_describes_itself_and_takes_one_text(tmp_path: Path, place: Path) -> None:
    with house_under(tmp_path, "opencode", ALLOW, roots=[place]) as house:
        found = tool(house, "skill")
        assert "step by step" in found.description
        for name in ("weather", "github"):
            assert f"    <name>{name}</name>\n    <description>" in found.description
            assert f"<location>{(place / name).as_uri()}/SKILL.md</location>" in found.description
        names = [skill.name for skill in house.catalog().included]
        assert names == sorted(names)
        assert found.schema == {
            "type": "object",
            "properties": {"name": {"type": "string", "description": "the skill to load"}},
            "required": ["name"],
            "additionalProperties": False,
        }


@pytest.mark.req("S001-46")
def test_without_skills_the_tool_says_so_and_answers(tmp_path: Path) -> None:
    with house_under(tmp_path, "opencode", rule("deny", "*")) as house:
        assert tool(house, "skill").description.endswith("No skills are currently available.")
        result = house.call_sync("skill", {"name": "pdf"})
        words = 'Skill "pdf" not found. Available skills: none'
        assert (result.status, result.content) == ("error", words)


@pytest.mark.req("S001-57", "S001-43", "S001-50", "S001-51")
def test_an_unknown_and_a_denied_skill_get_the_same_answer(tmp_path: Path, place: Path) -> None:
    denied = rule("deny", "weather")
    with house_under(tmp_path, "opencode", ALLOW, denied, roots=[place]) as house:
        house.tools()
        available = ", ".join(dict.fromkeys(skill.name for skill in house.view().visible.skills))
        assert "github" in available
        for name in ("weather", "wether", "explicit:weather"):
            with opened_files() as names:
                result = house.call_sync("skill", {"name": name})
            words = f'Skill "{name}" not found. Available skills: {available}'
            assert (result.status, result.content) == ("error", words)
            assert result.data == {"title": "Skill not found", "output": words, "metadata": {}}
            assert not [name for name in names if "weather" in name]


@pytest.mark.req("S001-55", "S001-76", "S001-53")
def test_the_output_has_a_title_the_body_and_a_little_metadata(tmp_path: Path, place: Path) -> None:
    person = Person()
    with house_under(tmp_path, "opencode", ALLOW, roots=[place], person=person) as house:
        result = house.call_sync("skill", {"name": "weather"})
    assert in_place(result.content, place) == golden("load_opencode")
    assert result.data == {
        "title": "Loaded skill: weather",
        "output": result.content,
        "metadata": {"name": "weather", "dir": str(place / "weather")},
    }
    assert person.asked == []


def test_ten_files_are_listed(tmp_path: Path, place: Path) -> None:
    for number in range(30):
        (place / f"github/{number:02}.md").write_text("")
    (place / "github/.hidden").write_text("")
    (place / "github/link").symlink_to("00.md")
    with house_under(tmp_path, "opencode", ALLOW, roots=[place]) as house:
        text = house.call_sync("skill", {"name": "github"}).content
    assert text.count("<file>") == 10
    assert f"<file>{place}/github/.hidden</file>" in text
    assert "/link<" not in text
    assert "SKILL.md<" not in text


@pytest.mark.req("S001-45", "S001-52", "S001-67")
def test_a_skill_to_ask_about_is_listed_and_asked_about(tmp_path: Path, place: Path) -> None:
    person = Person([Answer.NO, Answer.ONCE])
    ask = rule("ask", "weather")
    with house_under(tmp_path, "opencode", ALLOW, ask, roots=[place], person=person) as house:
        assert "<name>weather</name>" in tool(house, "skill").description
        refused = house.call_sync("skill", {"name": "weather"})
        assert (refused.status, "Ask the service" in refused.content) == ("denied", False)
        assert house.call_sync("skill", {"name": "weather"}).status == "ok"
    assert len(person.asked) == 2


@pytest.mark.req("S001-34", "S001-37")
def test_a_second_listing_opens_no_file_and_no_directory(tmp_path: Path) -> None:
    root = tmp_path / "skills"
    for number in range(5):
        write_skill(root / f"skill-{number}")
    with house_under(tmp_path, "opencode", roots=[root], cache_directory=None) as house:
        with opened_files() as first:
            listed = [skill.name for skill in house.view().visible.skills]
        with opened_files() as second:
            assert [skill.name for skill in house.view().visible.skills] == listed
            assert house.catalog().text
        assert len([name for name in first if name.endswith("SKILL.md")]) >= 5
        assert [name for name in second if "state.sqlite3" not in name] == []
        write_skill(root / "late")
        assert "late" not in [skill.name for skill in house.view().visible.skills]
        house.refresh()
        assert "late" in [skill.name for skill in house.view().visible.skills]


@pytest.mark.req("S001-54")
def test_the_body_is_read_from_the_location_in_the_index_at_that_moment(tmp_path: Path) -> None:
    weak, strong = tmp_path / "weak", tmp_path / "strong"
    write_skill(weak / "pdf", body="WEAK\n")
    file = write_skill(strong / "pdf", body="FIRST\n") / "SKILL.md"
    with house_under(tmp_path, "opencode", ALLOW, roots=[weak, strong]) as house:
        assert house.view().visible.get("pdf").location == file
        file.write_text(file.read_text().replace("FIRST", "SECOND"))
        with opened_files() as names:
            content = house.call_sync("skill", {"name": "pdf"}).content
        assert "SECOND" in content
        assert "FIRST" not in content
        assert not [name for name in names if str(weak) in name]
        # What is strong now is not what the index has.
        moved = write_skill(tmp_path / "strong/other/pdf", body="MOVED\n")
        file.rename(file.with_name("gone.md"))
        result = house.call_sync("skill", {"name": "pdf"})
        assert (result.status, "MOVED" in result.content) == ("error", False)
        assert moved.exists()
