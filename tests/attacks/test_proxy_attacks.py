"""Attacks by what a proxy answers, and by what the variables that name it hold."""

from __future__ import annotations

import pytest

from skillhouse.net import NetError, NetPolicy, Route, fetch, host_rule, parse_url
from skillhouse.net.proxy_settings import proxy_of
from tests.net.servers import fixed, ok, redirect, serving

NAMES = NetPolicy(hosts=(host_rule("* http://*"), host_rule("* https://*")))
ALL = NetPolicy(
    hosts=(*NAMES.hosts, host_rule("* http://169.254.169.254"), host_rule("* http://10.0.0.1"))
)
METADATA = "http://169.254.169.254/latest/meta-data/"


@pytest.mark.parametrize("location", [METADATA, "http://[fe80::1]/", "http://10.0.0.1/"])
@pytest.mark.parametrize("policy", [NAMES, ALL])
async def test_a_proxy_that_leads_to_addresses_inside(location: str, policy: NetPolicy) -> None:
    async with serving(redirect(location), ok(b"credentials")) as proxy:
        route = Route(resolve=fixed([]), environment={"HTTP_PROXY": proxy.url})
        with pytest.raises(NetError) as caught:
            await fetch("http://name.test/", policy=policy, route=route)
        assert caught.value.code in ("redirect-refused", "address-refused")
        assert len(proxy.seen) == 1


async def test_an_address_inside_is_not_asked_for_through_a_proxy() -> None:
    async with serving(ok(b"credentials")) as proxy:
        route = Route(resolve=fixed([]), environment={"HTTP_PROXY": proxy.url})
        with pytest.raises(NetError, match="not public"):
            await fetch(METADATA, policy=ALL, route=route)
        assert proxy.seen == []


async def test_a_name_that_is_known_here_as_one_inside_is_not_asked_for_through_a_proxy() -> None:
    async with serving(ok(b"credentials")) as proxy:
        route = Route(resolve=fixed(["169.254.169.254"]), environment={"HTTP_PROXY": proxy.url})
        with pytest.raises(NetError, match="not public"):
            await fetch("http://name.test/", policy=NAMES, route=route)
        assert proxy.seen == []


@pytest.mark.parametrize(
    "answer",
    [
        redirect(METADATA),
        ok(b"a page of a portal"),
        ok(status="502 Bad Gateway"),
        b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        b"SSH-2.0-x\r\n",
        b"",
        b"HTTP/1.1 200 " + b"x" * 200_000,
    ],
)
async def test_a_proxy_that_answers_in_place_of_the_server(answer: bytes) -> None:
    """What a proxy says before the server is asked is no answer of the server."""
    async with serving(answer) as proxy:
        route = Route(resolve=fixed([]), environment={"HTTPS_PROXY": proxy.url})
        with pytest.raises(NetError) as caught:
            await fetch("https://name.test/", policy=NAMES, route=route)
        assert caught.value.code in ("connect-failed", "protocol-error", "too-large")
        assert len(proxy.seen) == 1


@pytest.mark.parametrize(
    "text",
    [
        "socks5://me:s3cr3t-word@proxy.test:1080",
        "file:///etc/passwd",
        "http://me:s3cr3t-word@",
        "http://proxy.test:port",
        "http://proxy.test:70000",
        "http://me:s3cr3t-word@0x7f.1/",
        "http://proxy.test\r\nX: y",
        "http://[::1",
        "http://me:s3cr3t-word@proxy.test\\@evil.test",
    ],
)
def test_a_variable_that_names_no_proxy_is_refused_without_its_password(text: str) -> None:
    with pytest.raises(NetError, match="in the variable `HTTPS_PROXY`") as caught:
        proxy_of(parse_url("https://name.test/"), {"HTTPS_PROXY": text})
    assert "s3cr3t" not in str(caught.value)
    assert str(caught.value).isprintable()


def test_the_password_of_a_proxy_is_in_no_text() -> None:
    found = proxy_of(parse_url("https://a.test/"), {"HTTPS_PROXY": "http://me:s3cr3t-word@p.test"})
    assert found is not None
    assert "authorization" not in repr(found) or "Basic" not in repr(found)


async def test_the_password_of_a_proxy_goes_to_no_server() -> None:
    async with serving(ok(b"direct")) as server:
        environment = {"HTTP_PROXY": "http://me:s3cr3t-word@p.test", "NO_PROXY": "name.test"}
        policy = NetPolicy(hosts=(host_rule("* http://*:*"),), private=("127.0.0.1",))
        route = Route(resolve=fixed(["127.0.0.1"]), environment=environment)
        await fetch(f"http://name.test:{server.port}/", policy=policy, route=route)
        assert b"Proxy-Authorization" not in server.seen[0]


async def test_a_skill_cannot_set_the_header_of_the_proxy() -> None:
    async with serving(ok()) as proxy:
        route = Route(resolve=fixed([]), environment={"HTTP_PROXY": proxy.url})
        headers = {"Proxy-Authorization": "Basic x"}
        with pytest.raises(NetError, match="not the caller's to set"):
            await fetch("http://name.test/", policy=NAMES, route=route, headers=headers)
        assert proxy.seen == []
