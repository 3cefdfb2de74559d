"""What several designs demand of the house as a whole, each under its own profile."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest

from skillhouse.approval import Answer
from skillhouse.house import Skillhouse, configured
from skillhouse.permission import Effect, Layer, Permission, Rule
from skillhouse.skill import Skill
from skillhouse.tools import PermissionRequest, UnknownToolError, WriteGate
from tests.harness import Need
from tests.house.coded import best_sandbox, coded_house, letting_go, tool, write_code
from tests.house.places import make_places, write_skill
from tests.tools.houses import Person

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


LOOK = """
    def look(params, context):
        return dict(context.meta)

    def fail(params, context):
        raise ValueError("no such coin")

    tools = {"look": look, "fail": fail}
"""


@pytest.mark.slow
@pytest.mark.req("S000-64")
def test_one_house_goes_through_roots_names_errors_reads_the_context_and_the_write_gate(
    tmp_path: Path, need: Need
) -> None:
    status, person = best_sandbox(need), Person([Answer.ONCE])
    for directory in (tmp_path / "skills/one", tmp_path / "home/.agents/skills/two"):
        write_code(directory, LOOK, tool("look"), tool("fail"))
    write_skill(tmp_path / "home/.agents/skills/notes")
    gate = WriteGate(enabled=True, allow_users=("mika",))
    house = coded_house(
        tmp_path, tmp_path / "skills", status=status, channel=person, write_gate=gate
    )

    async def main() -> None:
        async with letting_go(house):
            # Skills of two directories, and tools under the names of their skills.
            assert "notes" in [skill.name for skill in house.index.skills]
            for name, skill in (("one:look", "one"), ("one__look", "one"), ("two:look", "two")):
                read = await house.call(name, {}, user="mika", channel="cli")
                # A read runs unasked, and its context says whose call it is.
                assert read.data
                meta = dict(read.data["data"])
                assert meta.pop("callId")
                assert meta == {
                    "skillName": skill,
                    "toolName": "look",
                    "userId": "mika",
                    "channel": "cli",
                }
            failed = await house.call("one:fail", {})
            assert (failed.status, failed.content) == ("error", "ValueError: no such coin")
            with pytest.raises(UnknownToolError):
                await house.call("one:none", {})
            assert person.asked == []
            # Who is not listed is refused unasked; who is writes once it is agreed to, and beneath.
            target = tmp_path / "project/a.txt"
            written = {"path": "a.txt", "content": "new"}
            refused = await house.call("write", written, user="robin")
            assert (refused.status, target.exists(), person.asked) == ("denied", False, [])
            assert (await house.call("write", written, user="mika")).status == "ok"
            assert (target.read_text(), len(person.asked)) == ("new", 1)
            outside = await house.call("write", {**written, "path": "../b.txt"}, user="mika")
            assert (outside.is_error, (tmp_path / "b.txt").exists()) == (True, False)
            assert (await house.call("write", {**written, "content": "x"}, user="mika")).is_error
            assert target.read_text() == "new"

    anyio.run(main)
