"""Executors in processes of their own, and a balancer that knows nothing of what it passes on."""

from __future__ import annotations

import contextlib
import http.server
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.frontends.mcp_peer import environment_of

TOKEN = "f" * 64
SLEEPS = """
import os, time

def pid(params, context):
    return os.getppid()

def waits(params, context):
    if params.get("mark"):
        with open(params["mark"], "a") as file:
            file.write("x")
    time.sleep(params.get("seconds", 0.2))
    return "waited"

def asks(params, context):
    return context.read_file("notes.txt")

tools = {"pid": pid, "waits": waits, "asks": asks}
"""


class RunningWorker:
    """One `skillhouse worker`."""

    def __init__(self, process: subprocess.Popen[str], first: dict[str, Any]) -> None:
        self.process = process
        self.address: str = first["address"]
        self.first = first
        self.lines: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def port(self) -> int:
        return int(self.address.rsplit(":", 1)[1].split("/")[0])

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(json.loads(line))

    def close(self) -> None:
        """End the reading of its lines."""
        self._reader.join(20)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def executed(self) -> list[dict[str, Any]]:
        """Return its lines about calls that it began."""
        named = [line for line in self.lines if line["event"] == "tool.execute"]
        ours = [line for line in named if line["tool"] != "proof:tries"]
        return [line for line in ours if line["outcome"] != "refused"]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def drain(self) -> None:
        self.process.send_signal(signal.SIGTERM)


@contextmanager
def worker(base: Path, *words: str, token: Sequence[str] = ()) -> Iterator[RunningWorker]:
    """Run an executor that gets its code from cores, unless the words name skills."""
    base.mkdir(parents=True, exist_ok=True)
    (base / "token").write_text(TOKEN)
    known = ["--token-file", str(base / "token")]
    if "--core" not in words:
        known += ["--core", "http://127.0.0.1:9/rpc"]
    process = subprocess.Popen(
        [sys.executable, "-m", "skillhouse", "worker", "--port", "0", "--json",
         *(token or known[:2]), *known[2:], *words],
        env=environment_of(base), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    running: RunningWorker | None = None
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, process.communicate(timeout=30)[1]
        running = RunningWorker(process, json.loads(first))
        yield running
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.wait(20)
        if running is not None:
            running.close()


Answer = Callable[[dict[str, Any], dict[str, str]], tuple[int, Any]]


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Yield the address of a server that is not ours: it answers as it likes."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            length = int(self.headers.get("Skillhouse-Message", len(data)))
            asked = json.loads(data[:length])
            asked["archives"] = data[length:]
            status, said = answer(asked, {k.lower(): v for k, v in self.headers.items()})
            body = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/rpc"
    finally:
        server.shutdown()
        server.server_close()


class Balancer:
    """Passes connections on to the next server in turn, to those that take one."""

    def __init__(self, ports: Sequence[int], *, head: bytes = b"") -> None:
        """Send to `ports`; `head` is put into each request after its first line."""
        self.ports = list(ports)
        self.taken: list[int] = []
        self._head = head
        self._turn = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/rpc"

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with self._lock:
            self._turn += 1
            first = self._turn
        for more in range(len(self.ports)):
            port = self.ports[(first + more) % len(self.ports)]
            try:
                far = socket.create_connection(("127.0.0.1", port))
            except OSError:
                continue
            self.taken.append(port)
            other = threading.Thread(target=_copy, args=(far, near, b""), daemon=True)
            other.start()
            _copy(near, far, self._head)
            other.join()
            far.close()
            break
        near.close()


def _copy(source: socket.socket, target: socket.socket, head: bytes) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            if head:
                first, _, rest = data.partition(b"\r\n")
                data, head = first + b"\r\n" + head + rest, b""
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
