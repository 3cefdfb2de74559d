"""Tries in earnest what holds code in a container of its own, before anything relies on it."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

from skillhouse.cells.cell import CellSpec
from skillhouse.cells.container_cell import INSIDE
from skillhouse.cells.executor import Executor, NoHost
from skillhouse.cells.rpc import RpcError
from skillhouse.floor import tree_digest
from skillhouse.sandbox.errors import SandboxError
from skillhouse.sandbox.plans import interpreter
from skillhouse.sandbox.seccomp import ARCHITECTURES
from skillhouse.sandbox.status import (
    LINUX_HINT,
    MACHINE_HINT,
    ProbeResult,
    SandboxLevel,
    SandboxStatus,
)
from skillhouse.sandbox.status import surroundings as surroundings_here

PROBE_SECONDS = 20.0
ABI_MIN = 3
"""As confine.py wants it."""
LANDLOCK_HINT = (
    "run the container on Linux 6.2 or later with `landlock` among the kernel's security modules, "
    "and with a seccomp profile that allows its calls (docker 23 or later)"
)
SUPERUSER_HINT = "run the container as a user that is not the superuser, as `user: 65534:65534`"


async def contained_test() -> SandboxStatus:
    """Return `SandboxLevel.CONTAINER` if all that it promises holds, else `SandboxLevel.NONE`.

    Whether this is a container, nothing tells: that is the operator's word.
    """
    around = surroundings_here()
    if around.system != "linux":
        return _none((f"expected Linux, got {around.system}",), LINUX_HINT)
    if around.machine not in ARCHITECTURES:
        return _none((f"no system call filter for {around.machine}",), MACHINE_HINT)
    if around.superuser:
        # Its files are its own whatever their modes, and so would be the calls'.
        return _none(("expected another user than the superuser",), SUPERUSER_HINT)
    version = _landlock()
    if version < ABI_MIN:
        return _none((f"expected Landlock {ABI_MIN} or later, got {version}",), LANDLOCK_HINT)
    try:
        probes = await _probed()
    except (SandboxError, RpcError, OSError) as error:
        return _none((str(error),), LANDLOCK_HINT)
    failed = tuple(f"{one.name}: {one.detail}" for one in probes if not one.passed)
    if failed:
        return _none(failed, LANDLOCK_HINT, probes)
    reasons = ("no namespaces: the container is the outer boundary, as its operator says",)
    return SandboxStatus(level=SandboxLevel.CONTAINER, reasons=reasons, probes=probes)


def _none(
    reasons: tuple[str, ...], hint: str, probes: tuple[ProbeResult, ...] = ()
) -> SandboxStatus:
    return SandboxStatus(level=SandboxLevel.NONE, reasons=reasons, hint=hint, probes=probes)


def _landlock() -> int:
    argv = (interpreter()[0], "-I", "-S", str(INSIDE), '{"abi": true}')
    done = subprocess.run(argv, capture_output=True, text=True, env={}, timeout=10, check=False)
    return int(done.stdout) if done.stdout.strip().isdigit() else 0


async def _probed() -> tuple[ProbeResult, ...]:
    with (
        tempfile.TemporaryDirectory(prefix="skillhouse-probe-") as made,
        socket.create_server(("127.0.0.1", 0)) as tcp,
    ):
        base = Path(os.path.realpath(made))  # noqa: ASYNC240 - one look.
        canary = base / f"canary-{secrets.token_hex(8)}"
        canary.write_text("secret")
        skill = base / "skill"
        skill.mkdir()
        source = Path(__file__).with_name("contained_probes.py").read_text(encoding="utf-8")
        (skill / "main.py").write_text(source, encoding="utf-8")
        spec = CellSpec(
            skill="probe",
            digest=tree_digest(skill),
            directory=skill,
            language="python",
            entry="main.py",
            env={"SKILLHOUSE_PROBE": "declared"},
        )
        told = {
            "canary": str(canary),
            "outside": str(base / "outside"),
            "skill": str(skill),
            "tcp": tcp.getsockname()[1],
            "executor": os.getpid(),
        }
        status = SandboxStatus(level=SandboxLevel.CONTAINER)
        executor = Executor(status, state=base / "state")
        try:
            found = await _asked(executor, spec, told)
        finally:
            with anyio.CancelScope(shield=True):
                await executor.close()
        if (base / "outside").exists():
            found["outside_unwritable"] = "a file arrived beside the skill"
    return tuple(
        ProbeResult(name=name, passed=not detail, detail=detail)
        for name, detail in sorted(found.items())
    )


async def _asked(executor: Executor, spec: CellSpec, told: Mapping[str, Any]) -> dict[str, str]:
    """Return what each probe found; "" is as promised."""
    found: dict[str, str] = {}
    for tool, arguments, seconds in (
        ("inside", told, PROBE_SECONDS),
        ("left", {}, PROBE_SECONDS),
        ("memory", {}, PROBE_SECONDS),
        ("time", {}, 0.3),
    ):
        done = await executor.execute(
            spec, tool, arguments, meta={}, timeout=seconds, host=NoHost()
        )
        if tool in ("inside", "left"):
            if done.kind != "ok":
                raise SandboxError("sandbox-failed", f"no answer of a probe: {done.error}")
            found |= json.loads(done.value)
        else:
            expected = {"memory": "resource-limit", "time": "timeout"}[tool]
            found[f"{tool}_limited"] = "" if done.kind == expected else f"the call was {done.kind}"
    return found
