"""What cells are built from on this machine: programs, limits, filters and copies of code."""

from __future__ import annotations

import ctypes
import functools
import marshal
import os
import resource
import shutil
import tempfile
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType

from msgspec import Struct

from skillhouse.floor import TreeError, make_private, structs, tree_digest, unread_paths
from skillhouse.floor.crash_cleanup import COPY_NAME, is_left, owner_name
from skillhouse.sandbox import (
    Limits,
    Python,
    SandboxError,
    SandboxLevel,
    SandboxStatus,
    watch_for_crashes,
)
from skillhouse.sandbox.bubblewrap import SKILL_PLACE
from skillhouse.sandbox.code_call import SHARED_MAX, CellSpec
from skillhouse.sandbox.guard import OPEN_FILES, CgroupGuard, CgroupPlace, ProcessGuard, RlimitGuard
from skillhouse.sandbox.interpreters import interpreter, own_python, proxy_variables
from skillhouse.sandbox.profile import MIB, PROGRAM_PATH
from skillhouse.sandbox.seccomp import alone_program
from skillhouse.sandbox.seccomp import program as filter_program
from skillhouse.sandbox.status import capabilities_of, surroundings

PYTHON_CELL = Path(__file__).with_name("cell_python.py")
NODE_CELL = Path(__file__).with_name("cell_node.cjs")
NODE_OWN_TMP = Path(__file__).with_name("own_tmp.cjs")
"""What gives a call its own /tmp where nothing can be mounted."""
NODE_PARTS = tuple(map(Path(__file__).with_name, ("cell_code_cache.cjs", "cell_output.cjs")))
"""What cell_node.cjs loads from its own directory."""
NODE_LISTEN = Path(__file__).with_name("listen_inside.py")
"""What binds the way out of a Node process, and becomes it."""
LISTEN_PLACE = "/listen"
NODE_FLAGS = ("--disable-proto=delete", "--no-addons", "--no-warnings")
"""Not --max-old-space-size: with it Node cannot use its own code cache, which takes 5 ms."""
SCRIPT_PLACE = "/cell"
PYTHON_PARTS = ("cell_context.py", "cell_coroutines.py", "cell_imports.py", "cell_output.py")
"""What cell_python.py loads from its own directory."""
READABLE = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/ssl/openssl.cnf"),
    *("/dev/zero", "/dev/urandom", "/dev/random"),
)
"""What code can read without namespaces. Nothing of it is secret; Node exits if it cannot read
OpenSSL's configuration."""
IDLE_WATCH_SECONDS = 0.5
"""Interval of checks of an idle cell without control group."""
CONTAINED_BYTES = 320 * MIB
"""Memory of a cell in a container, whose 512 MiB include the executor (S002-90)."""
CONTAINED_FILE_BYTES = 32 * MIB
"""Of all files of such a cell; its /tmp is memory too."""
OWN_OPEN_FILES = 8 * OPEN_FILES
"""Open files of the process that runs cells, as far as the hard limit allows."""
WAITING_BYTES = 256 * MIB
"""Memory of the processes of a cell that have loaded its code and wait for calls, beside what its
calls have (decision 0530). A Node process without packages has 45 MB."""
DATA_SHARE = 0.875
"""Part of a cell's memory that one process of a call may take, so that it fails itself before the
kernel picks a process of the cell to kill."""
_PR_SET_DUMPABLE = 4
CPU_WEIGHT = 50
"""A cell's share of contended processors, all its processes together; the core's is 100 or more."""


