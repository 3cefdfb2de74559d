"""Tests of the self-test and of finding a level."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.extensions.cells.lab import Lab, make
from tests.sandbox.places import LEVELS, launcher_at, skip_unlimited

from skillhouse.extensions.cells import Executor, cell_process, language_cells, self_test
from skillhouse.extensions.cells.cell_probes import installed
from skillhouse.floor import structs
from skillhouse.sandbox import (
    LACKING,
    Completed,
    Launcher,
    SandboxError,
    SandboxLevel,
    SandboxProfile,
    SandboxStatus,
    bubblewrap,
    detect,
)
from skillhouse.sandbox.status import OLDEST, Surroundings, surroundings

pytestmark = pytest.mark.slow


CELL_PROBES = (
    "existence_hidden network_refused nothing_left outside_unreadable outside_unwritable "
    "programs_startable starts"
).split()
ROOM = importlib.import_module("skillhouse.sandbox.level_probes")
PROBES = {
    *(
        "calls_refused descriptors_closed environment_clean existence_hidden limits_unchanged "
        "loopback_usable memory_limited modes_settable namespaces_refused outside_unchanged "
        "outside_unreadable outside_unwritable processes_hidden processes_limited "
        "protected_unwritable shared_memory_refused signals_refused tcp_refused tmp_writable "
        "tree_killed udp_refused unix_refused workspace_top_writable workspace_writable"
    ).split()
}


@pytest.mark.parametrize("level", LEVELS)
def test_every_probe_passes_at_each_level(level: SandboxLevel, tmp_path: Path, need: Any):
    skip_unlimited(launcher_at(level, need, tmp_path))
    status = anyio.run(lambda: self_test(most=level))
    assert [probe for probe in status.probes if not probe.passed] == []
    cells = {f"{language}_cell_{name}" for language in installed() for name in CELL_PROBES}
    assert {probe.name for probe in status.probes} == PROBES | cells
    assert status.level is level


class Weak:
    """A launcher with a hole, to see that a probe finds it."""

    def __init__(self, launcher: Launcher, change: dict[str, Any]) -> None:
        self.level = launcher.level
        self._launcher = launcher
        self._change = change

    async def run(self, argv: Any, profile: SandboxProfile, **rest: Any) -> Completed:
        change = dict(self._change)
        if "readable" in change:
            change["readable"] += profile.readable
        if limits := change.pop("limits", {}):
            change["limits"] = structs.replace(profile.limits, **limits)
        return await self._launcher.run(argv, structs.replace(profile, **change), **rest)


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        ({"network": True}, "tcp_refused"),
        ({"network": True}, "udp_refused"),
        ({"protected": ()}, "protected_unwritable"),
        ({"environment": {"SECRET": "x"}}, "environment_clean"),
        ({"readable": (Path("/var/tmp"),)}, "outside_unreadable"),
        ({"limits": {"memory_bytes": 1 << 30}}, "memory_limited"),
        ({"limits": {"processes": 128}}, "processes_limited"),
    ],
)
def test_a_hole_is_found_and_leaves_no_level(
    change: dict[str, Any],
    failed: str,
    tmp_path: Path,
    need: Any,
    monkeypatch: pytest.MonkeyPatch,
):
    launcher = launcher_at(SandboxLevel.CGROUP, need, tmp_path)
    monkeypatch.setattr("tempfile.tempdir", "/var/tmp")
    monkeypatch.setattr(ROOM, "launcher_for", lambda status: Weak(launcher, change))
    status = anyio.run(self_test)
    assert status.level is SandboxLevel.NONE
    assert failed in {probe.name for probe in status.probes if not probe.passed}
    assert any(failed in reason for reason in status.reasons)
    assert status.hint


def weaker(monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    """Let all cells be made with these options of bubblewrap too."""
    whole = bubblewrap.cell_options

    def weak(*given: Any, **named: Any) -> Iterator[str]:
        # Before the root is made read-only, and after all namespaces are asked for.
        made = list(whole(*given, **named))
        place = made.index("--chdir")
        yield from (*made[:place], *options, *made[place:])

    monkeypatch.setattr(bubblewrap, "cell_options", weak)


@pytest.mark.parametrize(
    ("language", "options", "failed"),
    [
        ("python", ("--share-net",), "network_refused"),
        ("javascript", ("--share-net",), "network_refused"),
        ("python", ("--ro-bind", "/var/tmp", "/var/tmp"), "outside_unreadable"),
        ("javascript", ("--ro-bind", "/var/tmp", "/var/tmp"), "outside_unreadable"),
        ("python", ("--bind", "/var/tmp", "/var/tmp"), "outside_unwritable"),
        ("javascript", ("--bind", "/var/tmp", "/var/tmp"), "outside_unwritable"),
        ("python", (), "nothing_left"),
        ("javascript", ("--bind", "PLACE", "/dev/shm"), "nothing_left"),
        # The output folder of a call is made in a /tmp of its own, or the call does not begin.
        ("javascript", ("--bind", "PLACE", "/tmp"), "answers"),
    ],
)
def test_a_hole_in_a_cell_is_found_and_leaves_no_level(
    language: str,
    options: tuple[str, ...],
    failed: str,
    tmp_path: Path,
    need: Any,
    monkeypatch: pytest.MonkeyPatch,
):
    need(anyio.run(detect).level is SandboxLevel.CGROUP, "no control groups")
    need(language in installed(), "no Node.js")
    monkeypatch.setattr("tempfile.tempdir", "/var/tmp")
    if options:
        weaker(monkeypatch, *(word.replace("PLACE", str(tmp_path)) for word in options))
    else:
        # Of a call's own directories in memory, all but one.
        monkeypatch.setattr(
            language_cells, "writable", lambda limits: bubblewrap.writable(limits)[1:]
        )
    status = anyio.run(self_test)
    assert status.level is SandboxLevel.NONE
    found = {probe.name for probe in status.probes if not probe.passed}
    assert f"{language}_cell_{failed}" in found


def test_a_language_whose_cell_does_not_start_is_refused_and_the_level_stays(
    tmp_path: Path, need: Any, monkeypatch: pytest.MonkeyPatch
):
    need(anyio.run(detect).level is SandboxLevel.CGROUP, "no control groups")
    need("javascript" in installed(), "no Node.js")
    monkeypatch.setattr(cell_process, "node_program", lambda: "/usr/bin/false")
    status = anyio.run(self_test)
    assert status.level is SandboxLevel.CGROUP
    assert [probe.name for probe in status.probes if not probe.passed] == ["javascript_cell_starts"]
    (reason,) = status.reasons
    assert "javascript_cell_starts: crashed: " in reason
    monkeypatch.undo()
    lab = Lab(status, tmp_path)

    async def scene(executor: Executor) -> str:
        spec = make(tmp_path, "tools = {'tool': lambda p, c: 1}\n")
        assert (await lab.ask(executor, spec)).kind == "ok"
        other = make(tmp_path, "exports.tools = {};", language="javascript", name="other")
        with pytest.raises(SandboxError) as caught:
            await lab.ask(executor, other)
        return caught.value.code

    assert lab.run(scene) == "cell-untested"


class Broken:
    """A launcher whose bubblewrap may make no namespace."""

    def __init__(self, status: SandboxStatus) -> None:
        self.level = status.level

    async def run(self, *given: Any, **named: Any) -> Completed:
        raise SandboxError("sandbox-failed", "bwrap: setting up uid map: Permission denied")


def test_a_launcher_that_cannot_start_leaves_no_level(monkeypatch: pytest.MonkeyPatch, need: Any):
    need(anyio.run(detect).level is not SandboxLevel.NONE, "no sandbox")

    monkeypatch.setattr(ROOM, "launcher_for", Broken)
    status = anyio.run(lambda: self_test(least=SandboxLevel.RLIMITS))
    assert (status.level, status.probes) == (SandboxLevel.NONE, ())
    assert "user namespaces" in status.hint


@pytest.fixture
def around(tmp_path: Path) -> Surroundings:
    """A machine of its own, with a bubblewrap that says the version in `version`."""
    program = tmp_path / "bin" / "bwrap"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "bubblewrap {".".join(map(str, OLDEST))}"\n')
    program.chmod(0o755)
    process = tmp_path / "process"
    process.mkdir()
    return Surroundings(
        system="linux",
        machine="x86_64",
        search_path=str(program.parent),
        process=process,
        sysctl=tmp_path / "sysctl",
        superuser=False,
    )


def find(
    around: Surroundings,
    most: SandboxLevel = SandboxLevel.CGROUP,
    least: SandboxLevel = SandboxLevel.RLIMITS,
) -> SandboxStatus:
    return anyio.run(lambda: detect(most=most, least=least, around=around))


def test_each_thing_that_is_missing_is_named_with_the_way_to_get_it(
    around: Surroundings, tmp_path: Path
):
    changes: tuple[tuple[Any, str, str], ...] = (
        ({"system": "darwin"}, "expected Linux, got darwin", "Linux"),
        ({"machine": "riscv64"}, "no system call filter for riscv64", "x86_64"),
        (
            {"search_path": str(tmp_path)},
            "bubblewrap is not installed",
            "apt-get install bubblewrap",
        ),
    )
    for change, reason, hint in changes:
        status = find(structs.replace(around, **change))
        assert (status.level, status.reasons) == (SandboxLevel.NONE, (reason,))
        assert hint in status.hint


@pytest.mark.parametrize(
    ("script", "got"), [("echo bubblewrap 0.7.0", "0.7.0"), ("exit 1", "no version")]
)
def test_an_old_bubblewrap_is_none(around: Surroundings, script: str, got: str):
    Path(around.search_path, "bwrap").write_text(f"#!/bin/sh\n{script}\n")
    assert find(around).reasons == (f"expected bubblewrap 0.8 or later, got {got}",)


def test_without_control_groups_there_are_rlimits(around: Surroundings):
    status = find(around)
    assert status.level is SandboxLevel.RLIMITS
    assert "systemd-run" in status.hint


def test_rlimits_are_not_offered_to_the_superuser(around: Surroundings):
    for most in LEVELS:
        status = find(structs.replace(around, superuser=True), most=most)
        assert status.level is SandboxLevel.NONE
        assert "superuser" in status.reasons[-1]
        assert "as a user of its own" in status.hint


def test_only_the_operator_lowers_the_level(around: Surroundings):
    assert find(around, most=SandboxLevel.RLIMITS).reasons == (
        "the operator wants no control groups",
    )
    assert find(around, most=SandboxLevel.NONE).level is SandboxLevel.NONE


def test_user_namespaces_that_are_forbidden_are_seen(
    around: Surroundings,
):
    switch = around.sysctl / "kernel" / "apparmor_restrict_unprivileged_userns"
    switch.parent.mkdir(parents=True)
    switch.write_text("1\n")
    status = find(around)
    assert status.level is SandboxLevel.NONE
    assert status.reasons == (
        "kernel.apparmor_restrict_unprivileged_userns forbids user namespaces",
    )


@pytest.fixture
def landlock(need: Any) -> None:
    """Skips the test where the kernel has not what the level needs."""
    launcher_at(SandboxLevel.LANDLOCK, need, Path())


@pytest.mark.usefixtures("landlock")
def test_without_bubblewrap_there_is_landlock_unless_it_is_refused(
    around: Surroundings, tmp_path: Path
):
    forbidden = tmp_path / "sysctl" / "user" / "max_user_namespaces"
    forbidden.parent.mkdir(parents=True)
    forbidden.write_text("0\n")
    missing = structs.replace(around, search_path=str(tmp_path))
    for place, reason in (
        (missing, "bubblewrap is not installed"),
        (around, "user.max_user_namespaces forbids user namespaces"),
    ):
        for least, level in (
            (SandboxLevel.LANDLOCK, SandboxLevel.LANDLOCK),
            (SandboxLevel.RLIMITS, SandboxLevel.NONE),
        ):
            status = find(place, least=least)
            assert (status.level, status.reasons) == (level, (reason,))
            assert status.hint


def test_landlock_is_not_offered_to_a_superuser_whose_processes_nothing_limits(
    around: Surroundings, tmp_path: Path
):
    place = structs.replace(around, search_path=str(tmp_path), superuser=True)
    status = find(place, least=SandboxLevel.LANDLOCK)
    assert status.level is SandboxLevel.NONE
    assert "superuser" in status.reasons[-1]


@pytest.mark.usefixtures("landlock")
def test_bubblewrap_that_cannot_make_namespaces_gives_way_to_landlock(
    monkeypatch: pytest.MonkeyPatch,
):
    made = ROOM.launcher_for

    def launcher_for(status: SandboxStatus) -> Any:
        return made(status) if status.level is SandboxLevel.LANDLOCK else Broken(status)

    monkeypatch.setattr(ROOM, "launcher_for", launcher_for)
    status = anyio.run(self_test)
    assert status.level is SandboxLevel.LANDLOCK
    assert status.reasons[0] == "bwrap: setting up uid map: Permission denied"
    refused = anyio.run(lambda: self_test(least=SandboxLevel.RLIMITS))
    assert refused.level is SandboxLevel.NONE


@pytest.mark.usefixtures("landlock")
def test_landlock_lacks_what_its_table_says_and_nothing_else():
    status = anyio.run(lambda: self_test(most=SandboxLevel.LANDLOCK))
    assert status.level is SandboxLevel.LANDLOCK
    failed = {probe.name for probe in status.probes if not probe.passed}
    known = {name for name in LACKING[status.level] if name.partition("_cell_")[0] in installed()}
    known |= {name for name in LACKING[status.level] if "_cell_" not in name}
    assert failed == known


def test_detection_here_is_quick():
    began = time.perf_counter()
    anyio.run(lambda: detect(around=surroundings()))
    assert time.perf_counter() - began < 2
