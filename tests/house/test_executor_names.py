"""Executors behind one name with an address for each, as a headless Service has: in a mount
namespace with a file of names of its own, so that the resolver of this machine is the one asked."""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.extensions.cells import executor_pool
from skillhouse.house import Skillhouse
from tests.executors import RunningWorker, worker
from tests.frontends.mcp_peer import has_sandbox
from tests.harness import ran
from tests.house.coded import played
from tests.house.test_executors import many, remote_house, statuses

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

NAME = "executors.test"
ADDRESSES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
OWN_NAMES = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'


def test_one_name_with_an_address_for_each_executor(tmp_path: Path, need: Any) -> None:
    need(has_sandbox(), "no sandbox here")
    prefix = ("unshare", "--mount", "--propagation", "private", "sh", "-c", OWN_NAMES, "sh")
    (tmp_path / "hosts").write_text(f"127.0.0.1 localhost\n{ADDRESSES[0]} {NAME}\n")
    need(ran([*prefix, tmp_path / "hosts", "true"]).returncode == 0, "no mount namespace here")
    code = f"from tests.house.test_executor_names import scene; scene({str(tmp_path)!r})"
    done = ran(
        [*prefix, tmp_path / "hosts", sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))},
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    # Spread over the two that the name has, and both have the code.
    assert found["first"] == {"ok": 12}
    assert all(4 <= count <= 8 for count in found["spread"][:2])
    assert found["spread"][2] == 0
    assert found["health"] == ["one", "two"]
    assert found["reloads"] == [1, 1, 0]
    # A stop ends what runs at each of them.
    assert found["stopped"] == [2, 2, 0]
    # One dies, without its address being taken away; then another comes in its place.
    assert found["left"] == {"ok": 8}
    assert found["after"] == {"ok": 12}
    assert found["new"] >= 4
    assert found["names"] == ["three", "two"]
    # A name that is not found any more takes nothing away.
    assert found["unresolved"] == {"ok": 4}


def scene(base_text: str) -> None:
    """Run it all where /etc/hosts is the file `hosts` of the directory; print what was seen."""
    base = Path(base_text)
    executor_pool.NAMES_SECONDS = 0.5
    with socket.create_server((ADDRESSES[0], 0)) as free:
        port = free.getsockname()[1]
    with ExitStack() as kept:
        workers = [
            kept.enter_context(
                worker(base / name, "--host", address, "--port", str(port), "--name", name)
            )
            for name, address in zip(("one", "two", "three"), ADDRESSES, strict=True)
        ]
        house = remote_house(base / "core", executor=f"http://{NAME}:{port}/rpc")
        found = played(house, lambda house: _seen(house, base, workers))
    print(json.dumps(found))


def name_is(base: Path, *addresses: str) -> None:
    lines = ["127.0.0.1 localhost", *(f"{one} {NAME}" for one in addresses)]
    # In place: the file is what is mounted.
    (base / "hosts").write_text("\n".join(lines) + "\n")


async def _seen(house: Skillhouse, base: Path, workers: list[RunningWorker]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    name_is(base, *ADDRESSES[:2])
    code, enforcement = house.services.skill_code, house.services.enforcement
    owner = next(iter(enforcement.tiers.policy.assignees))

    def executed() -> list[int]:
        return [len(one.executed()) for one in workers]

    def events(name: str) -> list[int]:
        return [sum(line["event"] == name for line in one.lines) for one in workers]

    async def calls(count: int, seconds: float) -> dict[str, int]:
        before = statuses(house)
        await many(house, count, seconds=seconds)
        await anyio.sleep(0.2)
        return {k: v - before.get(k, 0) for k, v in statuses(house).items() if v != before.get(k)}

    found["first"] = await calls(12, 0.3)
    found["spread"] = executed()
    executor: Any = await code.executor()
    found["health"] = sorted(one["name"] for one in (await executor.health()).values())
    await code.reload()
    await anyio.sleep(0.2)
    found["reloads"] = events("skill.reload")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(calls, 4, 30.0)
        await anyio.sleep(1.5)
        await anyio.to_thread.run_sync(lambda: enforcement.stop(owner, "for the test"))
        await anyio.sleep(0.5)
        tasks.cancel_scope.cancel()
    await anyio.sleep(0.5)
    found["stopped"] = [
        sum(line["outcome"] == "cancelled" for line in one.executed()) for one in workers
    ]
    await anyio.to_thread.run_sync(lambda: enforcement.resume(owner, "terminal"))
    workers[0].kill()
    found["left"] = await calls(8, 0.2)
    name_is(base, *ADDRESSES[1:])
    await anyio.sleep(0.6)
    before = executed()[2]
    found["after"] = await calls(12, 0.3)
    found["new"] = executed()[2] - before
    found["names"] = sorted(one["name"] for one in (await executor.health()).values())
    name_is(base)
    await anyio.sleep(0.6)
    found["unresolved"] = await calls(4, 0.2)
    return found
