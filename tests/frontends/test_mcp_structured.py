"""Tests of results as values over MCP: `returns` of a manifest, and the revisions with values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.frontends.mcp.server import SkillhouseServer
from skillhouse.frontends.mcp.tool_list import ToolListing
from skillhouse.house import Skillhouse
from skillhouse.tools.call import OUTPUT_MAX
from tests.frontends.mcp_inside import ERAS, sdk_answers
from tests.frontends.mcp_peer import PATIENCE_SECONDS
from tests.frontends.mcp_tasks import talking
from tests.harness import Need
from tests.house.coded import best_sandbox, coded_house, tool, write_code

# It runs code in cells.
pytestmark = [pytest.mark.slow, pytest.mark.heavy]

CODE = """
    tools = {
        "wrapped": lambda params, context: {"price": params.get("price", 2)},
        "passed": lambda params, context: {"success": True, "price": 2},
        "text": lambda params, context: "two",
        "long": lambda params, context: {"price": 2, "note": "x" * params["size"]},
        "fails": lambda params, context: {"success": False, "error": "no coin"},
    }
"""
PRICE = {
    "type": "object",
    "required": ["price"],
    "properties": {"price": {"type": "number"}, "note": {"type": "string"}},
}
NAMES = ("wrapped", "passed", "text", "long", "fails")


def house_of(tmp_path: Path, need: Need) -> Skillhouse:
    """Return a house with a skill whose tools say what they return."""
    status = best_sandbox(need)
    declared = [tool(name, returns=PRICE) for name in NAMES]
    write_code(tmp_path / "skills/coin", CODE, *declared, tool("plain"))
    return coded_house(tmp_path, tmp_path / "skills", status=status)


def text_of(result: Any) -> str:
    """Return the one text of a result, which is there with a value too."""
    [block] = result.content
    text: str = block.text
    return text


def server_of(house: Skillhouse) -> SkillhouseServer:
    return SkillhouseServer(house, ToolListing(house, "default"), agent="default", user="local")


@pytest.mark.parametrize("mode", ERAS)
def test_a_declared_result_is_a_value_too(tmp_path: Path, need: Need, mode: str) -> None:
    from mcp.client import Client  # noqa: PLC0415 - as the other peers do.

    house = house_of(tmp_path, need)

    async def main() -> None:
        sdk = server_of(house).sdk
        with anyio.fail_after(PATIENCE_SECONDS):
            async with Client(sdk, mode=mode) as client:
                listed = {one.name: one for one in (await client.list_tools()).tools}
                assert listed["coin__wrapped"].output_schema == PRICE
                assert listed["coin__plain"].output_schema is None
                assert listed["exec"].output_schema is None

                async def call(name: str, **arguments: Any) -> Any:
                    # The SDK's client refuses a value that is missing or does not fit.
                    return await client.call_tool(f"coin__{name}", arguments)

                for name in ("wrapped", "passed"):
                    found = await call(name)
                    assert found.structured_content == {"price": 2}
                    assert '"price": 2' in text_of(found)
                found = await call("wrapped", price="much")
                assert found.is_error
                assert found.structured_content is None
                assert "does not fit `returns` of its manifest: `price`" in text_of(found)
                assert '{"price": "much"}' in text_of(found)
                found = await call("text")
                assert "expected an object, got str; it returned: two" in text_of(found)
                found = await call("long", size=OUTPUT_MAX)
                assert found.is_error
                assert "the tool was run, and its result is a text: it is too long" in text_of(
                    found
                )
                found = await call("fails")
                assert found.is_error
                assert text_of(found) == "no coin"

    anyio.run(main)


def test_the_result_of_a_task_has_the_value_too(tmp_path: Path, need: Need) -> None:
    server = server_of(house_of(tmp_path, need))
    server.tasks.after_seconds = 0.0

    async def main() -> None:
        async with talking(server) as client:
            made = await client.call("coin__wrapped")
            assert made["resultType"] == "task"
            ended = await client.polled(made["taskId"])
            assert ended["result"]["structuredContent"] == {"price": 2}
            made = await client.call("coin__text")
            ended = await client.polled(made["taskId"])
            assert ended["result"]["isError"]
            assert "structuredContent" not in ended["result"]

    anyio.run(main)


@pytest.mark.parametrize(("version", "has"), [("2025-03-26", False), ("2025-06-18", True)])
def test_a_revision_before_values_has_neither_field(
    tmp_path: Path, need: Need, version: str, has: bool
) -> None:
    client = {"name": "old", "version": "1"}
    hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": client}
    messages: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        {
            "jsonrpc": "2.0",
            "id": 3,
            "method": "tools/call",
            "params": {"name": "coin__wrapped", "arguments": {}},
        },
    ]
    _, listed, called = anyio.run(sdk_answers, server_of(house_of(tmp_path, need)), messages)
    [wrapped] = [one for one in listed["result"]["tools"] if one["name"] == "coin__wrapped"]
    assert ("outputSchema" in wrapped) is has
    assert ("structuredContent" in called["result"]) is has
    assert called["result"]["content"][0]["text"] == '{"price": 2}'
