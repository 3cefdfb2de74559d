"""deploy/haproxy.cfg in HAProxy itself, before two servers that note what reaches them."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.harness import ran

CONFIGURATION = Path(__file__).parents[1] / "deploy/haproxy.cfg"
SECONDS = 20.0
pytestmark = pytest.mark.slow


def lowered(headers: Message) -> dict[str, str]:
    """Return headers by their names in small letters, as the balancer writes them."""
    return {name.lower(): value for name, value in headers.items()}


class Replica(ThreadingHTTPServer):
    """Answers as a replica does to what the balancer looks at."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.seen: list[tuple[str, str, Mapping[str, str]]] = []
        self.is_ready = True
        self.refused = 0
        """Checks that were answered with not ready."""
        self.dies_at = ""
        self.held = threading.Event()
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    @property
    def calls(self) -> list[str]:
        return [path for _, path, _ in list(self.seen)]


class Answers(BaseHTTPRequestHandler):
    server: Replica
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/readyz":
            self.server.refused += not self.server.is_ready
            self.answer(200 if self.server.is_ready else 503)
            return
        self.do_POST()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.command, self.path, lowered(self.headers)))
        if self.path == self.server.dies_at:
            # The request was read, and the connection ends without an answer.
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        if self.path == "/held":
            self.server.held.wait(SECONDS)
        self.answer(200)

    def answer(self, status: int) -> None:
        self.send_response(status)
        if self.path == "/mcp" and "Mcp-Session-Id" not in self.headers:
            self.send_header("Mcp-Session-Id", f"session-{self.server.server_port}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


class Balanced:
    def __init__(self, base: Path, program: str) -> None:
        self.replicas = (Replica(), Replica())
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        text = CONFIGURATION.read_text(encoding="utf-8")
        text = text.replace("bind :8600", f"bind {self.address}")
        for name, replica in zip("ab", self.replicas, strict=True):
            text = text.replace(f"core-{name}:8600", f"127.0.0.1:{replica.server_port}")
        assert not re.search(r"core-.:", text)
        (base / "haproxy.cfg").write_text(text)
        self.log = (base / "log").open("wb")
        argv = [program, "-db", "-f", str(base / "haproxy.cfg")]
        self.process = subprocess.Popen(argv, stdout=self.log, stderr=self.log)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()
        for replica in self.replicas:
            replica.held.set()
            replica.shutdown()
            replica.server_close()
            replica.thread.join(SECONDS)

    def ask(
        self, path: str, headers: Mapping[str, str] | None = None, *, body: bytes | None = None
    ) -> tuple[int, Mapping[str, str]]:
        url = f"http://{self.address}{path}"
        request = urllib.request.Request(url, data=body, headers=dict(headers or {}))
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                return answer.status, lowered(answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, lowered(error.headers)

    def until(self, is_so: Callable[[], object]) -> None:
        end = time.monotonic() + SECONDS
        while not is_so():
            assert time.monotonic() < end
            assert self.process.poll() is None
            time.sleep(0.02)

    def is_up(self) -> bool:
        try:
            return self.ask("/balancer")[0] == 200
        except OSError:
            return False


@pytest.fixture(scope="module")
def program(need: Any) -> str:
    found = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/local/bin:/usr/bin")
    need(found, "haproxy is not installed")
    return str(found)


@pytest.fixture
def balanced(program: str, tmp_path: Path) -> Iterator[Balanced]:
    found = Balanced(tmp_path, program)
    try:
        found.until(found.is_up)
        yield found
    finally:
        found.close()


def test_the_file_is_one_that_haproxy_takes_without_a_warning(program: str) -> None:
    done = ran([program, "-c", "-f", CONFIGURATION])
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stdout + done.stderr


def test_both_replicas_get_requests(balanced: Balanced) -> None:
    for _ in range(20):
        assert balanced.ask("/api/v1/status")[0] == 200
    # A connection that is still being closed counts for one of them (leastconn).
    found = [len(one.seen) for one in balanced.replicas]
    assert sum(found) == 20
    assert min(found) >= 5


def test_one_that_drains_gets_no_more_and_ends_what_it_has(balanced: Balanced) -> None:
    ended: list[int] = []
    caller = threading.Thread(target=lambda: ended.append(balanced.ask("/held", body=b"1")[0]))
    caller.start()
    balanced.until(lambda: [one for one in balanced.replicas if "/held" in one.calls])
    first, second = balanced.replicas
    held, other = (first, second) if "/held" in first.calls else (second, first)
    held.is_ready = False
    # Of two such checks it is taken out, which the next one shows to be over.
    balanced.until(lambda: held.refused >= 3)
    assert _goes_to(balanced, other)
    before = len(held.seen)
    for _ in range(10):
        assert balanced.ask("/after")[0] == 200
    assert (len(held.seen), ended) == (before, [])
    held.held.set()
    caller.join(SECONDS)
    assert ended == [200]
    held.is_ready = True
    balanced.until(lambda: balanced.ask("/again")[0] == 200 and "/again" in held.calls)


def _goes_to(balanced: Balanced, replica: Replica) -> bool:
    before = len(replica.seen)
    for _ in range(4):
        balanced.ask("/probe")
    return len(replica.seen) == before + 4


def test_a_request_that_was_read_is_never_sent_again(balanced: Balanced) -> None:
    for replica in balanced.replicas:
        replica.dies_at = "/api/v1/calls"
    status, _ = balanced.ask("/api/v1/calls", body=b'{"tool": "exec"}')
    assert status == 502
    assert sum(one.calls.count("/api/v1/calls") for one in balanced.replicas) == 1


def test_a_replica_that_is_gone_costs_no_request(balanced: Balanced) -> None:
    first, second = balanced.replicas
    first.shutdown()
    first.server_close()
    for _ in range(10):
        assert balanced.ask("/x", body=b"1")[0] == 200
    assert len(second.seen) == 10


def test_a_session_stays_with_the_replica_that_began_it(balanced: Balanced) -> None:
    for _ in range(3):
        _, headers = balanced.ask("/mcp", body=b"{}")
        session = headers["mcp-session-id"]
        for _ in range(6):
            balanced.ask("/mcp", {"Mcp-Session-Id": session}, body=b"{}")
    for replica in balanced.replicas:
        own = f"session-{replica.server_port}"
        found = {headers.get("mcp-session-id") for _, _, headers in replica.seen}
        assert found <= {None, own}


def test_what_a_client_says_of_its_address_is_not_passed_on(balanced: Balanced) -> None:
    forged = {
        "Forwarded": "for=127.0.0.1", "X-Forwarded-For": "127.0.0.1",
        "X-Forwarded-Host": "localhost", "X-Forwarded-Proto": "https",
    }  # fmt: skip
    assert balanced.ask("/x", forged | {"X-Mine": "1"})[0] == 200
    ((_, _, headers),) = [one for replica in balanced.replicas for one in replica.seen]
    assert headers["x-mine"] == "1"
    assert [name for name in headers if "forwarded" in name] == []


def test_without_a_replica_that_takes_work_it_says_so_at_once(balanced: Balanced) -> None:
    for replica in balanced.replicas:
        replica.is_ready = False
    balanced.until(lambda: balanced.ask("/balancer")[0] == 503)
    began = time.monotonic()
    assert balanced.ask("/x")[0] == 503
    assert time.monotonic() - began < 10
