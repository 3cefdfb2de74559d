"""What calls of skills that import something cost, beside a fork of a process that has it imported.

The packages are installed as a skill's are, from the registries; what cannot be had is left out
with its reason.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from skillhouse.extensions.cells import (
    CellSpec,
    EnvironmentRules,
    Executor,
    installer_variables,
    make_caches,
    prepare,
)
from skillhouse.floor import tree_digest
from skillhouse.sandbox import SandboxError, default_python
from skillhouse.sandbox.seccomp import program
from skillhouse.skill import SkillManifest

WARM_TARGET = 1.3
"""Warm call over the fork."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    language: str
    source: str
    ahead: str
    """What the floor imports before it forks."""
    requirements: str = ""
    packages: Mapping[str, str] | None = None


CASES = {
    "asyncio": Case(
        language="python",
        source="import asyncio\n\nasync def echo(params, context):\n"
        "    await asyncio.sleep(0)\n    return params\n\ntools = {'echo': echo}\n",
        ahead="import asyncio",
    ),
    "dateutil": Case(
        language="python",
        source="from dateutil import parser\n\nasync def echo(params, context):\n"
        "    parser.parse('2026-01-02T03:04:05Z')\n    return params\n\ntools = {'echo': echo}\n",
        ahead="from dateutil import parser",
        requirements="python-dateutil==2.9.0.post0\nsix==1.17.0\n",
    ),
    "pydantic": Case(
        language="python",
        source="from pydantic import BaseModel\n\nclass Given(BaseModel):\n    n: int\n\n"
        "async def echo(params, context):\n    return Given(**params).model_dump()\n\n"
        "tools = {'echo': echo}\n",
        ahead="from pydantic import BaseModel",
        requirements="pydantic==2.11.7\n",
    ),
    "semver (Node)": Case(
        language="javascript",
        source="import semver from 'semver';\nexport const tools = {\n"
        "  echo: async (params) => {\n    semver.inc('1.2.3', 'patch');\n    return params;\n"
        "  },\n};\n",
        ahead="const semver = require('semver');",
        packages={"semver": "7.6.3"},
    ),
}
PYTHON_FLOOR = """
import ctypes, gc, json, os, resource, struct, _socket, sys
sys.path[:0] = {paths!r}
{ahead}
control = _socket.socket(fileno=int(sys.argv[1]))
source, data = sys.argv[2], bytes.fromhex(sys.argv[3])
libc = ctypes.CDLL(None)
held = ctypes.create_string_buffer(data, len(data))
rules = struct.pack("HxxxxxxQ", len(data) // 8, ctypes.addressof(held))
compile("pass", "<floor>", "exec")
gc.freeze()
while data := control.recv(65536):
    pid = os.fork()
    if not pid:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        assert libc.prctl(22, 2, rules, 0, 0) == 0
        skill = {{}}
        exec(compile(source, "main.py", "exec"), skill)
        steps = skill["tools"]["echo"](json.loads(data), None)
        if "asyncio" in skill:
            value = skill["asyncio"].run(steps)
        else:
            try:
                next(steps.__await__())
            except StopIteration as done:
                value = done.value
        control.send(json.dumps(value).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    control.send(b"{{}}")
"""
NODE_FLOOR = """
const fs = require('fs');
process.chdir('/skill');
const semver = require('/skill/node_modules/semver');
const buffer = Buffer.alloc(65536);
for (;;) {
  const size = fs.readSync(Number(process.argv[1]), buffer, 0, 65536, null);
  if (!size) break;
  semver.inc('1.2.3', 'patch');
  const value = JSON.parse(buffer.toString('utf8', 0, size));
  fs.writeSync(Number(process.argv[1]), JSON.stringify(value));
  fs.writeSync(Number(process.argv[1]), '{}');
}
"""


class Floor:
    """Bare bubblewrap around a process that has a case's modules and forks, or for Node only waits.

    Node cannot be forked: its floor does no more than a process that waits with semver loaded.
    """

    def __init__(self, bare: tuple[str, ...], case: Case, packages: Path | None) -> None:
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        number = str(theirs.fileno())
        if case.language == "python":
            python = default_python()
            shown = [*python.mounts, *([] if packages is None else [(packages, "/packages")])]
            mounts = [word for path, inside in shown for word in ("--ro-bind", str(path), inside)]
            for name, value in python.environment.items():
                mounts += ["--setenv", name, value]
            text = PYTHON_FLOOR.format(paths=["/packages"] if packages else [], ahead=case.ahead)
            rules = program(platform.machine()).hex()
            command = [python.inside, "-I", "-S", "-c", text, number, case.source, rules]
        else:
            mounts = ["--ro-bind", str(packages), "/skill/node_modules"]
            command = ["node", "-e", NODE_FLOOR, number]
        self._process = subprocess.Popen([*bare, *mounts, *command], pass_fds=(int(number),))
        theirs.close()
        self.call()

    def call(self) -> None:
        self.ours.send(b'{"n": 1}')
        assert self.ours.recv(65_536)
        assert self.ours.recv(65_536)

    def close(self) -> None:
        self.ours.close()
        self._process.wait()


async def spec_of(name: str, case: Case, place: Path, executor: Executor) -> CellSpec | str:
    """Install what a case needs, and return its cell or why there is none."""
    directory = place / f"imports-{name.split(maxsplit=1)[0]}"
    directory.mkdir()
    is_python = case.language == "python"
    entry = "main.py" if is_python else "index.js"
    (directory / entry).write_text(case.source)
    manifest = SkillManifest(
        name="bench",
        version="1",
        description="d",
        language="python" if is_python else "javascript",
        entry=entry,
        env=(),
        tools=(),
        dependencies=(),
    )
    variables = dict(os.environ)
    if case.requirements:
        (directory / "requirements.txt").write_text(case.requirements)
    if case.packages:
        package = {"name": "bench", "version": "1.0.0", "dependencies": dict(case.packages)}
        (directory / "package.json").write_text(json.dumps(package))
        argv = ("npm", "install", "--package-lock-only", "--no-audit", "--no-fund")
        done = subprocess.run(  # noqa: ASYNC221
            argv, cwd=directory, capture_output=True, text=True, check=False, env=variables
        )
        if done.returncode:
            return f"{name} is left out: {done.stderr.strip()[-200:]}"
    try:
        found = await prepare(
            manifest,
            directory,
            place / "packages",
            rules=EnvironmentRules(unhashed=True, variables=installer_variables(variables)),
            caches=functools.partial(make_caches, executor),
        )
    except SandboxError as error:
        return f"{name} is left out: {str(error)[:200]}"
    return CellSpec(
        skill=f"bench:{name}",
        digest=tree_digest(directory),
        directory=directory,
        language=manifest.language,
        entry=entry,
        dependencies=None if found is None else found.path,
    )


async def timed(executor: Executor, spec: CellSpec, host: Any) -> float:
    began = time.perf_counter()
    done = await executor.execute(spec, "echo", {"n": 1}, meta={}, host=host)
    assert done.kind == "ok", done
    return (time.perf_counter() - began) * 1_000


async def waits(executor: Executor, spec: CellSpec) -> None:
    """Return when a process waits for the next call, where one will."""
    if spec.dependencies is None:
        return
    with anyio.move_on_after(20):
        while not executor.health()["ready"]:  # noqa: ASYNC110 - nothing reports it.
            await anyio.sleep(0.01)
