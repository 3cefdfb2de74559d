"""What this machine has for the level that was found."""

from __future__ import annotations

from pathlib import Path

from skillhouse.sandbox.cgroup import CgroupPlace, find_place, sweep
from skillhouse.sandbox.errors import SandboxUnavailableError
from skillhouse.sandbox.status import (
    SandboxLevel,
    SandboxStatus,
    Surroundings,
    find_program,
    surroundings,
)


def capabilities_of(status: SandboxStatus) -> tuple[Surroundings, Path, CgroupPlace | None]:
    """Return the machine, its bubblewrap, and where control groups go, None at a level without.

    What a process that was killed left in the control groups ends here.

    Raises:
        SandboxUnavailableError: there is no sandbox, or no longer; it carries reasons and hint.
    """
    around = surroundings()
    program = find_program(around)
    if status.level in (SandboxLevel.NONE, SandboxLevel.CONTAINER) or program is None:
        raise SandboxUnavailableError(status.reasons, status.hint)
    place = find_place(around.process) if status.level is SandboxLevel.CGROUP else None
    if status.level is SandboxLevel.CGROUP:
        if place is None:
            raise SandboxUnavailableError(("the control group is gone",), status.hint)
        sweep(place)
    return around, program, place
