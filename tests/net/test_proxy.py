"""Tests of net/proxy.py and net/exchange.py."""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from anyio.streams.tls import TLSStream
from hypothesis import given, settings
from hypothesis import strategies as st

from skillhouse.floor.paths import unix_address
from skillhouse.net import (
    EgressDecision,
    EgressProxy,
    NetLimits,
    NetPolicy,
    Route,
    SecretBinding,
    host_rule,
)
from tests.net.certificates import contexts
from tests.net.greetings import hello_with, named
from tests.net.servers import LOOPBACK, Server, fixed, ok, secure, serving

SECRET = SecretBinding(name="KEY", value="s3cr3t-value", hosts=("https://bound.test",))


@dataclass(slots=True)
class Place:
    """A server, a proxy beside it, and what the proxy said."""

    server: Server
    path: Path
    said: list[EgressDecision] = field(default_factory=list)

    async def ask(self, request: str, *, more: bytes = b"", fields: str = "Host: x\r\n") -> bytes:
        """Send a request through the proxy and return all that comes back."""
        line = request.replace("PORT", str(self.server.port))
        async with await anyio.connect_unix(self.path) as stream:
            await stream.send(f"{line} HTTP/1.1\r\n{fields}\r\n".encode() + more)
            data = b""
            with anyio.move_on_after(5):
                async for chunk in stream:
                    data += chunk
        return data

    def decisions(self) -> list[tuple[bool, str, str]]:
        origins = ((d, d.origin.replace(str(self.server.port), "PORT")) for d in self.said)
        return [(d.allowed, d.method, origin) for d, origin in origins]


@asynccontextmanager
async def proxied(
    base: Path,
    *rules: str,
    answer: Any = None,
    addresses: list[str] | None = None,
    limits: NetLimits | None = None,
    idle_seconds: float | None = None,
) -> AsyncIterator[Place]:
    async with serving(answer or ok(b"page")) as server:
        place = Place(server, base / "proxy.sock")
        policy = NetPolicy(
            hosts=tuple(host_rule(rule.replace("PORT", str(server.port))) for rule in rules),
            private=LOOPBACK,
            secrets=(SECRET,),
            limits=limits or NetLimits(),
        )
        route = Route(resolve=fixed(addresses or ["127.0.0.1"]))
        proxy = EgressProxy(
            policy, report=place.said.append, route=route, idle_seconds=idle_seconds
        )
        async with proxy.listening(place.path):
            yield place


def status(answer: bytes) -> bytes:
    return answer.split(b" ", 2)[1] if answer else b""


def test_only_the_user_may_connect_and_nothing_is_left(tmp_path: Path):
    async def main() -> None:
        async with proxied(tmp_path) as place:
            assert stat.S_IMODE(os.stat(place.path).st_mode) == 0o600

    anyio.run(main)
    assert list(tmp_path.iterdir()) == []


def test_a_proxy_finds_a_place_of_its_own_and_an_error_in_the_block_comes_out_as_it_is():
    places: list[Path] = []

    async def main() -> None:
        proxy = EgressProxy(NetPolicy(), report=lambda decision: None)
        async with proxy.listening() as path:
            places.append(path)
            assert stat.S_IMODE(os.stat(path.parent).st_mode) == 0o700
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        anyio.run(main)
    assert not places[0].parent.exists()


async def test_a_proxy_listens_below_a_directory_whose_path_no_address_holds(tmp_path: Path):
    place = tmp_path / ("d" * 180)
    place.mkdir()
    proxy = EgressProxy(NetPolicy(), report=lambda decision: None)
    async with proxy.listening(place / "proxy") as path:
        with unix_address(path) as address:
            stream = await anyio.connect_unix(address)
        async with stream:
            await stream.send(b"CONNECT docs.test:443 HTTP/1.1\r\nHost: docs.test\r\n\r\n")
            assert (await stream.receive()).startswith(b"HTTP/1.1 403 ")
    assert list(place.iterdir()) == []


