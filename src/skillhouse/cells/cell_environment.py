"""What cells are built from on this machine: programs, limits and filters."""

from __future__ import annotations

import ctypes
import dataclasses
import resource
import shutil
from dataclasses import dataclass
from pathlib import Path

import anyio

from skillhouse.cells.cell import SHARED_MAX, CellSpec
from skillhouse.sandbox import bubblewrap
from skillhouse.sandbox.bubblewrap import SKILL_PLACE
from skillhouse.sandbox.cgroup import CgroupPlace
from skillhouse.sandbox.guard import OPEN_FILES, CgroupGuard, ProcessGuard, RlimitGuard
from skillhouse.sandbox.plans import interpreter
from skillhouse.sandbox.profile import MIB, Limits
from skillhouse.sandbox.sandbox_errors import SandboxError
from skillhouse.sandbox.seccomp import alone_program
from skillhouse.sandbox.seccomp import program as filter_program
from skillhouse.sandbox.status import SandboxLevel, SandboxStatus, capabilities_of, surroundings

PYTHON_CELL = Path(__file__).with_name("cell_python.py")
NODE_CELL = Path(__file__).with_name("cell_node.cjs")
NODE_FLAGS = ("--disable-proto=delete", "--no-addons", "--no-warnings")
"""Not --max-old-space-size: with it Node cannot use its own code cache, which takes 5 ms."""
SCRIPT_PLACE = "/cell"
"""Path of the script inside the cell."""
IDLE_WATCH_SECONDS = 0.5
"""Interval of checks of an idle cell without control group."""
CONTAINED_BYTES = 320 * MIB
"""Memory of a cell in a container, whose 512 MiB include the executor (S002-90)."""
CONTAINED_FILE_BYTES = 32 * MIB
"""Of all files of such a cell; its /tmp is memory too."""
OWN_OPEN_FILES = 8 * OPEN_FILES
"""Open files of the process that runs cells, as far as the hard limit allows."""
_PR_SET_DUMPABLE = 4
CPU_WEIGHT = 50
"""A cell's share of contended processors, all its processes together; the core's is 100 or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellEnvironment:
    program: Path
    """bubblewrap; for `SandboxLevel.CONTAINER` the interpreter that runs confine.py."""
    place: CgroupPlace | None
    limits: Limits
    call_filter: bytes
    """For the code of skills."""
    cell_filter: bytes
    """For the process that makes each call's namespaces."""
    is_contained: bool = False
    """True: the container is the outer boundary, and there are no namespaces."""

    def guard(self) -> CellGuard:
        if self.place is None:
            return RlimitCellGuard(self.limits)
        return CgroupCellGuard(self.place, self.limits, cpu_weight=CPU_WEIGHT)


def cell_environment_for(status: SandboxStatus, limits: Limits) -> CellEnvironment:
    """Return what cells are built from at the level that `detect` or `self_test` found.

    Raises:
        SandboxUnavailableError: no level works; it carries the reasons and the hint.
    """
    make_room_for_descriptors()
    if status.level is SandboxLevel.CONTAINER:
        return _contained(limits)
    around, program, place = capabilities_of(status)
    return CellEnvironment(
        program=program,
        place=place,
        limits=dataclasses.replace(limits, seconds=float("inf")),
        call_filter=filter_program(around.machine, shared_objects=False),
        cell_filter=filter_program(around.machine, namespaces=True),
    )


def _contained(limits: Limits) -> CellEnvironment:
    protect_self()
    machine = surroundings().machine
    return CellEnvironment(
        program=Path(interpreter()[0]),
        place=None,
        limits=dataclasses.replace(
            limits,
            seconds=float("inf"),
            memory_bytes=min(limits.memory_bytes, CONTAINED_BYTES),
            file_bytes=min(limits.file_bytes, CONTAINED_FILE_BYTES),
        ),
        call_filter=filter_program(machine, shared_objects=False),
        cell_filter=alone_program(machine),
        is_contained=True,
    )


def make_room_for_descriptors() -> None:
    """Raise our limit of open files, so that calls cannot keep us from passing descriptors.

    The kernel counts descriptors in flight for each user, and a process cannot send any while
    there are more than its own limit of open files (unix(7), ETOOMANYREFS). A call, which may have
    OPEN_FILES, must not be able to reach our limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < OWN_OPEN_FILES:
        wanted = OWN_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OWN_OPEN_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def protect_self() -> None:
    """Keep processes of the same user from reading our memory, variables and descriptors.

    Raises:
        OSError: the kernel refuses.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def places(spec: CellSpec) -> tuple[str, tuple[tuple[Path, str], ...]]:
    """Return the skill's path in the cell, and each package directory with its path there.

    The nearest directory comes first. Python gets the paths; Node searches `node_modules` in each
    directory above the skill, so the skill is nested as deep as there are shared packages.
    """
    directories = [path.resolve() for path in (spec.dependencies, *spec.shared) if path is not None]
    if len(spec.shared) > SHARED_MAX:
        message = f"expected at most {SHARED_MAX} directories of shared packages"
        raise SandboxError("place-refused", f"{message}, got {len(spec.shared)}")
    if spec.language == "python":
        return SKILL_PLACE, tuple((path, f"/packages/{n}") for n, path in enumerate(directories))
    above = ["", "/skills", "/skills/skills"][: max(1, len(directories))]
    packages = zip(
        directories, (f"{level}/node_modules" for level in reversed(above)), strict=False
    )
    return above[-1] + SKILL_PLACE, tuple(packages)


class CellGuard(ProcessGuard):
    """A guard of a long-lived process, which checks less often while no call runs."""

    active: int = 0
    """Number of running calls."""


class CgroupCellGuard(CgroupGuard, CellGuard):
    pass


class RlimitCellGuard(RlimitGuard, CellGuard):
    async def pause(self) -> None:
        await (super().pause() if self.active else anyio.sleep(IDLE_WATCH_SECONDS))


def node_program() -> str:
    """Return the path of Node.

    Raises:
        SandboxError: Node is not installed.
    """
    node = shutil.which("node", path=bubblewrap.PROGRAM_PATH)
    if node is None:
        message = f"no program 'node' in {bubblewrap.PROGRAM_PATH}: install Node.js 20 or later"
        raise SandboxError("exec-not-found", message)
    return node
