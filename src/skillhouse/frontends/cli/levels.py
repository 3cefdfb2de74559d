"""The table of all levels of the sandbox against all probes, tested on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import anyio

from skillhouse import cells
from skillhouse.frontends.presentation.json_values import sandbox_value
from skillhouse.sandbox import SandboxLevel, SandboxStatus

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal

LEVELS = tuple(level for level in SandboxLevel if level is not SandboxLevel.NONE)


def print_levels(terminal: Terminal, *, as_json: bool) -> int:
    """Test every level and print the table; 3 when none works here."""
    statuses = anyio.run(_tested)
    if as_json:
        terminal.json({"levels": {str(k): sandbox_value(found) for k, found in statuses.items()}})
    else:
        _print(statuses, terminal)
    return 0 if any(found.level is not SandboxLevel.NONE for found in statuses.values()) else 3


async def _tested() -> Mapping[SandboxLevel, SandboxStatus]:
    return {level: await _of(level) for level in LEVELS}


async def _of(level: SandboxLevel) -> SandboxStatus:
    if level is SandboxLevel.CONTAINER:
        return await cells.contained_test()
    found = await cells.self_test(most=level, least=level)
    if found.level is level:
        return found
    return SandboxStatus(level=SandboxLevel.NONE, reasons=found.reasons, hint=found.hint)


def _print(statuses: Mapping[SandboxLevel, SandboxStatus], terminal: Terminal) -> None:
    letters = dict(zip(statuses, "abcd", strict=True))
    for level, found in statuses.items():
        works = found.level is level
        terminal.line(f"{letters[level]}  {level}{'' if works else '  (not on this machine)'}")
        for reason in () if works else found.reasons:
            terminal.indented(reason, 3)
    results = {
        level: {probe.name: probe.passed for probe in found.probes}
        for level, found in statuses.items()
        if found.level is level
    }
    names = sorted({name for probes in results.values() for name in probes})
    width = max(map(len, names), default=0)
    terminal.line()
    terminal.line(" " * (width + 2) + "  ".join(letters.values()))
    for name in names:
        marks = (_mark(results.get(level, {}).get(name)) for level in statuses)
        terminal.line(f"{name:<{width}}  {'  '.join(marks)}")
    terminal.line()
    terminal.line("+ holds, - does not, . not tested at this level")


def _mark(passed: bool | None) -> str:  # noqa: FBT001 - the one value that it is about.
    return "." if passed is None else "+" if passed else "-"
