"""What starts before a call is decided must bring nothing of a skill into a sandbox."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skillhouse.house import Skillhouse
from skillhouse.sandbox import SandboxLevel
from skillhouse.tools import ToolResult
from tests.harness import Need
from tests.house.coded import best_sandbox, coded_house, played, recorded, tool, write_code

pytestmark = pytest.mark.slow

RAN = "tools = {'tool': lambda params, context: 'ran'}\n"
OTHER = "tools = {'tool': lambda params, context: 'other'}\n"
NAME = "one:tool"


@pytest.fixture
def house_of(tmp_path: Path, need: Need) -> Callable[..., Skillhouse]:
    status = best_sandbox(need)
    levels = (SandboxLevel.CGROUP, SandboxLevel.RLIMITS)
    need(status.level in levels, "cells start early in bubblewrap only")

    def make(*rules: tuple[str, str, str], **options: Any) -> Skillhouse:
        write_code(tmp_path / "skills/one", RAN, tool(), language=options.pop("language", "python"))
        return coded_house(tmp_path, tmp_path / "skills", *rules, status=status, **options)

    return make


def shown(house: Skillhouse) -> list[list[str]]:
    """Return the names that each cell shows where its skill is."""
    cells = house.config.state_directory / "cells" / "cells"
    return [sorted(os.listdir(cell)) for cell in cells.glob("cell-*/skill")]


async def early(house: Skillhouse, name: str = NAME) -> None:
    await house.services.skill_code.start_early(name, house.snapshot.code)


@pytest.mark.parametrize("effect", ["deny", "ask"])
def test_a_call_that_is_denied_or_waits_brings_no_code_into_the_cell(house_of, effect):
    async def scene(house: Skillhouse) -> ToolResult:
        await early(house)
        assert shown(house) == [[]]
        result = await house.call(NAME, {})
        assert shown(house) == [[]]
        return result

    house = house_of((effect, "skill_tool", "*"))
    assert played(house, scene).status == {"deny": "denied", "ask": "pending"}[effect]
    assert shown(house) == []


def test_the_code_comes_with_the_call_that_is_allowed_and_recorded(house_of):
    async def scene(house: Skillhouse) -> ToolResult:
        await early(house)
        assert not recorded(house)
        result = await house.call(NAME, {})
        assert shown(house) == [["main.py", "pyproject.toml"]]
        return result

    house = house_of(("allow", "skill_tool", "*"))
    assert played(house, scene).content == "ran"
    assert [entry.record.kind for entry in recorded(house)] == ["intent"]


def test_code_that_is_swapped_after_the_early_start_is_what_the_decision_is_about(house_of):
    """Its digest is taken by the plan, and not when the process was started."""

    async def scene(house: Skillhouse) -> ToolResult:
        await early(house)
        found = house.snapshot.code[0][1].directory
        (found / "main.py").write_text(OTHER)
        return await house.call(NAME, {})

    house = house_of(("allow", "skill_tool", "*"))
    assert played(house, scene).content == "other"
    assert shown(house) == []


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("one:other", {}),
        ("exec", {}),
        (NAME, {"enabled": False}),
        (NAME, {"language": "javascript"}),
        (NAME, {"in_process": ("skilltree1:" + "0" * 64,)}),
    ],
)
def test_nothing_is_started_early_for_anything_else(house_of, name, options):
    async def scene(house: Skillhouse) -> list[list[str]]:
        await early(house, name)
        return shown(house)

    assert played(house_of(**options), scene) == []


def test_the_code_of_a_project_that_is_not_trusted_starts_nothing(house_of, tmp_path):
    house = house_of()
    project = house.config.places.start / ".agents/skills/theirs"
    write_code(project, RAN, tool())

    async def scene(house: Skillhouse) -> list[list[str]]:
        await early(house, "theirs:tool")
        return shown(house)

    assert played(house, scene) == []
