"""Tests of net/client.py and of what it stands on: exchange.py, route.py."""

from __future__ import annotations

import gzip
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.net import HttpResponse, NetError, NetLimits, NetPolicy, Route, fetch, host_rule
from tests.net.certificates import contexts
from tests.net.servers import fixed, ok, policy_for, redirect, secure, serving


async def test_a_request_is_what_was_asked_for_and_the_answer_comes_whole():
    answer = ok(b'{"a": 1}', "Content-Type: application/json", "Set-Cookie: a=b", "X: y")
    async with serving(answer) as server:
        response = await fetch(
            f"{server.url}/a?b=c#d",
            policy=policy_for(server),
            method="POST",
            headers={"Accept": "a/b", "User-Agent": "me"},
            body=b"sent",
        )
        assert response == HttpResponse(
            status=200,
            url=f"{server.url}/a?b=c",
            headers=(
                ("Content-Length", "8"),
                ("Content-Type", "application/json"),
                ("X", "y"),
            ),
            body=b'{"a": 1}',
        )
        assert (response.header("CONTENT-TYPE"), response.header("none")) == (
            "application/json",
            "",
        )
        assert server.seen == [
            f"POST /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAccept: a/b\r\n"
            "User-Agent: me\r\nAccept-Encoding: gzip, deflate\r\nContent-Length: 4\r\n"
            "Connection: close\r\n\r\nsent".encode()
        ]


CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nA: b\r\n\r\n"
)
PACKED = gzip.compress(b"hello", mtime=0)


@pytest.mark.parametrize(
    ("method", "answer", "status", "body"),
    [
        ("GET", CHUNKED, 200, b"hello"),
        ("GET", b"HTTP/1.0 200 OK\r\n\r\nhello", 200, b"hello"),
        ("GET", ok(PACKED, "Content-Encoding: gzip"), 200, b"hello"),
        (
            "GET",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + ok(b"a"),
            200,
            b"a",
        ),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 200, b""),
        ("HEAD", ok(b"", "Content-Encoding: gzip"), 200, b""),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Encoding: gzip\r\n\r\n", 304, b""),
        ("DELETE", ok(b"gone", status="404 Not Found"), 404, b"gone"),
        ("GET", ok(b"stay", status="300 Multiple Choices"), 300, b"stay"),
        ("GET", ok(b"no place", status="302 Found"), 302, b"no place"),
    ],
)
async def test_answers_of_every_form_are_read(method, answer, status, body):
    async with serving(answer) as server:
        response = await fetch(server.url, policy=policy_for(server), method=method)
        assert (response.status, response.body) == (status, body)


@pytest.mark.parametrize(
    ("status", "method", "then"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "POST", "GET"),
        (303, "PUT", "GET"),
        (303, "HEAD", "HEAD"),
        (302, "PUT", "PUT"),
        (307, "POST", "POST"),
        (308, "POST", "POST"),
        (302, "HEAD", "HEAD"),
    ],
)
async def test_a_redirect_changes_the_method_as_browsers_do(status, method, then):
    async with serving(redirect("b", status), ok(b"")) as server:
        body = b"" if method == "HEAD" else b"sent"
        headers = {"Content-Type": "a/b", "X-Key": "k"}
        response = await fetch(
            f"{server.url}/a/",
            policy=policy_for(server),
            method=method,
            body=body,
            headers=headers,
        )
        assert response.url == f"{server.url}/a/b"
        assert response.hops == (f"{server.url}/a/",)
        second = server.seen[1]
        assert second.startswith(f"{then} /a/b HTTP/1.1\r\n".encode())
        assert second.endswith(b"sent") == (then not in ("GET", "HEAD"))
        assert (b"Content-Type" in second) == (then == method)
        assert b"X-Key: k" in second


async def test_a_redirect_needs_a_rule_for_its_own_method_and_origin():
    async with serving(ok(b"")) as other, serving(redirect(f"{other.url}/?a=b", 307)) as first:
        policy = NetPolicy(
            hosts=(host_rule(f"POST {first.url}"), host_rule(other.url)),
            private=("127.0.0.1",),
        )
        with pytest.raises(NetError, match="no rule allows POST") as caught:
            await fetch(first.url, policy=policy, method="POST")
        assert caught.value.code == "redirect-refused"
        assert f"{other.url}/?a=b" in str(caught.value)
        assert other.seen == []


async def test_what_is_asked_for_wrongly_is_refused_before_anything_is_sent():
    async with serving() as server:
        policy = policy_for(server)
        for options in (
            {"method": "get"},
            {"method": "CONNECT"},
            {"method": "A B"},
            {"body": bytes((1 << 20) + 1), "method": "POST"},
            {"headers": {"A": "b", "a": "c"}},
        ):
            with pytest.raises(NetError) as caught:
                await fetch(server.url, policy=policy, **options)
            assert caught.value.code == "request-refused"
        with pytest.raises(NetError) as caught:
            await fetch(server.url, policy=NetPolicy())
        assert caught.value.code == "host-refused"
        assert server.seen == []


