"""Two executors behind HAProxy: TLS before it, mTLS behind it, least connections."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.house import Skillhouse
from tests.executors import RunningWorker, worker
from tests.frontends.mcp_peer import has_sandbox
from tests.harness import until
from tests.house.coded import played
from tests.house.test_executors import many, remote_house, statuses
from tests.tls_files import CertificateAuthority

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

CONFIGURATION = """
global
  stats socket {place}/haproxy.sock
defaults
  mode http
  option forwardfor
  timeout connect 2s
  timeout client 60s
  timeout server 60s
listen executors
  bind 127.0.0.1:{port} ssl crt {place}/front.pem
  http-request set-header X-Forwarded-Proto https
  http-request set-header X-Forwarded-Client-Cert Subject=someone
  balance leastconn
  retries 3
  option redispatch
  option httpchk GET /readyz
  default-server check inter 200ms fall 1 rise 1 ssl verify required ca-file {ca} {shown}
{servers}
"""


@contextmanager
def haproxy(place: Path, ca: Path, workers: list[RunningWorker], need: Any) -> Iterator[int]:
    program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
    need(program, "no haproxy")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    lines = "\n".join(f"  server e{n} 127.0.0.1:{one.port}" for n, one in enumerate(workers))
    text = CONFIGURATION.format(
        place=place, port=port, ca=ca, shown=f"crt {place}/back.pem", servers=lines
    )
    (place / "haproxy.cfg").write_text(text)
    log = (place / "haproxy.log").open("wb")
    process = subprocess.Popen(
        [str(program), "-db", "-f", str(place / "haproxy.cfg")], stdout=log, stderr=log
    )
    try:
        assert until(lambda: _listens(port)), (place / "haproxy.log").read_text()
        yield port
    finally:
        process.terminate()
        process.wait(20)
        log.close()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def test_two_executors_behind_haproxy(tmp_path: Path, need: Any) -> None:
    need(has_sandbox(), "no sandbox here")
    authority = CertificateAuthority(tmp_path / "tls", "ca")
    pair = authority.sign("executor")
    words: tuple[str, ...] = ("--tls-certificate", str(pair[0]), "--tls-key", str(pair[1]))
    words += ("--tls-ca", str(authority.ca), "--calls", "6")
    for name in ("front", "back"):
        made = authority.sign(name)
        (tmp_path / f"{name}.pem").write_bytes(made[0].read_bytes() + made[1].read_bytes())
    with ExitStack() as kept:
        workers = [kept.enter_context(worker(tmp_path / name, *words)) for name in ("one", "two")]
        port = kept.enter_context(haproxy(tmp_path, authority.ca, workers, need))
        house = remote_house(
            tmp_path / "core",
            executor=f"https://127.0.0.1:{port}/rpc",
            executor_ca=str(authority.ca),
        )

        async def scene(house: Skillhouse) -> list[Any]:
            found = [await many(house, 8, seconds=0.2)]
            # One ends as in a rolling update: its calls end, and new ones go to the other.
            during: list[Any] = []
            async with anyio.create_task_group() as tasks:

                async def asked() -> None:
                    during.extend(await many(house, 4, seconds=2.0))

                tasks.start_soon(asked)
                await anyio.sleep(0.8)
                workers[0].drain()
                found.append(await many(house, 4, seconds=0.1))
            found.append(during)
            found.append(await many(house, 4, seconds=0.1))
            # The other is killed: what it ran is not known, and there is none left.
            lost: list[Any] = []
            async with anyio.create_task_group() as tasks:

                async def last() -> None:
                    lost.extend(await many(house, 2, seconds=5.0))

                tasks.start_soon(last)
                await anyio.sleep(1.0)
                await anyio.to_thread.run_sync(workers[1].kill)
            found.append(lost)
            return found

        *ended, lost = played(house, scene)
        assert [one.content for part in ended for one in part] == ["waited"] * 20
        assert all("answered with status 502; the call may have had" in one.content for one in lost)
        assert statuses(house) == {"ok": 20, "unknown": 2}
        assert all(one.executed() for one in workers)
