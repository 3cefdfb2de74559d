"""A run on the descriptors of another process: its output goes there, and as it comes."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from skillhouse.sandbox import Limits, SandboxLevel, SandboxProfile, Streams
from tests.harness import Need
from tests.sandbox.places import ALL_LEVELS, launcher_at


@pytest.mark.parametrize("level", ALL_LEVELS)
def test_a_run_reads_and_writes_the_descriptors_that_it_is_given(
    level: SandboxLevel, need: Need, tmp_path: Path
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    launcher = launcher_at(level, need, tmp_path / "state")
    given, theirs = os.pipe()
    said, told = os.pipe()
    ends, directory = os.pipe()
    out = tmp_path / "out"
    began: list[int] = []

    def start(init: int) -> None:
        # It reads until now: of a run that has ended before its report is read, none is given.
        began.append(init)
        os.write(theirs, b"owl\n")

    script = f"read line; echo $line; echo err >&2; cd /usr; pwd >&{directory}; exit 4"
    profile = SandboxProfile(workspace, limits=Limits(seconds=100.0, output_bytes=2))

    with out.open("wb") as file:
        streams = Streams(
            stdin=given, stdout=file.fileno(), stderr=told, began=start, directory=directory
        )
        done = anyio.run(
            lambda: launcher.run(["bash", "-c", script], profile, cwd=workspace, streams=streams)
        )
    assert (done.exit_code, done.stdout, done.stderr, done.limit) == (4, b"", b"", "")
    assert (out.read_bytes(), os.read(said, 100), os.read(ends, 100)) == (
        b"owl\n",
        b"err\n",
        b"/usr\n",
    )
    assert len(began) == 1
    for one in (given, theirs, said, told, ends, directory):
        os.close(one)
