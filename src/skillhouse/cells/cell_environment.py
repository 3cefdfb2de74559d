"""What cells are built from on this machine."""

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
from skillhouse.sandbox.errors import SandboxError
from skillhouse.sandbox.guard import OPEN_FILES, CgroupGuard, ProcessGuard, RlimitGuard
from skillhouse.sandbox.plans import interpreter
from skillhouse.sandbox.profile import MIB, Limits
from skillhouse.sandbox.seccomp import alone_program
from skillhouse.sandbox.seccomp import program as filter_program
from skillhouse.sandbox.status import SandboxLevel, SandboxStatus, capabilities_of, surroundings

PYTHON_CELL = Path(__file__).with_name("cell_python.py")
NODE_CELL = Path(__file__).with_name("cell_node.cjs")
NODE_FLAGS = ("--disable-proto=delete", "--no-addons", "--no-warnings")
"""Not --max-old-space-size: with it Node cannot use its own code cache, which takes 5 ms."""
SCRIPT_PLACE = "/cell"
"""Where a cell sees the script that it runs."""
IDLE_WATCH_SECONDS = 0.5
"""Pause between two looks at a cell without control group in which no call runs."""
CONTAINED_BYTES = 320 * MIB
"""Memory of a cell in a container of its own, whose 512 MiB hold what runs it as well (S002-90)."""
CONTAINED_FILE_BYTES = 32 * MIB
"""Of all files of such a cell: its /tmp is memory too."""
OWN_OPEN_FILES = 8 * OPEN_FILES
"""Open files of the process that runs cells, where the system lets it have them."""
_PR_SET_DUMPABLE = 4
CPU_WEIGHT = 50
"""A cell's share of contended processors, all its processes together; the core's is 100 or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellEnvironment:
    """The means of this machine; made once for all cells."""

    program: Path
    """bubblewrap; for `SandboxLevel.CONTAINER` the interpreter of what confines itself."""
    place: CgroupPlace | None
    limits: Limits
    call_filter: bytes
    """For the code of skills."""
    cell_filter: bytes
    """For the process that gives each call its own namespaces."""
    is_contained: bool = False
    """True: the container is the outer boundary, and there are no namespaces."""

    def guard(self) -> CellGuard:
        if self.place is None:
            return RlimitCellGuard(self.limits)
        return CgroupCellGuard(self.place, self.limits, cpu_weight=CPU_WEIGHT)


def cell_environment_for(status: SandboxStatus, limits: Limits) -> CellEnvironment:
    """Return the means of the level that `detect` or `self_test` found.

    Raises:
        SandboxUnavailableError: there is none; it carries the reasons and the hint.
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
    """Let this process hand descriptors over whatever calls do.

    Those on their way between processes are counted for the user, and nobody hands any over while
    there are more than they may have open themselves (unix(7), ETOOMANYREFS). So a call, which may
    have OPEN_FILES, must not be able to reach what holds for us.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < OWN_OPEN_FILES:
        wanted = OWN_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OWN_OPEN_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def protect_self() -> None:
    """Let nobody of the same user read this process's memory, variables and descriptors.

    Raises:
        OSError: the kernel refuses.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def places(spec: CellSpec) -> tuple[str, tuple[tuple[Path, str], ...]]:
    """Return where a cell sees its skill, and its packages with the place of each, nearest first.

    Python is told the places; Node looks by itself in `node_modules` beside each directory above
    the skill, so the skill lies as deep as there are packages of others.
    """
    found = [path.resolve() for path in (spec.dependencies, *spec.shared) if path is not None]
    if len(spec.shared) > SHARED_MAX:
        message = f"expected at most {SHARED_MAX} directories of shared packages"
        raise SandboxError("place-refused", f"{message}, got {len(spec.shared)}")
    if spec.language == "python":
        return SKILL_PLACE, tuple((path, f"/packages/{n}") for n, path in enumerate(found))
    above = ["", "/skills", "/skills/skills"][: max(1, len(found))]
    packages = zip(found, (f"{level}/node_modules" for level in reversed(above)), strict=False)
    return above[-1] + SKILL_PLACE, tuple(packages)


class CellGuard(ProcessGuard):
    """A guard of what lives long: it looks less often while nothing happens."""

    active: int = 0
    """Calls that are running."""


class CgroupCellGuard(CgroupGuard, CellGuard):
    """The kernel counts; nothing is looked at."""


class RlimitCellGuard(RlimitGuard, CellGuard):
    """Looks often while calls run."""

    async def pause(self) -> None:
        await (super().pause() if self.active else anyio.sleep(IDLE_WATCH_SECONDS))


def node_program() -> str:
    """Return the path of Node.

    Raises:
        SandboxError: there is none.
    """
    node = shutil.which("node", path=bubblewrap.PROGRAM_PATH)
    if node is None:
        message = f"no program 'node' in {bubblewrap.PROGRAM_PATH}: install Node.js 20 or later"
        raise SandboxError("exec-not-found", message)
    return node
