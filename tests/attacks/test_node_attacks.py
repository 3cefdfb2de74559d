"""Attacks by the code of skills in JavaScript: those of test_executor_attacks.py that differ there.

A call of Node is a sandbox of its own; what holds it is not the process that forks for Python.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from skillhouse.extensions.cells import Executor, cell_process
from skillhouse.extensions.cells.cell import CELL_LIMITS
from skillhouse.floor.structs import replace
from skillhouse.sandbox import SandboxLevel
from tests.extensions.cells.lab import Lab, make, status_of
from tests.harness import Need, ran
from tests.sandbox.places import ALL_LEVELS, LEVELS, own, still_running

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

MIB = 1 << 20
SMALL = replace(
    CELL_LIMITS, memory_bytes=192 * MIB, processes=64, file_bytes=16 * MIB, tmp_bytes=16 * MIB
)
HEAD = """
const fs = require('fs');
const { spawn } = require('child_process');
const link = Number(process.argv[2]);
const framed = (text) => {
  const head = Buffer.alloc(4);
  head.writeUInt32BE(Buffer.byteLength(text));
  return Buffer.concat([head, Buffer.from(text)]);
};
exports.tools = { tool: async (params, context) => {
BODY
} };
"""
NAIVE = "\n;(async () => console.log(JSON.stringify(await exports.tools.tool({}, null))))();"


NAMESPACED = frozenset(
    {
        # Their code starts programs, which no call can do without namespaces.
        "test_34_fork_bomb",
        "test_40_output_that_a_grandchild_keeps_open",
        # It has the paths of a root of its own.
        "test_53_to_55_a_call_leaves_nothing",
    }
)
"""Tests of bubblewrap alone; `test_without_namespaces…` tries the same without it."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests with a cell at every level that they apply to."""
    name = metafunc.function.__name__
    if "lab" in metafunc.fixturenames:
        levels: tuple[SandboxLevel, ...] = LEVELS if name in NAMESPACED else ALL_LEVELS
        if name.startswith("test_without_namespaces"):
            levels = (SandboxLevel.LANDLOCK,)
        metafunc.parametrize("lab", levels, indirect=True)


@pytest.fixture
def lab(request: pytest.FixtureRequest, tmp_path: Any, need: Any) -> Lab:
    need(shutil.which("node", path="/usr/local/bin:/usr/bin:/bin"), "no Node.js")
    return Lab(status_of(request.param, need), tmp_path)


def skill(lab: Lab, body: str, **options: Any) -> Any:
    return make(lab.place, HEAD.replace("BODY", body), language="javascript", **options)


def naive(lab: Lab, body: str) -> Any:
    """Return the result of a tool that plain Node runs."""
    done = ran(
        ["node", "-e", HEAD.replace("BODY", body) + NAIVE], cwd=lab.place, check=True, timeout=60
    )
    return json.loads(done.stdout.splitlines()[-1])


