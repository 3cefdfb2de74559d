"""Skills that the operator runs in the house's own process: one process, and the same gate."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from skillhouse.floor import ConfigError, tree_digest
from skillhouse.house import SkillCodeSettings, Skillhouse, load_config
from skillhouse.manage.code_reload import reload_code
from skillhouse.sandbox import SandboxLevel, SandboxStatus
from tests.house.coded import called, coded_house, letting_go, played, recorded, tool, write_code
from tests.house.places import make_places
from tests.net.servers import ok, serving

NOWHERE = SandboxStatus(level=SandboxLevel.NONE, reasons=("no bubblewrap here",))
"""A machine on which no code runs in a cell."""
SOURCE = """
    import os

    async def fetched(params, context):
        return (await context.fetch(params["url"])).body

    async def about(params, context):
        context.progress(1, "all")
        return {"pid": os.getpid(), "env": dict(context.env), "meta": context.meta["toolName"]}

    tools = {"fetched": fetched, "about": about}
"""
TOOLS = (tool("fetched"), tool("about"))


def trusting(place: Path, **options: Any) -> Skillhouse:
    digest = tree_digest(place / "skills/one")
    return coded_house(place, place / "skills", status=NOWHERE, in_process=(digest,), **options)


@pytest.mark.req("S002-4", "S002-53")
def test_one_process_without_any_sandbox_is_enough(tmp_path: Path) -> None:
    write_code(tmp_path / "skills/one", SOURCE, *TOOLS, env=["GIVEN", "KEPT"])
    house = trusting(
        tmp_path, env={"one": ("GIVEN",)}, environment={"GIVEN": "1", "KEPT": "2", "OTHER": "3"}
    )
    assert called(house, "one:about").data == {
        "success": True,
        "data": {"pid": os.getpid(), "env": {"GIVEN": "1"}, "meta": "about"},
    }


async def test_what_it_fetches_goes_through_the_gate_all_the_same(tmp_path: Path) -> None:
    write_code(tmp_path / "skills/one", SOURCE, *TOOLS)
    async with serving(ok(b"page")) as listed, serving() as other:
        async with letting_go(trusting(tmp_path, hosts=(listed.url,))) as house:
            found = await house.call("one:fetched", {"url": listed.url})
            assert found.data == {"success": True, "data": "page"}
            refused = await house.call("one:fetched", {"url": other.url})
            assert (refused.status, "not approved" in refused.content) == ("pending", True)
        assert (len(listed.seen), other.seen) == (1, [])


def test_code_that_the_operator_did_not_name_is_not_run_here(tmp_path: Path) -> None:
    skill = write_code(tmp_path / "skills/one", SOURCE, *TOOLS)
    plain = coded_house(tmp_path, tmp_path / "skills", status=NOWHERE)
    refused = called(plain, "one:about")
    assert (refused.status, "no bubblewrap here" in refused.content) == ("error", True)
    (entry,) = recorded(plain)
    assert (entry.record.kind, entry.status) == ("intent", "error")
    house = trusting(tmp_path)
    (skill / "main.py").write_text("tools = {'about': lambda p, c: 'other'}\n")
    result = called(house, "one:about")
    assert (result.status, "no bubblewrap here" in result.content) == ("error", True)


def test_a_reload_loads_it_here_too(tmp_path: Path) -> None:
    write_code(tmp_path / "skills/one", SOURCE, *TOOLS, tool("absent"))

    async def scene(house: Skillhouse) -> None:
        (loaded,) = (await reload_code(house, agent="default")).loaded
        assert (loaded.tools, loaded.error) == (("one:fetched", "one:about"), "")
        assert loaded.lacking is not None
        assert loaded.lacking.tools == ("absent",)

    played(trusting(tmp_path), scene)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('in_process = ["crypto-price"]', "digests as skilltree1:"),
        ('in_process = ["skilltree1:12"]', "digests as skilltree1:"),
        ('levels."one:tool" = "root"', "levels"),
        ("levels = 3", "levels"),
    ],
)
def test_wrong_settings_are_refused(text: str, said: str, tmp_path: Path) -> None:
    places = make_places(tmp_path)
    file = places.home / ".config/skillhouse/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f"[skill_code]\n{text}\n")
    with pytest.raises(ConfigError, match=said):
        load_config(places)


def test_settings_are_read_from_the_users_file(tmp_path: Path) -> None:
    digest = "skilltree1:" + "0" * 64
    places = make_places(tmp_path)
    file = places.home / ".config/skillhouse/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f'[skill_code]\nin_process = ["{digest}"]\nlevels."one:tool" = "sign"\n')
    assert load_config(places).skill_code == SkillCodeSettings(
        in_process=(digest,), levels={"one:tool": "sign"}
    )
