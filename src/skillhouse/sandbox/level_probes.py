"""Tests the guarantees of each level in earnest, before anything relies on one."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import secrets
import socket
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio

from skillhouse.floor.crash_cleanup import COMMON_NAME, owner_name
from skillhouse.sandbox.crash_watch import watch_for_crashes
from skillhouse.sandbox.inner_scripts import by_path
from skillhouse.sandbox.interpreters import own_python
from skillhouse.sandbox.launcher import Launcher, launcher_for
from skillhouse.sandbox.profile import (
    MIB,
    Limits,
    SandboxError,
    SandboxProfile,
    SandboxUnavailableError,
)
from skillhouse.sandbox.status import (
    CELL_STARTS,
    NAMESPACE_HINT,
    ProbeResult,
    SandboxLevel,
    SandboxStatus,
    detect,
)

Probe = Callable[[Launcher, Path], Awaitable[Mapping[str, str]]]

PROBE_SECONDS = 20.0
"""Longest time of one probe; all together take about half a second."""
LIMIT_PROBES = frozenset({"memory_limited", "processes_limited"})
"""Probes that only the better level passes; if any other fails, no level is left."""
HOLE_HINT = "report this: a promise of the sandbox does not hold on this machine"

_MEMORY = "held = [bytearray(1 << 20) for _ in range(256)]; print('survived')"
_PROCESSES = """
import os, time
made = 0
try:
    for _ in range(64):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        made += 1
    time.sleep(0.5)
    print("survived")
except OSError:
    raise SystemExit(1)
