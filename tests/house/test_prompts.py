"""Tests of house/prompts.py: what a model is told of the skills outside of the skill tool."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from skillhouse.answers.catalogs import catalog_bounds
from skillhouse.frontends.adapters.framework_bridge import (
    FrameworkBridge,
    description_chars,
)
from skillhouse.frontends.adapters.openai import skillhouse_tools
from skillhouse.house import Skillhouse, configured
from skillhouse.house.model_tools import OPENAI_CHARS
from skillhouse.presentation.library import view_notes
from skillhouse.skill import tokens_of
from tests.house.places import make_places, write_skill

LONG = "Reads and writes documents of one kind or another with comments and styles. " * 5


def house_with(base: Path, count: int, **overrides: Any) -> Skillhouse:
    """Return a house with so many skills of the user."""
    for at in range(count):
        write_skill(base / f"home/.agents/skills/skill-{at:03}", LONG)
    return Skillhouse(configured(make_places(base)), **overrides)


def test_a_system_prompt_says_what_its_budget_leaves_out(tmp_path: Path) -> None:
    with house_with(tmp_path, 60, catalog_budget_tokens=150) as house:
        catalog = house.catalog()
        assert catalog.omitted
        assert catalog.tokens <= 150
        prompt = house.view().prompts("mcp__x__").system(always=True)
        assert re.search(r"\n\n1\d more: `mcp__x__search_skills`\nby name alone: ", prompt)
        assert "`mcp__x__skill`" in prompt
        # Without the tool that finds them, it names none.
        assert "more are not listed" in house.system_prompt(offered=["read"])


def test_a_model_without_the_skill_tool_gets_the_files_of_all_skills(tmp_path: Path) -> None:
    with house_with(tmp_path, 30) as house:
        prompt = house.system_prompt(offered=["read"])
        assert prompt.startswith("## Skills (mandatory)\n")
        assert all(skill.file in prompt for skill in house.view().visible.skills)


@pytest.mark.parametrize("profile", ["opencode", "claude-desktop", "owliabot"])
def test_the_lists_of_the_designs_have_no_bound(tmp_path: Path, profile: str) -> None:
    with house_with(
        tmp_path, 60, profile=profile, roots=[tmp_path / "home/.agents/skills"]
    ) as house:
        assert house.catalog().omitted == ()
        assert house.view().tool_catalog(None).omitted == ()
        assert view_notes(house.view()) == []


@pytest.mark.parametrize(("budget", "listed"), [(0, 0), (10_000, 63)])
def test_a_configured_budget_comes_before_that_of_the_profile(
    tmp_path: Path, budget: int, listed: int
) -> None:
    with house_with(tmp_path, 60, catalog_budget_tokens=budget) as house:
        assert len(house.catalog().included) == listed


def test_a_provider_like_openai_gets_no_longer_description_than_it_takes(tmp_path: Path) -> None:
    with house_with(tmp_path, 60) as house:
        for tool in skillhouse_tools(house):
            assert len(tool["description"]) <= OPENAI_CHARS
        desk = FrameworkBridge(house=house, channel="test")
        short, whole = (
            {t.name: t.description for t in desk.tools(n)} for n in (OPENAI_CHARS, None)
        )
        assert short["read"] == whole["read"]
        assert len(short["skill"]) < len(whole["skill"]) <= 8_200
        assert "skill-000" not in desk.tools(lists=False)[0].description


@pytest.mark.parametrize("count", [0, 41, 72, 197])
def test_where_a_description_has_no_room_the_prompt_has_the_list_and_the_schema_the_names(
    tmp_path: Path, count: int
) -> None:
    with house_with(tmp_path, count) as house:
        names = [skill.name for skill in house.view().visible.skills]
        bridge = FrameworkBridge(house=house, channel="test")
        tools, prompt = bridge.offer(OPENAI_CHARS)
        [told] = [tool.description for tool in tools if tool.name == "skill"]
        # The list is in one place of the two, and names every skill.
        assert bool(prompt) == ("github: " not in told) == (count > 0)
        assert all(f"{name}" in (prompt or told) for name in names)
        assert tokens_of(prompt) <= 2_100
        # A program that takes the tools alone gets the names in any case.
        [alone] = [tool for tool in skillhouse_tools(house) if tool["name"] == "skill"]
        named = alone["parameters"]["properties"]["name"].get("enum", [])
        assert all(name in alone["description"] or name in named for name in names)
        assert len(alone["description"]) <= OPENAI_CHARS


def test_providers_have_their_own_bounds() -> None:
    assert (description_chars("openai"), description_chars("google-gla")) == (OPENAI_CHARS, None)


@pytest.mark.parametrize("profile", ["openseed", "default", "owliabot"])
def test_the_instructions_name_the_profiles_tools(tmp_path: Path, profile: str) -> None:
    with house_with(
        tmp_path, 1, profile=profile, roots=[tmp_path / "home/.agents/skills"]
    ) as house:
        text = house.view().prompts().instructions()
        wanted = {
            "openseed": "`search_skills`; if there is one, load it with the tool `load_skill`",
            "default": "load the one that fits with the tool `skill`, and follow it: skill-000, ",
            "owliabot": "read its SKILL.md at <location> with `read`, then follow it.",
        }
        assert wanted[profile] in text
        assert ("skill-000" in text) is (profile != "openseed")


def test_what_is_left_out_is_said_for_people(tmp_path: Path) -> None:
    with house_with(tmp_path, 200, catalog_budget_tokens=400) as house:
        report = catalog_bounds(house.view())
        assert report.tool is not None
        assert report.listed + report.omitted == report.tool.listed + report.tool.omitted
        found = "skills; `search_skills` finds them"
        in_tool = report.tool.omitted
        assert view_notes(house.view()) == [
            f"left out of the catalog of 400 tokens: {report.omitted} {found}",
            f"left out of the skill tool's description of 2,000 characters: {in_tool} {found}",
        ]