PIECES = [
    *(
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 302 Found\r\n",
        b"HTTP/1.0 200\r\n",
        b"HTTP/1.1 100 C\r\n",
    ),
    *(b"\r\n", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n"),
    *(b"0\r\n\r\n", b"Location: http://[\r\n", b"Location: /b\r\n", b"Location: \xff\x00\r\n"),
    *(b"Location: //evil.test:x/\r\n", b"Content-Encoding: gzip\r\n", b"Location: ?\r\n", b"hello"),
    *(b"Content-Encoding: deflate\r\n", PACKED, PACKED[:9], b"X: \xfc\r\n", b"Upgrade: x\r\n"),
]


@pytest.mark.slow
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=20)), max_size=12))
async def test_whatever_a_server_sends_is_an_answer_or_an_error_of_ours(pieces):
    async with serving(b"".join(pieces)) as server:
        try:
            response = await fetch(server.url, policy=policy_for(server))
        except NetError as error:
            assert error.code in (  # noqa: PT017 - either is well.
                *("protocol-error", "redirect-refused", "encoding-unknown", "too-large"),
            )
        else:
            assert 100 <= response.status < 1_000


async def test_failures_say_what_failed():
    async def silent(stream: SocketStream) -> None:
        await anyio.sleep_forever()

    async def nobody(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    async def never(host: str, port: int) -> list[str]:
        await anyio.sleep_forever()
        return []

    limits = NetLimits(seconds=5, head_seconds=0.1, connect_seconds=0.1)
    everything = NetPolicy(hosts=(host_rule("http://*:*"),), private=("127.0.0.1",), limits=limits)
    async with serving(silent) as server:
        with pytest.raises(NetError, match="no answer began in 0"):
            await fetch(server.url, policy=policy_for(server, limits=limits))
        closed = server.port
    cases = {
        "no address for name.test": Route(resolve=nobody),
        "no address for": Route(resolve=fixed([])),
        "no answer about the name": Route(resolve=never),
        f"no connection to name.test:{closed}": Route(resolve=fixed(["127.0.0.1"])),
    }
    for said, route in cases.items():
        with pytest.raises(NetError, match=said) as caught:
            await fetch(f"http://name.test:{closed}/", policy=everything, route=route)
        assert not caught.value.refused


async def test_the_next_address_of_a_name_is_tried():
    async with serving(ok(b"hello")) as server:
        policy = NetPolicy(hosts=(host_rule("http://*:*"),), private=("127.0.0.0/8",))
        route = Route(resolve=fixed(["127.0.0.9", "127.0.0.1"]))
        url = f"http://name.test:{server.port}/"
        assert (await fetch(url, policy=policy, route=route)).body == b"hello"
        assert f"Host: name.test:{server.port}".encode() in server.seen[0]


async def test_a_name_with_very_many_addresses_does_not_keep_us_trying():
    async with serving() as server:
        policy = NetPolicy(hosts=(host_rule("http://*:*"),), private=("127.0.0.0/8",))
        url = f"http://name.test:{server.port}/"
        silent = [f"127.0.0.{number}" for number in range(2, 6)]
        route = Route(resolve=fixed([*silent, "127.0.0.1"]))
        with pytest.raises(NetError, match="no connection"):
            await fetch(url, policy=policy, route=route)
        route = Route(resolve=fixed([*silent[1:], "127.0.0.1"]))
        assert (await fetch(url, policy=policy, route=route)).status == 200


async def test_an_answer_given_before_the_request_was_read_counts():
    async def early(stream: SocketStream) -> None:
        await stream.send(ok(b"too much", status="413 Content Too Large"))

    async with serving(early) as server:
        response = await fetch(
            server.url, policy=policy_for(server), method="POST", body=bytes(1 << 20)
        )
        assert (response.status, response.body) == (413, b"too much")


async def test_the_certificate_is_that_of_the_name_and_trusted(tmp_path: Path):
    mine, trusting = contexts(tmp_path, "name.test")
    async with secure(mine, ok(b"hello")) as server:
        policy = NetPolicy(hosts=(host_rule("https://*:*"),), private=("127.0.0.1",))
        resolve = fixed(["127.0.0.1"])
        url = f"https://name.test:{server.port}/"
        response = await fetch(url, policy=policy, route=Route(resolve=resolve, tls=trusting))
        assert response.body == b"hello"
        for text, route in (
            (url, Route(resolve=resolve)),
            (url.replace("name", "other"), Route(resolve=resolve, tls=trusting)),
        ):
            with pytest.raises(NetError, match="no secure connection") as caught:
                await fetch(text, policy=policy, route=route)
            assert caught.value.code == "connect-failed"
        assert len(server.seen) == 1


async def test_a_redirect_from_https_to_http_is_refused_though_both_are_allowed(tmp_path: Path):
    mine, trusting = contexts(tmp_path, "name.test")
    async with serving() as plain, secure(mine, redirect(plain.url)) as server:
        rules = (host_rule("https://*:*"), host_rule(plain.url))
        policy = NetPolicy(hosts=rules, private=("127.0.0.1",))
        route = Route(resolve=fixed(["127.0.0.1"]), tls=trusting)
        with pytest.raises(NetError, match="from https to http") as caught:
            await fetch(f"https://name.test:{server.port}/", policy=policy, route=route)
        assert caught.value.code == "redirect-refused"
        assert plain.seen == []


async def test_what_speaks_no_tls_is_no_secure_server():
    async with serving(b"HTTP/1.1 400 Bad Request\r\n\r\n") as server:
        policy = NetPolicy(
            hosts=(host_rule(f"https://127.0.0.1:{server.port}"),),
            private=("127.0.0.1",),
            limits=NetLimits(connect_seconds=0.3),
        )
        with pytest.raises(NetError) as caught:
            await fetch(f"https://127.0.0.1:{server.port}/", policy=policy)
        assert caught.value.code in ("connect-failed", "timeout")
