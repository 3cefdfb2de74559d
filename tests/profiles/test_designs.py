"""What several designs demand of the house as a whole, each under its own profile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from skillhouse.approval import Answer
from skillhouse.permission import Effect, Layer, Permission, Rule
from skillhouse.runtime import Skillhouse, configured
from skillhouse.skill import Skill
from skillhouse.tools import PermissionRequest
from tests.runtime.places import make_places, write_skill

TESTS = Path(__file__).resolve().parents[1]


class Says:
    """A channel that gives one answer and counts the questions."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked = 0

    async def ask(self, request: object) -> Answer:
        self.asked += 1
        return self.answer


@pytest.mark.req("S000-23")
def test_initialisation_gives_the_skills_the_block_and_the_instruction(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    write_skill(places.home / ".owliabot/skills/notes", description="Takes notes.")
    with Skillhouse(configured(places), profile="owliabot") as house:
        skills, block = house.view().visible.skills, house.catalog().text
        prompt = house.system_prompt()
    assert "notes" in [skill.name for skill in skills]
    assert block.startswith("<available_skills>\n  <skill")
    assert prompt.startswith("## Skills (mandatory)")
    assert prompt.endswith(f"\n\n{block}")


@pytest.mark.req("S000-71")
def test_a_markdown_skill_needs_no_program_no_sandbox_and_no_tool_of_its_own(
    tmp_path: Path,
) -> None:
    places = make_places(tmp_path)
    with Skillhouse(configured(places)) as house:
        before = [tool.name for tool in house.tools()]
    write_skill(places.home / ".agents/skills/notes", body="Write a file with `write`.\n")
    with Skillhouse(configured(places)) as house:
        assert [tool.name for tool in house.tools()] == before
        loaded = house.call_sync("skill", {"name": "notes"})
        assert "Write a file with `write`." in loaded.content
        assert house.services.sandbox.tested is None


@pytest.mark.req("S001-7")
@pytest.mark.parametrize(
    ("effect", "answer", "loads", "questions"),
    [
        (Effect.ALLOW, Answer.NO, True, 0),
        (Effect.ASK, Answer.ONCE, True, 1),
        (Effect.ASK, Answer.NO, False, 1),
        (Effect.DENY, Answer.ONCE, False, 0),
    ],
)
def test_the_permission_system_governs_loading(
    tmp_path: Path, effect: Effect, answer: Answer, loads: bool, questions: int
) -> None:
    rule = Rule(effect=effect, action="skill", pattern="weather")
    channel = Says(answer)
    layers = (Layer(name="user", rules=(rule,)),)
    with Skillhouse(configured(make_places(tmp_path)), layers=layers, channel=channel) as house:
        result = house.call_sync("skill", {"name": "weather"})
    assert (not result.is_error, channel.asked) == (loads, questions)
    assert ("# Weather" in result.content) == loads


@pytest.mark.req("S004-89")
def test_a_further_check_can_be_put_before_the_tool(tmp_path: Path) -> None:
    def not_at_night(skill: Skill) -> PermissionRequest | None:
        if skill.name != "weather":
            return None
        late = Permission(action="at-night", resource=skill.name)
        return PermissionRequest(permission=late, default=Effect.DENY, why="it is late")

    with Skillhouse(configured(make_places(tmp_path)), checks=[not_at_night]) as house:
        assert not house.call_sync("skill", {"name": "github"}).is_error
        result = house.call_sync("skill", {"name": "weather"})
        assert "# Weather" not in result.content
    assert (result.status, "it is late" in result.content) == ("denied", True)


@pytest.mark.req("S000-63")
@pytest.mark.parametrize("number", [*range(11, 23), *range(24, 35), *range(36, 41)])
def test_parsing_loading_errors_and_the_block_have_tests_of_their_own(number: int) -> None:
    mark = re.compile(rf'"S000-{number}"')
    others = [path for path in TESTS.rglob("test_*.py") if path != Path(__file__)]
    assert any(mark.search(path.read_text(encoding="utf-8")) for path in others)


AREAS = {
    "several directories": "S000-16",
    "names of tools": "S002-67",
    "errors": "S002-78",
    "a read runs": "S002-94",
    "the context": "S002-45",
    "who may write": "S000-73",
    "the confirmation": "S000-75",
    "the bounds of writing": "S000-72",
}


@pytest.mark.req("S000-64")
@pytest.mark.parametrize("area", AREAS)
def test_each_area_that_the_design_names_is_walked_through_whole(area: str) -> None:
    mark = re.compile(rf'"{AREAS[area]}"')
    others = [path for path in TESTS.rglob("test_*.py") if path != Path(__file__)]
    assert any(mark.search(path.read_text(encoding="utf-8")) for path in others)
