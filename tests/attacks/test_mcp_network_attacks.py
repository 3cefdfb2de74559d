"""Attacks on where an MCP server over HTTP leads: private addresses, plain http, proxies (E5)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from skillhouse.floor.structs import replace
from skillhouse.net import NetError, NetPolicy, Route, host_rule
from skillhouse.remote import McpServer, RemoteError, connected, mcp_source
from tests.net.certificates import contexts
from tests.net.servers import fixed, ok, secure
from tests.remote.mcp_liar import Liar, serving


async def asked(
    server: McpServer, policy: NetPolicy | None = None, route: Route | None = None
) -> int:
    """Return how many skills a server lists."""
    async with connected(server, policy=policy, route=route) as peer:
        return len(await peer.list_skills())


def refused(server: McpServer, policy: NetPolicy | None = None, route: Route | None = None) -> str:
    with pytest.raises(RemoteError) as caught:
        anyio.run(asked, server, policy, route)
    return str(caught.value)


@contextmanager
def listening() -> Iterator[tuple[int, list[object]]]:
    """Listen on this machine, and remember who connects."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        seen: list[object] = []

        def take() -> None:
            while True:
                try:
                    connection, peer = listener.accept()
                except OSError:
                    return
                seen.append(peer)
                connection.close()

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1], seen
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", ["127.0.0.1", "[::ffff:127.0.0.1]", "localhost", "intern.example"])
def test_a_server_on_a_private_address_is_not_asked(scheme: str, host: str) -> None:
    with listening() as (port, seen):
        server = McpServer(label="docs", url=f"{scheme}://{host}:{port}/mcp")
        route = Route(resolve=fixed(["127.0.0.1"]))
        why = refused(server, route=route)
        assert why.startswith("cannot reach `docs`: ")
        assert "which is not public" in why or "plain http" in why
        if "which is not public" in why:
            assert "`docs` needs `allow_private = true` in `[[mcp_servers]]`" in why
        assert seen == []


def test_no_setting_of_a_server_opens_where_clouds_keep_credentials() -> None:
    server = McpServer(label="docs", url="https://docs.example/mcp", allow_private=True)
    assert "which is not public" in refused(server, route=Route(resolve=fixed(["169.254.169.254"])))


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"])
def test_a_proxy_of_the_environment_is_not_used(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    with listening() as (port, seen), serving(Liar()) as server:
        monkeypatch.setenv(variable, f"http://127.0.0.1:{port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert anyio.run(asked, server) == 0
        assert seen == []


@pytest.mark.parametrize("url", ["http://docs.example/mcp", "http://10.0.0.8/mcp"])
def test_plain_http_to_another_machine_needs_a_rule(url: str) -> None:
    server = McpServer(label="docs", url=url, allow_private=True)
    with pytest.raises(NetError, match=r"plain http to .* in `hosts` of"):
        mcp_source.policy_for(server, NetPolicy())
    named = NetPolicy(hosts=(host_rule(f"POST {url.removesuffix('/mcp')}"),))
    assert mcp_source.policy_for(server, named).private == mcp_source.PRIVATE
    # The rule says nothing of a private address.
    assert mcp_source.policy_for(replace(server, allow_private=False), named).private == ()


async def test_a_name_is_looked_up_once_for_a_connection_and_every_connection_is_judged(
    tmp_path: Path,
) -> None:
    context, trusted = contexts(tmp_path, "docs.example")
    async with secure(context, ok(b"{}")) as fake:
        server = McpServer(
            label="docs", url=f"https://docs.example:{fake.port}/mcp", allow_private=True
        )
        own = NetPolicy(private=("127.0.0.1/32",))
        own = mcp_source.policy_for(replace(server, allow_private=False), own)
        route = Route(resolve=fixed(["127.0.0.1"], ["10.0.0.1"]), tls=trusted)
        with pytest.raises(RemoteError, match=r"docs\.example leads to 10\.0\.0\.1"):
            await asked(replace(server, allow_private=False), own, route)
        assert len(fake.seen) == 1


async def test_a_certificate_of_another_name_is_refused(tmp_path: Path) -> None:
    context, trusted = contexts(tmp_path, "other.example")
    async with secure(context, ok(b"{}")) as fake:
        url = f"https://docs.example:{fake.port}/mcp"
        server = McpServer(label="docs", url=url, allow_private=True)
        route = Route(resolve=fixed(["127.0.0.1"]), tls=trusted)
        with pytest.raises(RemoteError, match="no secure connection"):
            await asked(server, None, route)
