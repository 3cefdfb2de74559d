"""Skills' code as it runs without isolation: what the attacks on cells work on first."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.harness import ran

CALL = "\nimport json\nprint(json.dumps(tools[{tool!r}]({{}}, None)))"
WORKER = """
import json, sys
print("ready", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps(tools[asked["tool"]](asked["args"], None)), flush=True)
"""
FREE = """
import os, threading, time
ended = threading.Event()
def work():
    tools["tool"]({}, None)
    ended.set()
threading.Thread(target=work, daemon=True).start()
is_done = ended.wait(0.2)
before = time.process_time()
time.sleep(0.3)
print(is_done, time.process_time() - before, flush=True)
os._exit(0)
"""


def naive(
    source: str, *, tool: str = "tool", timeout: float = 60, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a tool as a loader without isolation does: imported, with all that the loader has."""
    return ran(
        [sys.executable, "-c", textwrap.dedent(source) + CALL.format(tool=tool)],
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        **options,
    )


def naive_value(source: str, **options: Any) -> Any:
    """Return the result of a tool that nothing holds."""
    return json.loads(naive(source, **options).stdout)


def naive_time_limit(source: str) -> tuple[bool, float]:
    """Return whether a tool ended within a limit that a thread keeps, and the seconds of processor
    time that it took in the 0.3 s after that."""
    done = ran([sys.executable, "-c", textwrap.dedent(source) + FREE], check=True, timeout=60)
    ended, seconds = done.stdout.split()
    return ended == "True", float(seconds)


class Worker:
    """One process for all calls, ended by SIGTERM when one takes too long."""

    def __init__(self, source: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(source) + WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def call(self, tool: str = "tool", *, timeout: float = 20.0) -> Any:
        """Return a tool's result, or "ended"."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"tool": tool, "args": {}}) + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], timeout)
        line = self.process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(0.3)
        return "ended"

    def close(self) -> None:
        """Do what the naive version does not."""
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def worker(source: str) -> Iterator[Worker]:
    """Yield a worker, and kill it in the end."""
    made = Worker(source)
    try:
        yield made
    finally:
        made.close()


def sent(source: str) -> bytes:
    """Return what a skill writes to the socket that it has as descriptor 3."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            number = theirs.fileno()
            process = subprocess.Popen(
                [sys.executable, "-c", source.replace("fileno=3", f"fileno={number}")],
                pass_fds=(number,),
            )
        found = bytearray()
        while chunk := ours.recv(1 << 20):
            found += chunk
        process.wait()
    return bytes(found)


def naive_answer(data: bytes) -> Any:
    """Return the result in the first message, as a core that believes it takes it."""
    (length,) = struct.unpack("!I", data[:4])
    if len(data) < 4 + length:
        return f"waits for {length} bytes"
    return json.loads(data[4 : 4 + length])["result"]


def fate(data: bytes) -> str:
    """Return what becomes of that core: "taken", "waits" or the exception that it dies of."""
    try:
        found = naive_answer(data)
    except Exception as error:  # noqa: BLE001 - whatever it dies of.
        return type(error).__name__
    return "waits" if str(found).startswith("waits for") else "taken"


def messages(data: bytes) -> list[Any]:
    """Return all messages, as a core without a limit takes them."""
    found = []
    while data:
        (length,) = struct.unpack("!I", data[:4])
        found.append(json.loads(data[4 : 4 + length]))
        data = data[4 + length :]
    return found


def run_file(path: Path, *, environment: Mapping[str, str] | None = None) -> Any:
    """Return the result of the tool in a skill's file, which runs where it lies."""
    script = (
        "import json, runpy, sys\n"
        "print(json.dumps(runpy.run_path(sys.argv[1])['tools']['tool']({}, None)))"
    )
    done = ran(
        [sys.executable, "-c", script, str(path)],
        check=True,
        timeout=60,
        env={**os.environ, **(environment or {})},
    )
    return json.loads(done.stdout)
