"""Tests of house/code_manifests.py: a reload reaches every process of a house."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from skillhouse.extensions.cells import Executor
from skillhouse.floor import encode, tree_digest
from skillhouse.house import SkillCodeSettings, Skillhouse, configured
from skillhouse.house.code_manifests import RELOADS_FILE, Lacking, Reloads
from skillhouse.manage.code_reload import load_code, reload_code
from skillhouse.sandbox import SandboxStatus
from skillhouse.tools import SkillCodeTool, UnknownToolError
from tests.house.coded import (
    code_names,
    coded_house,
    letting_go,
    played,
    tool,
    write_code,
)
from tests.house.places import make_places

pytestmark = pytest.mark.under("owliabot-js")

LACKS = Lacking(digest="sha256:1", tools=("absent",))
GIVES = "tools = {'tool': lambda params, context: {'gave': '%s'}, 'hidden': print}\n"
SOURCES = {
    "python": GIVES % "x",
    "javascript": "export const tools = { tool: async () => ({}), hidden: async () => 1 };\n",
}


def test_every_process_hears_of_a_reload_once(tmp_path: Path) -> None:
    one, other = Reloads(tmp_path / "state"), Reloads(tmp_path / "state")
    assert (one.is_new(), other.is_new()) == (False, False)
    one.signal_all()
    assert (one.is_new(), other.is_new()) == (True, True)
    assert (one.is_new(), other.is_new()) == (False, False)
    one.signal_all()
    assert other.is_new()
    # Who starts later has read everything by itself.
    assert not Reloads(tmp_path / "state").is_new()


def test_what_code_lacks_is_known_until_the_next_reload(tmp_path: Path) -> None:
    one, other = Reloads(tmp_path), Reloads(tmp_path)
    one.note({tmp_path: LACKS})
    assert other.is_new()
    assert other.lacking()(tmp_path) == LACKS
    assert other.lacking()(tmp_path / "else") is None
    one.note({tmp_path: LACKS})
    assert not other.is_new()
    (tmp_path / "gone").mkdir()
    one.note({tmp_path / "gone": LACKS})
    (tmp_path / "gone").rmdir()
    one.note({tmp_path: Lacking(digest="sha256:2", tools=("absent",))})
    assert other.lacking()(tmp_path / "gone") is None
    one.note({tmp_path / "state": Lacking(digest="sha256:3", tools=())})
    one.signal_all()
    assert other.lacking()(tmp_path) is None


@pytest.mark.parametrize("data", [b"", b"\xff" * 40, encode({"version": 2, "count": "many"})])
def test_a_file_that_cannot_be_read_counts_as_empty(data: bytes, tmp_path: Path) -> None:
    (tmp_path / RELOADS_FILE).write_bytes(data)
    found = Reloads(tmp_path)
    assert found.lacking()(tmp_path) is None
    found.note({tmp_path: LACKS})
    assert found.lacking()(tmp_path) == LACKS


def test_what_several_find_out_at_once_is_all_kept(tmp_path: Path) -> None:
    places = [tmp_path / str(number) for number in range(8)]
    for place in places:
        place.mkdir()
    threads = [
        threading.Thread(target=lambda p=place: Reloads(tmp_path / "s").note({p: LACKS}))
        for place in places
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lacking = Reloads(tmp_path / "s").lacking()
    assert [lacking(place) for place in places] == [LACKS] * 8
    assert sorted(os.listdir(tmp_path / "s")) == ["reloads", "reloads.lock"]


def test_names_that_are_no_unicode_can_be_kept(tmp_path: Path) -> None:
    place = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    found = Reloads(tmp_path)
    found.note({place: LACKS})
    assert found.lacking()(place) == LACKS


@pytest.mark.req("S002-39")
def test_what_is_exported_and_not_declared_is_no_tool(tmp_path: Path) -> None:
    write_code(tmp_path / "project/workspace/skills/one", GIVES % "x")
    house = coded_house(tmp_path, tmp_path / "project/workspace/skills")
    assert code_names(house) == ["one:tool"]

    async def scene(house: Skillhouse) -> None:
        for name in ("one:hidden", "one__hidden", "hidden"):
            with pytest.raises(UnknownToolError):
                await house.call(name, {})

    played(house, scene)


@pytest.mark.slow
@pytest.mark.parametrize("language", ["python", "javascript"])
@pytest.mark.req("S002-40")
def test_what_is_declared_and_not_exported_is_left_out_with_a_warning(
    language: str, status: SandboxStatus, tmp_path: Path, need: Any
) -> None:
    need(language == "python" or shutil.which("node"), "no node here")
    skill, declared = tmp_path / "project/workspace/skills/one", (tool("tool"), tool("absent"))
    write_code(skill, SOURCES[language], *declared, language=language)
    other = coded_house(tmp_path, tmp_path / "project/workspace/skills", status=status)
    assert code_names(other) == ["one:tool", "one:absent"]

    async def scene(house: Skillhouse) -> None:
        (loaded,) = (await reload_code(house, agent="default")).loaded
        assert (loaded.tools, loaded.lacking and loaded.lacking.tools) == (
            ("one:tool",),
            ("absent",),
        )
        for one in (house, other):
            # Another process hears of it before its next call.
            with pytest.raises(UnknownToolError):
                await one.call("one:absent", {})
            assert code_names(one) == ["one:tool"]
            (problem,) = one.services.skill_code.problems
            assert (problem.code, problem.severity) == ("tool-not-exported", "warning")
            assert "`absent`" in problem.message
        # It is a word about this code alone.
        exports = SOURCES[language].replace("hidden", "absent")
        write_code(skill, exports, *declared, language=language)
        for one in (house, other):
            one.refresh()
            assert code_names(one) == ["one:tool", "one:absent"]
            assert one.services.skill_code.problems == []

    try:
        played(coded_house(tmp_path, tmp_path / "project/workspace/skills", status=status), scene)
    finally:
        other.close()


@pytest.mark.slow
@pytest.mark.req("S002-40")
def test_a_call_that_finds_it_out_is_enough(status: SandboxStatus, tmp_path: Path) -> None:
    write_code(tmp_path / "project/workspace/skills/one", GIVES % "x", tool("tool"), tool("absent"))

    async def scene(house: Skillhouse) -> None:
        assert code_names(house) == ["one:tool", "one:absent"]
        missing = await house.call("one:absent", {})
        assert (missing.status, "exports no tool" in missing.content) == ("error", True)
        with pytest.raises(UnknownToolError):
            await house.call("one:absent", {})
        assert (await house.call("one:tool", {})).status == "ok"
        # What fails for another reason stays.
        broken = "tools = {'tool': lambda p, c: 1 / 0}\n"
        write_code(tmp_path / "project/workspace/skills/one", broken)
        house.project_trust.trust()
        house.refresh()
        assert (await house.call("one:tool", {})).status == "error"
        assert (await house.call("one:tool", {})).status == "error"

    played(coded_house(tmp_path, tmp_path / "project/workspace/skills", status=status), scene)


@pytest.mark.slow
@pytest.mark.req("S002-55", "S002-58")
def test_a_reload_reaches_the_other_processes_before_their_next_call(
    status: SandboxStatus, tmp_path: Path
) -> None:
    root = tmp_path / "project/workspace/skills"
    write_code(root / "old", GIVES % "old")

    async def scene(house: Skillhouse) -> None:
        other = coded_house(tmp_path, root, status=status)
        async with letting_go(other):
            assert (await other.call("old:tool", {})).status == "ok"
            write_code(root / "added", GIVES % "added")
            shutil.rmtree(root / "old")
            house.project_trust.trust()
            # This house reads nothing anew by itself.
            with pytest.raises(UnknownToolError):
                await other.call("added:tool", {})
            await reload_code(house, agent="default")
            assert (await other.call("added:tool", {})).status == "ok"
            with pytest.raises(UnknownToolError):
                await other.call("old:tool", {})

    played(coded_house(tmp_path, root, status=status), scene)


@pytest.mark.slow
def test_a_reload_loads_what_is_other_code_than_before(
    status: SandboxStatus, tmp_path: Path
) -> None:
    root = tmp_path / "project/workspace/skills"
    for name in ("same", "edited"):
        write_code(root / name, GIVES % name)
    write_code(root / "broken", "1 / 0\n")
    write_code(root / "lacks", GIVES % "x", tool("tool"), tool("absent"))
    needs = write_code(root / "needs", GIVES % "x", language="javascript")

    async def scene(house: Skillhouse) -> list[dict[str, str]]:
        found = []
        for _ in range(2):
            done = await reload_code(house, agent="default")
            assert [one.skill for one in done.loaded if one.error] == ["broken", "needs"]
            found.append({directory.name: step for directory, step in done.steps})
            write_code(root / "edited", GIVES % "other")
            house.project_trust.trust()
        return found

    (needs / "index.js").write_text("throw new Error('never');\n")
    first, second = played(coded_house(tmp_path, root, status=status), scene)
    assert first == {
        **dict.fromkeys(("same", "edited", "lacks"), "registered"),
        **dict.fromkeys(("broken", "needs"), "validated"),
    }
    assert second == {**first, "same": "unchanged since it was imported"}


def test_what_is_known_here_says_nothing_of_an_executor_elsewhere(tmp_path: Path) -> None:
    skill = write_code(tmp_path / "project/workspace/skills/one", GIVES % "x")
    # A port of this machine at which nobody listens.
    settings = SkillCodeSettings(
        enabled=True, executor="http://127.0.0.1:9/rpc", executor_token="env:TOKEN"
    )
    environment = {"TOKEN": "t" * 32}
    config = configured(make_places(tmp_path, environment))

    async def scene(house: Skillhouse) -> list[str]:
        house.services.skill_code.reloads.note(
            {skill: Lacking(digest=tree_digest(skill), tools=())}
        )
        tools = [found for found in house.tools() if isinstance(found, SkillCodeTool)]
        return [one.error for one in await load_code(house, tools, agent="default")]

    house = Skillhouse(config, roots=[tmp_path / "project/workspace/skills"], skill_code=settings)
    (error,) = played(house, scene)
    assert "no server answers at 127.0.0.1" in error


@pytest.mark.slow
@pytest.mark.req("S002-60")
def test_reloads_leave_no_cell_and_no_copy_behind(status: SandboxStatus, tmp_path: Path) -> None:
    root = tmp_path / "project/workspace/skills"

    async def scene(house: Skillhouse) -> list[Any]:
        found = []
        for number in range(4):
            write_code(root / "one", GIVES % number)
            house.project_trust.trust()
            await reload_code(house, agent="default")
            result = await house.call("one:tool", {})
            executor = await house.services.skill_code.executor()
            assert isinstance(executor, Executor)
            found.append((result.data, executor.health()["cells"]))
        return found

    write_code(root / "one", GIVES % "first")
    house = coded_house(tmp_path, root, status=status)
    assert played(house, scene) == [
        ({"success": True, "data": {"gave": str(number)}}, 1) for number in range(4)
    ]
    copies = house.config.state_directory / "cells/cells"
    assert list(copies.iterdir()) == []
    guide = Path(__file__).parents[2] / "docs/guides/executable-skills.md"
    assert "restart the executor" in " ".join(guide.read_text(encoding="utf-8").split())
