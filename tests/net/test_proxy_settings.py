"""Tests of net/proxy_settings.py, and of requests that go through a proxy."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream

from skillhouse.net import NetError, NetPolicy, Route, fetch, host_rule, parse_url
from skillhouse.net.proxy_settings import git_variables, proxy_of
from tests.net.certificates import contexts
from tests.net.servers import fixed, ok, policy_for, secure, serving

PROXY = "http://proxy.test:3128"
EVERYWHERE = NetPolicy(hosts=(host_rule("* http://*:*"), host_rule("* https://*:*")))


def tunnel_to(port: int) -> Callable[[SocketStream], Awaitable[None]]:
    """Return the answer of a proxy that opens every tunnel to one port of this machine."""

    async def answer(stream: SocketStream) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
        async with await anyio.connect_tcp("127.0.0.1", port) as far:

            async def carry(source: SocketStream, sink: SocketStream) -> None:
                async for data in source:
                    await sink.send(data)
                await sink.send_eof()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(carry, stream, far)
                tasks.start_soon(carry, far, stream)

    return answer


@pytest.mark.parametrize(
    ("url", "environment", "expected"),
    [
        ("https://a.test/", {"HTTPS_PROXY": PROXY}, PROXY),
        ("https://a.test/", {"https_proxy": PROXY, "HTTPS_PROXY": "http://b.test"}, PROXY),
        ("https://a.test/", {"HTTPS_PROXY": "proxy.test:3128"}, PROXY),
        ("https://a.test/", {"HTTP_PROXY": PROXY}, None),
        ("http://a.test/", {"HTTP_PROXY": PROXY}, PROXY),
        ("http://a.test/", {"HTTP_PROXY": PROXY, "REQUEST_METHOD": "GET"}, None),
        ("https://a.test/", {"HTTPS_PROXY": ""}, None),
        *(
            (url, {"HTTPS_PROXY": PROXY, "NO_PROXY": listed}, None if is_direct else PROXY)
            for url, listed, is_direct in (
                ("https://a.test/", "*", True),
                ("https://a.test/", "b.test, a.test", True),
                ("https://b.a.test/", "a.test", True),
                ("https://b.a.test/", ".a.test", True),
                ("https://b.a.test/", "*.A.test", True),
                ("https://ba.test/", "a.test", False),
                ("https://a.test.evil.test/", "a.test", False),
                ("https://a.test/", "a.test:443", True),
                ("https://a.test:8443/", "a.test:443", False),
                ("https://10.1.2.3/", "10.0.0.0/8", True),
                ("https://10.1.2.3/", "10.1.2.3", True),
                ("https://11.1.2.3/", "10.0.0.0/8", False),
                ("https://[fd00::1]/", "fd00::/8", True),
                ("https://[fd00::1]/", "[fd00::1]:443", True),
                ("https://a.test/", "10.0.0.0/8,,", False),
            )
        ),
        ("https://localhost:1/", {"HTTPS_PROXY": PROXY}, None),
        ("https://127.0.0.1/", {"HTTPS_PROXY": PROXY}, None),
        ("https://[::1]/", {"HTTPS_PROXY": PROXY}, None),
    ],
)
def test_the_variables_say_which_proxy_is_asked(
    url: str, environment: dict[str, str], expected: str | None
) -> None:
    found = proxy_of(parse_url(url), environment)
    assert (found and found.target.origin) == expected


async def test_a_request_over_http_names_the_whole_address_to_the_proxy() -> None:
    async with serving(ok(b"by proxy")) as proxy:
        address = f"http://me:p%40ss@127.0.0.1:{proxy.port}"
        route = Route(resolve=fixed([]), environment={"HTTP_PROXY": address})
        found = await fetch("http://name.test/a?b", policy=EVERYWHERE, route=route)
        assert found.body == b"by proxy"
        head = proxy.seen[0].decode()
        assert head.startswith("GET http://name.test/a?b HTTP/1.1\r\nHost: name.test\r\n")
        assert f"Proxy-Authorization: Basic {base64.b64encode(b'me:p@ss').decode()}\r\n" in head


async def test_https_goes_through_a_tunnel_with_the_certificate_of_the_server(
    tmp_path: Path,
) -> None:
    mine, _ = contexts(tmp_path, "name.test")
    async with secure(mine, ok(b"secret")) as server, serving(tunnel_to(server.port)) as proxy:
        environment = {
            "HTTPS_PROXY": f"http://me:pass@127.0.0.1:{proxy.port}",
            "SSL_CERT_FILE": str(tmp_path / "server.pem"),
        }
        route = Route(resolve=fixed([]), environment=environment)
        found = await fetch("https://name.test/a", policy=EVERYWHERE, route=route)
        assert found.body == b"secret"
        assert proxy.seen[0].startswith(b"CONNECT name.test:443 HTTP/1.1\r\nHost: name.test:443")
        assert b"Proxy-Authorization" not in server.seen[0]
        assert server.seen[0].startswith(b"GET /a HTTP/1.1\r\n")
        with pytest.raises(NetError, match="no secure connection to other"):
            await fetch("https://other.test/", policy=EVERYWHERE, route=route)


async def test_the_certificates_of_the_variable_are_trusted_besides_the_systems(
    tmp_path: Path,
) -> None:
    mine, _ = contexts(tmp_path, "name.test")
    async with secure(mine, ok(b"hello")) as server:
        policy = NetPolicy(hosts=(host_rule("https://*:*"),), private=("127.0.0.1",))
        url, resolve = f"https://name.test:{server.port}/", fixed(["127.0.0.1"])
        file = {"SSL_CERT_FILE": str(tmp_path / "server.pem")}
        found = await fetch(url, policy=policy, route=Route(resolve=resolve, environment=file))
        assert found.body == b"hello"
        for wrong in (str(tmp_path / "none"), __file__):
            route = Route(resolve=resolve, environment={"SSL_CERT_FILE": wrong})
            with pytest.raises(NetError, match="no certificates in the file of `SSL_CERT_FILE`"):
                await fetch(url, policy=policy, route=route)


async def test_a_server_of_this_machine_is_asked_directly() -> None:
    async with serving(ok(b"direct")) as server:
        route = Route(environment={"HTTP_PROXY": "http://127.0.0.1:1"})
        found = await fetch(server.url, policy=policy_for(server), route=route)
        assert found.body == b"direct"


async def test_a_proxy_that_is_not_there_or_refuses_is_named() -> None:
    async with serving(ok(status="407 Proxy Authentication Required")) as proxy:
        environment = {"HTTPS_PROXY": f"http://me:s3cr3t-word@127.0.0.1:{proxy.port}"}
        with pytest.raises(NetError, match=r"proxy 127.0.0.1:\d+ gives no way .*: status 407") as e:
            await fetch(
                "https://name.test/",
                policy=EVERYWHERE,
                route=Route(resolve=fixed([]), environment=environment),
            )
        assert "s3cr3t" not in str(e.value)


def test_git_gets_the_same() -> None:
    assert git_variables({}) == {}
    assert git_variables({"HTTP_PROXY": PROXY, "NO_PROXY": "*"}) == {
        "http_proxy": PROXY,
        "no_proxy": "*",
    }