async def test_a_request_goes_on_without_what_belongs_to_this_connection(tmp_path: Path):
    fields = (
        "Host: elsewhere.test\r\nProxy-Authorization: Basic abc\r\nProxy-Connection: keep-alive\r\n"
        "Connection: X-Drop, close\r\nX-Drop: a\r\nTE: trailers\r\nUpgrade: websocket\r\n"
        "X-Keep: b\r\nTransfer-Encoding: chunked\r\n"
    )
    answer = ok(b"page", "Connection: X-Gone", "X-Gone: 1", "X-Stays: 2", "Keep-Alive: 5")
    async with proxied(tmp_path, "POST http://docs.test:PORT", answer=answer) as place:
        said = await place.ask(
            "POST http://docs.test:PORT/a?b=c", fields=fields, more=b"4\r\nsent\r\n0\r\n\r\n"
        )
        assert said.startswith(b"HTTP/1.1 200 ")
        assert said.endswith(b"\r\nX-Stays: 2\r\nConnection: close\r\n\r\npage")
        assert b"X-Gone" not in said
        assert place.server.seen == [
            f"POST /a?b=c HTTP/1.1\r\nHost: docs.test:{place.server.port}\r\nX-Keep: b\r\n"
            "Content-Length: 4\r\nConnection: close\r\n\r\nsent".encode()
        ]
        assert place.said == [
            EgressDecision(
                allowed=True,
                method="POST",
                origin=f"http://docs.test:{place.server.port}",
                addresses=("127.0.0.1",),
            )
        ]


REFUSED = [
    # method and target, as reported
    ("GET http://other.test:PORT/", "http://other.test:PORT"),
    ("POST http://docs.test:PORT/", "http://docs.test:PORT"),
    ("GET http://docs.test/", "http://docs.test"),
    ("GET https://docs.test:PORT/", "https://docs.test:PORT/"),
    ("GET http://docs.test:PORT@evil.test/", "http://docs.test:PORT@evil.test/"),
    ("GET http://docs.test.evil.test:PORT/", "http://docs.test.evil.test:PORT"),
    ("GET /a", "/a"),
    ("GET docs.test:PORT", "docs.test:PORT"),
    ("GET ftp://docs.test:PORT/", "ftp://docs.test:PORT/"),
    ("GET http://2130706433:PORT/", "http://2130706433:PORT/"),
    ("GET http://docs.test:PORT/?k=s3cr3t-value", "http://docs.test:PORT"),
    ("GET https://plain.test:PORT/", "https://plain.test:PORT/"),
    ("CONNECT docs.test:PORT", "https://docs.test:PORT"),
    ("CONNECT deep.test:22", "https://deep.test:22"),
    ("CONNECT deep.test", "deep.test"),
    ("CONNECT http://deep.test:PORT", "http://deep.test:PORT"),
    ("CONNECT a@deep.test:PORT", "https://a@deep.test:PORT"),
    ("CONNECT deep.test:PORT/x", "deep.test:PORT/x"),
    ("CONNECT deep.test:0", "deep.test:0"),
]
RULES = (
    "http://docs.test:PORT",
    "CONNECT https://deep.test:PORT",
    "https://plain.test:PORT",  # Allowed, but not through a proxy that would have to see it.
)


@pytest.mark.parametrize("request_line", [line for line, _ in REFUSED])
async def test_what_no_rule_allows_is_refused_and_reported(tmp_path: Path, request_line):
    async with proxied(tmp_path, *RULES) as place:
        assert status(await place.ask(request_line)) == b"403"
        ((allowed, method, _),) = place.decisions()
        assert (allowed, method) == (False, request_line.split()[0])
        assert place.said[0].reason
        assert place.server.seen == []


async def test_an_address_that_is_not_public_is_refused(tmp_path: Path):
    for addresses in (["127.0.0.2"], ["127.0.0.1", "10.0.0.1"], ["169.254.169.254"]):
        async with proxied(tmp_path, *RULES, addresses=addresses) as place:
            for line in ("GET http://docs.test:PORT/", "CONNECT deep.test:PORT"):
                assert status(await place.ask(line)) == b"403"
            assert [d.allowed for d in place.said] == [False, False]


