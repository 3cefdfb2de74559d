"""From a client of MCP to code that runs elsewhere: every process of the way is a real one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_types import CallToolResult, TextContent

from tests.frontends.mcp_peer import PATIENCE_SECONDS, Peer, environment_of, has_sandbox
from tests.house.coded import ROOTS, tool, write_code
from tests.net.servers import ok, serving

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

TOKEN = "e" * 64
PRICE = '{"coin": "bitcoin", "currency": "usd", "price": 65000.5}'
CONFIGURATION = """
roots = ["{skills}"]

[skill_code]
enabled = true
env.crypto-price = ["COINGECKO_URL"]
executor = "{executor}"
executor_token = "file:{token}"
callback = "127.0.0.1:0"

[net]
hosts = ["{url}"]
private = ["127.0.0.1/32"]
"""
TELLS = """
def tool(params, context):
    for number in range(4):
        context.progress(number / 4, "working")
    return "done"

tools = {"tool": tool}
"""


class Elsewhere:
    """A peer whose executor is a process of its own."""

    def __init__(self, base: Path, skills: Path, url: str) -> None:
        self.base = base
        self.skills = base / "skills"
        shutil.copytree(skills, self.skills)
        self.peer = Peer(base)
        self.peer.environment["COINGECKO_URL"] = url
        self.token = base / "token"
        self.token.write_text(TOKEN)
        self._url = url
        self.said: list[dict[str, Any]] = []

    @contextmanager
    def worker(self) -> Iterator[None]:
        """Run the executor, and have the house name it."""
        home = self.base / "elsewhere"
        home.mkdir()
        words = ["worker", "--skills", str(self.skills), "--core", "http://127.0.0.1:9/rpc"]
        words += ["--token-file", str(self.token), "--port", "0", "--json"]
        process = subprocess.Popen(
            [sys.executable, "-m", "skillhouse", *words],
            # It has none of the core's variables, and asks the core at the port that a call names.
            env=environment_of(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["address"]
            self.peer.configure(
                CONFIGURATION.format(
                    skills=self.skills, executor=address, token=self.token, url=self._url
                )
            )
            yield
            process.terminate()
            _, errors = process.communicate(timeout=PATIENCE_SECONDS)
            assert process.returncode == 0, errors
            self.said = [json.loads(line) for line in errors.splitlines()]
        finally:
            process.kill()
            process.communicate()


def text_of(result: CallToolResult) -> tuple[str, bool]:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text, bool(result.is_error)


@pytest.mark.parametrize("language", ["javascript", "python"])
@pytest.mark.req("S002-8", "S002-71", "S002-115")
def test_a_client_of_mcp_calls_what_runs_elsewhere(
    language: str, tmp_path: Path, need: Any
) -> None:
    need(has_sandbox(), "no sandbox here")
    need(language == "python" or shutil.which("node"), "no node here")
    prices = ok(b'{"bitcoin": {"usd": 65000.5}}', "Content-Type: application/json")

    async def main() -> None:
        async with serving(prices) as server:
            place = Elsewhere(tmp_path, ROOTS[language], server.url)
            with place.worker():
                async with place.peer.client() as client:
                    names = {found.name for found in (await client.list_tools()).tools}
                    assert "crypto-price__get_price" in names
                    result = await client.call_tool("crypto-price__get_price", {"coin": "bitcoin"})
                    assert text_of(result) == (PRICE, False)
            # The core asked, under its own rules, and the executor only ran the code.
            path = b"GET /api/v3/simple/price?ids=bitcoin&vs_currencies=usd "
            assert [request[: len(path)] for request in server.seen] == [path]
            called = [(line.get("tool"), line.get("outcome")) for line in place.said]
            assert ("crypto-price:get_price", "ok") in called
            assert server.url not in json.dumps(place.said)
            log = [json.loads(line) for line in place.peer.log.read_text().splitlines()]
            assert {"fetch", "crypto-price__get_price"} <= {line.get("tool") for line in log}

    anyio.run(main)


def test_without_the_executor_nothing_runs_here(tmp_path: Path, need: Any) -> None:
    need(has_sandbox(), "no sandbox here")

    async def main() -> None:
        async with serving(ok(b"{}")) as server:
            place = Elsewhere(tmp_path, ROOTS["python"], server.url)
            with place.worker():
                """It ends before the client comes."""
            async with place.peer.client() as client:
                result = await client.call_tool("crypto-price__get_price", {"coin": "bitcoin"})
            text, is_error = text_of(result)
            assert is_error
            assert "nothing was run: no server answers at 127.0.0.1" in text
            assert server.seen == []

    anyio.run(main)


def test_progress_of_an_executor_reaches_the_client(tmp_path: Path, need: Any) -> None:
    need(has_sandbox(), "no sandbox here")
    write_code(tmp_path / "made/tells", TELLS, tool())
    told: list[float] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    async def main() -> None:
        place = Elsewhere(tmp_path, tmp_path / "made", "http://127.0.0.1:9")
        with place.worker():
            async with place.peer.client() as client:
                result = await client.call_tool("tells__tool", {}, progress_callback=heard)
                assert text_of(result) == ("done", False)

    anyio.run(main)
    # As docs/guides/containers.md says.
    assert told[-1:] == [0.75]
    guide = Path(__file__).parents[2] / "docs/guides/containers.md"
    assert "`progress` is reported" in " ".join(guide.read_text(encoding="utf-8").split())
