"""Attacks on the kept self-test: a sandbox that is believed better than it is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import pytest

from skillhouse.extensions import cells
from skillhouse.floor import ClockReading, decode, encode, system_clock
from skillhouse.floor.structs import replace
from skillhouse.sandbox import ProbeResult, SandboxLevel, SandboxStatus, kept_tests
from skillhouse.sandbox.kept_tests import KEPT_MS, KeptTests
from tests.harness import Need

PARTS = {"commands": (ProbeResult(name="tcp_refused", passed=True),)}
needed = partial(kept_tests.needed_test, cells=cells)
HERE = SandboxLevel.RLIMITS
Change = Callable[[Path], None]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path / "state"


def keep(state: Path, level: SandboxLevel = HERE) -> tuple[str, Path]:
    kept = KeptTests(state)
    kept.keep(kept.facts(), level, PARTS)
    (file,) = state.iterdir()
    assert kept.passed(kept.facts(), level) == PARTS
    return kept.facts(), file


def is_believed(state: Path, level: SandboxLevel = HERE) -> bool:
    kept = KeptTests(state)
    return bool(kept.passed(kept.facts(), level))


def test_a_better_level_in_the_file_is_never_the_level(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file says control groups, as forged by whoever could write it; here there are none."""
    keep(state, SandboxLevel.CGROUP)
    tested: list[str] = []

    async def detected(**_: object) -> SandboxStatus:
        return SandboxStatus(level=SandboxLevel.RLIMITS)

    async def self_test(**_: object) -> SandboxStatus:
        tested.append("all")
        return SandboxStatus(level=SandboxLevel.RLIMITS, probes=PARTS["commands"])

    monkeypatch.setattr("skillhouse.sandbox.kept_tests.detect", detected)
    monkeypatch.setattr("skillhouse.sandbox.level_probes.self_test", self_test)
    found = anyio.run(needed, KeptTests(state), None)
    assert (found.level, tested) == (SandboxLevel.RLIMITS, ["all"])


def test_no_file_makes_a_level_where_there_is_none(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(state, SandboxLevel.CGROUP)

    async def detected(**_: object) -> SandboxStatus:
        return SandboxStatus(level=SandboxLevel.NONE, reasons=("bubblewrap is not installed",))

    monkeypatch.setattr("skillhouse.sandbox.kept_tests.detect", detected)
    monkeypatch.setattr("skillhouse.sandbox.level_probes.detect", detected)
    assert anyio.run(needed, KeptTests(state), None).level is SandboxLevel.NONE


def _altered(file: Path) -> None:
    kept = decode(file.read_bytes(), dict)
    kept["parts"]["python"] = [{"name": "python_cell_starts", "passed": True, "detail": ""}]
    file.write_bytes(encode(kept))


def _of_the_future(file: Path) -> None:
    kept = decode(file.read_bytes(), dict)
    kept["made_ms"] += KEPT_MS
    file.write_bytes(encode(kept))


def _linked(file: Path) -> None:
    there = file.with_name("there")
    file.rename(there)
    file.symlink_to(there)


def _second_name(file: Path) -> None:
    os.link(file, file.with_name("there"))


def _fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


def _noise(file: Path) -> None:
    file.write_bytes(b"\x81" * 5_000)


CHANGES: dict[str, Change] = {
    "a part that was not tested": _altered,
    "a later time": _of_the_future,
    "cut": lambda file: os.truncate(file, 40),
    "empty": lambda file: os.truncate(file, 0),
    "noise": _noise,
    "readable by others": lambda file: file.chmod(0o644),
    "writable by others": lambda file: file.chmod(0o622),
    "a directory that others write": lambda file: file.parent.chmod(0o777),
    "a directory that others read": lambda file: file.parent.chmod(0o755),
    "a symbolic link": _linked,
    "a second name": _second_name,
    "a pipe": _fifo,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_file_that_is_not_as_it_was_left_is_not_believed(state: Path, change: Change) -> None:
    _, file = keep(state)
    change(file)
    assert not is_believed(state)


@pytest.mark.parametrize("which", ["file", "directory"])
def test_what_belongs_to_another_user_is_not_believed(state: Path, need: Need, which: str) -> None:
    need(os.geteuid() == 0, "not root")
    _, file = keep(state)
    os.chown(file if which == "file" else state, 65534, 65534)
    assert not is_believed(state)


def test_a_result_of_another_boot_is_not_believed(state: Path) -> None:
    now = system_clock()

    def before() -> ClockReading:
        return replace(now, boot="another")

    kept = KeptTests(state, clock=before)
    kept.keep(kept.facts(), HERE, PARTS)
    assert kept.passed(kept.facts(), HERE)
    (file,) = state.iterdir()
    assert not is_believed(state)
    # As copied to where the present boot's would be.
    facts = KeptTests(state).facts()
    file.rename(file.with_name(f"tested-{facts[:32]}"))
    assert not is_believed(state)


@pytest.mark.parametrize("how", ["replaced", "rewritten", "a link moved"])
def test_a_program_that_is_replaced_after_the_test_is_tested_again(
    state: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Its size and modification time are set to what they were; its ctime cannot be."""
    program = state.parent / "bwrap"
    real = state.parent / "real"
    shutil.copy2("/bin/true", real)
    if how == "a link moved":
        program.symlink_to(real)
    else:
        real.rename(program)
    monkeypatch.setattr(kept_tests, "find_program", lambda _: program)
    keep(state)
    before = program.stat()
    if how == "rewritten":
        program.write_bytes(program.read_bytes())
    else:
        other = state.parent / "other"
        shutil.copy2("/bin/true", other)
        if how == "replaced":
            os.replace(other, program)
        else:
            program.unlink()
            program.symlink_to(other)
    os.utime(program, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert program.stat().st_size == before.st_size
    assert not is_believed(state)


def test_a_link_in_place_of_the_file_is_replaced_and_its_target_stays(state: Path) -> None:
    _, file = keep(state)
    target = state.parent / "target"
    target.write_text("text")
    file.unlink()
    file.symlink_to(target)
    kept = KeptTests(state)
    kept.keep(kept.facts(), HERE, PARTS)
    assert (target.read_text(), file.is_symlink(), is_believed(state)) == ("text", False, True)
