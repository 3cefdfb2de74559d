"""Tests of self-tests that are kept, and of what makes them void."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse import sandbox
from skillhouse.extensions import cells
from skillhouse.floor import ClockReading, encode, structs, system_clock
from skillhouse.sandbox import (
    LACKING,
    ProbeResult,
    SandboxLevel,
    SandboxStatus,
    detect,
    kept_tests,
    level_probes,
    status,
)
from skillhouse.sandbox.kept_tests import KEPT_MS, KeptTests
from tests.harness import Need

PASSED = (ProbeResult(name="tcp_refused", passed=True),)
CELL = (ProbeResult(name="python_cell_starts", passed=True),)
needed = partial(kept_tests.needed_test, cells=cells)
HERE = SandboxLevel.CGROUP


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path / "state"


def kept_at(directory: Path, level: SandboxLevel = HERE) -> tuple[KeptTests, str, Path]:
    """Return results that are kept, their facts and their file."""
    kept = KeptTests(directory)
    facts = kept.facts()
    kept.keep(facts, level, {"commands": PASSED, "python": CELL})
    (file,) = directory.iterdir()
    return kept, facts, file


def test_what_passed_is_found_by_the_next_process(directory: Path) -> None:
    _, facts, file = kept_at(directory)
    again = KeptTests(directory)
    assert again.facts() == facts
    assert again.passed(facts, HERE) == {"commands": PASSED, "python": CELL}
    assert (file.stat().st_mode & 0o777, file.stat().st_uid) == (0o600, os.geteuid())


def test_a_failed_part_is_not_kept(directory: Path) -> None:
    kept = KeptTests(directory)
    failed = (*CELL, ProbeResult(name="python_cell_network_refused", passed=False, detail="x"))
    kept.keep(kept.facts(), HERE, {"commands": PASSED, "python": failed})
    assert kept.passed(kept.facts(), HERE) == {"commands": PASSED}


def test_what_a_level_is_known_to_lack_is_kept_with_what_it_holds(directory: Path) -> None:
    kept = KeptTests(directory)
    lacking = sorted(LACKING[SandboxLevel.LANDLOCK])
    probes = (*PASSED, *(ProbeResult(name=name, passed=False, detail="x") for name in lacking))
    kept.keep(kept.facts(), HERE, {"commands": probes})
    assert not directory.exists()
    kept.keep(kept.facts(), SandboxLevel.LANDLOCK, {"commands": probes})
    assert kept.passed(kept.facts(), SandboxLevel.LANDLOCK) == {"commands": probes}
    assert kept.passed(kept.facts(), HERE) == {}


@pytest.mark.parametrize("level", [SandboxLevel.CGROUP, SandboxLevel.LANDLOCK])
def test_only_a_level_of_bubblewrap_says_that_its_version_is_known(
    directory: Path, level: SandboxLevel
) -> None:
    kept, facts, _ = kept_at(directory, level)
    assert kept.has_bubblewrap(facts) == (level is HERE)


def test_no_level_is_kept_as_none(directory: Path) -> None:
    kept = KeptTests(directory)
    kept.keep(kept.facts(), SandboxLevel.NONE, {"commands": PASSED})
    assert not directory.exists()


def test_a_later_part_does_not_renew_the_older_ones(directory: Path) -> None:
    moment = system_clock()
    clock = lambda: moment  # noqa: E731
    kept = KeptTests(directory, clock=clock)
    facts = kept.facts()
    kept.keep(facts, HERE, {"commands": PASSED})
    moment = later(moment, KEPT_MS - 1)
    kept.keep(facts, HERE, {"python": CELL})
    assert kept.passed(facts, HERE) == {"commands": PASSED, "python": CELL}
    moment = later(moment, 1)
    assert kept.passed(facts, HERE) == {}


def later(moment: ClockReading, milliseconds: int) -> ClockReading:
    return structs.replace(moment, running_ms=moment.running_ms + milliseconds)


CHANGES: Sequence[tuple[str, Callable[[pytest.MonkeyPatch, Path], None]]] = (
    ("another user", lambda patch, _: patch.setattr(kept_tests, "_STATUS", ("Name:", "Pid:"))),
    (
        "another namespace",
        lambda patch, _: patch.setattr(kept_tests, "_NAMESPACES", ("user", "uts")),
    ),
    (
        "other code of ours",
        lambda patch, base: patch.setattr(kept_tests, "_CODE", (base,)),
    ),
    (
        "another program",
        lambda patch, _: patch.setattr(kept_tests, "find_program", lambda _: Path("/bin/sh")),
    ),
    (
        "another Landlock",
        lambda patch, _: patch.setattr(kept_tests, "landlock_abi", lambda: 99),
    ),
    (
        "another sysctl",
        lambda patch, _: patch.setattr(kept_tests, "SWITCHES", {"kernel/ostype": "x"}),
    ),
)


@pytest.mark.parametrize("change", [change for _, change in CHANGES], ids=[n for n, _ in CHANGES])
def test_another_machine_under_it_makes_it_void(
    directory: Path, monkeypatch: pytest.MonkeyPatch, change: Any
) -> None:
    kept, facts, _ = kept_at(directory)
    change(monkeypatch, directory.parent)
    assert kept.facts() != facts
    assert kept.passed(kept.facts(), HERE) == {}


def test_what_changes_while_it_is_tested_is_not_kept(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = KeptTests(directory)
    facts = kept.facts()
    monkeypatch.setattr(kept_tests, "find_program", lambda _: Path("/bin/sh"))
    kept.keep(facts, HERE, {"commands": PASSED})
    assert not directory.exists()


def test_unknown_facts_keep_nothing(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_tests, "_PROC_SELF", directory / "none")
    kept = KeptTests(directory)
    assert kept.facts() == ""
    kept.keep("", HERE, {"commands": PASSED})
    assert (kept.passed("", HERE), directory.exists()) == ({}, False)


@pytest.mark.slow
def test_a_bounded_number_of_files_is_kept(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(kept_tests.MAX_FILES + 4):
        monkeypatch.setattr(kept_tests, "SWITCHES", {f"none/{number}": "", "kernel/ostype": ""})
        monkeypatch.setattr(kept_tests, "_MORE_SWITCHES", ("kernel/ostype",) * number)
        kept = KeptTests(directory)
        kept.keep(kept.facts(), HERE, {"commands": PASSED})
    assert len(list(directory.iterdir())) == kept_tests.MAX_FILES


@pytest.mark.slow
@pytest.mark.parametrize("has_bubblewrap", [True, False])
def test_a_language_is_tested_when_it_is_needed_and_then_by_no_later_process(
    directory: Path,
    need: Need,
    monkeypatch: pytest.MonkeyPatch,
    *,
    has_bubblewrap: bool,
) -> None:
    if not has_bubblewrap:
        monkeypatch.setattr(status, "find_program", lambda _: None)
    found = anyio.run(detect)
    need(found.level is not SandboxLevel.NONE, "no sandbox here")
    tested: list[object] = []
    whole, language = sandbox.self_test, cells.language_test

    async def commands(**named: Any) -> SandboxStatus:
        tested.append(sorted(named))
        return await whole(**named)

    async def one(found: SandboxStatus, name: Any) -> SandboxStatus:
        tested.append(name)
        return await language(found, name)

    # A command needs no cell, and what runs cells is not asked.
    monkeypatch.setattr(level_probes, "self_test", commands)
    monkeypatch.setattr(cells, "self_test", None)
    monkeypatch.setattr(cells, "language_test", one)
    first = anyio.run(needed, KeptTests(directory), None)
    assert (first.level, tested) == (found.level, [["least"]])
    second = anyio.run(lambda: needed(KeptTests(directory), "python", before=first))
    assert (second.level, tested) == (found.level, [["least"], "python"])
    third = anyio.run(needed, KeptTests(directory), "python")
    assert (third.level, len(tested)) == (found.level, 2)
    assert sorted(probe.name for probe in third.probes) == sorted(
        probe.name for probe in second.probes
    )
    assert all(status.holds(probe, found.level) for probe in third.probes)
    assert encode(third.level) == encode(found.level)
