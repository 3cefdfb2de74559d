"""Tests of runtime/code_reload.py: how many skills are loaded at once, and in what order said."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from skillhouse.cells import CellSpec
from skillhouse.runtime import Skillhouse
from skillhouse.runtime.code_reload import LOADS_MAX, Loaded, at_once, load_code, reload_code
from skillhouse.sandbox import SandboxError, SandboxUnavailableError
from skillhouse.tools import SkillCodeTool
from tests.runtime.coded import coded_house, played, write_code

SKILLS = [f"skill-{number:02}" for number in range(3 * at_once())]
DONE = ["imported", "exports checked", "registered"]

Load = Callable[[str], Awaitable[None]]


class Loads:
    """A runner that loads as a test says, and sees what goes on at the same time."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self.running: set[str] = set()
        self.most = 0
        self.ended: list[str] = []

    async def tool_names(self, spec: CellSpec) -> tuple[str, ...]:
        self.running.add(spec.skill)
        self.most = max(self.most, len(self.running))
        try:
            await self._load(spec.skill)
        finally:
            self.running.discard(spec.skill)
            self.ended.append(spec.skill)
        return ("tool",)


@pytest.fixture
def house(tmp_path: Path) -> Skillhouse:
    for name in SKILLS:
        write_code(tmp_path / "skills" / name, "tools = {}\n")
    return coded_house(tmp_path, tmp_path / "skills")


def loading(house: Skillhouse, monkeypatch: pytest.MonkeyPatch, load: Load) -> Loads:
    """Have a house load code as `load` does."""
    loads = Loads(load)

    async def runner(digest: str, language: str) -> Loads:
        return loads

    monkeypatch.setattr(house.services.skill_code, "runner", runner)
    return loads


async def loaded(house: Skillhouse) -> tuple[Loaded, ...]:
    tools = [tool for tool in house.tools() if isinstance(tool, SkillCodeTool)]
    return await load_code(tools, house.services.skill_code, agent="default")


@pytest.mark.req("S002-52")
def test_several_are_loaded_at_once_and_told_in_order(
    house: Skillhouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = anyio.Event()

    async def load(skill: str) -> None:
        # Nobody ends before as many as may run do run: fewer would wait for ever.
        if len(loads.running) == at_once():
            full.set()
        await full.wait()
        # The later, the sooner it ends.
        for _ in range(len(SKILLS) - SKILLS.index(skill)):
            await anyio.lowlevel.checkpoint()
        if skill == SKILLS[1]:
            raise SandboxError("skill-failed", "it is broken")

    loads = loading(house, monkeypatch, load)
    said: list[tuple[int, int]] = []

    async def scene(house: Skillhouse) -> None:
        with anyio.fail_after(20):
            done = await reload_code(
                house, agent="default", progress=lambda *found: said.append(found)
            )
        assert loads.most == at_once() <= LOADS_MAX
        assert loads.ended != sorted(loads.ended)
        assert [one.skill for one in done.loaded] == SKILLS
        assert [one.skill for one in done.loaded if one.error] == [SKILLS[1]]
        steps = [(place.name, step) for place, step in done.steps if step in DONE]
        whole = [name for name in SKILLS if name != SKILLS[1]]
        assert steps == [(name, step) for name in whole for step in DONE]
        assert said == [(number + 1, len(SKILLS)) for number in range(len(SKILLS))]

    played(house, scene)


def test_without_a_sandbox_there_is_one_answer_and_nothing_goes_on(
    house: Skillhouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def load(skill: str) -> None:
        if skill == SKILLS[1]:
            raise SandboxUnavailableError(reasons=("no namespaces",), hint="")
        await anyio.sleep_forever()

    loads = loading(house, monkeypatch, load)

    async def scene(house: Skillhouse) -> None:
        with anyio.fail_after(20), pytest.raises(SandboxUnavailableError):
            await loaded(house)
        assert (loads.running, len(loads.ended)) == (set(), at_once())

    played(house, scene)


def test_a_reload_that_is_cancelled_remembers_nothing(
    house: Skillhouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def load(skill: str) -> None:
        if skill != SKILLS[0]:
            scopes[0].cancel()
            await anyio.sleep_forever()

    loads = loading(house, monkeypatch, load)
    scopes: list[anyio.CancelScope] = []

    async def scene(house: Skillhouse) -> None:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            await reload_code(house, agent="default")
        assert scope.cancelled_caught
        assert (loads.running, SKILLS[0] in loads.ended) == (set(), True)
        known = house.services.skill_code.reloads.lacking()
        assert not any(known(one.skill.directory) for one in tools)

    tools = [tool for tool in house.tools() if isinstance(tool, SkillCodeTool)]
    played(house, scene)
