"""Attacks by two calls of the kernel that commands and skills' code need little of.

Netlink sockets reach subsystems whose messages the kernel parses for every user; a personality
switches off what makes memory errors hard to use. Each attempt first works in a plain process.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from skillhouse.sandbox import Launcher
from tests.extensions.cells.lab import Lab, make, status_of
from tests.sandbox.places import ALL_LEVELS, has_namespaces, launcher_at, run, workspace

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        platform.machine() not in ("x86_64", "aarch64"), reason="no system call filter here"
    ),
]

__all__ = ["workspace"]

PYTHON = "/usr/bin/python3"
ATTEMPTS = """
import ctypes, platform, socket
libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": 135, "aarch64": 92}[platform.machine()]
libc.syscall.restype = ctypes.c_long

def opened(protocol, kind=socket.SOCK_RAW):
    try:
        socket.socket(socket.AF_NETLINK, kind, protocol).close()
    except OSError as error:
        return error.errno
    return "open"

def became(value):
    before = libc.syscall(ctypes.c_long(number), ctypes.c_ulong(0xFFFFFFFF))
    result = libc.syscall(ctypes.c_long(number), ctypes.c_ulong(value))
    failed = ctypes.get_errno()
    libc.syscall(ctypes.c_long(number), ctypes.c_ulong(before))
    return "done" if result >= 0 else failed

def interfaces():
    try:
        return [name for _, name in socket.if_nameindex()]
    except OSError:
        return "none"
"""
PROTOCOLS = "{p: opened(p) for p in range(0, 23)}"
PERSONALITIES = {
    "query": 0xFFFFFFFF,
    "Linux": 0,
    "fixed addresses": 0x0040000,
    "readable memory runs": 0x0400000,
    "page at zero": 0x0100000,
    "old layout": 0x0200000,
    "3 GB": 0x8000000,
    "32 bits of addresses": 0x0800000,
    "all of them": 0x0F40000,
    "fixed addresses, upper half": 0x1_0004_0000,
    "System V": 0x5410001,
    "of 32 bits": 8,
    "old version": 0x0020000,
}
HARMFUL = tuple(PERSONALITIES)[2:11]
BECAME = f"{{name: became(value) for name, value in {PERSONALITIES!r}.items()}}"
NO_FAMILY, NOT_PERMITTED = 97, 1


@pytest.fixture(params=ALL_LEVELS)
def launcher(request: pytest.FixtureRequest, tmp_path: Path, need: Any) -> Launcher:
    need(Path(PYTHON).exists(), f"no {PYTHON}")
    return launcher_at(request.param, need, tmp_path / "state")


@pytest.fixture(params=ALL_LEVELS)
def lab(request: pytest.FixtureRequest, tmp_path: Path, need: Any) -> Lab:
    need(Path(PYTHON).exists(), f"no {PYTHON}")
    return Lab(status_of(request.param, need), tmp_path)


def naive(expression: str) -> Any:
    code = f"{ATTEMPTS}\nimport json\nprint(json.dumps({expression}))"
    argv = (PYTHON, "-I", "-c", code)
    return json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)


def in_command(launcher: Launcher, workspace: Path, expression: str) -> Any:
    code = f"{ATTEMPTS}\nimport json\nprint(json.dumps({expression}))"
    done = run(launcher, workspace, "python3", "-I", "-c", code)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def in_cell(lab: Lab, expression: str) -> Any:
    spec = make(
        lab.place,
        f"{ATTEMPTS}\ndef tool(params, context):\n    return {expression}\n"
        "tools = {'tool': tool}\n",
    )
    done = lab.call(spec)
    assert done.kind == "ok", done
    return json.loads(json.dumps(done.value))


def test_a_command_talks_to_no_other_subsystem_by_netlink(launcher: Launcher, workspace: Path):
    plain = naive(PROTOCOLS)
    assert [p for p, said in plain.items() if said == "open"][:1] == ["0"]
    assert len([said for said in plain.values() if said == "open"]) > 3
    found = in_command(launcher, workspace, PROTOCOLS)
    route = "open" if has_namespaces(launcher) else NO_FAMILY
    assert found == {"0": route, **{str(p): NO_FAMILY for p in range(1, 23)}}
    assert in_command(launcher, workspace, "opened(0, socket.SOCK_DGRAM)") == route


def test_a_command_still_learns_its_interfaces(launcher: Launcher, workspace: Path):
    expected = ["lo"] if has_namespaces(launcher) else "none"
    assert in_command(launcher, workspace, "interfaces()") == expected


def test_a_command_takes_no_personality_that_weakens_memory(launcher: Launcher, workspace: Path):
    plain = naive(BECAME)
    assert {plain[name] for name in HARMFUL} == {"done"}
    found = in_command(launcher, workspace, BECAME)
    assert found == {name: NOT_PERMITTED if name in HARMFUL else "done" for name in PERSONALITIES}


def test_a_program_that_starts_another_with_fixed_addresses_fails(
    launcher: Launcher, workspace: Path, need: Any
):
    need(shutil.which("setarch", path="/usr/bin:/bin"), "no setarch")
    assert run(launcher, workspace, "setarch", "-R", "true").exit_code != 0
    assert run(launcher, workspace, "setarch", "linux64", "true").exit_code == 0


def test_code_of_a_skill_has_no_netlink_and_no_other_personality(lab: Lab):
    assert len([said for said in naive(PROTOCOLS).values() if said == "open"]) > 3
    found = in_cell(lab, f"[{PROTOCOLS}, {BECAME}, interfaces()]")
    assert found == [
        {str(p): NO_FAMILY for p in range(23)},
        {name: "done" if name in ("query", "Linux") else NOT_PERMITTED for name in PERSONALITIES},
        "none",
    ]


def test_node_says_that_it_cannot_name_interfaces_and_goes_on(lab: Lab, need: Any):
    need(shutil.which("node", path="/usr/local/bin:/usr/bin:/bin"), "no Node.js")
    body = """
    exports.tools = { tool: async () => {
      let said;
      try { said = require('os').networkInterfaces(); } catch (error) { said = error.code; }
      return [said, require('os').cpus().length > 0];
    } };
    """
    done = lab.call(make(lab.place, body, language="javascript"))
    assert (done.kind, done.value) == ("ok", ["ERR_SYSTEM_ERROR", True])
