"""Attacks by the code of a skill on the proxy of its calls: on what is granted, whose, how long."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.extensions.cells import CellResult, Executor
from skillhouse.net import (
    METADATA,
    EgressConnection,
    EgressDecision,
    EgressProxy,
    NetPolicy,
    Route,
    SecretBinding,
    host_rule,
)
from skillhouse.sandbox import SandboxLevel
from tests.extensions.cells.lab import Lab, make, status_of, until
from tests.net.certificates import contexts
from tests.net.servers import ok, redirect, secure, serving

RAW = """
    import base64
    import os
    import socket
    from urllib.parse import urlsplit

    PROXY = urlsplit(os.environ.get("HTTP_PROXY", ""))
    TOKEN = base64.b64encode(f"{PROXY.username}:{PROXY.password}".encode()).decode()

    def raw(text, port=0, own=True):
        with socket.create_connection(("127.0.0.1", port or PROXY.port), 8) as link:
            head, blank, body = text.partition("\\r\\n\\r\\n")
            if own:
                head += f"\\r\\nProxy-Authorization: Basic {TOKEN}"
            link.sendall((head + blank + body).encode())
            link.settimeout(8)
            data = b""
            try:
                while chunk := link.recv(65536):
                    data += chunk
            except TimeoutError:
                pass
            return data.decode("latin-1")

    def tool(params, context):
        return [raw(text) for text in params["texts"]]

    def without_token(params, context):
        return [raw(text, own=False) for text in params["texts"]]

    def address(params, context):
        return [PROXY.port, TOKEN]

    def stay(params, context):
        link = socket.create_connection(("127.0.0.1", PROXY.port), 8)
        link.sendall(params["text"].replace("TOKEN", TOKEN).encode())
        link.recv(1)
        context.log(PROXY.port)
        if params["waits"]:
            context.read_file("wait")
        return [PROXY.port, TOKEN]

    def borrow(params, context):
        port, token = params["other"]
        text = params["text"].replace("TOKEN", token)
        try:
            return raw(text, port, own=False)
        except OSError as error:
            return type(error).__name__

    tools = {f.__name__: f for f in (tool, without_token, address, stay, borrow)}
