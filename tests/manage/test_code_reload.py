"""Tests of manage/code_reload.py: how many skills are loaded at once, and in what order said."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from skillhouse.answers.service import failures, loaded_names, untried_names
from skillhouse.approval import Answer
from skillhouse.extensions.cells import CellSpec
from skillhouse.house import Skillhouse
from skillhouse.house.code_manifests import Lacking
from skillhouse.manage.code_reload import (
    LOADS_MAX,
    LoadedCode,
    Reloaded,
    at_once,
    load_code,
    reload_code,
)
from skillhouse.sandbox import SandboxError, SandboxStatus, SandboxUnavailableError
from skillhouse.tools import SkillCodeTool
from tests.house.coded import code_names, coded_house, played, tool, write_code
from tests.house.deferred import kinds_house
from tests.tools.houses import Person

SKILLS = [f"skill-{number:02}" for number in range(3 * at_once())]
ASKED = "asked about"
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


async def loaded(house: Skillhouse) -> tuple[LoadedCode, ...]:
    tools = [tool for tool in house.tools() if isinstance(tool, SkillCodeTool)]
    return await load_code(house, tools, agent="default")


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


GIVES = "export const tools = { t: async () => ({ gave: 1 }) };\n"
BROKEN = "export const tools = { t: async (\n"


def printed_house(base: Path, **more: Any) -> Skillhouse:
    """Return a house under design 002's profile, with its skills where the design has them."""
    house = coded_house(base, profile="owliabot-js", enabled=None, **more)
    house.project_trust.trust()
    return house


def place_of(base: Path) -> Path:
    return base / "project/workspace/skills"


def kinds(done: Reloaded) -> dict[str, tuple[str, bool, tuple[str, ...]]]:
    """Return by skill why it was not tried, whether it failed, and its tools."""
    return {one.skill: (one.untried, bool(one.error), one.tools) for one in done.loaded}


@pytest.mark.slow
@pytest.mark.req("S002-6", "S002-18", "S002-52", "S002-54")
def test_a_reload_tries_the_code_of_the_project_and_names_what_fails(
    status: SandboxStatus, tmp_path: Path, node: None
) -> None:
    write_code(place_of(tmp_path) / "good", GIVES, tool("t"), language="javascript")
    write_code(place_of(tmp_path) / "syn", BROKEN, tool("t"), language="javascript")
    write_code(place_of(tmp_path) / "less", GIVES, tool("t"), tool("absent"), language="javascript")

    async def scene(house: Skillhouse) -> None:
        done = await reload_code(house, agent="default")
        assert kinds(done) == {
            "good": ("", False, ("good:t",)),
            "less": ("", False, ("less:t",)),
            "syn": ("", True, ()),
        }
        failed = dict(failures(done.loaded, house.services.skill_code.problems))
        assert "SyntaxError" in failed["syn"]
        assert "less:absent" in failed
        assert [step for place, step in done.steps if place.name == "good"][-3:] == DONE
        # What no code exports is not offered any more.
        assert "less:absent" not in code_names(house)

    played(printed_house(tmp_path, status=status), scene)


@pytest.mark.slow
@pytest.mark.req("S002-55", "S002-56")
def test_edited_code_of_the_project_is_asked_about_until_it_is_trusted_again(
    status: SandboxStatus, tmp_path: Path, node: None
) -> None:
    skill = write_code(place_of(tmp_path) / "one", GIVES, tool("t"), language="javascript")

    async def scene(house: Skillhouse) -> None:
        assert (await house.call("one:t", {})).data == {"success": True, "data": {"gave": 1}}
        (skill / "index.js").write_text(GIVES.replace("1", "2"))
        assert kinds(await reload_code(house, agent="default")) == {
            "one": ("asked about", False, ("one:t",))
        }
        assert (await house.call("one:t", {})).status == "pending"
        house.project_trust.trust()
        assert kinds(await reload_code(house, agent="default")) == {"one": ("", False, ("one:t",))}
        assert (await house.call("one:t", {})).data == {"success": True, "data": {"gave": 2}}

    played(printed_house(tmp_path, status=status), scene)


@pytest.mark.parametrize(
    ("profile", "rules", "untried"),
    [
        ("owliabot-js", (), ""),
        ("owliabot-js", (("ask", "skill_tool", "*"),), ASKED),
        ("default", (), ASKED),
        ("default", (("allow", "skill_tool", "one:b"),), ""),
        ("default", (("allow", "skill_tool", "*"),), ""),
    ],
)  # fmt: skip
def test_code_is_imported_where_a_read_of_it_would_run(
    profile: str,
    rules: tuple[tuple[str, str, str], ...],
    untried: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = "workspace/skills" if profile == "owliabot-js" else ".agents/skills"
    write_code(tmp_path / "project" / root / "one", "tools = {}\n", tool("a", "write"), tool("b"))
    house = coded_house(tmp_path, None, *rules, profile=profile)
    house.project_trust.trust()
    loads = loading(house, monkeypatch, lambda _: anyio.lowlevel.checkpoint())

    async def scene(house: Skillhouse) -> None:
        done = await reload_code(house, agent="default")
        assert [one.untried for one in done.loaded] == [untried]
        assert loads.ended == ([] if untried else ["one"])
        assert loaded_names(done.loaded) == []
        assert untried_names(done.loaded) == (["one:a", "one:b"] if untried else [])

    played(house, scene)


@pytest.mark.slow
def test_a_reload_says_what_an_earlier_call_of_the_same_bytes_met(
    status: SandboxStatus, tmp_path: Path
) -> None:
    write_code(tmp_path / "project/.agents/skills/one", "1 / 0\n")
    house = coded_house(tmp_path, status=status, channel=Person([Answer.ONCE]))
    house.project_trust.trust()

    async def scene(house: Skillhouse) -> None:
        first = await reload_code(house, agent="default")
        assert [(one.untried, one.error) for one in first.loaded] == [("asked about", "")]
        assert "ZeroDivisionError" in (await house.call("one:tool", {})).content
        for _ in range(2):
            (after,) = (await reload_code(house, agent="default")).loaded
            assert (after.untried, "ZeroDivisionError" in after.error) == ("asked about", True)

    played(house, scene)


def test_code_whose_tools_have_no_room_is_left_to_its_first_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = kinds_house(tmp_path)

    async def load(skill: str) -> None:
        await anyio.lowlevel.checkpoint()

    loads = loading(house, monkeypatch, load)

    async def scene(house: Skillhouse) -> None:
        done = await reload_code(house, agent="default")
        assert loads.ended == []
        assert {one.untried for one in done.loaded} == {"left to its first call"}
        assert untried_names(done.loaded) == [f"kind-{number}:add" for number in range(6)]
        assert not failures(done.loaded, ())
        # What was loaded before may be other code now.
        earlier = {tmp_path / "kinds/kind-2": Lacking(digest="another", tools=())}
        house.services.skill_code.reloads.note(earlier)
        await reload_code(house, agent="default")
        assert loads.ended == ["kind-2"]

    played(house, scene)
