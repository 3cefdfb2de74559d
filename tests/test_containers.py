"""The container form runs as composed: its own commands, in places like those of containers."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.extensions.cells import RpcClient
from skillhouse.sandbox.status import LANDLOCK_ABI, landlock_abi
from tests.containers import TOKEN, Composition
from tests.house.coded import ROOTS, tool, write_code
from tests.loopback_http import QuietHandler, serving_http

pytestmark = [pytest.mark.slow, pytest.mark.heavy]
CALL = ("call", "crypto-price:get_price", "--args", '{"coin": "bitcoin"}', "--json")


class Prices(ThreadingHTTPServer):
    """A fake of the price service, which can be made to wait."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.seen: list[str] = []
        self.asked = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answer(QuietHandler):
    def do_GET(self) -> None:
        server: Any = self.server
        server.seen.append(self.path)
        server.asked.set()
        server.go_on.wait(20)
        data = json.dumps({"bitcoin": {"usd": 65000.5}}).encode()
        self.answer(200, data, {"Content-Type": "application/json"})


@pytest.fixture
def prices() -> Iterator[Prices]:
    with serving_http(Prices()) as server:
        yield server
        server.go_on.set()


BOTH = pytest.mark.parametrize("place", ["javascript", "python"], indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, prices: Prices, need: Any) -> Composition:
    language = getattr(request, "param", "python")
    need(shutil.which("bwrap"), "no bubblewrap to make places like containers")
    need(language == "python" or shutil.which("node"), "no node here")
    found = Composition(tmp_path, ROOTS[language])
    with found.settings.open("a") as file:
        file.write('[skill_code.env]\ncrypto-price = ["COINGECKO_URL"]\n')
        file.write(f'[net]\nhosts = ["{prices.url}"]\nprivate = ["127.0.0.1/32"]\n')
    return found


def price(place: Composition, prices: Prices) -> tuple[int, Any, str]:
    return place.core(*CALL, COINGECKO_URL=prices.url)


@BOTH
@pytest.mark.req("S002-8", "S002-9", "S002-10", "S002-11", "S002-13", "S002-93", "S002-115")
def test_a_tool_runs_in_the_executor_and_asks_the_core(place: Composition, prices: Prices) -> None:
    with place.running("skill-executor") as executor:
        begun = json.loads(executor.first_line())
        assert begun["level"] == "container+landlock+seccomp"
        assert "crypto-price" in begun["skills"]
        code, answer, said = price(place, prices)
        assert (code, said) == (0, ""), (answer, executor.said)
        data = {"coin": "bitcoin", "currency": "usd", "price": 65000.5}
        assert (answer["status"], answer["data"]) == ("ok", {"success": True, "data": data})
        assert prices.seen == ["/api/v3/simple/price?ids=bitcoin&vs_currencies=usd"]
        # What the core records is the same as for code that runs on its own machine.
        _, log, _ = place.core("audit", "list", "--json")
        # Bubblewrap works in neither place; commands run without it where Landlock can hold them.
        code, sandbox, _ = place.core("sandbox", "status", "--json")
        without = (0, "landlock+seccomp+rlimits") if landlock_abi() >= LANDLOCK_ABI else (3, "none")
        assert (code, sandbox["level"]) == without
        tools = {entry["record"]["tool"] for entry in log["records"]}
        assert tools >= {"fetch", "crypto-price__get_price"}
        assert executor.terminate() == 0
    lines = [json.loads(line) for line in executor.said]
    events = [(line["event"], line.get("tool"), line.get("outcome")) for line in lines]
    assert events == [("tool.execute", "crypto-price:get_price", "ok"), ("ending", None, None)]
    assert prices.url not in "".join(executor.said)


@BOTH
@pytest.mark.req("S002-56", "S002-57")
def test_edited_code_is_what_runs_next(place: Composition, prices: Prices) -> None:
    skill = place.base / "workspace/skills/crypto-price"
    with place.running("skill-executor") as executor:
        executor.first_line()
        assert price(place, prices)[0] == 0
        for file in (*skill.glob("*.py"), *skill.glob("*.js")):
            text = (
                file.read_text()
                .replace("currency: str", "currency: str")
                .replace("Coin not found", "No such coin")
            )
            file.write_text(text)
        unknown = ("call", "crypto-price:get_price", "--args", '{"coin": "dogecoinn"}', "--json")
        code, answer, _ = place.core(*unknown, COINGECKO_URL=prices.url)
        assert (code, answer["content"]) == (1, "No such coin: dogecoinn")
        code, answer, said = place.core("reload", "--json")
        assert (code, answer["failed"], said) == (0, [], "")
        assert "crypto-price:get_price" in answer["loaded"]
        # Gone from there, and the core cannot have it run by its old manifest either.
        shutil.rmtree(skill)
        assert place.core(*CALL)[0] == 2


