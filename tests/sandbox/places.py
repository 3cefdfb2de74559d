"""What the tests of the sandbox share: a launcher of each level, and a workspace."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.sandbox import (
    Completed,
    Launcher,
    Limits,
    Python,
    SandboxLevel,
    SandboxProfile,
    SandboxStatus,
    default_python,
    detect,
    launcher_for,
)
from skillhouse.sandbox.interpreters import examine
from tests.harness import Need

LEVELS = (SandboxLevel.CGROUP, SandboxLevel.RLIMITS)
ALL_LEVELS = (*LEVELS, SandboxLevel.LANDLOCK)


def launcher_at(level: SandboxLevel, need: Need, state: Path) -> Launcher:
    """Return a launcher of exactly this level, or skip the test.

    The superuser is not offered rlimits; all but the number of processes holds for him too.
    """

    async def find() -> SandboxStatus:
        return await detect(most=level)

    status = anyio.run(find)
    if level is SandboxLevel.RLIMITS and os.geteuid() == 0:
        status = SandboxStatus(level=level)
    need(status.level is level, f"no sandbox {level}: {'; '.join(status.reasons)}")
    return launcher_for(status, state=state)


def has_namespaces(launcher: Launcher) -> bool:
    """Whether a run has mounts, processes and a network of its own."""
    return launcher.level is not SandboxLevel.LANDLOCK


def skip_unlimited(launcher: Launcher) -> None:
    """Skip a test of the number of processes where that has no limit, and `detect` says so."""
    if launcher.level is SandboxLevel.RLIMITS and os.geteuid() == 0:
        pytest.skip("rlimits do not hold for the superuser, and are not offered to him")


def run(launcher: Launcher, workspace: Path, *argv: str, **options: Any) -> Completed:
    """Run a program in the workspace; options are those of the profile, of `Limits` and `stdin`."""
    stdin = options.pop("stdin", b"")
    cwd = options.pop("cwd", workspace)
    names = Limits.__struct_fields__
    limits = {name: options.pop(name) for name in tuple(options) if name in names}
    limits = {"seconds": 20.0, "memory_bytes": 1 << 30, "processes": 128, **limits}
    profile = SandboxProfile(workspace, limits=Limits(**limits), **options)

    async def call() -> Completed:
        return await launcher.run(argv, profile, cwd=cwd, stdin=stdin)

    return anyio.run(call)


def sh(launcher: Launcher, workspace: Path, script: str, **options: Any) -> Completed:
    """Run a script of the shell in the workspace."""
    return run(launcher, workspace, "sh", "-c", script, **options)


def own(number: int) -> str:
    """Return a mark that no other process uses that runs this test at the same time.

    It is a number of seconds, for `sleep`; none is the beginning of another.
    """
    return f"{number}.{os.getpid():07}"


def running(mark: str) -> list[int]:
    """Return the processes of this machine that have `mark` in their command line."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path("/proc", name, "cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in line and int(name) != os.getpid():
            found.append(int(name))
    return found


def started(mark: str, *, seconds: float = 5.0) -> list[int]:
    """Return the processes with `mark`, of which one was begun just now.

    Whoever begins a program goes on a moment before the program's command line can be read.
    """
    until = time.monotonic() + seconds
    while not (found := running(mark)) and time.monotonic() < until:
        time.sleep(0.001)
    return found


def still_running(mark: str, *, seconds: float = 5.0) -> list[int]:
    """Return the processes with `mark` that are still there after a while.

    What was killed takes its time to go, on a busy machine more than the call that killed it.
    """
    until = time.monotonic() + seconds
    while (found := running(mark)) and time.monotonic() < until:
        time.sleep(0.02)
    return found


def children() -> set[str]:
    """Return the numbers of this process's children, also of those that nothing has reaped."""
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        # A thread may end while it is looked at.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.update((task / "children").read_text().split())
    return found


def listing(directory: Path) -> set[str]:
    """Return all paths below the directory, relative to it."""
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*")}


@pytest.fixture(params=LEVELS)
def launcher(request: pytest.FixtureRequest, tmp_path: Path, need: Any) -> Launcher:
    """A launcher of each level in turn."""
    return launcher_at(request.param, need, tmp_path / "state")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A project with a git directory, secrets and something to work on."""
    place = tmp_path / "workspace"
    (place / ".git" / "hooks").mkdir(parents=True)
    (place / ".git" / "config").write_text("[core]\n")
    (place / ".env").write_text("TOKEN=canary\n")
    (place / ".ssh").mkdir()
    (place / ".ssh" / "id_ed25519").write_text("canary\n")
    (place / "server.key").write_text("canary\n")
    (place / "notes.txt").write_text("notes\n")
    return place


def copied_python(prefix: Path, need: Need) -> Python:
    """Return a copy of an interpreter at `prefix`, as uv or pyenv would install one.

    The system's if there is one: it finds its library by its own path, wherever it is.
    """
    source = examine(Path("/usr/bin/python3"), "system")
    python = source if isinstance(source, Python) else default_python()
    name = "python{}.{}".format(*python.version)
    skipped = shutil.ignore_patterns("site-packages", "dist-packages", "test", "tests", "config-*")
    shutil.copytree(python.prefix / "lib" / name, prefix / "lib" / name, ignore=skipped)
    (prefix / "bin").mkdir(exist_ok=True)
    shutil.copy2(python.program, prefix / "bin" / name)
    (prefix / "bin/python3").symlink_to(name)
    made = examine(prefix / "bin/python3", "uv")
    need(isinstance(made, Python), f"no interpreter that can be copied: {made}")
    assert isinstance(made, Python)
    return made
