"""Which sandbox this machine offers, and how to get a better one."""

from __future__ import annotations

import enum
import functools
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
from msgspec import Struct

from skillhouse.floor import structs
from skillhouse.sandbox import landlock_inside, landlock_rules
from skillhouse.sandbox.crash_watch import watch_for_crashes
from skillhouse.sandbox.guard import CgroupPlace, find_place, sweep
from skillhouse.sandbox.interpreters import interpreter
from skillhouse.sandbox.profile import SandboxUnavailableError
from skillhouse.sandbox.seccomp import ARCHITECTURES

OLDEST = (0, 8, 0)
"""First bubblewrap with --disable-userns (its NEWS)."""
PROGRAM = "bwrap"
CELL_STARTS = "_cell_starts"
"""End of the name, after the language, of the probes whose failure shows no hole: without a cell
no code of its language is run."""

INSTALL_HINT = (
    "install bubblewrap 0.8 or later: apt-get install bubblewrap, dnf install bubblewrap or "
    "apk add bubblewrap"
)
LINUX_HINT = "run skillhouse on Linux: this system has no sandbox that it knows"
MACHINE_HINT = "run skillhouse on x86_64 or aarch64: its system call filter knows no other machine"
CGROUP_HINT = (
    "for exact limits of memory and processes give skillhouse a control group of its own: "
    "systemd-run --user --scope -p Delegate=yes skillhouse, or run it as root"
)
SUPERUSER_HINT = (
    "run skillhouse as a user of its own, whose processes the kernel counts, or where control "
    "groups with memory and pids can be made"
)
NAMESPACE_HINT = (
    "this kernel forbids user namespaces: set the sysctl user.max_user_namespaces to 10000 and, "
    "where it exists, kernel.unprivileged_userns_clone to 1 or "
    "kernel.apparmor_restrict_unprivileged_userns to 0; in a container, allow "
    "them in its security profile"
)

UNLIMITED = "without one, nothing limits the number of the superuser's processes"
LANDLOCK_ABI = 6
"""The first that keeps signals and abstract sockets in the domain (Linux 6.12)."""

SWITCHES = {
    # A sysctl, and the value by which it forbids user namespaces to users.
    "user/max_user_namespaces": "0",
    "kernel/unprivileged_userns_clone": "0",
    "kernel/apparmor_restrict_unprivileged_userns": "1",
}


class SandboxLevel(enum.StrEnum):
    """What confines the code that is run, strongest first (decision 10)."""

    CGROUP = "bubblewrap+seccomp+cgroup"
    RLIMITS = "bubblewrap+seccomp+rlimits"
    LANDLOCK = "landlock+seccomp+rlimits"
    """Without bubblewrap (docs/decisions/0235-landlock-level.md); the operator may refuse it."""
    CONTAINER = "container+landlock+seccomp"
    """For skills' tools only, and only where an operator declares a container of its own; it is
    never detected (docs/decisions/0126-container-level.md)."""
    NONE = "none"


BUBBLEWRAP = frozenset({SandboxLevel.CGROUP, SandboxLevel.RLIMITS})


class ProbeResult(Struct, frozen=True, kw_only=True):
    """The result of one probe of the self-test."""

    name: str
    passed: bool
    detail: str = ""
    """What was seen, if the probe failed."""


class SandboxStatus(Struct, frozen=True, kw_only=True):
    """The level that was found, and why it is no better one."""

    level: SandboxLevel
    reasons: tuple[str, ...] = ()
    """Why it is not a better one."""
    probes: tuple[ProbeResult, ...] = ()
    """Results of `self_test` at this level; empty after `detect`."""
    hint: str = ""
    """How to get a better one."""


_CELLS_LACK = ("existence_hidden", "programs_startable")
LACKING: Mapping[SandboxLevel, frozenset[str]] = {
    SandboxLevel.LANDLOCK: frozenset(
        {
            "existence_hidden",
            "workspace_top_writable",
            "modes_settable",
            "tmp_writable",
            "loopback_usable",
            *(f"{language}_cell_{n}" for language in ("python", "javascript") for n in _CELLS_LACK),
        }
    ),
    SandboxLevel.CONTAINER: frozenset(_CELLS_LACK),
}
"""Probes that a level is known not to pass (docs/concepts/security.md has them in a table)."""


