"""The published price skill, as its users meet it: every language, sandbox level and frontend."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent

from skillhouse.frontends.mcp.server import SkillhouseServer
from skillhouse.frontends.mcp.tool_list import ToolListing
from skillhouse.house import Skillhouse
from skillhouse.sandbox import SandboxLevel, SandboxStatus
from tests.extensions.cells.lab import status_of
from tests.frontends.conftest import Run
from tests.frontends.mcp_peer import Peer, has_sandbox
from tests.house.coded import ROOTS, tool, write_code
from tests.net.servers import Server, ok, serving
from tests.sandbox.places import ALL_LEVELS

pytestmark = pytest.mark.slow

Force = Callable[[SandboxLevel], None]
BITCOIN = '{"coin":"bitcoin"}'
PRICE = '{"coin": "bitcoin", "currency": "usd", "price": 65000.5}'
CONFIGURATION = """
[skill_code]
enabled = true
env.crypto-price = ["COINGECKO_URL"]

[net]
hosts = ["{url}"]
private = ["127.0.0.1/32"]
"""


@pytest.fixture
def api(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A loopback fake of the remote API, which the user's configuration lets the skill reach."""
    prices = ok(b'{"bitcoin": {"usd": 65000.5, "eur": 60000}}', "Content-Type: application/json")
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serving(prices)) as server,
    ):
        file = place / "home/.config/skillhouse/config.toml"
        file.parent.mkdir(parents=True)
        file.write_text(CONFIGURATION.format(url=server.url), encoding="utf-8")
        monkeypatch.setenv("COINGECKO_URL", server.url)
        yield server


@pytest.fixture
def force(monkeypatch: pytest.MonkeyPatch, need: Any) -> Force:
    """Has this machine be one that offers exactly some level, or skips the test."""

    def at(level: SandboxLevel) -> None:
        status = status_of(level, need)

        async def tested(*_: object, **__: object) -> SandboxStatus:
            return status

        monkeypatch.setattr("skillhouse.house.sandbox_provider.needed_test", tested)

    return at


@pytest.fixture(params=["javascript", "python"])
def root(request: pytest.FixtureRequest, need: Any) -> str:
    need(request.param == "python" or shutil.which("node"), "no node here")
    return str(ROOTS[request.param])


@pytest.mark.parametrize("level", ALL_LEVELS)
@pytest.mark.req("S002-4", "S002-115")
def test_the_command_line_calls_it(
    level: SandboxLevel, root: str, run: Run, api: Server, force: Force
) -> None:
    force(level)
    called = run("call", "crypto-price:get_price", "--args", BITCOIN, "--root", root)
    assert called == (0, f"{PRICE}\n", "")
    on_the_wire = ("call", "crypto-price__get_price", "--args", BITCOIN, "--root", root)
    code, out, err = run(*on_the_wire, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "status": "ok",
        "content": PRICE,
        "data": {"success": True, "data": json.loads(PRICE)},
        "approval_id": None,
        "record": None,
        "frames": [],
        "log": [],
        "output": [],
    }
    path = b"GET /api/v3/simple/price?ids=bitcoin&vs_currencies=usd "
    assert [request[: len(path)] for request in api.seen] == [path] * 2
    code, out, err = run(
        "call", "crypto-price:get_price", "--args", '{"coin":"dogecoinn"}', "--root", root
    )
    assert (code, out) == (1, "")
    assert err.endswith("Coin not found: dogecoinn\n")


@pytest.mark.parametrize("level", ALL_LEVELS)
@pytest.mark.req("S002-71", "S002-115")
def test_a_client_of_mcp_calls_it(
    level: SandboxLevel, root: str, api: Server, force: Force
) -> None:
    force(level)

    async def work(client: Client) -> tuple[bool, str, bool]:
        names = [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool("crypto-price__get_price", json.loads(BITCOIN))
        (content,) = result.content
        assert isinstance(content, TextContent)
        return "crypto-price__get_price" in names, content.text, bool(result.is_error)

    assert connected(root, work) == (True, PRICE, False)
    assert len(api.seen) == 1


def test_a_reload_reaches_a_server_that_runs(peer: Peer, need: Any) -> None:
    need(has_sandbox(), "no sandbox here")
    peer.configure("[skill_code]\nenabled = true\n")
    skill = peer.home / ".agents/skills/one"
    exports = "tools = {'here': lambda params, context: 'here'}\n"
    write_code(skill, exports, tool("here"), tool("absent"))
    reload = [sys.executable, "-m", "skillhouse", "reload", "-C", str(peer.project)]

    async def names(client: Client) -> list[str]:
        found = [tool.name for tool in (await client.list_tools()).tools]
        return [name for name in found if name.startswith("one__")]

    async def main() -> None:
        async with peer.client() as client:
            assert await names(client) == ["one__here", "one__absent"]
            done = await anyio.run_process(reload, env=peer.environment, check=False)
            assert (done.returncode, done.stdout.decode().splitlines()) == (
                1,
                [
                    "one:here",
                    "one:absent: failed: the manifest declares it, and the code does not export it",
                ],
            )
            # Before the next call, whatever the server's own look at the files says.
            with pytest.raises(MCPError, match="unknown tool"):
                await client.call_tool("one__absent", {})
            assert await names(client) == ["one__here"]
            assert not (await client.call_tool("one__here", {})).is_error

    anyio.run(main)


def connected(root: str, work: Callable[[Client], Awaitable[Any]]) -> Any:
    """Return what `work` returns, given a client of a house with the skills below `root`."""

    async def main() -> Any:
        with Skillhouse(roots=[root]) as house:
            server = SkillhouseServer(
                house, ToolListing(house, "default"), agent="default", user="local"
            )
            async with Client(server.sdk) as client:
                return await work(client)

    return anyio.run(main)
