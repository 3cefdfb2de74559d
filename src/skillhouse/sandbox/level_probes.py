"""Tests the guarantees of each level in earnest, before anything relies on one."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio

from skillhouse.floor import structs
from skillhouse.floor.crash_cleanup import COMMON_NAME, owner_name
from skillhouse.floor.paths import unix_address
from skillhouse.sandbox.crash_watch import watch_for_crashes
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
    BUBBLEWRAP,
    CELL_STARTS,
    NAMESPACE_HINT,
    ProbeResult,
    SandboxLevel,
    SandboxStatus,
    detect,
    detect_landlock,
    holds,
)

Probe = Callable[[Launcher, Path], Awaitable[Mapping[str, str]]]

PROBE_SECONDS = 20.0
"""Longest time of one probe; all together take about half a second."""
LIMIT_PROBES = frozenset({"memory_limited", "processes_limited"})
"""Probes that only the better level passes; if any other fails, no level is left."""
HOLE_HINT = "report this: a promise of the sandbox does not hold on this machine"

PLACE_HINT = "this says nothing of the sandbox: make room there, or set TMPDIR to another directory"
PLACE_BYTES_MIN = 1 * MIB
PLACE_FILES_MIN = 100
"""Room that the tests need; with less, what they find says nothing of a level."""

_SURVIVED = "survived\n"
"""All that is printed: from Python 3.13 on, an error shows the line of such a program too."""
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
    *,
    most: SandboxLevel = SandboxLevel.CGROUP,
    least: SandboxLevel = SandboxLevel.LANDLOCK,
    further: Sequence[Probe] = (),
) -> SandboxStatus:
    """Return the best level whose probes all pass, in files of its own that it removes.

    Args:
        most: The best level that the operator wants; only an operator's setting lowers it.
        least: The weakest level that the operator accepts.
        further: Probes of code that is built on the sandbox, such as cells.
    """
    status = await detect(most=most, least=least)
    tried: tuple[str, ...] = ()
    while True:
        found, is_final = await _tested(status, further)
        if found.level is not SandboxLevel.NONE or is_final:
            return structs.replace(found, reasons=(*tried, *found.reasons))
        tried += tuple(reason for reason in found.reasons if reason not in tried)
        if status.level is SandboxLevel.CGROUP and _only_limits(found):
            status = await detect(most=SandboxLevel.RLIMITS, least=least)
        elif status.level in BUBBLEWRAP and least is SandboxLevel.LANDLOCK:
            status = await detect_landlock(structs.replace(found, reasons=()))
        else:
            return structs.replace(found, reasons=tried)


def _only_limits(found: SandboxStatus) -> bool:
    failed = {probe.name for probe in found.probes if not probe.passed}
    return bool(failed) and failed <= LIMIT_PROBES


class ProbePlaceError(SandboxError):
    """The directory for temporary files cannot be used, so no level can be tested."""

    def __init__(self, reason: str) -> None:
        message = f"the sandbox cannot be tested in `{tempfile.gettempdir()}`: {reason}"
        super().__init__("probe-place", message)


async def _tested(status: SandboxStatus, further: Sequence[Probe]) -> tuple[SandboxStatus, bool]:
    """Return the status with the results of its level's probes, of level NONE if one fails.

    True: no other level is to be tried.
    """
    if status.level is SandboxLevel.NONE:
        return status, True
    try:
        probes = await _probe(launcher_for(status), further)
    except ProbePlaceError as error:
        # It would be the same with any other level.
        none = SandboxStatus(level=SandboxLevel.NONE, reasons=(str(error),), hint=PLACE_HINT)
        return none, True
    except (SandboxError, SandboxUnavailableError, OSError, ValueError) as error:
        is_about = "namespace" in str(error) or "uid map" in str(error)
        hint = NAMESPACE_HINT if is_about else status.hint
        none = SandboxStatus(level=SandboxLevel.NONE, reasons=(str(error),), hint=hint)
        return none, False
    failed = [probe for probe in probes if not holds(probe, status.level)]
    reasons = tuple(f"{status.level}: {probe.name}: {probe.detail}" for probe in failed)
    if all(probe.name.endswith(CELL_STARTS) for probe in failed):
        # No code of such a language is run (`Executor`); all else holds.
        reasons += status.reasons
        return structs.replace(status, reasons=reasons, probes=probes), True
    hint = status.hint or HOLE_HINT
    none = SandboxStatus(level=SandboxLevel.NONE, reasons=reasons, probes=probes, hint=hint)
    # A hole in one level says nothing good about a weaker one, but for control groups' limits.
    return none, not (status.level is SandboxLevel.CGROUP and _only_limits(none))


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
    """Yield the real path of a temporary directory, which is removed also if we are killed.

    Raises:
        ProbePlaceError: it cannot be made, or has too little room.
    """
    watch_for_crashes().note(f"temporary:{tempfile.gettempdir()}")
    try:
        made = tempfile.TemporaryDirectory(prefix=f"{COMMON_NAME}{owner_name()}-")
    except OSError as error:
        raise ProbePlaceError(error.strerror or str(error)) from error
    with made as base:
        room = os.statvfs(base)
        if room.f_bavail * room.f_frsize < PLACE_BYTES_MIN:
            raise ProbePlaceError("no space left on device")
        if room.f_files > 0 and room.f_favail < PLACE_FILES_MIN:
            raise ProbePlaceError("no room for more files")
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
    (workspace / "directory").mkdir()
    (workspace / "directory" / "program").touch()
    before = _names(workspace)
    canary = place / f"canary-{secrets.token_hex(8)}"
    canary.write_text("secret")
    outside = place / "outside"
    with _listeners(workspace) as (given, datagrams):
        given |= {"canary": str(canary), "canary_name": canary.name, "outside": str(outside)}
        given |= {"process": os.getpid(), "has_namespaces": launcher.level in BUBBLEWRAP}
        script = Path(__file__).with_name("probe_script.py").read_text(encoding="utf-8")
        output = await _python(
            launcher,
            workspace,
            script,
            json.dumps(given),
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
    if _text(workspace / "directory" / "renamed") != "written":
        failures["workspace_writable"] = "nothing arrived in the workspace"
    if _names(workspace) - {"written", "directory/renamed", "s"} != before:
        failures["protected_unwritable"] = "a protected path was made or left"
    return dict(failures)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


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
        unix_address(workspace / "s") as address,
    ):
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)  # noqa: FBT003 - the parameter has no name.
        unix.bind(address)
        hidden.bind("\0" + abstract)
        unix.listen()
        hidden.listen()
        yield (
            {
                "tcp": tcp.getsockname()[1],
                "udp": udp.getsockname()[1],
                # By its name, since the probe runs in the workspace.
                "unix": "s",
                "abstract": abstract,
            },
            udp,
        )


async def _memory(launcher: Launcher, place: Path) -> Mapping[str, str]:
    limits = Limits(seconds=PROBE_SECONDS, memory_bytes=64 * MIB)
    output = await _python(launcher, place, _MEMORY, limits=limits)
    return {"memory_limited": "256 MiB with a limit of 64" if output == _SURVIVED else ""}


async def _processes(launcher: Launcher, place: Path) -> Mapping[str, str]:
    limits = Limits(seconds=PROBE_SECONDS, processes=16)
    output = await _python(launcher, place, _PROCESSES, limits=limits)
    return {"processes_limited": "64 processes with a limit of 16" if output == _SURVIVED else ""}


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
    argv = (str(program), "-I", "-S", "-c", *arguments)
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