def holds(probe: ProbeResult, level: SandboxLevel) -> bool:
    """Whether a probe passed, or is one that this level is known not to pass."""
    return probe.passed or probe.name in LACKING.get(level, ())


def untested(status: SandboxStatus) -> Mapping[str, str]:
    """Return the reason for each language whose cell did not start in the self-test."""
    return {
        probe.name.removesuffix(CELL_STARTS): probe.detail
        for probe in status.probes
        if probe.name.endswith(CELL_STARTS) and not probe.passed
    }


class Surroundings(Struct, frozen=True, kw_only=True):
    """What the choice of a level depends on; tests give their own."""

    system: str
    machine: str
    search_path: str
    """Directories with programs, separated by `os.pathsep`."""
    process: Path
    sysctl: Path
    superuser: bool


def surroundings() -> Surroundings:
    return Surroundings(
        system=sys.platform,
        machine=platform.machine(),
        # Not the caller's PATH: the program found there enforces the boundary.
        search_path="/usr/bin:/usr/local/bin:/bin:/run/current-system/sw/bin",
        process=Path("/proc/self"),
        sysctl=Path("/proc/sys"),
        superuser=os.geteuid() == 0,
    )


async def detect(
    *,
    most: SandboxLevel = SandboxLevel.CGROUP,
    least: SandboxLevel = SandboxLevel.LANDLOCK,
    around: Surroundings | None = None,
    is_version_known: bool = False,
) -> SandboxStatus:
    """Return the level that should work, without testing it.

    Args:
        most: The best level that the operator wants; only an operator's setting lowers it.
        least: The weakest level that the operator accepts: LANDLOCK or RLIMITS.
        is_version_known: True: this very bubblewrap has passed the self-test, so its version is
            not asked for, which takes a process.
    """
    around = around or surroundings()
    if most is SandboxLevel.NONE:
        return _none("the operator switched it off", "set the sandbox level in the configuration")
    if (unsupported := unsupported_machine(around)) is not None:
        return unsupported
    if most is SandboxLevel.LANDLOCK:
        return await detect_landlock(_none("the operator wants no bubblewrap", ""), around)
    found = await _detect_bubblewrap(most, around, is_version_known=is_version_known)
    if found.level is SandboxLevel.NONE and least is SandboxLevel.LANDLOCK:
        return await detect_landlock(found, around)
    return found


async def _detect_bubblewrap(
    most: SandboxLevel, around: Surroundings, *, is_version_known: bool
) -> SandboxStatus:
    program = find_program(around)
    if program is None:
        return _none("bubblewrap is not installed", INSTALL_HINT)
    version = OLDEST if is_version_known else await _version(program)
    if version < OLDEST:
        got = ".".join(map(str, version)) or "no version"
        return _none(f"expected bubblewrap 0.8 or later, got {got}", INSTALL_HINT)
    if not around.superuser and (switch := _forbidden(around.sysctl)):
        return _none(f"{switch} forbids user namespaces", NAMESPACE_HINT)
    if most is SandboxLevel.CGROUP and find_place(around.process) is not None:
        return SandboxStatus(level=SandboxLevel.CGROUP)
    reasons: tuple[str, ...] = ("the operator wants no control groups",)
    if most is SandboxLevel.CGROUP:
        reasons = ("no control group with memory and pids can be made here",)
    if around.superuser:
        # Linux, copy_process: RLIMIT_NPROC does not hold for the superuser's id, in any namespace.
        return SandboxStatus(
            level=SandboxLevel.NONE, reasons=(*reasons, UNLIMITED), hint=SUPERUSER_HINT
        )
    return SandboxStatus(level=SandboxLevel.RLIMITS, reasons=reasons, hint=CGROUP_HINT)