async def through(path: Path, port: int, context: ssl.SSLContext, name: str | None) -> bytes:
    """Make a tunnel to deep.test and a request in it, with TLS for `name`."""
    async with await anyio.connect_unix(path) as stream:
        await stream.send(f"CONNECT deep.test:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert await stream.receive() == b"HTTP/1.1 200 connected\r\n\r\n"
        data = b""
        tls = await TLSStream.wrap(
            stream, server_side=False, hostname=name, ssl_context=context, standard_compatible=False
        )
        await tls.send(b"GET /in HTTP/1.1\r\n\r\n")
        async for chunk in tls:
            data += chunk
    return data


def test_a_tunnel_carries_both_ways_to_the_checked_address(tmp_path: Path):
    mine, trusting = contexts(tmp_path, "deep.test")

    async def main() -> None:
        async with secure(mine, ok(b"x" * 500_000)) as server:
            rule = f"CONNECT https://deep.test:{server.port}"
            async with proxied(tmp_path, rule) as place:
                said = await through(place.path, server.port, trusting, "deep.test")
                assert said.count(b"x") == 500_000
                assert server.seen == [b"GET /in HTTP/1.1\r\n\r\n"]
                assert [(d.allowed, d.addresses) for d in place.said] == [(True, ("127.0.0.1",))]

    anyio.run(main)


async def test_a_tunnel_is_not_for_another_name_at_the_same_address(tmp_path: Path):
    mine, careless = contexts(tmp_path, "other.test")
    careless.check_hostname = False
    async with secure(mine, ok(b"hello")) as server:
        rule = f"CONNECT https://deep.test:{server.port}"
        async with proxied(tmp_path, rule) as place:
            for name in ("other.test", "deep.test.other.test", None):
                with pytest.raises((anyio.BrokenResourceError, anyio.EndOfStream, ssl.SSLError)):
                    await through(place.path, server.port, careless, name)
            assert server.seen == []
            assert [d.allowed for d in place.said] == [True, False] * 3
            assert place.said[1].reason == "a tunnel to deep.test asks for `other.test`"


async def test_what_is_no_tls_or_hides_its_name_does_not_go_through_a_tunnel(tmp_path: Path):
    hidden = hello_with(b"\xfe\x0d\x00\x01\x00" + named(b"deep.test"))
    for data in (
        hidden,
        b"GET / HTTP/1.1\r\n\r\n",
        b"SSH-2.0-x\r\n",
        b"\x16\x03\x01\x00\x01\x02",
    ):
        async with proxied(tmp_path, *RULES) as place:
            said = await place.ask("CONNECT deep.test:PORT", more=data)
            assert said == b"HTTP/1.1 200 connected\r\n\r\n"
            assert place.server.seen == []
            assert [d.allowed for d in place.said] == [True, False]


async def test_nothing_goes_out_that_cannot_be_reported(tmp_path: Path):
    def full(decision: EgressDecision) -> None:
        raise OSError("no space left")

    async with serving(ok(b"page")) as server:
        rules = (host_rule(f"http://docs.test:{server.port}"),)
        policy = NetPolicy(hosts=rules, private=LOOPBACK)
        proxy = EgressProxy(policy, report=full, route=Route(resolve=fixed(["127.0.0.1"])))
        async with proxy.listening(tmp_path / "proxy.sock") as path:
            place = Place(server, path)
            for line in ("GET http://docs.test:PORT/", "GET http://other.test/"):
                said = await place.ask(line)
                assert status(said) == b"403"
                assert b"could not be recorded: OSError" in said
        assert server.seen == []


async def test_a_failing_server_is_a_bad_gateway(tmp_path: Path):
    async with proxied(tmp_path, *RULES, answer=b"SSH-2.0\r\n") as place:
        assert status(await place.ask("GET http://docs.test:PORT/")) == b"502"
    async with proxied(tmp_path, "http://docs.test:1") as place:
        assert status(await place.ask("GET http://docs.test:1/")) == b"502"
        assert [d.allowed for d in place.said] == [True]


async def test_a_cut_answer_is_not_passed_on_as_whole(tmp_path: Path):
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut"
    async with proxied(tmp_path, *RULES, answer=cut) as place:
        said = await place.ask("GET http://docs.test:PORT/")
        assert b"Content-Length: 9" in said
        assert said.endswith(b"\r\n\r\ncut")


async def test_a_body_is_bounded_and_asked_for_where_the_client_waits(tmp_path: Path):
    limits = NetLimits(request_bytes=10)
    async with proxied(tmp_path, "POST http://docs.test:PORT", limits=limits) as place:
        line = "POST http://docs.test:PORT/"
        length = "Host: x\r\nContent-Length: {}\r\n"
        said = await place.ask(line, fields=length.format(11), more=b"x" * 11)
        assert status(said) == b"403"
        fields = length.format(4) + "Expect: 100-continue\r\n"
        said = await place.ask(line, fields=fields, more=b"sent")
        assert b"HTTP/1.1 200 " in said
        assert b"Expect" not in place.server.seen[0]


async def test_what_is_no_request_is_answered_and_the_proxy_lives_on(tmp_path: Path):
    async with proxied(tmp_path, *RULES) as place:
        for data in (
            b"\r\n\r\n",
            b"GET\r\n\r\n",
            b"\x16\x03\x01\x02\x00",
            b"GET / HTTP/1.1\r\n\r\n",
        ):
            async with await anyio.connect_unix(place.path) as stream:
                await stream.send(data)
                await stream.send_eof()
                assert status(await stream.receive()) == b"400"
        assert status(await place.ask("GET http://docs.test:PORT/")) == b"200"


@pytest.mark.slow
@settings(max_examples=30)
@given(
    data=st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.sampled_from(
                [
                    *(
                        b"GET ",
                        b"CONNECT ",
                        b"http://docs.test/",
                        b"docs.test:443",
                        b" HTTP/1.1\r\n",
                    ),
                    *(b"Host: x\r\n", b"\r\n", b"Content-Length: 3\r\n", b"Upgrade: x\r\n"),
                    b"Transfer-Encoding: chunked\r\n",
                ]
            ),
        ),
        max_size=12,
    )
)
async def test_no_bytes_of_a_client_end_the_proxy(tmp_path_factory, data):
    base = tmp_path_factory.mktemp("proxy")
    async with proxied(base, *RULES, limits=NetLimits(head_seconds=0.2)) as place:
        async with await anyio.connect_unix(place.path) as stream:
            with anyio.move_on_after(0.05):
                await stream.send(b"".join(data))
        assert status(await place.ask("GET http://docs.test:PORT/")) == b"200"


