"""Attacks on fetching (reference "Fault and abuse tests" 73-79): each beats a careless client."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from urllib.parse import quote, urlsplit

import anyio
import anyio.to_thread
import pytest
from anyio.abc import SocketStream

from skillhouse.net import (
    HttpResponse,
    NetError,
    NetLimits,
    NetPolicy,
    Route,
    SecretBinding,
    fetch,
    host_rule,
    parse_url,
)
from tests.net import naive
from tests.net.servers import Server, fixed, ok, policy_for, redirect, serving

in_thread = anyio.to_thread.run_sync
SECRET = SecretBinding(name="KEY", value="s3cr3t-T0KEN+value", hosts=("https://allowed.com",))


def code_of(fetching: Callable[[], Awaitable[HttpResponse]]) -> str:
    """Return why a fetch did not come to an answer, or "answered"."""

    async def main() -> str:
        try:
            await fetching()
        except NetError as error:
            return error.code
        return "answered"

    return anyio.run(main)


async def refusal(url: str, policy: NetPolicy | None = None, **options: object) -> str:
    """Fetch with the yes of a person for exactly this origin; return why nothing came of it."""
    try:
        policy = (policy or NetPolicy()).granted(parse_url(url), "GET")
        await fetch(url, policy=policy, **options)  # type: ignore[arg-type]
    except NetError as error:
        return error.code
    return "answered"


# 73: spellings of addresses


REACHING = [
    *("127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0X7F.0.0.1", "0177.0.0.1"),
    *("017700000001", "0177.1", "0x7f.0.0x1", "0", "0x0", "00.0.0.0"),
    *("１２７.0.0.1", "①②⑦.0.0.1", "127。0。0。1", "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "[::ffff:127.0.0.1]"),
    *("[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:0001]"),
]
"""Hosts that lead to loopback and that a check of the text lets through."""


@pytest.mark.parametrize("host", REACHING)
async def test_a_spelling_of_loopback_reaches_nothing(host):
    async with serving(ok(b"internal"), host="0.0.0.0") as server:
        url = f"http://{host}:{server.port}/"
        assert naive.text_check(url)
        name = urlsplit(url).hostname
        assert name is not None
        said = await in_thread(naive.raw_get, name, server.port, "/", {})
        assert said.endswith(b"internal")
        asked = len(server.seen)
        assert await refusal(url) in ("url-refused", "address-refused")
        assert len(server.seen) == asked


@pytest.mark.parametrize("host", ["127.0.0.1.", "localhost.", "LOCALHOST", "[::1]", "[::]", "1.1"])
def test_a_spelling_that_not_every_system_reaches_is_refused_too(host):
    assert anyio.run(refusal, f"http://{host}/") in ("url-refused", "address-refused")


WRAPPED = [
    *("::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "fec0::1"),
    *("192.88.99.1", "224.0.0.1", "ff02::1"),
]
"""Not public, and public to the standard library of Python 3.11."""
OTHERS = [
    *("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
    *("100.100.100.200", "0.0.0.0", "255.255.255.255", "198.18.0.1", "240.0.0.1", "192.0.0.8"),
    *("::1", "::", "fe80::1", "fd00:ec2::254", "fc00::1", "::ffff:169.254.169.254"),
    *("2001:0:7f00:1::", "64:ff9b:1::1", "2001:db8::1", "100::1"),
]


@pytest.mark.parametrize("address", [*WRAPPED, *OTHERS])
async def test_an_address_that_is_not_public_is_refused_as_text_and_as_an_answer(address):
    host = f"[{address}]" if ":" in address else address
    assert await refusal(f"http://{host}/") == "address-refused"
    route = Route(resolve=fixed([address]))
    assert await refusal("http://name.test/", route=route) == "address-refused"


def test_the_standard_library_takes_some_of_these_for_public():
    assert [address for address in WRAPPED if naive.address_check(address)]


def test_public_addresses_are_no_private_ones():
    for address in ("1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "::ffff:8.8.8.8"):
        NetPolicy().check_addresses("name.test", [address])


# 74, 75: names


async def test_a_name_that_moves_between_check_and_use_is_looked_up_once():
    async with serving(ok(b"public")) as public:
        answers = ["127.0.0.1", "127.0.0.2"]
        moves = iter(answers)
        async with serving(ok(b"internal"), host="127.0.0.2") as internal:
            # In the test 127.0.0.1 passes for public, as no other address can be served.
            reached = await in_thread(
                naive.checked_get,
                "name.test",
                f":{internal.port}/",
                lambda: next(moves),
                lambda address: address == "127.0.0.1",
            )
            assert reached == b"internal"
            asked: list[str] = []

            async def moving(host: str, port: int) -> list[str]:
                asked.append(host)
                return [answers[min(len(asked), 2) - 1]]

            policy = NetPolicy(private=("127.0.0.1/32",), hosts=(host_rule("http://*:*"),))
            url = f"http://name.test:{public.port}/"
            response = await fetch(url, policy=policy, route=Route(resolve=moving))
            assert (response.body, asked) == (b"public", ["name.test"])
            assert len(internal.seen) == 1
            with pytest.raises(NetError, match="not public"):
                await fetch(url, policy=policy, route=Route(resolve=moving))


async def test_a_name_with_a_public_and_a_private_answer_is_refused_whole():
    async with serving(ok(b"internal")) as server:
        first = ["93.184.216.34", "127.0.0.1"]
        assert naive.address_check(first[0])  # A check of the first answer is content,
        # and a client that tries the next when the first is silent arrives here:
        assert await in_thread(naive.get, f"http://{first[1]}:{server.port}/") == b"internal"
        for answers in (first, first[::-1]):
            route = Route(resolve=fixed(answers))
            url = f"http://name.test:{server.port}/"
            assert await refusal(url, route=route) == "address-refused"
        assert len(server.seen) == 1


async def test_a_name_that_no_rule_allows_is_not_even_looked_up():
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["93.184.216.34"]

    policy = NetPolicy(hosts=(host_rule("allowed.com"),))
    for url in ("https://c3RvbGVu.evil.com/", "https://allowed.com.evil.com/"):
        with pytest.raises(NetError) as caught:
            await fetch(url, policy=policy, route=Route(resolve=resolve))
        assert caught.value.code == "host-refused"
    assert asked == []


# 76: redirects


async def test_a_redirect_to_a_private_address_is_refused():
    async with (
        serving(ok(b"internal"), host="127.0.0.2") as internal,
        serving(redirect(internal.url)) as public,
    ):
        assert await in_thread(naive.get, public.url) == b"internal"
        policy = NetPolicy(hosts=(host_rule("http://*:*"),), private=("127.0.0.1/32",))
        assert await refusal(public.url, policy) == "redirect-refused"
        everywhere = policy.granted(parse_url(internal.url), "GET")
        assert await refusal(public.url, everywhere) == "address-refused"
        assert len(internal.seen) == 1


async def test_a_redirect_to_a_file_is_refused(tmp_path: Path):
    (tmp_path / "secret").write_text("internal")
    async with serving(redirect((tmp_path / "secret").as_uri())) as server:
        assert await in_thread(naive.follow, server.url, 3) == (b"internal", 2)
        with pytest.raises(NetError, match="expected an http or https URL") as caught:
            await fetch(server.url, policy=policy_for(server))
        assert caught.value.code == "redirect-refused"


async def test_credentials_do_not_go_along_to_another_origin():
    sent = {"Authorization": "Bearer abc", "Cookie": "a=b", "X-Api-Key": "abc", "Accept": "a/b"}
    async with serving(ok(b"thanks")) as other, serving(redirect(other.url)) as first:
        await in_thread(naive.get, first.url, sent)
        assert b"Bearer abc" in other.seen[0]
        await fetch(first.url, policy=policy_for(first, other), headers=sent)
        assert b"X-Api-Key: abc" in first.seen[1]
        lines = other.seen[1].split(b"\r\n")
        assert {line.split(b":")[0] for line in lines[1:] if line} == {
            *(b"Host", b"User-Agent", b"Accept", b"Accept-Encoding", b"Connection")
        }


async def test_a_secret_does_not_go_along_to_an_origin_that_it_is_not_bound_to():
    async with serving(ok(b"thanks")) as other, serving(redirect(other.url)) as first:
        secret = SecretBinding(name="KEY", value="s3cr3t-value", hosts=(first.url,))
        policy = policy_for(first, other, secrets=(secret,))
        headers = {"Accept": "{{secret:KEY}}", "X-Key": "{{secret:KEY}}"}
        await fetch(first.url, policy=policy, headers=headers)
        assert first.seen[0].count(b"s3cr3t-value") == 2
        assert b"s3cr3t" not in other.seen[0]
        assert b"secret:" not in other.seen[0]
        # A bound host that leads on with the secret in the URL does not get it out either.
        first.answers = [redirect(f"{other.url}/?k=s3cr3t-value")]
        with pytest.raises(NetError) as caught:
            await fetch(first.url, policy=policy, headers=headers)
        assert caught.value.code == "secret-refused"
        assert len(other.seen) == 1


async def test_twenty_hops_and_a_loop_end_early():
    hops = [redirect(f"/{number}") for number in range(20)]
    async with serving(*hops, ok(b"arrived")) as server:
        assert await in_thread(naive.follow, server.url, 25) == (b"arrived", 21)
    for answers, most in ((hops, 4), ([redirect("/a"), redirect("/b"), redirect("/a")], 3)):
        async with serving(*answers) as server:
            with pytest.raises(NetError) as caught:
                await fetch(server.url, policy=policy_for(server))
            assert caught.value.code == "redirect-refused"
            assert len(server.seen) == most


# 77: answers that are none


def answered(answer: object, *, limits: NetLimits | None = None) -> str:
    """Return what comes of fetching from a server that gives this answer."""

    async def main() -> str:
        async with serving(answer) as server:  # type: ignore[arg-type]
            try:
                await fetch(server.url, policy=policy_for(server, limits=limits))
            except NetError as error:
                return error.code
            return "answered"

    return anyio.run(main)


async def taken_by(client: Callable[[Server], object], answer: object) -> object:
    """Return what a careless client makes of this answer."""
    async with serving(answer) as server:  # type: ignore[arg-type]
        return await in_thread(client, server)


@pytest.mark.slow
def test_a_gzip_bomb_is_not_unpacked():
    bomb = ok(gzip.compress(bytes(64 << 20)), "Content-Encoding: gzip")
    assert len(bomb) < 100_000
    taken = anyio.run(taken_by, lambda server: len(gzip.decompress(naive.get(server.url))), bomb)
    assert taken == 64 << 20
    assert answered(bomb) == "too-large"


def test_an_endless_answer_is_cut_off():
    async def endless(stream: SocketStream) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(12 << 4):  # 12 MiB; it never says that it is over.
            await stream.send(b"10000\r\n" + bytes(65_536) + b"\r\n")

    def careless(server: Server) -> object:
        try:
            return len(naive.get(server.url))
        except Exception as error:  # noqa: BLE001 - cut in the end, when all has been kept.
            return len(getattr(error, "partial", b""))

    assert anyio.run(taken_by, careless, endless) == 12 << 20
    assert answered(endless) == "too-large"


@pytest.mark.slow
def test_an_answer_that_drips_ends_with_the_time_of_the_whole():
    async def drip(stream: SocketStream) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n")
        for _ in range(20):
            await anyio.sleep(0.03)
            await stream.send(b"x")

    async def drip_head(stream: SocketStream) -> None:
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n":
            await anyio.sleep(0.03)
            await stream.send(bytes([byte]))

    # Its timeout is for each read, so it waits 0.6 s in all.
    assert anyio.run(taken_by, lambda server: naive.get(server.url, timeout=0.2), drip) == b"x" * 20
    assert answered(drip, limits=NetLimits(seconds=0.3)) == "timeout"
    assert answered(drip_head, limits=NetLimits(head_seconds=0.3)) == "timeout"


@pytest.mark.slow
def test_huge_headers_are_refused():
    lines = [f"X-{number}: {'a' * 60_000}" for number in range(90)]
    assert (
        anyio.run(taken_by, lambda server: naive.get(server.url), ok(b"taken", *lines)) == b"taken"
    )
    assert answered(ok(b"taken", *lines)) == "too-large"
    many = [f"X-{number}: {'a' * 90}" for number in range(1_000)]
    assert answered(ok(b"taken", *many)) == "too-large"
    assert answered(b"HTTP/1.1 100 Continue\r\n\r\n" * 50 + ok()) == "protocol-error"
    assert answered(ok(b"", "X: " + "a" * 10_000)) == "answered"


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"<html>an answer of HTTP/0.9</html>",
        b"-ERR unknown command\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\ncut",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        b"HTTP/1.1 200 OK\r\nX y: z\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
    ],
)
def test_what_is_no_http_is_no_answer(answer):
    async def main() -> None:
        async with serving(answer) as server:
            assert await in_thread(naive.raw_get, server.host, server.port, "/", {}) == answer

    anyio.run(main)
    assert answered(answer) == "protocol-error"


async def test_a_line_break_in_a_header_or_url_adds_nothing_to_the_request():
    injected = "a\r\nX-Admin: yes\r\n\r\nGET /other HTTP/1.1"
    async with serving(ok(b"hello")) as server:
        await in_thread(partial(naive.raw_get, server.host, server.port, "/", {"X-Note": injected}))
        assert b"\r\nX-Admin: yes\r\n" in server.seen[0]
        policy = policy_for(server)
        for value in (injected, "a\nb: c", "a\rb: c", "a\0b", "ü€"):
            with pytest.raises(NetError, match="not a header"):
                await fetch(server.url, policy=policy, headers={"X-Note": value})
        for name in ("X-A: b\r\nX", "X A", "", "X\n"):
            with pytest.raises(NetError, match="not a header"):
                await fetch(server.url, policy=policy, headers={name: "a"})
        for name in ("Host", "content-length", "Transfer-Encoding", "CONNECTION", "Upgrade"):
            with pytest.raises(NetError, match="not the caller's"):
                await fetch(server.url, policy=policy, headers={name: "a"})
        for path in ("/a\r\nX-Admin: yes", "/a b", "/ HTTP/1.1\r\n\r\n"):
            assert await refusal(server.url + path, policy) == "url-refused"
        # Percent-encoded they stay so.
        await fetch(f"{server.url}/%0d%0aX-Admin:%20yes", policy=policy)
        assert b"GET /%0d%0aX-Admin:%20yes HTTP/1.1\r\n" in server.seen[1]
        assert len(server.seen) == 2


async def test_an_answer_in_an_answer_is_not_taken_for_the_next_one():
    async def split(stream: SocketStream) -> None:
        await stream.send(ok(b"first") + ok(b"poison"))
        await stream.receive()

    async with serving(split, ok(b"second")) as server:
        found = await in_thread(naive.twice, server.host, server.port)
        assert found == [b"first", b"poison"]
    async with serving(ok(b"first") + ok(b"poison"), ok(b"second")) as server:
        policy = policy_for(server)
        bodies = [(await fetch(server.url, policy=policy)).body for _ in range(2)]
        assert bodies == [b"first", b"second"]


# 78: secrets


def leaks(value: str) -> dict[str, dict[str, object]]:
    """Return requests that carry a secret out, in one spelling each."""
    packed = base64.b64encode(b"??" + value.encode()).decode()
    return {
        "path": {"path": f"/{value}"},
        "query": {"path": f"/?q={quote(value, safe='')}"},
        "quoted twice": {"path": f"/?q={quote(quote(value, safe=''), safe='')}"},
        "hex in the path": {"path": f"/{value.encode().hex()}"},
        "Base64 in the path": {"path": f"/{base64.urlsafe_b64encode(value.encode()).decode()}"},
        "header": {"headers": {"X-Note": f"note {value}"}},
        "name of a header": {"headers": {value.encode().hex(): "a"}},
        "Base64 in a header": {"headers": {"X-Note": packed}},
        "body": {"method": "POST", "body": b"a=" + value.encode()},
        "Base64 in the body": {"method": "POST", "body": packed.encode()},
        "hex in the body": {"method": "POST", "body": value.encode().hex().upper().encode()},
        "placeholder": {"headers": {"X-Note": "{{secret:KEY}}"}},
        "placeholder of another": {"headers": {"X-Note": "{{secret:OTHER}}"}},
    }


@pytest.mark.parametrize("kind", leaks("x"))
async def test_a_secret_does_not_leave_for_a_host_that_it_is_not_bound_to(kind):
    async with serving(ok(b"thanks")) as server:
        request = leaks(SECRET.value)[kind]
        url = server.url + str(request.pop("path", "/"))
        method = str(request.get("method", "GET"))
        careless = policy_for(server)
        if "placeholder" not in kind:
            await fetch(url, policy=careless, **request)  # type: ignore[arg-type]
        asked = len(server.seen)
        assert asked == ("placeholder" not in kind)
        policy = policy_for(server, secrets=(SECRET,)).granted(parse_url(url), method)
        with pytest.raises(NetError) as caught:
            await fetch(url, policy=policy, **request)  # type: ignore[arg-type]
        assert caught.value.code == "secret-refused"
        assert SECRET.value not in str(caught.value)
        assert len(server.seen) == asked


def test_a_secret_does_not_leave_in_the_name_of_a_host():
    value = "s3cr3tvalue0123456789"
    secret = SecretBinding(name="KEY", value=value, hosts=("https://allowed.com",))
    policy = NetPolicy(hosts=(host_rule("*"),), secrets=(secret,))
    hidden = base64.b32encode(value.encode()).decode().rstrip("=").lower()
    for host in (value, value[:9] + "." + value[9:], value.encode().hex(), hidden):
        asked: list[str] = []

        async def resolve(host: str, port: int, asked: list[str] = asked) -> list[str]:
            asked.append(host)
            return ["93.184.216.34"]

        route = Route(resolve=resolve)
        fetching = partial(fetch, f"https://{host}.evil.com/", policy=policy, route=route)
        assert (code_of(fetching), asked) == ("secret-refused", [])


# 79: names that look allowed


LOOKALIKES = [
    *("https://allowed.com.evil.com/", "https://allowed.com@evil.com/", "https://evilallowed.com/"),
    *("https://evil.com/allowed.com", "https://evil.com/?https://allowed.com/"),
    *("https://evil.com#allowed.com", "https://evil.com/.allowed.com", "https://allowed.com:444/"),
    *("https://allowed.com\\@evil.com/", "https://allowed.com\\.evil.com/", "http://allowed.com/"),
    *("https://allowed.com%2eevil.com/", "https://allowed.com%00.evil.com/"),
    *("https://аllowed.com/", "https://xn--llowed-2nf.com/", "https://allowed.co/"),
    *(
        "https://www.allowed.com/",
        "https://allowed.com..evil.com/",
        "https://allowed.com@evil.com:443/",
    ),
    "https://evil.com\t@allowed.com/",
]


@pytest.mark.parametrize("url", LOOKALIKES)
def test_a_name_that_looks_allowed_is_not(url):
    policy = NetPolicy(hosts=(host_rule("allowed.com"),))
    try:
        allowed = policy.allows(parse_url(url), "GET")
    except NetError:
        allowed = False
    assert not allowed


def test_careless_tests_of_a_host_take_some_of_these_for_allowed():
    tests: dict[str, Callable[[str], bool]] = {
        "begins": lambda url: url.startswith("https://allowed.com"),
        "holds": lambda url: "allowed.com" in url,
        "ends": lambda url: (urlsplit(url).hostname or "").endswith("allowed.com"),
    }
    fooled = {name: [url for url in LOOKALIKES if test(url)] for name, test in tests.items()}
    assert all(fooled.values())


@pytest.mark.parametrize(
    "url", ["https://allowed.com", "https://ALLOWED.com./", "https://Allowed.Com:443/a"]
)
def test_the_same_name_in_another_spelling_is_allowed(url):
    assert NetPolicy(hosts=(host_rule("allowed.com"),)).allows(parse_url(url), "GET")


def test_a_star_stands_for_whole_labels_and_not_for_none():
    policy = NetPolicy(hosts=(host_rule("*.allowed.com"),))
    hosts = {
        "a.allowed.com": True,
        "a.b.allowed.com": True,
        "allowed.com": False,
        "evilallowed.com": False,
        "a.allowed.com.evil.com": False,
    }
    assert {host: policy.allows(parse_url(f"https://{host}/"), "GET") for host in hosts} == hosts


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch):
    async with serving(ok(b"from the proxy")) as proxy, serving(ok(b"direct")) as server:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        response = await fetch(server.url, policy=policy_for(server))
        assert (response.body, proxy.seen) == (b"direct", [])