async def detect_landlock(
    without: SandboxStatus, around: Surroundings | None = None
) -> SandboxStatus:
    """Return the level `LANDLOCK` if this kernel has what it needs, else `without` with the reason.

    Args:
        without: What was found of bubblewrap.
    """
    around = around or surroundings()
    reasons = without.reasons
    if around.superuser and find_place(around.process) is None:
        return structs.replace(without, reasons=tuple(dict.fromkeys((*reasons, UNLIMITED))))
    version = landlock_abi()
    if version < LANDLOCK_ABI:
        reasons += (f"expected Landlock {LANDLOCK_ABI} (Linux 6.12) or later, got {version}",)
        return structs.replace(without, reasons=reasons)
    return SandboxStatus(level=SandboxLevel.LANDLOCK, reasons=reasons, hint=without.hint)


@functools.cache
def landlock_abi() -> int:
    """Return the version of Landlock that this process may use, 0 for none."""
    if not _is_filtered():
        return landlock_rules.abi()
    # A system call filter may kill the process that asks, so it is another one.
    argv = (interpreter()[0], "-I", "-S", landlock_inside.__file__, "--abi")
    try:
        done = subprocess.run(argv, capture_output=True, text=True, env={}, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return 0
    return int(done.stdout) if done.stdout.strip().isdigit() else 0


def _is_filtered() -> bool:
    try:
        lines = Path("/proc/self/status").read_text("utf-8", "replace").splitlines()
    except OSError:
        return True
    return "Seccomp:\t0" not in lines


def unsupported_machine(around: Surroundings) -> SandboxStatus | None:
    if around.system != "linux":
        return _none(f"expected Linux, got {around.system}", LINUX_HINT)
    if around.machine not in ARCHITECTURES:
        return _none(f"no system call filter for {around.machine}", MACHINE_HINT)
    return None


def find_program(around: Surroundings) -> Path | None:
    path = shutil.which(PROGRAM, path=around.search_path)
    return Path(path) if path else None


def has_bubblewrap() -> bool:
    return find_program(surroundings()) is not None


def _none(reason: str, hint: str) -> SandboxStatus:
    return SandboxStatus(level=SandboxLevel.NONE, reasons=(reason,), hint=hint)


async def _version(program: Path) -> tuple[int, ...]:
    try:
        done = await anyio.run_process(
            (str(program), "--version"), check=False, stdin=subprocess.DEVNULL, env={}
        )
    except OSError:
        return ()
    match = re.search(rb"(\d+)\.(\d+)\.(\d+)", done.stdout)
    return tuple(map(int, match.groups())) if match else ()


def _forbidden(sysctl: Path) -> str:
    for name, value in SWITCHES.items():
        try:
            if (sysctl / name).read_text().strip() == value:
                return name.replace("/", ".")
        except OSError:
            continue
    return ""


def control_groups(status: SandboxStatus) -> CgroupPlace | None:
    """Return where the control groups of a level go, None without them.

    Groups that killed processes left are removed. Without any sandbox left, the error has reasons
    and hint.
    """
    around = surroundings()
    if status.level in (SandboxLevel.NONE, SandboxLevel.CONTAINER):
        raise SandboxUnavailableError(status.reasons, status.hint)
    place = None if status.level is SandboxLevel.RLIMITS else find_place(around.process)
    if place is not None:
        sweep(place)
        watch_for_crashes().note(*(f"cgroup:{parent}" for parent in place.parents))
    elif status.level is SandboxLevel.CGROUP or (
        status.level is SandboxLevel.LANDLOCK and around.superuser
    ):
        raise SandboxUnavailableError(("the control group is gone",), status.hint)
    return place


def capabilities_of(status: SandboxStatus) -> tuple[Surroundings, Path, CgroupPlace | None]:
    """Return the machine, its bubblewrap, and what `control_groups` returns, with its errors."""
    around = surroundings()
    place = control_groups(status)
    program = find_program(around)
    if program is None:
        raise SandboxUnavailableError(status.reasons, status.hint)
    return around, program, place