"""


async def self_test(
    *, most: SandboxLevel = SandboxLevel.CGROUP, further: Sequence[Probe] = ()
) -> SandboxStatus:
    """Return the best level whose probes all pass, in files of its own that it removes.

    Args:
        most: The best level that the operator wants; only an operator's setting lowers it.
        further: Probes of code that is built on the sandbox, such as cells.
    """
    status = await detect(most=most)
    reasons: tuple[str, ...] = ()
    probes: tuple[ProbeResult, ...] = ()
    hint = status.hint
    while status.level is not SandboxLevel.NONE:
        try:
            probes = await _probe(launcher_for(status), further)
        except (SandboxError, SandboxUnavailableError, OSError, ValueError) as error:
            hint = NAMESPACE_HINT if "namespace" in str(error) or "uid map" in str(error) else hint
            return SandboxStatus(level=SandboxLevel.NONE, reasons=(*reasons, str(error)), hint=hint)
        failed = [probe for probe in probes if not probe.passed]
        reasons += tuple(f"{status.level}: {probe.name}: {probe.detail}" for probe in failed)
        if all(probe.name.endswith(CELL_STARTS) for probe in failed):
            # No code of such a language is run (`Executor`); all else holds.
            reasons += status.reasons
            return SandboxStatus(level=status.level, reasons=reasons, probes=probes, hint=hint)
        if status.level is SandboxLevel.CGROUP and {probe.name for probe in failed} <= LIMIT_PROBES:
            status = await detect(most=SandboxLevel.RLIMITS)
            hint = status.hint
            continue
        hint = hint or HOLE_HINT
        return SandboxStatus(level=SandboxLevel.NONE, reasons=reasons, probes=probes, hint=hint)
    return dataclasses.replace(status, reasons=(*reasons, *status.reasons), probes=probes)


async def _probe(launcher: Launcher, further: Sequence[Probe]) -> tuple[ProbeResult, ...]:
    return await run_probes(launcher, (_inside, _memory, _processes, _tree, *further))


async def run_probes(launcher: Launcher, probes: Sequence[Probe]) -> tuple[ProbeResult, ...]:
    """Return the results of probes that run at once, each in a directory of its own.

    Raises:
        SandboxError: one of them could not be made at all; OSError and ValueError likewise.
    """
    failures: dict[str, str] = {}
    errors: list[Exception] = []
    with _places(len(probes)) as places:
        async with anyio.create_task_group() as tasks:
            for probe, place in zip(probes, places, strict=True):
                tasks.start_soon(_collect, probe, launcher, place, failures, errors)
    if errors:
        raise errors[0]
    return probe_results(failures)


def probe_results(failures: Mapping[str, str]) -> tuple[ProbeResult, ...]:
    """Return the result of each probe, by name, from its failure ("" for a pass)."""
    return tuple(
        ProbeResult(name=name, passed=not detail, detail=detail)
        for name, detail in sorted(failures.items())
    )


@contextlib.contextmanager
def probe_directory() -> Iterator[Path]:
    """Yield the real path of a temporary directory, which is removed also if we are killed."""
    watch_for_crashes().note(f"temporary:{tempfile.gettempdir()}")
    with tempfile.TemporaryDirectory(prefix=f"{COMMON_NAME}{owner_name()}-") as base:
        yield Path(base).resolve()


@contextlib.contextmanager
def _places(count: int) -> Iterator[list[Path]]:
    with probe_directory() as base:
        places = [base / str(number) for number in range(count)]
        for place in places:
            place.mkdir()
        yield places


async def _collect(
    probe: Probe,
    launcher: Launcher,
    place: Path,
    failures: dict[str, str],
    errors: list[Exception],
) -> None:
    try:
        failures.update(await probe(launcher, place))
    except (SandboxError, OSError, ValueError) as error:
        errors.append(error)


async def _inside(launcher: Launcher, place: Path) -> Mapping[str, str]:
    workspace = place / "w"
    (workspace / ".git" / "hooks").mkdir(parents=True)
    (workspace / ".git" / "config").touch()
    (workspace / ".env").write_text("secret")
    before = _names(workspace)
    canary = place / f"canary-{secrets.token_hex(8)}"
    canary.write_text("secret")
    outside = place / "outside"
    with _listeners(workspace) as (told, datagrams):
        told |= {"canary": str(canary), "canary_name": canary.name, "outside": str(outside)}
        script = Path(__file__).with_name("probe_script.py").read_text(encoding="utf-8")
        output = await _python(
            launcher,
            workspace,
            script,
            json.dumps(told),
            environment={"SKILLHOUSE_PROBE": "declared"},
        )
        try:
            failures = json.loads(output)
        except ValueError:
            return {"inside": f"no answer: {output[:200]!r}"}
        with contextlib.suppress(BlockingIOError):
            datagrams.recv(16)
            failures["udp_refused"] = "a datagram reached the host"
    if outside.exists():
        failures["outside_unwritable"] = "a file arrived beside the workspace"
    if (workspace / "written").read_text() != "written":
        failures["workspace_writable"] = "nothing arrived in the workspace"
    if _names(workspace) - {"written", "s"} != before:
        failures["protected_unwritable"] = "a protected path was made or left"
    return dict(failures)


def _names(workspace: Path) -> set[str]:
    return {path.relative_to(workspace).as_posix() for path in workspace.rglob("*")}


@contextlib.contextmanager
def _listeners(workspace: Path) -> Iterator[tuple[dict[str, Any], socket.socket]]:
    abstract = f"skillhouse-{secrets.token_hex(8)}"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(type=socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as hidden,
    ):
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)  # noqa: FBT003 - the parameter has no name.
        unix.bind(str(workspace / "s"))
        hidden.bind("\0" + abstract)
        unix.listen()
        hidden.listen()
        yield (
            {
                "tcp": tcp.getsockname()[1],
                "udp": udp.getsockname()[1],
                "unix": str(workspace / "s"),
                "abstract": abstract,
            },
            udp,
        )


async def _memory(launcher: Launcher, place: Path) -> Mapping[str, str]:
    limits = Limits(seconds=PROBE_SECONDS, memory_bytes=64 * MIB)
    output = await _python(launcher, place, _MEMORY, limits=limits)
    return {"memory_limited": "256 MiB with a limit of 64" if "survived" in output else ""}


async def _processes(launcher: Launcher, place: Path) -> Mapping[str, str]:
    limits = Limits(seconds=PROBE_SECONDS, processes=16)
    output = await _python(launcher, place, _PROCESSES, limits=limits)
    return {"processes_limited": "64 processes with a limit of 16" if "survived" in output else ""}


async def _tree(launcher: Launcher, place: Path) -> Mapping[str, str]:
    mark = f"600.{secrets.randbelow(10**12):012}"
    script = f"trap '' TERM; sleep {mark} & setsid sleep {mark} & (setsid sleep {mark} &); wait"
    profile = SandboxProfile(place, limits=Limits(seconds=0.2))
    done = await launcher.run(("sh", "-c", script), profile, cwd=place)
    left = running(mark)
    if not done.timed_out:
        return {"tree_killed": "the time limit did not end the run"}
    return {"tree_killed": f"{left} processes are left" if left else ""}


async def _python(
    launcher: Launcher,
    workspace: Path,
    *arguments: str,
    limits: Limits | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    prefix, program = own_python()
    profile = SandboxProfile(
        workspace,
        readable=() if prefix == Path("/usr") else (prefix,),
        environment=environment or {},
        limits=limits or Limits(seconds=PROBE_SECONDS),
    )
    argv = (*by_path(program), "-I", "-S", "-c", *arguments)
    done = await launcher.run(argv, profile, cwd=workspace)
    return (done.stdout or done.stderr[-500:]).decode(errors="replace")


def running(mark: str) -> int:
    """Return how many processes have `mark` in their command line."""
    return sum(mark.encode() in _command_line(path) for path in Path("/proc").glob("[0-9]*"))


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""
