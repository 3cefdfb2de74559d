"""Tries in earnest what cells promise: one cell of each language that is installed here."""

from __future__ import annotations

import functools
import secrets
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import anyio

from skillhouse.cells.cell import CellResult, CellSpec
from skillhouse.cells.cell_environment import node_program
from skillhouse.cells.executor import Executor, NoHost
from skillhouse.floor import tree_digest
from skillhouse.sandbox import level_probes
from skillhouse.sandbox.errors import SandboxError
from skillhouse.sandbox.launcher import Launcher
from skillhouse.sandbox.level_probes import running
from skillhouse.sandbox.status import CELL_STARTS, SandboxLevel, SandboxStatus

Language = Literal["python", "javascript"]

CALL_SECONDS = 20.0
GONE_SECONDS = 2.0
"""Longest wait for what a call left running to be gone; it takes a millisecond."""
ENTRIES: Mapping[Language, tuple[str, str]] = {
    # The skill's file, and the one beside this file that it is made from.
    "python": ("main.py", "probe_cell.py"),
    "javascript": ("index.cjs", "probe_cell.cjs"),
}


def installed() -> tuple[Language, ...]:
    """Return the languages that cells can be made for on this machine."""
    try:
        node_program()
    except SandboxError:
        return ("python",)
    return ("python", "javascript")


async def self_test(*, most: SandboxLevel = SandboxLevel.CGROUP) -> SandboxStatus:
    """Return the best level at which the sandbox and a cell of each language pass their probes.

    Args:
        most: The best level that the operator wants; only an operator's setting lowers it.
    """
    further = [functools.partial(_probed, language) for language in installed()]
    return await level_probes.self_test(most=most, further=further)


async def _probed(language: Language, launcher: Launcher, place: Path) -> Mapping[str, str]:
    return await probe_cell(language, launcher.level, place)


async def probe_cell(language: Language, level: SandboxLevel, place: Path) -> Mapping[str, str]:
    """Make two calls in a cell; return the name of each probe with what went wrong, "" for nothing.

    Args:
        place: An empty directory, which stands for the host.

    Raises:
        SandboxError: cells cannot be made at this level.
    """
    spec = _skill(place, language)
    canary = place / f"canary-{secrets.token_hex(8)}"
    canary.write_text("secret")
    outside = place / "outside"
    mark = f"600.{secrets.randbelow(10**12):012}"
    executor = Executor(SandboxStatus(level=level), state=place / "state")
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            told = {
                "canary": str(canary),
                "outside": str(outside),
                "tcp": server.getsockname()[1],
                "process": ["sleep", mark],
            }
            looked = await _call(executor, spec, "look", told)
            if looked.kind != "ok":
                return {language + CELL_STARTS: f"{looked.kind}: {looked.error[:200]}"}
            left = await _call(executor, spec, "left", {})
        found = {"starts": "", **_texts(looked), **_texts(left)}
        if outside.exists() or tree_digest(spec.directory) != spec.digest:
            found["outside_unwritable"] = "a file of the host was written"
        if count := await _running(mark):
            found["nothing_left"] = f"{count} processes outlived their call"
    finally:
        with anyio.CancelScope(shield=True):
            await executor.close()
    return {f"{language}_cell_{name}": text for name, text in found.items()}


def _skill(place: Path, language: Language) -> CellSpec:
    entry, source = ENTRIES[language]
    directory = place / "skill"
    directory.mkdir()
    (directory / entry).write_bytes(Path(__file__).with_name(source).read_bytes())
    return CellSpec(
        skill="self-test",
        digest=tree_digest(directory),
        directory=directory,
        language=language,
        entry=entry,
    )


async def _call(
    executor: Executor, spec: CellSpec, tool: str, arguments: Mapping[str, Any]
) -> CellResult:
    return await executor.execute(
        spec, tool, arguments, meta={}, timeout=CALL_SECONDS, host=NoHost()
    )


def _texts(result: CellResult) -> dict[str, str]:
    """Return what a call said; a call that said something else is told as a probe that failed."""
    value = result.value
    if isinstance(value, dict) and all(isinstance(text, str) for text in value.values()):
        return value
    return {"answers": f"{result.kind}: {result.error[:200]}"}


async def _running(mark: str) -> int:
    """Return how many processes with `mark` there are once they had time to go."""
    until = time.monotonic() + GONE_SECONDS
    # Nothing tells when a process of somebody else's is gone.
    while (count := running(mark)) and time.monotonic() < until:  # noqa: ASYNC110
        await anyio.sleep(0.005)
    return count
