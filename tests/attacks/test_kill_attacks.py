"""Random SIGKILLs: a process that dies at any moment leaves nothing that acts or lasts."""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from skillhouse.floor.crash_cleanup import MARKER_NAME
from skillhouse.sandbox import SandboxLevel, detect
from tests.attacks.kills import ACTS, ENDLESS, Scene, children, delay, owner_start
from tests.harness import Need
from tests.machines import check_machine, check_user, without_bubblewrap

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="Linux only"),
]

TRIALS = 4
"""Of each act; `python -m tests.attacks.kills 500` makes as many as one likes."""
UNPRIVILEGED = 65534


@pytest.fixture
def base() -> Iterator[Path]:
    """Yield a directory with a short path, as the address of a socket below it has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="kills-", dir="/tmp") as made:
        base = Path(made)
        base.chmod(0o755)
        yield base


WAYS = {
    "cgroup": (0, True),
    "rlimits": (UNPRIVILEGED, True),
    "landlock": (0, False),
    "landlock-user": (UNPRIVILEGED, False),
}
"""Another user or 0, and whether bubblewrap is there."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("act", ACTS)
def test_a_random_kill_leaves_nothing(base: Path, need: Need, act: str, way: str) -> None:
    need(anyio.run(detect).level is not SandboxLevel.NONE, "no sandbox here")
    user, has_bubblewrap = WAYS[way]
    check_user(need, user)
    check_machine(need, () if has_bubblewrap else without_bubblewrap())
    scene = Scene(base / "s", user, has_bubblewrap=has_bubblewrap)
    chance = random.Random(f"{act} {way}")
    for _ in range(TRIALS):
        said = scene.trial(act, chance, after_seconds=delay(chance))
        assert ENDLESS not in said
        assert (said, scene.left()) == (said, [])
        scene.seen.clear()


def test_what_a_killed_process_and_its_watch_left_goes_with_the_next_verb(
    base: Path, need: Need
) -> None:
    need(anyio.run(detect).level is not SandboxLevel.NONE, "no sandbox here")
    scene = Scene(base / "s")
    state = base / "s/home/.local/state/skillhouse/sandbox"
    process = scene.start("call", "exec", "--args", '{"command": "sleep", "params": ["25"]}')
    scene.owner = owner_start(process.pid)
    try:
        while not list((base / "s/project").iterdir()):
            assert process.poll() is None, process.stdout and process.stdout.read()
        # Its watch too, which would clean up; and all at once, as the machine would.
        for pid in (*(pid for pid, _ in children(process.pid)), process.pid):
            os.kill(pid, signal.SIGKILL)
    finally:
        process.kill()
        process.communicate()
    assert [path.name for path in state.iterdir() if path.name.startswith(MARKER_NAME)]
    listing = scene.start("list")
    _, _ = listing.communicate()
    assert listing.returncode == 0
    assert scene.left() == []