BOMBS = {
    "35 buffers": "const held = []; for (;;) held.push(Buffer.alloc(1 << 20, 1));",
    "35 objects": "const held = []; for (;;) held.push(new Array(1000).fill({}));",
    "39 output": "for (;;) fs.writeSync(1, 'x'.repeat(65536));",
    "40 tiny writes": "for (;;) fs.writeSync(1, 'x');",
    "43 messages": 'const one = framed(\'{"jsonrpc":"2.0","method":"core.log","params":{}}\');'
    "for (;;) fs.writeSync(link, one);",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_with_its_call(lab: Lab, name: str):
    async def scene(executor: Executor) -> list[str]:
        bomb = skill(lab, BOMBS[name])
        other = skill(lab, "return 1;", name="other")
        # The last one takes a second, and fifteen where sixteen others want the processors.
        return [(await lab.ask(executor, one, timeout=90.0)).kind for one in (bomb, other)]

    assert lab.run(scene, limits=SMALL) == ["resource-limit", "ok"]


def test_35_a_killed_process_that_is_slow_to_go_has_met_its_limit(
    tmp_path: Path, need: Need, monkeypatch: pytest.MonkeyPatch
):
    """On a busy machine more than half a second passes until all that it started is gone."""
    monkeypatch.setattr(cell_process, "GRACE_SECONDS", 0)
    lab = Lab(status_of(SandboxLevel.CGROUP, need), tmp_path)

    async def scene(executor: Executor) -> set[tuple[str, str]]:
        bomb = skill(lab, BOMBS["35 buffers"])
        done = [await lab.ask(executor, bomb, timeout=90.0) for _ in range(5)]
        return {(one.kind, one.error) for one in done}

    assert lab.run(scene, limits=SMALL) == {("resource-limit", "the limit of memory was met")}


def test_34_fork_bomb(lab: Lab):
    if lab.status.level is SandboxLevel.RLIMITS and os.geteuid() == 0:
        pytest.skip("rlimits do not hold for the superuser, and are not offered to him")
    body = "for (let n = 0; n < N; n += 1) spawn('sleep', ['2']).on('error', () => {}); return N;"
    assert naive(lab, body.replace("N", "100")) == 100
    body = "for (;;) { spawn('sleep', ['612.25']); await new Promise(setImmediate); }"
    body = body.replace("612.25", own(612))
    done = lab.call(skill(lab, body), limits=SMALL, timeout=10.0)
    # Where the kernel counts the user's processes it refuses one, and Node ends for that.
    assert done.kind == "resource-limit" or (done.kind, "EAGAIN" in done.error) == ("error", True)
    assert still_running(own(612)) == []


@pytest.mark.parametrize(
    "body",
    [
        "for (;;);",
        "await new Promise(() => { setInterval(() => {}, 1000); });",
        "for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(name, () => {}); for (;;);",
        "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);",
        "new (require('worker_threads').Worker)('for (;;);', { eval: true }); for (;;);",
    ],
)
def test_36_and_37_what_does_not_end_is_ended(lab: Lab, body: str):
    done = lab.call(skill(lab, body), timeout=0.5)
    assert (done.kind, done.seconds < 3) == ("timeout", True)


def test_40_output_that_a_grandchild_keeps_open(lab: Lab):
    body = "spawn('sleep', ['613.25'], { detached: true, stdio: 'inherit' }).unref(); return 1;"
    done = lab.call(skill(lab, body.replace("613.25", own(613))), timeout=10.0)
    assert (done.kind, done.value) == ("ok", 1)
    assert still_running(own(613)) == []


def test_41_and_42_full_places(lab: Lab):
    fill = """
  const name = `${require('os').tmpdir()}/full`;
  try { for (let n = 0; n < 40; n += 1) fs.appendFileSync(name, Buffer.alloc(1 << 20)); }
  catch (error) { return error.code; }
  finally { fs.unlinkSync(name); }
  return 'all';"""
    assert naive(lab, fill) == "all"
    assert lab.call(skill(lab, fill), limits=SMALL).value in ("ENOSPC", "EFBIG")
    opened = """
  try { for (let n = 0; n < 5000; n += 1) fs.openSync('/dev/null'); }
  catch (error) { return error.code; }
  return 'all';"""
    assert lab.call(skill(lab, opened, name="opened")).value == "EMFILE"


FORGERIES = {
    "another id": '{"jsonrpc": "2.0", "id": "other", "result": 1}',
    "no JSON": "{",
    "not a number": '{"jsonrpc": "2.0", "id": 1, "result": NaN}',
    "depth": "[" * 100_000,
}


@pytest.mark.parametrize("name", FORGERIES)
def test_43_forged_messages(lab: Lab, name: str):
    text = json.dumps(FORGERIES[name])
    body = (
        f"fs.writeSync(link, framed({text})); await new Promise(() => setInterval(() => 0, 999));"
    )
    assert lab.call(skill(lab, body), timeout=10.0).kind == "protocol"


def test_43_more_than_a_frame_may_have(lab: Lab):
    head = list(struct.pack("!I", 1 << 30))
    wait = "await new Promise(() => setInterval(() => 0, 9));"
    body = f"fs.writeSync(link, Buffer.from({head})); {wait}"
    assert lab.call(skill(lab, body), timeout=10.0).kind == "protocol"


def test_53_to_55_a_call_leaves_nothing(lab: Lab):
    body = """
  const seen = [...fs.readdirSync('/tmp'), ...fs.readdirSync('/dev/shm'), JSON.patched || ''];
  fs.writeFileSync('/tmp/left', ''); fs.writeFileSync('/dev/shm/left', '');
  JSON.patched = 'patched'; Object.prototype.left = 1;
  let own = 'written';
  try { fs.appendFileSync(__filename, '// evil'); } catch (error) { own = error.code; }
  return [...seen.filter(Boolean), own];"""

    async def scene(executor: Executor) -> list[Any]:
        spec = skill(lab, body)
        other = skill(lab, body, user="another")
        return [(await lab.ask(executor, one)).value for one in (spec, spec, other)]

    assert lab.run(scene) == [["skill-output", "EROFS"]] * 3


def test_without_namespaces_nothing_is_started_and_nothing_is_left(lab: Lab):
    body = """
  const { spawnSync } = require('child_process');
  const attempt = (action) => {
    try { return action() || 'worked'; } catch (error) { return error.code; }
  };
  const place = require('os').tmpdir();
  const seen = fs.readdirSync(place);
  fs.writeFileSync(`${place}/left`, '');
  return [
    seen,
    attempt(() => spawnSync('/bin/sleep', ['0']).error?.code),
    attempt(() => fs.appendFileSync(__filename, '// evil')),
    attempt(() => fs.writeFileSync('SECRET', 'x')),
    attempt(() => fs.readFileSync('SECRET', 'utf8')),
    attempt(() => fs.readdirSync('/proc') && ''),
    attempt(() => process.kill(NUMBER, 0) && ''),
  ];"""
    (lab.place / "secret").write_text("canary")
    body = body.replace("SECRET", str(lab.place / "secret")).replace("NUMBER", str(os.getpid()))
    temporary = lab.place / "temporary"
    temporary.mkdir()
    free = body.replace("require('os').tmpdir()", repr(str(temporary)))
    assert naive(lab, free) == [[], "worked", "worked", "worked", "x", "worked", "worked"]
    (lab.place / "secret").write_text("canary")

    async def scene(executor: Executor) -> list[Any]:
        spec = skill(lab, body)
        other = skill(lab, body, user="another")
        return [(await lab.ask(executor, one)).value for one in (spec, spec, other)]

    refused = ["EPERM", "EACCES", "EACCES", "EACCES", "EACCES", "EPERM"]
    assert lab.run(scene) == [[["skill-output"], *refused]] * 3
    assert (lab.place / "secret").read_text() == "canary"