"""
HOSTS = ("* http://api.test",)


@pytest.fixture
def lab(tmp_path: Path, need: Any) -> Lab:
    return Lab(status_of(SandboxLevel.CGROUP, need), tmp_path)


class Way:
    """A proxy that grants some rules, where names lead to what a test says."""

    def __init__(
        self,
        *rules: str,
        names: dict[str, list[str]] | None = None,
        private: tuple[str, ...] = ("127.0.0.1/32",),
        secrets: tuple[SecretBinding, ...] = (),
    ) -> None:
        self.seen: list[EgressDecision] = []
        self.ended: list[EgressConnection] = []
        self.asked: list[str] = []
        self._names = names or {}
        self.proxy = EgressProxy(
            NetPolicy(hosts=tuple(map(host_rule, rules)), private=private, secrets=secrets),
            report=self.seen.append,
            ended=self.ended.append,
            route=Route(resolve=self._resolve),
            never=METADATA,
        )

    async def _resolve(self, host: str, port: int) -> list[str]:
        await anyio.lowlevel.checkpoint()
        self.asked.append(host)
        found = self._names.get(host, ["127.0.0.1"])
        return found if len(found) == 1 else [found.pop(0)]

    @property
    def refused(self) -> bool:
        return bool(self.seen) and not any(one.allowed for one in self.seen)


async def sent(lab: Lab, executor: Executor, way: Way, *texts: str, **more: Any) -> list[str]:
    """Return what the proxy answers to raw bytes."""
    spec = make(lab.place, RAW, hosts=HOSTS)
    tool = more.pop("tool", "tool")
    arguments = {"texts": list(texts)}
    done: CellResult = await lab.ask(
        executor, spec, tool, arguments=arguments, network=way.proxy, timeout=30.0
    )
    assert done.kind == "ok", done
    return list(done.value)


def get(url: str, *headers: str) -> str:
    host = url.partition("://")[2].partition("/")[0]
    return "\r\n".join((f"GET {url} HTTP/1.1", f"Host: {host}", *headers)) + "\r\n\r\n"


def connect(place: str) -> str:
    return f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n"


NOT_GRANTED = [
    "http://other.test:PORT/",
    "http://api.test.:1/",
    "http://127.0.0.1:PORT/",
    "http://2130706433:PORT/",
    "http://0x7f000001:PORT/",
    "http://0177.0.0.1:PORT/",
    "http://127.1:PORT/",
    "http://[::1]:PORT/",
    "http://[::ffff:127.0.0.1]:PORT/",
    "http://localhost:PORT/",
    "http://api.test@other.test:PORT/",
    "http://other.test:PORT#api.test",
    "http://other.test:PORT\\@api.test/",
    "http://API.test%00.other.test:PORT/",
    "ftp://api.test:PORT/",
    "file:///etc/passwd",
    "/etc/passwd",
    "*",
    "https://api.test:PORT/",
]


async def test_what_is_not_granted_is_not_reached_by_any_spelling(lab: Lab) -> None:
    async with serving(ok(b"private")) as server, lab.executor() as executor:
        way = Way(f"* http://api.test:{server.port}")
        urls = [url.replace("PORT", str(server.port)) for url in NOT_GRANTED]
        answers = await sent(lab, executor, way, *map(get, urls))
        for url, answer in zip(urls, answers, strict=True):
            assert answer.startswith(("HTTP/1.1 403 ", "HTTP/1.1 400 ")), (url, answer)
        assert server.seen == []
        assert way.refused


async def test_connect_leads_to_no_other_port_host_or_address(lab: Lab) -> None:
    async with serving(ok(b"private")) as server, lab.executor() as executor:
        way = Way("CONNECT https://api.test", f"* http://api.test:{server.port}")
        port = server.port
        places = (
            f"api.test:{port}", "api.test:22", "api.test:0", "api.test:99999", "api.test",
            f"127.0.0.1:{port}", f"[::1]:{port}", f"other.test:{port}", f"2130706433:{port}",
            "api.test:443@other.test:443", "https://api.test:443", "api.test.other.test:443",
        )  # fmt: skip
        answers = await sent(lab, executor, way, *map(connect, places))
        for place, answer in zip(places, answers, strict=True):
            assert answer.startswith(("HTTP/1.1 403 ", "HTTP/1.1 400 ")), (place, answer)
        assert server.seen == []
        assert way.asked == []


@pytest.mark.parametrize(
    "address",
    ["127.0.0.2", "10.0.0.1", "169.254.169.254", "192.168.1.1", "::1", "fe80::1", "fd00:ec2::254",
     "::ffff:10.0.0.1", "0.0.0.0", "100.64.0.1"],
)  # fmt: skip
async def test_a_granted_name_that_leads_inside_is_refused(lab: Lab, address: str) -> None:
    async with lab.executor() as executor:
        way = Way("* http://api.test", "CONNECT https://api.test", names={"api.test": [address]})
        answers = await sent(lab, executor, way, get("http://api.test/"), connect("api.test:443"))
        assert all("not public" in one or "credentials" in one for one in answers), answers
        assert way.refused


@pytest.mark.parametrize("address", [*METADATA, "::ffff:169.254.169.254"])
async def test_metadata_is_refused_whatever_the_operator_allows(lab: Lab, address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    async with lab.executor() as executor:
        rules = ("* http://api.test", f"* http://{host}", "CONNECT https://api.test")
        private = ("0.0.0.0/0", "::/0")
        way = Way(*rules, names={"api.test": [address]}, private=private)
        urls = ("http://api.test/", f"http://{host}/latest/meta-data/")
        answers = await sent(lab, executor, way, *map(get, urls), connect("api.test:443"))
        assert all("a cloud's own credentials" in one for one in answers), answers
        assert way.refused


async def test_a_name_that_leads_elsewhere_the_second_time_is_looked_up_once(lab: Lab) -> None:
    async with serving(ok(b"first")) as server, lab.executor() as executor:
        names = {"api.test": ["127.0.0.1", "127.0.0.2"]}
        way = Way(f"* http://api.test:{server.port}", names=names)
        url = get(f"http://api.test:{server.port}/")
        first, second = await sent(lab, executor, way, url, url)
        assert first.endswith("first")
        assert "not public" in second
        assert way.asked == ["api.test"] * 2


async def test_the_host_header_and_the_address_go_together(lab: Lab) -> None:
    async with serving(ok(b"hello")) as server, lab.executor() as executor:
        place = f"api.test:{server.port}"
        way = Way(f"* http://{place}")
        forged = (
            f"GET http://{place}/ HTTP/1.1\r\nHost: other.test\r\n\r\n",
            f"GET http://{place}/ HTTP/1.1\r\nHost: {place}\r\nConnection: host\r\n\r\n",
            f"GET http://{place}/ HTTP/1.1\r\nHost: {place}\r\nHost: other.test\r\n\r\n",
            f"GET / HTTP/1.1\r\nHost: {place}\r\n\r\n",
        )
        await sent(lab, executor, way, *forged)
        for one in server.seen:
            assert b"other.test" not in one
            assert one.lower().count(b"host: ") == 1


async def test_no_second_request_is_smuggled_behind_the_first(lab: Lab) -> None:
    async with serving(ok(b"hello")) as server, lab.executor() as executor:
        place = f"api.test:{server.port}"
        way = Way(f"GET,POST http://{place}")
        head = f"POST http://{place}/ HTTP/1.1\r\nHost: {place}\r\n"
        hidden = f"DELETE http://{place}/all HTTP/1.1\r\nHost: {place}\r\n\r\n"
        smuggled = (
            f"{head}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}",
            f"{head}Content-Length: 0\r\nContent-Length: 90\r\n\r\n{hidden}",
            f"{head}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{hidden}",
            f"{head}Content-Length: 0\r\n\r\n{hidden}",
            f"{head}X: a\r\n b: c\r\nContent-Length : 0\r\n\r\n{hidden}",
            f"{head}X: a\nTransfer-Encoding: chunked\r\n\r\n{hidden}",
        )
        await sent(lab, executor, way, *smuggled)
        assert not any(b"DELETE" in one.split(b"\r\n\r\n")[0] for one in server.seen)
        assert {one.method for one in way.seen if one.allowed} <= {"POST"}
        assert all(one.count(b" HTTP/1.1\r\n") == 1 for one in server.seen)


async def test_a_redirect_is_the_codes_own_to_follow_and_is_asked_for_anew(lab: Lab) -> None:
    source = """
        import urllib.request

        def tool(params, context):
            return urllib.request.urlopen(params["url"], timeout=8).read().decode()

        tools = {"tool": tool}
    """
    async with serving(ok(b"private")) as other:
        leads = redirect(f"http://other.test:{other.port}/")
        async with serving(leads) as server, lab.executor() as executor:
            way = Way(f"* http://api.test:{server.port}")
            spec = make(lab.place, source, hosts=HOSTS)
            arguments = {"url": f"http://api.test:{server.port}/"}
            done = await lab.ask(executor, spec, arguments=arguments, network=way.proxy)
        assert (done.kind, len(server.seen), other.seen) == ("error", 1, [])
        assert "403" in done.error
        assert [one.allowed for one in way.seen] == [True, False]


async def test_a_secret_of_a_host_goes_to_no_other_in_plain_http(lab: Lab) -> None:
    secret = SecretBinding(name="api", value="s3cr3t-" + "k" * 20, hosts=("other.test",))
    async with serving(ok(b"hello")) as server, lab.executor() as executor:
        place = f"api.test:{server.port}"
        way = Way(f"* http://{place}", secrets=(secret,))
        in_header = get(f"http://{place}/", f"Authorization: Bearer {secret.value}")
        in_address = get(f"http://{place}/?q={secret.value}")
        answers = await sent(lab, executor, way, in_header, in_address)
        assert all("would hold the secret `api`" in one for one in answers)
        assert server.seen == []


async def test_a_tunnel_that_asks_for_another_name_is_ended(lab: Lab, tmp_path: Path) -> None:
    source = """
        import os
        import socket
        import ssl
        from urllib.parse import urlsplit
        import base64

        def tool(params, context):
            proxy = urlsplit(os.environ["HTTPS_PROXY"])
            token = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
            link = socket.create_connection((proxy.hostname, proxy.port), 8)
            head = f"CONNECT {params['place']} HTTP/1.1\\r\\nProxy-Authorization: Basic {token}"
            link.sendall(f"{head}\\r\\nHost: {params['place']}\\r\\n\\r\\n".encode())
            said = link.recv(65536).decode()
            if params["name"] == "ssh":
                link.sendall(b"SSH-2.0-x\\r\\n")
                return [said, link.recv(100).decode()]
            context = ssl._create_unverified_context()
            context.wrap_socket(link, server_hostname=params["name"]).sendall(b"GET /")
            return [said, "open"]

        tools = {"tool": tool}
    """
    mine, _ = contexts(tmp_path, "api.test", "other.test")
    async with secure(mine, ok(b"private")) as server, lab.executor() as executor:
        place = f"api.test:{server.port}"
        way = Way(f"CONNECT https://{place}")
        spec = make(lab.place, source, hosts=HOSTS)
        for name in ("other.test", None, "ssh"):
            arguments = {"place": place, "name": name}
            done = await lab.ask(executor, spec, arguments=arguments, network=way.proxy)
            assert done.kind == "error" or done.value[1] == "", done
            assert way.seen[-1].allowed is False
        assert server.seen == []


async def test_the_proxy_of_a_call_is_of_no_use_to_another_one_of_its_cell(lab: Lab) -> None:
    """Calls of one cell share its loopback; a token keeps their proxies apart."""
    async with serving(ok(b"hello")) as server, lab.executor() as executor:
        place = f"api.test:{server.port}"
        mine, theirs = Way(f"* http://{place}"), Way()
        spec = make(lab.place, RAW, hosts=HOSTS)
        text = f"GET http://{place}/ HTTP/1.1\r\nHost: {place}\r\n"
        text += "Proxy-Authorization: Basic TOKEN\r\n\r\n"
        let_go = anyio.Event()
        waiting = anyio.Event()

        class Waits(type(lab.core)):  # type: ignore[misc]
            async def read_file(self, path: str) -> str:
                waiting.set()
                await let_go.wait()
                return ""

        waits = Waits()

        async def stay() -> None:
            arguments = {"text": text, "waits": True}
            done = await lab.ask(
                executor, spec, "stay", arguments=arguments, network=mine.proxy, host=waits
            )
            assert done.kind == "ok", done

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stay)
            await waiting.wait()
            port = int(waits.logged[0])
            for token in ("forged", "", "Y2FsbDo=", "Basic"):
                arguments = {"other": [port, token], "text": text}
                done = await lab.ask(
                    executor, spec, "borrow", arguments=arguments, network=theirs.proxy
                )
                assert done.value.startswith("HTTP/1.1 407 "), done
            let_go.set()
        answers = await sent(lab, executor, mine, get(f"http://{place}/"), tool="without_token")
        assert answers[0].startswith("HTTP/1.1 407 ")
        assert len(server.seen) == 1


async def test_what_a_call_kept_of_its_proxy_is_over_with_it(lab: Lab) -> None:
    async with serving(ok(b"hello")) as server, lab.executor() as executor:
        place = f"api.test:{server.port}"
        way = Way(f"* http://{place}")
        spec = make(lab.place, RAW, hosts=HOSTS)
        text = f"GET http://{place}/ HTTP/1.1\r\nHost: {place}\r\n"
        text += "Proxy-Authorization: Basic TOKEN\r\n\r\n"
        arguments = {"text": text, "waits": False}
        kept = await lab.ask(executor, spec, "stay", arguments=arguments, network=way.proxy)
        assert kept.kind == "ok", kept
        arguments = {"other": kept.value, "text": text}
        done = await lab.ask(executor, spec, "borrow", arguments=arguments, network=Way().proxy)
        assert done.value == "ConnectionRefusedError" or "407" in done.value, done
        assert len(server.seen) == 1


async def test_a_connection_that_is_open_at_the_end_is_ended_and_counted(
    lab: Lab, tmp_path: Path
) -> None:
    async def endless(stream: Any) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nx")
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                await stream.receive()
        closed.set()

    closed = anyio.Event()
    async with serving(endless) as server, lab.executor() as executor:
        place = f"api.test:{server.port}"
        way = Way(f"* http://{place}")
        spec = make(lab.place, RAW, hosts=HOSTS)
        text = f"GET http://{place}/ HTTP/1.1\r\nHost: {place}\r\n"
        arguments = {"text": text + "Proxy-Authorization: Basic TOKEN\r\n\r\n", "waits": False}
        done = await lab.ask(executor, spec, "stay", arguments=arguments, network=way.proxy)
        assert done.kind == "ok", done
        assert [one.received for one in way.ended] == [1]
        with anyio.fail_after(20):
            await closed.wait()


async def test_a_skill_of_another_cell_sees_no_proxy_of_this_one(lab: Lab) -> None:
    async with serving(ok(b"hello")) as server, lab.executor() as executor:
        place = f"api.test:{server.port}"
        way = Way(f"* http://{place}")
        mine = make(lab.place, RAW, hosts=HOSTS)
        port, token = (await lab.ask(executor, mine, "address", network=way.proxy)).value
        for hosts in ((), HOSTS):
            theirs = make(lab.place, RAW, name="other", skill="project:other", hosts=hosts)
            arguments = {"other": [port, token], "text": get(f"http://{place}/")}
            other = Way()
            done = await lab.ask(
                executor, theirs, "borrow", arguments=arguments, network=other.proxy
            )
            assert done.value == "ConnectionRefusedError", done
        assert server.seen == []


async def test_code_that_is_loaded_ahead_of_a_call_reaches_nothing(lab: Lab) -> None:
    packages = lab.place / "packages"
    packages.mkdir()
    (packages / "sdk.py").write_text(
        "import os, urllib.request\n"
        "try:\n"
        "    FOUND = urllib.request.urlopen(os.environ['SKILL_URL'], timeout=5).status\n"
        "except OSError as error:\n"
        "    FOUND = str(error)\n"
    )
    source = "import sdk\ntools = {'tool': lambda params, context: sdk.FOUND}\n"
    async with serving(ok(b"hello")) as server, lab.executor() as executor:
        place = f"api.test:{server.port}"
        way = Way(f"* http://{place}")
        env = {"SKILL_URL": f"http://{place}/"}
        spec = make(lab.place, source, hosts=HOSTS, dependencies=packages, env=env)
        first = await lab.ask(executor, spec, network=way.proxy)
        assert first.value == 200
        await until(lambda: executor.health()["ready"])
        second = await lab.ask(executor, spec, network=way.proxy)
        assert "refused" in second.value
        assert len(server.seen) == len(way.seen) == 1


async def test_many_connections_do_not_use_up_the_cores_descriptors(lab: Lab) -> None:
    source = """
        import os
        import socket
        from urllib.parse import urlsplit

        def tool(params, context):
            port = urlsplit(os.environ["HTTP_PROXY"]).port
            held = []
            for _ in range(150):
                link = socket.socket()
                link.setblocking(False)
                link.connect_ex(("127.0.0.1", port))
                held.append(link)
            context.read_file("wait")
            return len(held)

        tools = {"tool": tool}
    """
    counted: list[int] = []

    class Counts(type(lab.core)):  # type: ignore[misc]
        async def read_file(self, path: str) -> str:
            # The proxy takes what it takes within its turns of the loop.
            for _ in range(200):
                await anyio.lowlevel.checkpoint()
            counted.append(len(os.listdir("/proc/self/fd")) - before)
            return ""

    async with lab.executor() as executor:
        spec = make(lab.place, source, hosts=HOSTS)
        await lab.ask(executor, spec, network=Way().proxy)
        before = len(os.listdir("/proc/self/fd"))
        done = await lab.ask(executor, spec, network=Way().proxy, host=Counts())
    assert done.kind == "ok", done
    assert 0 < counted[-1] < 60
