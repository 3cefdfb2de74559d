"""Tests of `skillhouse up` as a process: its address, its end, and what it says when it cannot."""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import uvicorn
from tests.balanced import balanced, free_port, is_replicated
from tests.harness import ran
from tests.house.places import make_places, write_skill

from skillhouse.extensions.server import http_app, serve, tcp_server
from skillhouse.floor import MissingExtraError
from skillhouse.frontends.cli import main
from skillhouse.house import Skillhouse, configured

pytestmark = pytest.mark.slow


ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]{43})\n")


@contextlib.contextmanager
def started(base: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """Run `skillhouse up` in a place below `base`; give the process, its port and its token.

    With `--replicas` the port is that of HAProxy, which has another server of that place too.
    """
    if not is_replicated():
        with one_started(base, *options) as found:
            yield found
        return
    front = free_port()
    options = ("--allow-host", f"127.0.0.1:{front}", *options)
    with (
        one_started(base, *options) as (process, first, token),
        one_started(base, *options) as (_, second, _),
        balanced(base, front, (f"127.0.0.1:{first}", f"127.0.0.1:{second}")),
    ):
        yield process, front, token


@contextlib.contextmanager
def one_started(base: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """Run `skillhouse up` in a place below `base`; give the process, its port and its token."""
    places = make_places(base)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SKILLHOUSE_", "XDG_"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "skillhouse", "up", "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=places.start,
        env={**kept, "HOME": str(places.home)},
    )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = ADDRESS.fullmatch(line)
            assert found, line
            yield process, int(found[1]), found[2]
        finally:
            process.kill()


def fetched(port: int, path: str, token: str) -> bytes:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=20) as answer:
        content: bytes = answer.read()
        return content


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_prints_one_address_serves_and_ends_cleanly(tmp_path: Path, number: signal.Signals):
    write_skill(tmp_path / "home/.agents/skills/notes")
    with started(tmp_path) as (process, port, token):
        assert json.loads(fetched(port, "/api/v1/status", token))["skills"] == 4
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(f"http://127.0.0.1:{port}/?token={token}", timeout=20) as answer:
            assert answer.url == f"http://127.0.0.1:{port}/"
            assert b"/skills/user:notes" in answer.read()
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out, err) == (0, "", "")


def test_ctrl_c_right_after_the_address_is_a_clean_end(tmp_path: Path):
    with started(tmp_path) as (process, _, _):
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (0, "")


def test_serve_gives_the_signals_back_when_it_ends(tmp_path: Path):
    def use(address: str) -> None:
        found = ADDRESS.fullmatch(address + "\n")
        assert found
        answers.append(json.loads(fetched(int(found[1]), "/api/v1/status", found[2]))["skills"])

    answers: list[int] = []
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert served(tmp_path, use) == 0
    assert answers == [3]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_client_that_does_not_read_its_answer_does_not_hold_up_the_end(tmp_path: Path):
    # More than the buffers of both sides take, so that the answer stands still half-way.
    for number in range(300):
        write_skill(tmp_path / f"home/.agents/skills/s{number}", description="word " * 6_000)

    def stall(address: str) -> None:
        found = ADDRESS.fullmatch(address + "\n")
        assert found
        client.connect(("127.0.0.1", int(found[1])))
        request = f"GET /api/v1/skills?limit=200 HTTP/1.1\r\nHost: 127.0.0.1:{found[1]}\r\n"
        client.sendall(f"{request}Authorization: Bearer {found[2]}\r\n\r\n".encode())
        answers.append(client.recv(12))

    answers: list[bytes] = []
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        assert served(tmp_path, stall) == 0
    assert answers == [b"HTTP/1.1 200"]


def served(base: Path, use: Callable[[str], None]) -> int:
    """Serve in this process to a client in a thread, and end with a signal when it is done."""
    threads: list[threading.Thread] = []

    def use_and_end(address: str) -> None:
        try:
            use(address)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    def announce(address: str) -> None:
        threads.append(threading.Thread(target=use_and_end, args=(address,)))
        threads[0].start()

    code = serve(Skillhouse(configured(make_places(base))), port=0, announce=announce)
    threads[0].join()
    return code


def test_it_listens_on_this_machine_only(tmp_path: Path):
    with started(tmp_path) as (_, port, _), socket.socket() as client:
        # All of 127/8 is this machine; a listener on 0.0.0.0 would answer here.
        assert client.connect_ex(("127.0.0.2", port)) == errno.ECONNREFUSED


def test_a_request_with_too_long_a_head_is_refused(tmp_path: Path):
    with started(tmp_path) as (process, port, _):
        for head in ("GET /?q=" + "a" * 20_000, "GET / HTTP/1.1\r\nX: " + "b" * 20_000):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(head.encode())
                assert client.recv(12) == b"HTTP/1.1 400"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20) == ("", "")


