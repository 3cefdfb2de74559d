"""Every level of the sandbox, tested one by one, for `sandbox status --levels` and the page."""

from __future__ import annotations

from collections.abc import Mapping

from skillhouse.extension import is_installed, own_module
from skillhouse.sandbox import SandboxLevel, SandboxStatus, self_test

LEVELS = tuple(level for level in SandboxLevel if level is not SandboxLevel.NONE)

LevelStatuses = Mapping[SandboxLevel, SandboxStatus]


async def whole_test(
    *, most: SandboxLevel = SandboxLevel.CGROUP, least: SandboxLevel = SandboxLevel.LANDLOCK
) -> SandboxStatus:
    """Return the best level at which commands pass, and cells where what runs them is there."""
    if not is_installed("cells"):
        return await self_test(most=most, least=least)
    found: SandboxStatus = await own_module("cells").self_test(most=most, least=least)
    return found


async def tested_levels() -> LevelStatuses:
    """Return the result of each level's self-test; it takes some seconds and starts processes."""
    with_cells = is_installed("cells")
    levels = (one for one in LEVELS if with_cells or one is not SandboxLevel.CONTAINER)
    return {level: await _of(level) for level in levels}


async def _of(level: SandboxLevel) -> SandboxStatus:
    if level is SandboxLevel.CONTAINER:
        contained: SandboxStatus = await own_module("cells").contained_test()
        return contained
    found = await whole_test(most=level, least=level)
    if found.level is level:
        return found
    return SandboxStatus(level=SandboxLevel.NONE, reasons=found.reasons, hint=found.hint)


def probe_rows(statuses: LevelStatuses) -> list[tuple[str, tuple[bool | None, ...]]]:
    """Return each probe by name, and whether it passed at each level; None where it was not run."""
    results = [
        {probe.name: probe.passed for probe in found.probes} if found.level is level else {}
        for level, found in statuses.items()
    ]
    names = sorted({name for probes in results for name in probes})
    return [(name, tuple(probes.get(name) for probes in results)) for name in names]
