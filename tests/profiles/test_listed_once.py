"""A skill is listed once per request, under every profile and whatever is offered."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.floor.structs import replace
from skillhouse.frontends.mcp.tool_list import ToolListing
from skillhouse.skill import DEFAULT_PROFILE, load_profile, profile_names
from tests.house.places import write_skill
from tests.profiles.houses import house_under

PROFILES = (*profile_names(), "default")


@pytest.mark.parametrize("name", sorted(set(PROFILES)))
def test_trap_25_no_request_lists_a_skill_twice(tmp_path: Path, name: str) -> None:
    """One list in the prompt and one in the tool cost twice as much (opencode #22236)."""
    write_skill(tmp_path / "skills/kestrel", "Finds nests of falcons.")
    written = load_profile(name)
    # The places of our own profile, so that the skill is found under each.
    profile = replace(
        DEFAULT_PROFILE,
        catalog=replace(written.catalog, budget_chars=None, description_chars=None),
        tools=written.tools,
        tools_without_skills=written.tools_without_skills,
        messages=written.messages,
    )
    with house_under(tmp_path, profile, roots=[tmp_path / "skills"]) as house:
        tools = house.tools()
        shown = "".join(tool.description for tool in tools)
        mcp = "".join(tool["description"] for tool in ToolListing(house, "default").tools())
        assert mcp == shown
        names = [tool.name for tool in tools]
        prompt = house.view().system_prompt()
        expected = 0 if profile.catalog.exposure == "search" else 1
        assert (prompt + shown).count("Finds nests of falcons.") == expected
        assert house.view().system_prompt(names) == prompt
        # A model that is offered fewer tools still gets the list once, from one place.
        of_skills = {rule.name for rule in profile.tools}
        others = [tool for tool in tools if tool.name not in of_skills]
        bare = house.view().system_prompt([tool.name for tool in others])
        described = "".join(tool.description for tool in others)
        # Design 002 lists no skills at all.
        expected = 1 if profile.catalog.exposure != "search" or profile.tools else 0
        assert (bare + described).count("Finds nests of falcons.") == expected
        assert house.view().system_prompt([]).count("Finds nests of falcons.") == expected
