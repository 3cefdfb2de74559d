"""The prompts and the skill tool of design 004 under its profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skillhouse.approval import Answer
from skillhouse.floor.structs import replace
from skillhouse.house import Skillhouse, configured
from skillhouse.permission import Layer
from skillhouse.skill import load_profile
from tests.golden.places import golden, in_place, two_skills
from tests.house.places import make_places, write_skill
from tests.profiles.houses import house_under, rule
from tests.tools.houses import Person
from tests.tools.test_skills import tool


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The two skills, which this profile reads as the user's."""
    two_skills(tmp_path / "home/.claude/skills")
    return tmp_path / "home/.claude/skills"


@pytest.mark.req("S004-40", "S004-33", "S004-36", "S004-39", "S004-44")
def test_which_prompt_serves_depends_on_the_tools_that_are_offered(
    tmp_path: Path, place: Path
) -> None:
    with house_under(tmp_path, "claude-desktop") as house:
        view = house.view()
        # Sorted by the names of directories, where the golden files have them the other way round.
        assert [skill.name for skill in view.visible.skills] == ["github", "weather"]

        def same(text: str, style: str) -> bool:
            lines = in_place(text, place).splitlines()
            return sorted(lines) == sorted(golden(f"catalog_{style}").splitlines())

        assert same(view.system_prompt(["read", "exec"]), "awareness")
        assert same(view.system_prompt([]), "direct")
        assert view.system_prompt() == view.system_prompt(["skill", "read"]) == ""
        shown = tool(house, "skill").description
        assert same(shown[shown.index("## Available Skills") :], "tool")
    with house_under(tmp_path, "claude-desktop", rule("deny", "*")) as house:
        assert house.view().system_prompt(["read"]) == ""
        assert house.view().system_prompt([]) == ""


def test_the_direct_prompt_has_no_body_that_must_be_asked_for(tmp_path: Path, place: Path) -> None:
    with house_under(tmp_path, "claude-desktop", rule("ask", "weather")) as house:
        found = house.view().catalog(style="direct")
        assert "Use gh." in found.text
        assert "Ask the service" not in found.text
        assert [skill.name for skill in found.omitted] == ["weather"]


@pytest.mark.req("S004-43", "S004-45", "S004-52")
def test_the_parameter_is_one_of_the_skills_the_agent_may_use(tmp_path: Path, place: Path) -> None:
    with house_under(tmp_path, "claude-desktop", rule("deny", "weather")) as house:
        found = tool(house, "skill")
        assert found.schema["properties"]["skill"]["enum"] == ["user:github"]
        assert "weather" not in found.description
    with house_under(tmp_path, "claude-desktop", rule("deny", "*")) as house:
        assert tool(house, "skill").schema["properties"]["skill"]["enum"] == [""]


def answer(house: Any, **arguments: str) -> tuple[str, Any]:
    result = house.call_sync("skill", arguments)
    return result.status, result.data


@pytest.mark.req("S004-46", "S004-47", "S004-52", "S001-50")
def test_what_is_not_loaded_is_said_in_the_published_words(tmp_path: Path, place: Path) -> None:
    with house_under(tmp_path, "claude-desktop", rule("deny", "weather")) as house:
        assert answer(house, skill="wether") == (
            "error",
            {"title": "Skill not found", "output": "Unknown skill: wether", "metadata": {}},
        )
        for name in ("weather", "user:weather"):
            assert answer(house, skill=name) == (
                "denied",
                {
                    "title": "Access denied",
                    "output": 'You don\'t have permission to use "weather" skill',
                    "metadata": {},
                },
            )
        assert answer(house, skill="")[0] == "error"


@pytest.mark.req("S004-50", "S004-53")
@pytest.mark.parametrize("reference", ["user:weather", "weather"])
def test_a_loaded_skill_has_the_published_title_output_and_metadata(
    tmp_path: Path, place: Path, reference: str
) -> None:
    person = Person()
    with house_under(tmp_path, "claude-desktop", person=person) as house:
        for parameter in ("skill", "name"):
            assert answer(house, **{parameter: reference}) == (
                "ok",
                {
                    "title": "Loaded: weather",
                    "output": "# Weather\n\nAsk the service.",
                    "metadata": {
                        "skillName": "weather",
                        "skillSource": "user",
                        "permission": "allow",
                    },
                },
            )
    assert person.asked == []