class CellEnvironment(Struct, frozen=True, kw_only=True):
    """What all cells of this process are made with."""

    program: Path
    """bubblewrap; without it, the interpreter that runs confine.py."""
    place: CgroupPlace | None
    limits: Limits
    call_filter: bytes
    """For the code of skills."""
    cell_filter: bytes
    """For the process that makes each call's namespaces."""
    is_contained: bool = False
    """True: there are no namespaces, as in a container or at the level `LANDLOCK`."""

    def with_waiting(self) -> CellEnvironment:
        """Return it for a cell of which processes that wait for calls have memory beside those.

        In a container they have none: its memory, which is not ours to give, is that of all cells.
        """
        if self.is_contained:
            return self
        memory_bytes = max(self.limits.memory_bytes, self.call_bytes + WAITING_BYTES)
        return structs.replace(self, limits=structs.replace(self.limits, memory_bytes=memory_bytes))

    @property
    def call_bytes(self) -> int:
        """Memory that one process of a call may take."""
        return int(self.limits.memory_bytes * DATA_SHARE)

    def guard(self, pause_seconds: Callable[[], float]) -> ProcessGuard:
        if self.place is None:
            return RlimitGuard(self.limits, pause_seconds=pause_seconds)
        return CgroupGuard(self.place, self.limits, cpu_weight=CPU_WEIGHT)


def scripts(python: Python | None) -> dict[str, bytes]:
    """Return our files in a cell that forks for each call with `python`, or in a Node cell."""
    if python is None:
        parts = {f"/{one.name}": one.read_bytes() for one in NODE_PARTS}
        return {SCRIPT_PLACE: NODE_CELL.read_bytes(), **parts}
    files = {SCRIPT_PLACE: PYTHON_CELL}
    files |= {f"/{name}": PYTHON_CELL.with_name(name) for name in PYTHON_PARTS}
    if python.program == own_python()[1]:
        return {path: _compiled(file, path) for path, file in files.items()}
    return {path: file.read_bytes() for path, file in files.items()}


@functools.cache
def _compiled(file: Path, path: str) -> bytes:
    """Return our file as compiled code for the interpreter that runs us, which compiled it before.

    To compile them takes a cell 10 ms. The code names the path in the cell, not the one here.
    """
    code = SourceFileLoader(file.stem, str(file)).get_code(file.stem)
    if code is None:
        raise RuntimeError(f"expected code in {file}")
    # The flags, then the time and the size of a source that is not looked at (PEP 552).
    return MAGIC_NUMBER + bytes(12) + marshal.dumps(_moved(code, path))


def _moved(code: CodeType, path: str) -> CodeType:
    constants = [_moved(one, path) if isinstance(one, CodeType) else one for one in code.co_consts]
    return code.replace(co_filename=path, co_consts=tuple(constants))


def cell_environment_for(status: SandboxStatus, limits: Limits) -> CellEnvironment:
    """Return what cells are built from at the level that `detect` or `self_test` found.

    Raises:
        SandboxUnavailableError: no level works.
    """
    make_room_for_descriptors()
    if status.level is SandboxLevel.CONTAINER:
        return _contained(limits)
    if status.level is SandboxLevel.LANDLOCK:
        return _behind_landlock(limits)
    around, program, place = capabilities_of(status)
    return CellEnvironment(
        program=program,
        place=place,
        limits=structs.replace(limits, seconds=float("inf")),
        call_filter=filter_program(around.machine, shared_objects=False, is_cell=True),
        cell_filter=filter_program(around.machine, namespaces=True, is_cell=True),
    )


def _contained(limits: Limits) -> CellEnvironment:
    protect_self()
    machine = surroundings().machine
    return CellEnvironment(
        program=Path(interpreter()[0]),
        place=None,
        limits=structs.replace(
            limits,
            seconds=float("inf"),
            memory_bytes=min(limits.memory_bytes, CONTAINED_BYTES),
            file_bytes=min(limits.file_bytes, CONTAINED_FILE_BYTES),
        ),
        call_filter=filter_program(machine, shared_objects=False, is_cell=True),
        cell_filter=alone_program(machine),
        is_contained=True,
    )


