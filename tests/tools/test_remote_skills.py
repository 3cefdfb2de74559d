"""Tests of skills whose files lie on an MCP server, through the tools of a house."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from skillhouse.house import McpServerSettings, Skillhouse, configured, rehearse
from skillhouse.skill import SKILL_FILE
from tests.house.places import make_places, write_skill
from tests.remote.mcp_liar import Liar, serving, skill_file

pytestmark = pytest.mark.slow

FILES = {
    SKILL_FILE: skill_file("pdf"),
    "references/FORMS.md": b"# Forms\n",
    "scripts/a.bin": b"\xff",
}
ALLOW = '[[rules]]\neffect = "allow"\naction = "skill"\npattern = "docs:*"\n'


@contextmanager
def house_with(base: Path, liar: Liar, profile: str = "default") -> Iterator[Skillhouse]:
    places = make_places(base)
    places.user_file.parent.mkdir(parents=True)
    places.user_file.write_text(ALLOW, encoding="utf-8")
    with serving(liar) as server:
        named = McpServerSettings(label=server.label, url=server.url, allow_private=True)
        with Skillhouse(configured(places), mcp_servers=(named,), profile=profile) as house:
            assert house.services.mcp_host is not None
            anyio.run(house.services.mcp_host.refresh, "docs")
            house.refresh()
            yield house


def test_a_remote_skill_stands_where_the_others_stand(tmp_path: Path) -> None:
    liar = Liar()
    liar.offer("skill://pdf", FILES)
    write_skill(tmp_path / "home/.agents/skills/pdf", "My own.")
    with house_with(tmp_path, liar) as house:
        names = [skill.name for skill in house.index.skills]
        # Before what comes with the house, and shadowing nothing.
        assert names == ["pdf", "docs:pdf", "github", "weather", "web-search"]
        assert house.index.shadowed == ()
        assert "[from MCP server docs] Does things." in house.catalog().text
        assert "remote:docs:pdf" in [hit.id for hit in house.search("docs pdf things")]
        assert house.index.get("remote:docs:pdf").name == "docs:pdf"
        assert house.index.get("pdf").description == "My own."
        house.management.set_enabled("remote:docs:pdf", enabled=False)
        house.refresh()
        assert "docs:pdf" not in [skill.name for skill in house.view().visible.skills]
        assert liar.reads == []


def test_the_tool_for_its_files_is_offered_only_with_such_skills(tmp_path: Path) -> None:
    liar = Liar()
    with house_with(tmp_path, liar) as house:
        assert "skill_resource" not in [tool.name for tool in house.tools()]
        liar.offer("skill://pdf", FILES)
        assert house.services.mcp_host is not None
        anyio.run(house.services.mcp_host.refresh, "docs")
        house.refresh()
        assert "skill_resource" in [tool.name for tool in house.tools()]
        house.call_sync("skill", {"name": "docs:pdf"})
        found = house.call_sync("skill_resource", {"skill": "docs:pdf", "path": "scripts/a.bin"})
        assert found.content.endswith("1 bytes that are no text")


def test_the_asset_tools_of_a_profile_fetch_as_well(tmp_path: Path) -> None:
    liar = Liar()
    liar.offer("skill://pdf", FILES)
    with house_with(tmp_path, liar, "openseed") as house:
        kinds = {rule.kind: rule for rule in house.policy.profile.tools}
        name = kinds["asset"].parameters.get("name", "name")
        path = kinds["asset"].parameters.get("path", "path")
        listed = house.call_sync(kinds["assets"].name, {name: "docs:pdf"})
        assert listed.content.split("\n") == ["references/FORMS.md", "scripts/a.bin"]
        assert liar.reads == []
        wanted = {name: "docs:pdf", path: "references/FORMS.md"}
        assert house.call_sync(kinds["asset"].name, wanted).content == "# Forms\n"
        assert liar.reads == ["skill://pdf/references/FORMS.md"]
        liar.contents["skill://pdf/scripts/a.bin"] = b"x"
        spoilt = house.call_sync(kinds["asset"].name, {**wanted, path: "scripts/a.bin"})
        assert spoilt.is_error
        assert "nothing was read" in spoilt.content


def test_looking_at_lists_fetches_nothing_and_asking_to_see_one_does(tmp_path: Path) -> None:
    liar = Liar()
    liar.offer("skill://pdf", FILES)
    with house_with(tmp_path, liar) as house:
        defined = {one.name: one.instructions for one in house.management.get_all()}
        assert defined["docs:pdf"] == ""
        shown = rehearse(house, "docs pdf things")
        assert "docs:pdf" in str(shown)
        assert liar.reads == []
        assert house.load("docs:pdf").body == "Body of pdf.\n"
        assert liar.reads == ["skill://pdf/SKILL.md"]


def test_a_server_that_is_away_costs_no_other_skill(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    write_skill(tmp_path / "home/.agents/skills/notes")
    named = McpServerSettings(label="gone", url="http://127.0.0.1:9/mcp")
    with Skillhouse(configured(places), mcp_servers=(named,)) as house:
        assert not house.call_sync("skill", {"name": "notes"}).is_error
