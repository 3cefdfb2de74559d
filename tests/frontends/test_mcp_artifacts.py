"""Tests of files of calls over MCP: links in results, and reading them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.frontends.mcp.call_result import call_result
from skillhouse.frontends.mcp.server import SkillhouseServer
from skillhouse.frontends.mcp.tool_list import ToolListing, as_listed_in
from skillhouse.house import Skillhouse
from skillhouse.tools import ToolResult
from tests.frontends.mcp_inside import ERAS
from tests.frontends.mcp_peer import PATIENCE_SECONDS
from tests.harness import Need
from tests.house.coded import best_sandbox, coded_house, write_code

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

CHART = """
    def tool(params, context):
        (context.output / "a b.txt").write_text("hello")
        (context.output / "chart.png").write_bytes(bytes([255, 0]))
        (context.output / "broken.txt").write_bytes(bytes([255, 0]))
        (context.output / ".hidden").write_text("x")
        return 1

    tools = {"tool": tool}
"""


def house_of(tmp_path: Path, need: Need) -> Skillhouse:
    write_code(tmp_path / "skills/kite", CHART)
    return coded_house(tmp_path, tmp_path / "skills", status=best_sandbox(need))


def server_of(house: Skillhouse, **who: Any) -> SkillhouseServer:
    who = {"agent": "default", "user": "local", **who}
    return SkillhouseServer(house, ToolListing(house, "default"), **who)


@pytest.mark.parametrize("mode", ERAS)
def test_files_are_links_that_the_caller_reads(tmp_path: Path, need: Need, mode: str) -> None:
    from mcp.client import Client  # noqa: PLC0415 - as the other peers do.

    house = house_of(tmp_path, need)

    async def main() -> None:
        with anyio.fail_after(PATIENCE_SECONDS):
            async with Client(server_of(house).sdk, mode=mode) as client:
                result: Any = await client.call_tool("kite__tool", {})
                text, *links, left_out = result.content
                assert (text.type, text.text, result.is_error) == ("text", "1", False)
                said = "its name has a part that begins with a dot or a dash"
                assert left_out.text == f"file not kept: .hidden: {said}"
                found = {one.name: one for one in links}
                assert sorted(found) == ["a b.txt", "broken.txt", "chart.png"]
                assert {one.type for one in links} == {"resource_link"}
                plain = found["a b.txt"]
                assert (plain.mime_type, plain.size) == ("text/plain", 5)
                assert str(plain.uri).endswith("/a%20b.txt")
                read: Any
                [read] = (await client.read_resource(plain.uri)).contents
                assert (read.text, read.mime_type) == ("hello", "text/plain")
                for name in ("chart.png", "broken.txt"):
                    [read] = (await client.read_resource(found[name].uri)).contents
                    assert read.blob == "/wA="

    anyio.run(main)
    house.close()


@pytest.mark.parametrize(
    "other",
    [{"agent": "other"}, {"user": "eve"}, {"channel": "elsewhere"}, {"is_of_user": False}],
)
def test_nobody_else_reads_them(tmp_path: Path, need: Need, other: dict[str, Any]) -> None:
    from mcp.client import Client  # noqa: PLC0415 - likewise.
    from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - likewise.

    house = house_of(tmp_path, need)

    async def main() -> None:
        with anyio.fail_after(PATIENCE_SECONDS):
            async with Client(server_of(house).sdk) as client:
                result: Any = await client.call_tool("kite__tool", {})
                uri = str(result.content[1].uri)
                unknown = uri.replace(uri.split("/")[3], "0" * 32)
            said = []
            async with Client(server_of(house, **other).sdk) as client:
                for wanted in (uri, unknown):
                    with pytest.raises(MCPError) as refused:
                        await client.read_resource(wanted)
                    said.append(str(refused.value).replace(wanted.split("/")[3], "ID"))
            # It learns not even that it is there.
            assert said[0] == said[1] == "no files of a call have the id `ID`"

    anyio.run(main)
    house.close()


@pytest.mark.parametrize(
    "uri",
    [
        "skillhouse://artifacts/",
        "skillhouse://artifacts/../../audit.jsonl",
        "skillhouse://artifacts/%2e%2e/set.json",
        f"skillhouse://artifacts/{'0' * 32}/../../audit.jsonl",
    ],
)
def test_an_address_that_is_none_reads_nothing(tmp_path: Path, need: Need, uri: str) -> None:
    from mcp.client import Client  # noqa: PLC0415 - likewise.
    from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - likewise.

    house = house_of(tmp_path, need)

    async def main() -> None:
        with anyio.fail_after(PATIENCE_SECONDS):
            async with Client(server_of(house).sdk) as client:
                with pytest.raises(MCPError, match="no file"):
                    await client.read_resource(uri)

    anyio.run(main)
    house.close()


def test_older_revisions_have_the_address_as_a_text(tmp_path: Path, need: Need) -> None:
    house = house_of(tmp_path, need)

    async def call() -> ToolResult:
        try:
            return await house.call("kite:tool", {})
        finally:
            await house.services.release_loop()

    result = anyio.run(call)
    texts = [one.text for one in call_result(result, is_structured=False).content]  # type: ignore[union-attr]
    assert texts[1] == f"file a b.txt (5 bytes): resource {result.artifacts[0].uri}"
    house.close()


PNG = "data:image/png;base64,iVBORw0KGgouLi4u"


@pytest.mark.parametrize(("version", "shown"), [("2025-11-25", True), ("2025-06-18", False)])
def test_a_tool_has_its_skills_icons_in_revisions_that_have_them(
    tmp_path: Path, version: str, *, shown: bool
) -> None:
    directory = write_code(tmp_path / "skills/kite", CHART)
    manifest = directory / "pyproject.toml"
    head, line, rest = manifest.read_text().partition("[tool.skillhouse]\n")
    manifest.write_text(f'{head}{line}icons = ["{PNG}", "https://a.test/i.png"]\n{rest}')
    house = coded_house(tmp_path, tmp_path / "skills")
    listed = as_listed_in(version, ToolListing(house, "default").tools())
    found = {one["name"]: one.get("icons") for one in listed}
    icons = [{"src": PNG, "mimeType": "image/png"}, {"src": "https://a.test/i.png"}]
    assert found["kite__tool"] == (icons if shown else None)
    assert found["read"] is None
    house.close()