def test_an_executor_that_is_killed_leaves_a_clear_error_and_no_second_call(
    place: Composition, prices: Prices
) -> None:
    prices.go_on.clear()
    answers: list[Any] = []
    with place.running("skill-executor") as executor:
        executor.first_line()
        call = threading.Thread(target=lambda: answers.append(price(place, prices)))
        call.start()
        assert prices.asked.wait(30), executor.said
        executor.kill()
        prices.go_on.set()
        call.join()
    [(code, answer, _)] = answers
    assert (code, answer["status"]) == (1, "error")
    assert "did not answer" in answer["content"]
    assert "may have had its effect, and is not repeated" in answer["content"]
    assert len(prices.seen) == 1
    code, answer, _ = price(place, prices)
    assert (code, answer["status"]) == (1, "error")
    assert "nothing was run: no server answers at skill-executor:" in answer["content"]
    with place.running("skill-executor") as executor:
        executor.first_line()
        assert price(place, prices)[0] == 0
    assert len(prices.seen) == 2


@pytest.mark.req("S002-23")
def test_another_token_opens_neither_side(place: Composition, prices: Prices) -> None:
    place.token("core", "e" * 64)
    with place.running("skill-executor") as executor:
        executor.first_line()
        code, answer, _ = price(place, prices)
        assert (code, answer["status"]) == (1, "error")
        assert "does not take our token" in answer["content"]
        assert "e" * 16 not in answer["content"]
        place.token("core", "short")
        code, answer, _ = price(place, prices)
        assert (code, answer["status"]) == (1, "error")
        assert "at least 16" in answer["content"]
        assert executor.said == []
    assert prices.seen == []


def test_up_answers_on_all_addresses_for_its_own_names_only(
    place: Composition, prices: Prices
) -> None:
    import urllib.error  # noqa: PLC0415
    import urllib.request  # noqa: PLC0415

    with place.running("core") as core:
        address = core.first_line().strip()
        token = address.rpartition("=")[2]
        port = place.ports["8600"]
        assert address.startswith(f"http://127.0.0.1:{port}/?token=")

        def status(host: str, **headers: str) -> int:
            request = urllib.request.Request(f"http://127.0.0.2:{port}/api/v1/status")
            request.add_header("Host", host)
            for name, value in headers.items():
                request.add_header(name, value)
            try:
                with urllib.request.urlopen(request, timeout=20) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                return error.code

        bearer = {"Authorization": f"Bearer {token}"}
        assert status(f"127.0.0.1:{port}", **bearer) == 200
        assert status(f"127.0.0.1:{port}") == 401
        assert status(f"core:{port}", **bearer) == 421
        assert status("evil.test", **bearer) == 421
        assert core.terminate() == 0
    assert core.said[0].startswith("listening on 0.0.0.0: the network reaches this service")


def test_an_executor_that_cannot_hold_code_does_not_start(place: Composition) -> None:
    words = [
        word for word in place.command("skill-executor") if word not in ("--boundary", "container")
    ]
    with place.running("skill-executor", *words) as executor:
        assert executor.wait() == 3
    [line] = map(json.loads, executor.said)
    assert line["event"] == "no-sandbox"
    assert "namespace" in line["reasons"][0]
    assert "--boundary container" in line["hint"]


KEY = "0" * 64
PYTHON = """
import asyncio
import near

async def uses(params, context):
    await asyncio.sleep(0)
    context.log("a line of its own")
    return near.name

tools = {"uses": uses}
"""
NODE = """
const near = require('near');
exports.tools = { uses: async () => `${near.name} ${(await import('near')).default.name}` };
"""


@pytest.mark.req("S002-3", "S002-93")
def test_installed_packages_are_found_with_what_they_need(tmp_path: Path, need: Any) -> None:
    need(shutil.which("bwrap"), "no bubblewrap to make places like containers")
    need(shutil.which("node"), "no node here")
    write_code(tmp_path / "made/in-python", PYTHON, tool("uses"))
    write_code(tmp_path / "made/in-node", NODE, tool("uses"), language="javascript")
    place = Composition(tmp_path, tmp_path / "made")
    store = place.base / "packages" / KEY / "packages"
    for name, needed in (("near", "far"), ("far", "")):
        (store / name).mkdir(parents=True)
        python = f"import {needed}\nname = {needed}.name" if needed else "name = 'far away'"
        node = f"require('{needed}')" if needed else "{ name: 'far away' }"
        (store / name / "__init__.py").write_text(python)
        (store / name / "index.js").write_text(f"module.exports = {node};")

    async def ask(name: str) -> Any:
        client = RpcClient(f"http://127.0.0.1:{place.ports['8700']}/rpc", TOKEN)
        params = {"tool": f"{name}:uses", "context": {"packages": KEY}}
        return await client.ask("tool.execute", params)

    with place.running("skill-executor") as executor:
        executor.first_line()
        found = [anyio.run(ask, name) for name in ("in-python", "in-node")]
    assert found == [
        {"success": True, "data": "far away"},
        {"success": True, "data": "far away far away"},
    ], executor.said
