"""Runs a command at one of the levels of decision 10."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

import anyio

from skillhouse.floor import PROTECTED_NAMES
from skillhouse.floor.threads import in_thread
from skillhouse.sandbox import bubblewrap
from skillhouse.sandbox.guard import CgroupGuard, CgroupPlace, ProcessGuard, RlimitGuard
from skillhouse.sandbox.inner_scripts import bridged_argv, with_bridge
from skillhouse.sandbox.interpreters import PROGRAM_PATH
from skillhouse.sandbox.mountpoints import Stash
from skillhouse.sandbox.persistence import Census
from skillhouse.sandbox.process import Command, Run
from skillhouse.sandbox.profile import Completed, SandboxError, SandboxProfile, names_like
from skillhouse.sandbox.protected_mounts import MountCover, shield
from skillhouse.sandbox.seccomp import program as filter_program
from skillhouse.sandbox.status import SandboxLevel, SandboxStatus, capabilities_of


class Launcher(Protocol):
    level: SandboxLevel

    async def run(
        self, argv: Sequence[str], profile: SandboxProfile, *, cwd: Path, stdin: bytes = b""
    ) -> Completed:
        """Run a program to its end, or to a limit; all of its processes are gone afterwards.

        Args:
            argv: The program's plain name, found in the sandbox's own PATH, and its arguments.
            cwd: The workspace, a directory in it or in a readable one.

        Raises:
            SandboxError: the run is refused or could not be started; `code` is the reason.
        """
        ...


class BubblewrapLauncher:
    def __init__(
        self,
        program: Path,
        seccomp: bytes,
        *,
        place: CgroupPlace | None,
        stash: Stash,
        bridge_seccomp: bytes,
    ) -> None:
        """Make a launcher.

        Args:
            program: bubblewrap.
            place: Where control groups can be made; None for rlimits.
            bridge_seccomp: The filter for the bridge to a proxy, which may make Unix sockets.
        """
        self.level = SandboxLevel.CGROUP if place else SandboxLevel.RLIMITS
        self._program = program
        self._seccomp = seccomp
        self._bridge_seccomp = bridge_seccomp
        self._place = place
        self._stash = stash

    async def run(
        self, argv: Sequence[str], profile: SandboxProfile, *, cwd: Path, stdin: bytes = b""
    ) -> Completed:
        asked_at = time.monotonic()
        _check_argv(argv)
        profile, cwd = _resolved(profile, cwd)
        bubblewrap.check_places(profile, cwd)
        profile = with_bridge(profile)
        census = await _census(profile)
        protected = [
            path
            for path in profile.protected
            if path in profile.hidden or not profile.opened.frees(path)
        ]
        guard = self._guard(profile)
        async with AsyncExitStack() as shielded:
            covers: dict[str, MountCover] = {}

            async def prepare() -> None:
                mounts = shield(
                    str(profile.workspace),
                    protected,
                    stash=self._stash,
                    hidden=profile.hidden,
                    census=census,
                    below=profile.below,
                )
                covers.update((await shielded.enter_async_context(mounts)).covers)

            try:
                run = Run(self._command(argv, profile, covers, cwd), guard, profile.limits)
                done = await run.complete(stdin, prepare=prepare)
            finally:
                with anyio.CancelScope(shield=True):
                    await guard.remove()
        started = None if run.began_at is None else run.began_at - asked_at
        done = dataclasses.replace(done, start_seconds=started)
        if census is None:
            return done
        return dataclasses.replace(done, changes=tuple(census.changes), notes=tuple(census.notes))

    def _guard(self, profile: SandboxProfile) -> ProcessGuard:
        if self._place is None:
            return RlimitGuard(profile.limits)
        return CgroupGuard(self._place, profile.limits)

    def _command(
        self,
        argv: Sequence[str],
        profile: SandboxProfile,
        covers: Mapping[str, MountCover],
        cwd: Path,
    ) -> Command:
        texts = bubblewrap.etc_files(profile)

        def options(descriptors: Mapping[str, int]) -> Iterable[str]:
            files = {path: descriptors[path] for path in (*texts, *profile.sealed)}
            return bubblewrap.options(profile, covers, cwd=cwd, files=files)

        return Command(
            program=self._program,
            argv=bridged_argv(argv, self._seccomp) if profile.proxy_socket else argv,
            files={"seccomp": self._bridge_seccomp if profile.proxy_socket else self._seccomp}
            | {path: text.encode() for path, text in texts.items()}
            | dict(profile.sealed),
            options=options,
        )


async def _census(profile: SandboxProfile) -> Census | None:
    if profile.paths is None:
        return None
    always = {*PROTECTED_NAMES} & {*profile.protected}
    shielded = names_like(tuple(sorted(name for name in always if "/" not in name)))
    census = Census(
        str(profile.workspace),
        profile.paths,
        profile.opened,
        profile.below.directories if profile.below else {},
        is_shielded=lambda name: shielded.fullmatch(name.casefold()) is not None,
    )
    await in_thread(census.take)
    return census


def _check_argv(argv: Sequence[str]) -> None:
    if not argv or not argv[0]:
        raise SandboxError("exec-empty", "expected a program and its arguments, got nothing")
    if any("\0" in part for part in argv):
        raise SandboxError("exec-nul", "expected arguments without NUL")
    program = argv[0]
    if "/" in program or program in (".", ".."):
        message = f"expected a program's plain name, got a path: {program!r}"
        raise SandboxError("exec-path", message)
    if shutil.which(program, path=PROGRAM_PATH) is None:
        message = f"no program {program!r} in {PROGRAM_PATH}"
        raise SandboxError("exec-not-found", message)


def _resolved(profile: SandboxProfile, cwd: Path) -> tuple[SandboxProfile, Path]:
    try:
        resolved = dataclasses.replace(
            profile,
            workspace=profile.workspace.resolve(strict=True),
            readable=tuple(path.resolve(strict=True) for path in profile.readable),
        )
        directory = cwd.resolve(strict=True)
    except OSError as error:
        place = os.fsdecode(error.filename or "")
        raise SandboxError("place-missing", f"expected a directory: {place}") from error
    for name, value in profile.environment.items():
        if not name or "=" in name or "\0" in name + value:
            raise SandboxError("environment-refused", f"expected a variable's name: {name!r}")
    return resolved, directory


def launcher_for(status: SandboxStatus, *, state: Path | None = None) -> Launcher:
    """Return a launcher of the level that `detect` or `self_test` found.

    Args:
        state: Directory for reusable empty directories. On the file system of the workspaces it
            saves each run 2 ms.

    Raises:
        SandboxUnavailableError: no level works.
    """
    around, program, place = capabilities_of(status)
    return BubblewrapLauncher(
        program,
        filter_program(around.machine),
        place=place,
        stash=Stash(state),
        bridge_seccomp=filter_program(around.machine, unix_sockets=True),
    )


_PROC = Path("/proc")
_COMM = "bwrap"


def kill_sandboxes(pid: int, shown_in: Path) -> int:
    """Kill each bubblewrap that another process started, with all inside; return their number.

    Nothing is killed unless the process has a file `PID-…` of that directory open: in another
    container the number may belong to an unrelated process.
    """
    if not _holds(pid, os.fspath(shown_in / f"{pid}-")):
        return 0
    killed = 0
    for place in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(int(place.name))
            try:
                # Looked at while the handle is held, so the number is not another process's by now.
                if _parent_and_name(place) == (pid, _COMM):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    killed += 1
            finally:
                os.close(handle)
    return killed


def _holds(pid: int, start: str) -> bool:
    for link in (_PROC / str(pid) / "fd").glob("*"):
        with contextlib.suppress(OSError):
            if os.readlink(link).startswith(start):
                return True
    return False


def _parent_and_name(place: Path) -> tuple[int, str]:
    head, _, rest = (place / "stat").read_text(errors="replace").rpartition(")")
    return int(rest.split()[1]), head.partition("(")[2]
