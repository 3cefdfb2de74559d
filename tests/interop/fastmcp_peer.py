"""FastMCP's client reads our skills, and our host reads FastMCP's.

`python -m tests.interop.fastmcp_peer PEER_PYTHON`, where PEER_PYTHON is an interpreter that has
FastMCP 4.2 (README.md). The exit code is 1 when either direction does not give every file.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.harness import ran
from tests.interop.conformance import PATIENCE_SECONDS, PROJECT, environment, served
from tests.interop.serve_mcp import FILES

SIDE = Path(__file__).with_name("fastmcp_side.py")


def read_by_fastmcp(python: str) -> list[str]:
    """Return what is wrong when FastMCP's client reads our server."""
    with served() as url:
        done = ran([python, str(SIDE), "client", url], timeout=PATIENCE_SECONDS)
    if done.returncode:
        return [f"FastMCP's client failed: {done.stderr.strip()[-400:]}"]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    faults = [f"{uri}: list and get differ" for uri, one in found.items() if not one["alike"]]
    count = sum(len(one["files"]) for one in found.values())
    if count != len(FILES):
        faults.append(f"expected {len(FILES)} files from our server, got {count}")
    return faults


def read_by_us(python: str) -> list[str]:
    """Return what is wrong when our host reads FastMCP's server."""
    with tempfile.TemporaryDirectory() as directory:
        for relative, data in FILES.items():
            file = Path(directory) / "ops" / relative
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        with _fastmcp_serving(python, directory) as url:
            done = ran(
                [sys.executable, "-m", "tests.interop.use_mcp", url],
                cwd=PROJECT,
                env=environment(),
                timeout=PATIENCE_SECONDS,
            )
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    sizes = {
        f"{line['name'].partition(':')[2]}/{key}": value
        for line in lines
        for key, value in line.items()
        if isinstance(value, int)
    }
    if sizes != {relative: len(data) for relative, data in FILES.items()}:
        return [f"our host read {sizes}: {done.stdout[-400:]}{done.stderr[-400:]}"]
    return []


@contextmanager
def _fastmcp_serving(python: str, directory: str) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [python, str(SIDE), "server", directory, str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(port)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(f"nothing listens on port {port}")


def main() -> int:
    python = sys.argv[1]
    faults = [*read_by_fastmcp(python), *read_by_us(python)]
    print("\n".join(faults) or "FastMCP reads our skills, and our host reads FastMCP's")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
