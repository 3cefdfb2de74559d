"""The prompt of design 000 under its profile: instruction and block, read by location."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from skillhouse.floor.structs import replace
from skillhouse.skill import load_profile
from tests.golden.places import golden, in_place, two_skills
from tests.house.places import write_skill
from tests.profiles.houses import house_under, rule

OWLIABOT = load_profile("owliabot")

INSTRUCTION = """\
## Skills (mandatory)

Before replying: scan <available_skills> <description> entries.
- If exactly one skill clearly applies: read its SKILL.md at <location> with `read`, then follow it.
- If multiple could apply: choose the most specific one, then read/follow it.
- If none clearly apply: do not read any SKILL.md.

Constraints: never read more than one skill up front; only read after selecting."""
"""Seed 000, section 4.1, as published."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    two_skills(tmp_path / "home/.owliabot/skills")
    return tmp_path / "home/.owliabot/skills"


@pytest.mark.req("S000-42", "S000-43", "S000-44", "S000-45", "S000-46", "S000-47")
def test_the_system_prompt_has_the_instruction_and_then_the_block(
    tmp_path: Path, place: Path
) -> None:
    with house_under(tmp_path, "owliabot", rule("deny", "*"), roots=[place]) as house:
        assert house.view().system_prompt() == ""
        assert house.view().system_prompt([]) == ""
    with house_under(tmp_path, "owliabot", roots=[place]) as house:
        prompt = house.view().system_prompt()
        assert house.view().system_prompt([]) == prompt
        instruction, block = prompt.split("\n\n<available_skills>\n")
        assert instruction == INSTRUCTION
        assert f"<available_skills>\n{block}" == house.catalog().text
        for name in ("weather", "github"):
            assert prompt.count(f"<location>{place}/{name}/SKILL.md</location>") == 1


@pytest.mark.req("S000-36", "S000-39")
def test_the_block_of_these_two_is_the_published_one(tmp_path: Path, place: Path) -> None:
    with house_under(tmp_path, "owliabot", rule("deny", "skill-*"), roots=[place]) as house:
        text = in_place(house.catalog().text, place)
    entries = re.findall(r"  <skill>\n(?:    .*\n)+  </skill>\n", golden("catalog_xml"))
    assert len(entries) == 2
    assert all(entry in text for entry in entries)


@pytest.mark.req("S000-35", "S000-41")
def test_a_profile_may_want_the_empty_element_and_the_attributes(
    tmp_path: Path, place: Path
) -> None:
    catalog = replace(OWLIABOT.catalog, attributes=True, empty="<available_skills />")
    profile = replace(OWLIABOT, catalog=catalog)
    with house_under(tmp_path, profile, rule("deny", "*"), roots=[place]) as house:
        assert house.view().system_prompt() == "<available_skills />"
    with house_under(tmp_path, profile, roots=[place]) as house:
        prompt = house.view().system_prompt()
        assert '  <skill id="weather">\n    <name>weather</name>\n' in prompt
        assert prompt.count("    <version>1.2.0</version>\n") == 1
        # The other is that of a builtin skill; those without a version have no such element.
        assert prompt.count("<version>") == 2


@pytest.mark.req("S000-48", "S000-50")
def test_the_named_tool_reads_every_listed_location_whole(tmp_path: Path, place: Path) -> None:
    write_skill(place / "R&D <x>", body="Odd.\n")
    with house_under(tmp_path, "owliabot", roots=[place]) as house:
        assert "with `read`" in house.view().system_prompt()
        assert "read" in [tool.name for tool in house.tools()]
        block = ET.fromstring(house.catalog().text)
        locations = [entry.findtext("location") for entry in block]
        assert len(locations) >= 3
        for location in locations:
            assert location is not None
            result = house.call_sync("read", {"path": location})
            assert (result.status, result.content) == ("ok", Path(location).read_text())


def test_no_tool_lists_or_loads_skills(tmp_path: Path, place: Path) -> None:
    with house_under(tmp_path, "owliabot", roots=[place]) as house:
        assert [tool.name for tool in house.tools()] == [
            *("read", "list", "write", "edit_file", "exec", "exec_output", "exec_stop"),
            *("web_fetch", "web_search", "memory_search", "memory_write"),
        ]