def test_a_port_that_is_taken_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    places = make_places(tmp_path)
    monkeypatch.setenv("HOME", str(places.home))
    monkeypatch.chdir(places.start)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        before = gc.get_threshold()
        assert main(["up", "--port", str(port)]) == 3
        assert gc.get_threshold() == before
    advice = "port taken, choose another with --port, or --port 0 for any free one"
    assert capsys.readouterr() == ("", f"skillhouse: {advice}: `127.0.0.1:{port}`\n")


def test_a_port_that_is_reserved_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> socket.socket:
        raise PermissionError(13, "Permission denied (while attempting to bind)")

    monkeypatch.setattr(socket, "create_server", refuse)
    with pytest.raises(PermissionError) as caught:
        tcp_server.bound(80)
    advice = "port reserved for the system, choose one from 1024 with --port"
    assert (caught.value.strerror, caught.value.filename) == (advice, "127.0.0.1:80")


def test_in_another_thread_the_signals_are_left_alone():
    server = tcp_server.Server(uvicorn.Config("none"))
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def enter() -> None:
        with server.ended_by_signals():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [before]


@pytest.mark.parametrize("module", ["uvicorn", "starlette.applications", "jinja2"])
def test_a_missing_package_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
):
    house = Skillhouse(configured(make_places(tmp_path)))
    for name in [name for name in sys.modules if name.startswith("skillhouse.extensions.server.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError) as caught:
        serve(house, port=0, announce=print)
    assert (caught.value.extra, caught.value.module) == ("server", module)
    if module != "uvicorn":
        with pytest.raises(MissingExtraError):
            http_app(house, token="t", port=1)


def test_a_fault_in_our_own_modules_is_no_missing_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "skillhouse.extensions.server.app", None)
    with pytest.raises(ModuleNotFoundError):
        http_app(Skillhouse(configured(make_places(tmp_path))), token="t", port=1)


def test_help_needs_no_extra():
    code = (
        "import sys\n"
        "for name in ('starlette', 'uvicorn', 'jinja2'): sys.modules[name] = None\n"
        "from skillhouse.frontends.cli import main\n"
        "main(['up', '--help'])"
    )
    command = [sys.executable, "-c", code]
    done = ran(command, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--port" in done.stdout


def test_no_token_is_for_this_machine_only(tmp_path: Path) -> None:
    with (
        Skillhouse(configured(make_places(tmp_path))) as house,
        pytest.raises(PermissionError, match="--no-auth is for this machine only"),
    ):
        serve(house, port=0, announce=print, host="0.0.0.0", open_mcp=True)


def test_an_answer_does_not_wait_for_an_acknowledgement(tmp_path: Path):
    """Its head and body are two writes, of which the second waited 40 ms for a delayed ACK."""
    seen: list[int] = []

    class Transport:
        def __init__(self, ours: socket.socket) -> None:
            self._ours = ours

        def get_extra_info(self, name: str) -> object:
            return self._ours if name == "socket" else ("127.0.0.1", 1)

        def close(self) -> None:
            self._ours.close()

        abort = close

    async def connected(ours: socket.socket) -> None:
        config = uvicorn.Config(_no_app, http="h11")
        config.load()
        state = uvicorn.Server(config).server_state
        protocol = tcp_server.header_timeout_protocol()(config, state, {})
        protocol.connection_made(Transport(ours))  # type: ignore[arg-type]
        seen.append(ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        protocol.connection_lost(None)

    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as ours,
    ):
        anyio.run(connected, ours)
    assert seen == [1]


async def _no_app(scope: object, receive: object, send: object) -> None:
    """Answers nothing; no request comes."""


_HEAPS = """
import ctypes, sys, threading
from skillhouse.extensions.server import up_verb
library = ctypes.CDLL(None)
if not hasattr(library, "malloc_info"):
    sys.exit("no glibc")
if sys.argv[1] == "one":
    up_verb.use_one_heap()
ready = threading.Barrier(5)
def work():
    held = bytes(4_096)
    ready.wait()
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
ready.wait()
library.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(library.fopen(b"/dev/stdout", b"w"))
library.malloc_info(0, file)
library.fclose(file)
"""


def test_threads_of_the_service_share_one_heap(need: Any) -> None:
    """Each had its own, and what ended threads left there was lost to the others."""

    def heaps(how: str) -> int:
        command = [sys.executable, "-c", _HEAPS, how]
        done = ran(command, timeout=20)
        need("no glibc" not in done.stderr, "no glibc")
        return done.stdout.count("<heap ")

    assert heaps("one") == 1
    assert heaps("many") > 1
