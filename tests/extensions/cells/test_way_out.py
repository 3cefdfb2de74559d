"""Tests of the way out of a call: what code in a cell reaches by the proxy of its call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.extensions.cells.lab import Lab, language, make, status_of
from tests.net.servers import Server, fixed, ok, policy_for, serving

from skillhouse.extensions.cells import CellSpec
from skillhouse.net import METADATA, EgressConnection, EgressDecision, EgressProxy, Route
from skillhouse.sandbox import SandboxLevel

__all__ = ["language"]

HOSTS = ("* http://api.test",)
URLLIB = """
    import os
    import urllib.request

    def tool(params, context):
        with urllib.request.urlopen(params["url"], timeout=8) as answer:
            return [answer.status, answer.read().decode()]

    def variables(params, context):
        return sorted(name for name in os.environ if "proxy" in name.lower())

    tools = {"tool": tool, "variables": variables}
"""
SOCKET = """
    import socket

    def tool(params, context):
        socket.create_connection(("api.test", 80), 5)

    tools = {"tool": tool}
"""
NODE_BY_PROXY = """
    const http = require('http');
    const ask = (url) => new Promise((resolve, reject) => {
      const proxy = new URL(process.env.HTTP_PROXY);
      const options = { host: proxy.hostname, port: proxy.port, path: url };
      http.get(options, (answer) => {
        let text = '';
        answer.on('data', (chunk) => { text += chunk; });
        answer.on('end', () => resolve([answer.statusCode, text]));
      }).on('error', reject);
    });
    exports.tools = { tool: async (params) => ask(params.url) };
"""
NODE_FETCH = """
    exports.tools = { tool: async (params) => (await fetch(params.url)).text() };
"""


@pytest.fixture
def lab(tmp_path: Path, need: Any) -> Lab:
    return Lab(status_of(SandboxLevel.CGROUP, need), tmp_path)


class Watch:
    """A way out to servers that are all called api.test, and what it reported."""

    def __init__(self, *servers: Server, addresses: tuple[str, ...] = ("127.0.0.1",)) -> None:
        self.seen: list[EgressDecision] = []
        self.ended: list[EgressConnection] = []
        for server in servers:
            server.host = "api.test"
        self.proxy = EgressProxy(
            policy_for(*servers),
            report=self.seen.append,
            ended=self.ended.append,
            route=Route(resolve=fixed(list(addresses))),
            never=METADATA,
        )


def skill(lab: Lab, language: str, **options: Any) -> CellSpec:
    source = URLLIB if language == "python" else NODE_BY_PROXY
    return make(lab.place, source, language=language, hosts=HOSTS, **options)


async def test_code_reaches_a_granted_host_by_the_usual_variables(lab: Lab, language: str) -> None:
    async with serving(ok(b"hello")) as server, lab.executor() as executor:
        watch = Watch(server)
        arguments = {"url": f"{server.url}/path"}
        spec = skill(lab, language)
        for _ in range(3):
            # The later ones may take a process that was loaded before.
            done = await lab.ask(executor, spec, arguments=arguments, network=watch.proxy)
            assert (done.kind, done.value, done.has_way) == ("ok", [200, "hello"], True), done
    assert [(one.method, one.origin) for one in watch.seen] == [("GET", server.url)] * 3
    assert [(one.method, one.received) for one in watch.ended] == [("GET", 5)] * 3
    assert all(b"authorization" not in one.lower() for one in server.seen)


async def test_code_of_which_the_packages_are_loaded_ahead_reaches_it_too(lab: Lab) -> None:
    packages = lab.place / "packages"
    packages.mkdir()
    (packages / "sdk.py").write_text("import os\nURL = os.environ['HTTP_PROXY']\n")
    source = "import sdk\n" + "\n".join(line[4:] for line in URLLIB.splitlines())
    spec = make(lab.place, source, hosts=HOSTS, dependencies=packages)
    async with serving(ok(b"hello")) as server, lab.executor() as executor:
        watch = Watch(server)
        for number in range(3):
            arguments = {"url": f"{server.url}/{number}"}
            done = await lab.ask(executor, spec, arguments=arguments, network=watch.proxy)
            assert (done.kind, done.value) == ("ok", [200, "hello"]), done
            await executor_is_ready(executor)
    assert len(watch.ended) == 3


async def executor_is_ready(executor: Any) -> None:
    with anyio.fail_after(20):
        while not executor.health()["ready"]:  # noqa: ASYNC110 - nothing tells of it.
            await anyio.sleep(0.01)


def test_without_hosts_code_has_no_network_and_no_variables(lab: Lab) -> None:
    spec = make(lab.place, URLLIB)
    watch = Watch()
    assert lab.call(spec, "variables", network=watch.proxy).value == []
    done = lab.call(spec, arguments={"url": "http://api.test/"}, network=watch.proxy)
    assert (done.kind, done.has_way, done.unreached) == ("error", False, "python")
    assert watch.seen == []


def test_an_error_for_want_of_a_network_is_known_by_what_caused_it(lab: Lab, language: str) -> None:
    source = SOCKET if language == "python" else NODE_FETCH
    spec = make(lab.place, source, language=language)
    done = lab.call(spec, arguments={"url": "http://api.test/"})
    assert done.unreached.split()[0] == ("python" if language == "python" else "node")


@pytest.mark.parametrize("code", ["raise ValueError('x')", "raise KeyError('gaierror')"])
def test_another_error_is_not_taken_for_it(lab: Lab, code: str) -> None:
    spec = make(lab.place, f"def tool(p, c):\n    {code}\ntools = {{'tool': tool}}\n")
    assert lab.call(spec).unreached == ""
