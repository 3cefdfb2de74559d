"""Attacks on an approved call while it runs: what it runs is changed by every way there is (G1)."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import anyio
import pytest

from skillhouse.sandbox import SandboxStatus
from tests.attacks.racing import WAYS, Race, other_process
from tests.harness import Need
from tests.house.coded import letting_go

pytestmark = pytest.mark.slow


TIMES = 20
"""Races of one test; with the heavy part 40 of a way, with the nightly one 300."""
PARTS = [
    0,
    pytest.param(1, marks=pytest.mark.heavy),
    *(pytest.param(n, marks=[pytest.mark.heavy, pytest.mark.nightly]) for n in range(2, 15)),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("part", PARTS)
def test_what_changes_while_an_approved_call_starts_never_runs(
    tmp_path: Path, need: Need, status: SandboxStatus, way: str, part: int
) -> None:
    """The model sends the approved call and the change of its script at the same time."""
    need(way != "git" or shutil.which("git"), "no git")
    race = Race(tmp_path, way, status)

    async def main() -> None:
        with other_process(tmp_path) if way == "process" else contextlib.nullcontext() as other:
            async with letting_go(race.house):
                await race.alone(other)
                first = TIMES * part
                for number in range(first, first + TIMES):
                    await race.once(number, other)
                # Beside other work one of the two can win all of them.
                for number in range(first, first + 3 * TIMES):
                    if race.ran and bool(race.swapped) == (way != "skill"):
                        break
                    await race.once(number, other)

    anyio.run(main)
    # It is a race only if both get through; skill code sees no workspace.
    assert race.ran
    assert bool(race.swapped) == (way != "skill")