def _behind_landlock(limits: Limits) -> CellEnvironment:
    """Return what a container's cells are built from, with the limits of others.

    This process stays dumpable: Landlock itself keeps a call from tracing what is outside of it.
    """
    machine = surroundings().machine
    return CellEnvironment(
        program=Path(interpreter()[0]),
        place=None,
        limits=structs.replace(limits, seconds=float("inf")),
        call_filter=filter_program(machine, shared_objects=False, is_cell=True),
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
    """Keep processes of the same user from reading our memory, variables and descriptors."""
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


def way_variables(credentials: str) -> dict[str, str]:
    """Return the variables of a call with a way out, `{port}` in place of the port.

    Args:
        credentials: `user:password` of a call whose siblings share its network; "" for none.
    """
    user = f"{credentials}@" if credentials else ""
    # Node's own `fetch` reads the others only with this one (22.21, 24.0).
    return {**proxy_variables(f"http://{user}127.0.0.1:{{port}}"), "NODE_USE_ENV_PROXY": "1"}


CODE_CACHE = ".skillhouse-code-cache"
"""The file among installed packages with V8's cache of their code (code_cache.py)."""


def code_cache_of(spec: CellSpec, packages: str) -> str:
    """Return the path of the code cache inside of a cell; "" where there is none.

    Args:
        packages: The path of the skill's own dependencies inside.
    """
    own = spec.dependencies
    return f"{packages}/{CODE_CACHE}" if own and (own / CODE_CACHE).is_file() else ""


def node_program() -> str:
    node = shutil.which("node", path=PROGRAM_PATH)
    if node is None:
        message = f"no program 'node' in {PROGRAM_PATH}: install Node.js 20 or later"
        raise SandboxError("exec-not-found", message)
    return node


LEFT_OUT = frozenset({"skill.sig", ".skill"})
"""Names at the top of a skill that are not in its digest (`floor.tree_digest`). What has such a
name and is in the digest, a directory `skill.sig`, is missed there, and the copy is refused."""


class CodeSnapshots:
    """Private copies of skills' trees: the code that was evaluated is the code that runs."""

    def __init__(self, state: Path) -> None:
        """Use `state`/cells, and remove the copies of processes that no longer exist."""
        self._base = state / "cells"
        make_private(self._base)
        for path in self._base.iterdir():
            if is_left(path.name, COPY_NAME):
                shutil.rmtree(path, ignore_errors=True)
        watch_for_crashes().note(f"copies:{self._base}")

    def reserve(self) -> Path:
        """Return an empty directory for a copy."""
        place = tempfile.mkdtemp(prefix=f"{COPY_NAME}{owner_name()}-", dir=self._base)
        tree = Path(place).resolve() / "skill"
        tree.mkdir()
        return tree

    def take(self, spec: CellSpec, reserved: Path | None = None) -> Path:
        """Return a copy of the skill's tree, if it has the expected digest.

        Args:
            reserved: An empty directory for it, which a cell may show already.
        """
        tree = reserved or self.reserve()
        try:
            # Links stay links, and the digest refuses them.
            ignore = _unbound(spec.directory)
            shutil.copytree(spec.directory, tree, symlinks=True, ignore=ignore, dirs_exist_ok=True)
            digest = tree_digest(tree)
        except (OSError, shutil.Error, TreeError) as error:
            self.drop(tree)
            message = f"cannot copy the skill `{spec.skill}`: {str(error)[:200]}"
            raise SandboxError("skill-unreadable", message) from error
        if digest != spec.digest:
            self.drop(tree)
            message = f"the skill `{spec.skill}` is not as it was: expected {spec.digest}"
            raise SandboxError("skill-changed", f"{message}, got {digest}")
        # INVARIANT: no bytecode is left in a copy. Python would take it for the source beside it,
        # which no one has read; what programs left is in no digest at all.
        for path, is_directory in tuple(unread_paths(str(tree))):
            shutil.rmtree(path) if is_directory else os.unlink(path)
        return tree

    def drop(self, tree: Path) -> None:
        shutil.rmtree(tree.parent, ignore_errors=True)


def _unbound(directory: Path) -> Callable[[str, list[str]], set[str]]:
    """Return a filter of names outside the digest: code could load unchecked bytes from them."""

    def ignore(place: str, names: list[str]) -> set[str]:
        return {*names} & LEFT_OUT if Path(place) == directory else set()

    return ignore
