"""Tries in earnest what cells promise, before anything relies on it.

`self_test` makes a cell of each language that is installed here; `contained_test` one in the
container that is the outer boundary. What runs inside is probe_cell.py and probe_cell.cjs.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio

from skillhouse.extensions.cells.cell import NoHost
from skillhouse.extensions.cells.cell_environment import node_program
from skillhouse.extensions.cells.cell_process import CONFINE
from skillhouse.extensions.cells.executor import Executor
from skillhouse.floor import structs, tree_digest
from skillhouse.sandbox import (
    Launcher,
    ProbeResult,
    SandboxError,
    SandboxLevel,
    SandboxStatus,
    SandboxUnavailableError,
    launcher_for,
    level_probes,
)
from skillhouse.sandbox.code_call import CellResult, CellSpec, Language, RpcError
from skillhouse.sandbox.interpreters import interpreter
from skillhouse.sandbox.level_probes import HOLE_HINT, probe_directory, probe_results, running
from skillhouse.sandbox.status import CELL_STARTS, holds, surroundings, unsupported_machine

CALL_SECONDS = 20.0
GONE_SECONDS = 2.0
"""Longest wait for what a call left running to be gone; it takes a millisecond."""
SCRIPTS: Mapping[Language, tuple[str, str]] = {
    # The skill's file, and the file in this directory that it is a copy of.
    "python": ("main.py", "probe_cell.py"),
    "javascript": ("index.cjs", "probe_cell.cjs"),
}
ABI_MIN = 3
LANDLOCK_HINT = (
    "run the container on Linux 6.2 or later with `landlock` among the kernel's security modules, "
    "and with a seccomp profile that allows its calls (docker 23 or later)"
)
SUPERUSER_HINT = "run the container as a user that is not the superuser, as `user: 65534:65534`"


def installed() -> tuple[Language, ...]:
    try:
        node_program()
    except SandboxError:
        return ("python",)
    return ("python", "javascript")


async def self_test(
    *,
    most: SandboxLevel = SandboxLevel.CGROUP,
    least: SandboxLevel = SandboxLevel.LANDLOCK,
    languages: Sequence[Language] | None = None,
) -> SandboxStatus:
    """Return the best level at which the sandbox and a cell of each language pass their probes.

    Args:
        most: The best level that the operator wants; only an operator's setting lowers it.
        least: The weakest level that the operator accepts.
        languages: Those whose cells are probed, of the installed ones; None is all of them.
    """
    further = [
        functools.partial(_probe_language, language)
        for language in installed()
        if languages is None or language in languages
    ]
    return await level_probes.self_test(most=most, least=least, further=further)


async def language_test(found: SandboxStatus, language: Language) -> SandboxStatus:
    """Return the level with the probes of one more language; a hole in its cell leaves none."""
    probe = functools.partial(_probe_language, language)
    try:
        probes = await level_probes.run_probes(launcher_for(found), (probe,))
    except (SandboxError, SandboxUnavailableError, RpcError, OSError, ValueError) as error:
        return SandboxStatus(level=SandboxLevel.NONE, reasons=(str(error),), hint=found.hint)
    failed = [probe for probe in probes if not holds(probe, found.level)]
    reasons = (
        *(f"{found.level}: {probe.name}: {probe.detail}" for probe in failed),
        *found.reasons,
    )
    is_hole = not all(probe.name.endswith(CELL_STARTS) for probe in failed)
    return structs.replace(
        found,
        level=SandboxLevel.NONE if is_hole else found.level,
        reasons=reasons,
        probes=(*found.probes, *probes),
        hint=HOLE_HINT if is_hole else found.hint,
    )


async def contained_test() -> SandboxStatus:
    """Return `SandboxLevel.CONTAINER` if all that it promises holds, else `SandboxLevel.NONE`.

    Whether this is a container cannot be detected: that is the operator's claim.
    """
    around = surroundings()
    if (unsupported := unsupported_machine(around)) is not None:
        return unsupported
    if around.superuser:
        # Its files are its own whatever their modes, and so would be the calls'.
        return _none("expected another user than the superuser", hint=SUPERUSER_HINT)
    version = _landlock()
    if version < ABI_MIN:
        return _none(f"expected Landlock {ABI_MIN} or later, got {version}")
    try:
        probes = await _probe_container()
    except (SandboxError, RpcError, OSError) as error:
        return _none(str(error))
    failing = (one for one in probes if not holds(one, SandboxLevel.CONTAINER))
    if failed := tuple(f"{one.name}: {one.detail}" for one in failing):
        return _none(*failed, probes=probes)
    reasons = ("no namespaces: the container is the outer boundary, as its operator says",)
    return SandboxStatus(level=SandboxLevel.CONTAINER, reasons=reasons, probes=probes)


def _none(
    *reasons: str, hint: str = LANDLOCK_HINT, probes: tuple[ProbeResult, ...] = ()
) -> SandboxStatus:
    return SandboxStatus(level=SandboxLevel.NONE, reasons=reasons, hint=hint, probes=probes)


def _landlock() -> int:
    argv = (interpreter()[0], "-I", "-S", str(CONFINE), '{"abi": true}')
    done = subprocess.run(argv, capture_output=True, text=True, env={}, timeout=10, check=False)
    return int(done.stdout) if done.stdout.strip().isdigit() else 0


async def _probe_language(language: Language, launcher: Launcher, place: Path) -> Mapping[str, str]:
    """Make two calls in a cell; return the name of each probe with its failure, "" for none.

    Args:
        place: An empty directory, as the part of the host that the cell must not reach.
    """
    if launcher.level is SandboxLevel.LANDLOCK and language == "python":
        try:
            failures = {"starts": "", **await _contained(launcher.level, place)}
        except SandboxError as error:
            failures = {"starts": str(error)}
        return {f"{language}_cell_{name}": text for name, text in failures.items()}
    spec = _skill(place, language)
    mark = f"600.{secrets.randbelow(10**12):012}"
    executor = Executor(SandboxStatus(level=launcher.level), state=place / "state")
    try:
        with _bait(place) as bait:
            looked = await _call(executor, spec, "look", {**bait, "process": ["sleep", mark]})
            if looked.kind != "ok":
                return {language + CELL_STARTS: f"{looked.kind}: {looked.error[:200]}"}
            left = await _call(executor, spec, "left", {})
        failures = {"starts": "", **_failures(looked), **_failures(left)}
        if _was_written(bait) or tree_digest(spec.directory) != spec.digest:
            failures["outside_unwritable"] = "a file of the host was written"
        if count := await _running(mark):
            failures["nothing_left"] = f"{count} processes outlived their call"
    finally:
        with anyio.CancelScope(shield=True):
            await executor.close()
    return {f"{language}_cell_{name}": text for name, text in failures.items()}


async def _probe_container() -> tuple[ProbeResult, ...]:
    with probe_directory() as place:
        return probe_results(await _contained(SandboxLevel.CONTAINER, place))


async def _contained(level: SandboxLevel, place: Path) -> dict[str, str]:
    """Return the failures in a cell without namespaces; SandboxError if it does not answer."""
    spec = _skill(place, "python", env={"SKILLHOUSE_PROBE": "declared"})
    executor = Executor(SandboxStatus(level=level), state=place / "state")
    failures: dict[str, str] = {}
    try:
        with _bait(place) as bait:
            more = {**bait, "skill": str(spec.directory), "executor": os.getpid()}
            more["process"] = ["sleep", "0"]
            for tool in ("look", "look_contained", "left", "left_contained"):
                arguments = more if tool.startswith("look") else {}
                done = await _call(executor, spec, tool, arguments)
                if done.kind != "ok":
                    raise SandboxError("sandbox-failed", f"no answer of a probe: {done.error}")
                found = _failures(done)
                # One probe may be made by both; neither failure hides the other.
                failures |= {name: failures.get(name) or text for name, text in found.items()}
        for tool, name, expected, seconds in (
            ("memory", "memory_limited", "resource-limit", CALL_SECONDS),
            ("spin", "time_limited", "timeout", 0.3),
        ):
            done = await _call(executor, spec, tool, {}, seconds=seconds)
            failures[name] = "" if done.kind == expected else f"the call was {done.kind}"
    finally:
        with anyio.CancelScope(shield=True):
            await executor.close()
    if _was_written(bait):
        failures["outside_unwritable"] = "a file arrived beside the skill"
    return failures


def _skill(place: Path, language: Language, **options: Any) -> CellSpec:
    entry, source = SCRIPTS[language]
    directory = place / "skill"
    directory.mkdir()
    (directory / entry).write_bytes(Path(__file__).with_name(source).read_bytes())
    return CellSpec(
        skill="self-test",
        digest=tree_digest(directory),
        directory=directory,
        language=language,
        entry=entry,
        is_single=True,
        **options,
    )


@contextlib.contextmanager
def _bait(place: Path) -> Iterator[dict[str, Any]]:
    """Yield what a probe must not reach: a secret file, a path to write and a listening port."""
    canary = place / f"canary-{secrets.token_hex(8)}"
    canary.write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        yield {"canary": str(canary), "outside": str(place / "outside"), "tcp": port}


def _was_written(bait: Mapping[str, Any]) -> bool:
    return Path(bait["outside"]).exists()


async def _call(
    executor: Executor,
    spec: CellSpec,
    tool: str,
    arguments: Mapping[str, Any],
    *,
    seconds: float = CALL_SECONDS,
) -> CellResult:
    return await executor.execute(spec, tool, arguments, meta={}, timeout=seconds, host=NoHost())


def _failures(result: CellResult) -> dict[str, str]:
    """Return what a call reported; any other answer counts as a failed probe."""
    value = result.value
    if isinstance(value, dict) and all(isinstance(text, str) for text in value.values()):
        return value
    return {"answers": f"{result.kind}: {result.error[:200]}"}


async def _running(mark: str) -> int:
    until = time.monotonic() + GONE_SECONDS
    # No event reports the end of a process that is not our child.
    while (count := running(mark)) and time.monotonic() < until:  # noqa: ASYNC110
        await anyio.sleep(0.005)
    return count
