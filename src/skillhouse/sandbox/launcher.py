"""Runs a command at the level that works here: in bubblewrap, or behind Landlock."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

import anyio

from skillhouse.floor import structs
from skillhouse.sandbox import run_options
from skillhouse.sandbox.git_mounts import GitMounts, shield_git
from skillhouse.sandbox.guard import CgroupGuard, CgroupPlace, ProcessGuard, RlimitGuard
from skillhouse.sandbox.interpreters import bridged_argv, with_bridge
from skillhouse.sandbox.landlock import LandlockLauncher
from skillhouse.sandbox.landlock_rules import NAME
from skillhouse.sandbox.masks import Masks
from skillhouse.sandbox.mountpoints import KeptPlaceholders, placeholder_note
from skillhouse.sandbox.persistence import PersistentFileScan
from skillhouse.sandbox.process import Command, Run
from skillhouse.sandbox.profile import Completed, OutputListener, SandboxProfile, Streams
from skillhouse.sandbox.protected_mounts import MountCover
from skillhouse.sandbox.run_options import (
    mounts_of,
    persistent_scan,
    with_scan,
)
from skillhouse.sandbox.seccomp import program as filter_program
from skillhouse.sandbox.status import (
    SandboxLevel,
    SandboxStatus,
    capabilities_of,
    control_groups,
    surroundings,
)


class Launcher(Protocol):
    """Runs commands at one level; `launcher_for` makes one."""

    level: SandboxLevel

    async def run(
        self,
        argv: Sequence[str],
        profile: SandboxProfile,
        *,
        cwd: Path,
        stdin: bytes = b"",
        on_output: OutputListener | None = None,
        streams: Streams | None = None,
    ) -> Completed:
        """Run a program to its end, or to a limit; all of its processes are gone afterwards.

        Args:
            argv: The program's plain name, found in the sandbox's own PATH, and its arguments.
            cwd: The workspace, a directory in it or in a readable one.
            on_output: Hears the output while the program runs.
            streams: What it reads and writes instead, so that its result has no output.

        Raises:
            SandboxError: the run is refused or could not be started; `code` is the reason.
        """
        ...


class BubblewrapLauncher:
    """Runs each command in a bubblewrap of its own, with a seccomp filter and limits."""

    def __init__(
        self,
        program: Path,
        seccomp: bytes,
        *,
        place: CgroupPlace | None,
        stash: KeptPlaceholders,
        masks: Masks,
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
        self._masks = masks

    async def run(
        self,
        argv: Sequence[str],
        profile: SandboxProfile,
        *,
        cwd: Path,
        stdin: bytes = b"",
        on_output: OutputListener | None = None,
        streams: Streams | None = None,
    ) -> Completed:
        asked_at = time.monotonic()
        profile, cwd = run_options.checked(argv, profile, cwd)
        profile = with_bridge(profile)
        scan: PersistentFileScan | None = None
        guard = self._guard(profile)
        async with AsyncExitStack() as shielded:
            covers: dict[str, MountCover] = {}
            around: dict[str, MountCover] = {}
            git = GitMounts()
            masks: dict[str, str] = {}
            placeholders: list[str] = []

            async def prepare() -> None:
                nonlocal scan, git
                scan = await persistent_scan(profile)
                mounts = mounts_of(profile, scan, self._stash)
                found = await shielded.enter_async_context(mounts)
                git = await shielded.enter_async_context(
                    shield_git(profile.git, stash=self._stash, read_only=profile.read_only)
                )
                covers.update(found.covers | git.inside)
                around.update(git.outside)
                for file in git.opened:
                    covers.pop(file.path, None)
                    around.pop(file.path, None)
                # Around a part of a work tree, `.git` is what git finds above it.
                own = f"{profile.workspace}/.git" if profile.git and profile.git.top else ""
                placeholders.extend(path for path in found.placeholders if path != own)
                masks.update(
                    await self._masks.over(
                        _those(covers | around, MountCover.CLOSED_FILE),
                        _those(covers | around, MountCover.CLOSED_DIRECTORY),
                        may_refresh=not profile.read_only,
                    )
                )

            try:
                command = self._command(argv, profile, (around, covers), masks, cwd)
                run = Run(command, guard, profile.limits, on_output=on_output, streams=streams)
                done = await run.complete(stdin, prepare=prepare)
            finally:
                with anyio.CancelScope(shield=True):
                    await guard.remove()
        started = None if run.began_at is None else run.began_at - asked_at
        done = with_scan(structs.replace(done, start_seconds=started), scan, git.notes)
        output = done.stdout + b"\n" + done.stderr
        note = placeholder_note(
            output,
            str(profile.workspace),
            placeholders,
            directories=profile.below.directories.values() if profile.below else (),
        )
        return structs.replace(done, notes=(*done.notes, note)) if note else done

    def _guard(self, profile: SandboxProfile) -> ProcessGuard:
        if self._place is None:
            return RlimitGuard(profile.limits)
        return CgroupGuard(self._place, profile.limits)

    def _command(
        self,
        argv: Sequence[str],
        profile: SandboxProfile,
        mounts: tuple[Mapping[str, MountCover], Mapping[str, MountCover]],
        masks: Mapping[str, str],
        cwd: Path,
    ) -> Command:
        texts = run_options.etc_files(profile)
        around, covers = mounts
        runners: dict[str, str] = {}
        argv = _started_by_path(argv, profile, runners)
        if profile.proxy_socket:
            argv = _started_by_path(bridged_argv(argv, self._seccomp), profile, runners)

        def options(descriptors: Mapping[str, int]) -> Iterable[str]:
            files = {path: descriptors[path] for path in (*texts, *profile.sealed)}
            used = run_options.RunMasks(masks, lambda: self._masks.plain, lambda: self._masks.empty)
            return run_options.options(
                profile,
                covers,
                around=around,
                cwd=cwd,
                files=files,
                masks=used,
                runners=runners,
            )

        return Command(
            program=self._program,
            argv=argv,
            files={"seccomp": self._bridge_seccomp if profile.proxy_socket else self._seccomp}
            | {path: text.encode("utf-8", "surrogateescape") for path, text in texts.items()}
            | dict(profile.sealed),
            options=options,
        )


def _those(covers: Mapping[str, MountCover], kind: MountCover) -> list[str]:
    return [path for path, cover in covers.items() if cover is kind]


def _started_by_path(
    argv: Sequence[str], profile: SandboxProfile, runners: dict[str, str]
) -> Sequence[str]:
    """Return a command with the Python of ours that runs it (`check_argv`) at a place of its own,
    which is noted, where what it starts must not find it."""
    real = os.path.realpath(argv[0]) if argv[0][:1] == "/" else ""
    if real not in profile.denied:
        return argv
    return (runners.setdefault(real, f"{run_options.RUNNER_PLACE}-{len(runners)}"), *argv[1:])


def launcher_for(status: SandboxStatus, *, state: Path | None = None) -> Launcher:
    """Return a launcher of the level that `detect` or `self_test` found.

    Args:
        state: Directory for reusable empty directories. On the file system of the workspaces it
            saves each run 2 ms.

    Raises:
        SandboxUnavailableError: no level works.
    """
    if status.level is SandboxLevel.LANDLOCK:
        return LandlockLauncher(surroundings().machine, place=control_groups(status))
    around, program, place = capabilities_of(status)
    return BubblewrapLauncher(
        program,
        filter_program(around.machine),
        place=place,
        stash=KeptPlaceholders(state),
        masks=Masks(state),
        bridge_seccomp=filter_program(around.machine, unix_sockets=True),
    )


_PROC = Path("/proc")
_COMMS = ("bwrap", NAME.decode())
"""Names of the processes that hold a run: bubblewrap, or our own supervisor."""


def kill_sandboxes(pid: int, shown_in: Path) -> int:
    """Kill each sandbox that another process started, with all inside; return their number.

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
                parent, name = _parent_and_name(place)
                if parent == pid and name in _COMMS:
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