@pytest.mark.parametrize(("idle_seconds", "expected"), [(None, b"504"), (30.0, b"200")])
async def test_an_answer_may_take_as_long_as_the_run_of_its_command(
    tmp_path: Path, idle_seconds: float | None, expected: bytes
):
    """A build that waits for its server was cut off after ten seconds, a tunnel after sixty."""

    async def slow(stream: SocketStream) -> None:
        await anyio.sleep(0.5)
        await stream.send(ok(b"page"))

    limits = NetLimits(head_seconds=0.1)
    options: Any = {"limits": limits, "idle_seconds": idle_seconds, "answer": slow}
    async with proxied(tmp_path, *RULES, **options) as place:
        assert status(await place.ask("GET http://docs.test:PORT/")) == expected


def test_a_silent_tunnel_stays_for_the_time_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("skillhouse.net.proxy.IDLE_SECONDS", 0.2)
    mine, trusting = contexts(tmp_path, "deep.test")

    async def main() -> None:
        async with secure(mine, ok(b"late")) as server:
            rule = f"CONNECT https://deep.test:{server.port}"
            async with (
                proxied(tmp_path, rule, idle_seconds=30.0) as place,
                await anyio.connect_unix(place.path) as stream,
            ):
                request = f"CONNECT deep.test:{server.port} HTTP/1.1\r\nHost: x\r\n\r\n"
                await stream.send(request.encode())
                assert b" 200 " in await stream.receive()
                tls = await TLSStream.wrap(
                    stream,
                    server_side=False,
                    hostname="deep.test",
                    ssl_context=trusting,
                    standard_compatible=False,
                )
                await anyio.sleep(0.6)
                await tls.send(b"GET /in HTTP/1.1\r\n\r\n")
                assert (await tls.receive()).endswith(b"late")

    anyio.run(main)