@pytest.mark.req("S004-49")
def test_a_skill_to_ask_about_is_asked_about_by_its_pattern(tmp_path: Path, place: Path) -> None:
    person = Person([Answer.NO, Answer.ONCE])
    with house_under(tmp_path, "claude-desktop", rule("ask", "weather"), person=person) as house:
        refused = house.call_sync("skill", {"skill": "user:weather"})
        assert (refused.status, "Ask the service" in refused.content) == ("denied", False)
        status, data = answer(house, skill="user:weather")
    assert (status, data["metadata"]["permission"]) == ("ok", "ask")
    assert dict(person.asked[0].found)["asks for"] == "skill/weather"


@pytest.mark.req("S004-42")
def test_the_tool_has_the_published_names_and_runs_by_itself(tmp_path: Path, place: Path) -> None:
    person = Person()
    with house_under(tmp_path, "claude-desktop", person=person) as house:
        found: Any = tool(house, "skill")
        described = (found.name, found.title, found.category, found.reads_only, found.durable)
        assert described == ("skill", "Skill", "builtin", True, False)
        assert answer(house, skill="weather")[0] == "ok"
    assert person.asked == []


@pytest.mark.req("S004-51")
def test_in_the_flow_variant_the_file_is_read_at_the_call(tmp_path: Path, place: Path) -> None:
    written = load_profile("claude-desktop")
    messages = {**written.messages, "loaded_title": "Loaded skill: {name}"}
    profile = replace(written, load_style="titled", messages=messages)
    with house_under(tmp_path, profile) as house:
        house.tools()
        file = place / "github/SKILL.md"
        file.write_text(file.read_text().replace("Use gh.", "Use the new gh."))
        result = house.call_sync("skill", {"skill": "github"})
        assert result.content.startswith(
            "# Skill: github\nWorks with pull requests.\nUse the new gh.\n"
        )
        assert dict(result.data or {})["title"] == "Loaded skill: github"


@pytest.mark.req("S004-44")
def test_the_description_changes_with_the_skills(tmp_path: Path, place: Path) -> None:
    with house_under(tmp_path, "claude-desktop") as house:
        before = tool(house, "skill").description
        write_skill(place / "kestrel", "Finds nests.")
        house.refresh()
        after = tool(house, "skill").description
    assert "kestrel" not in before
    assert "- **kestrel**: Finds nests.\n" in after


@pytest.mark.req("S004-32", "S004-31")
def test_two_skills_of_one_id_are_both_listed_and_both_loaded(tmp_path: Path, place: Path) -> None:
    other = tmp_path / "other"
    write_skill(other / "weather", body="Another.\n")
    places = {"CLAUDE_SKILLS_DIR": str(other)}
    with Skillhouse(configured(make_places(tmp_path, places)), profile="claude-desktop") as house:
        values = tool(house, "skill").schema["properties"]["skill"]["enum"]
        files = [str(root / "weather/SKILL.md") for root in (place, other)]
        assert [value for value in values if "weather" in value] == files
        outputs = [answer(house, skill=file)[1]["output"] for file in files]
        assert outputs == ["# Weather\n\nAsk the service.", "Another."]
        assert answer(house, skill="weather")[1]["title"] == "Skill not found"
    denied = Layer(name="user", rules=(rule("deny", "weather"),))
    with Skillhouse(
        configured(make_places(tmp_path, places)), profile="claude-desktop", layers=(denied,)
    ) as house:
        assert answer(house, skill="weather")[1]["title"] == "Access denied"


@pytest.mark.req("S004-86")
def test_a_scripted_dialogue_loads_the_skill_and_follows_its_steps(
    tmp_path: Path, place: Path
) -> None:
    """The model of this dialogue takes its words from what it was shown."""
    body = "Read table.md, which lies beside this file, and answer with its first line.\n"
    weather = place / "weather/SKILL.md"
    weather.write_text(f"---\nname: weather\ndescription: Tells the weather.\n---\n{body}")
    with house_under(tmp_path, "claude-desktop") as house:
        shown = tool(house, "skill")
        line = next(row for row in shown.description.splitlines() if "Tells the weather" in row)
        name = line.partition("**: ")[0].removeprefix("- **")
        assert name in {value.partition(":")[2] for value in enum_of(shown)}
        status, loaded = answer(house, skill=name)
        assert (status, loaded["output"]) == ("ok", body.strip())
        wanted = place / name / loaded["output"].split()[1].rstrip(",")
        assert house.call_sync("read", {"path": str(wanted)}).content == "| sun |\n"


def enum_of(shown: Any) -> list[str]:
    return list(shown.schema["properties"]["skill"]["enum"])
