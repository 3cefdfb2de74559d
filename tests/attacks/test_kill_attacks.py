"""Random SIGKILLs: a process that dies at any moment leaves nothing that acts or lasts."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from skillhouse.floor.crash_cleanup import MARKER_NAME
from skillhouse.sandbox import SandboxLevel, detect
from tests.attacks.kills import ACTS, ENDLESS, SYSTEM_PYTHON, Scene, children, delay, start_of

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="Linux only"),
]

TRIALS = 4
"""Of each act; `python -m tests.attacks.kills 500` makes as many as one likes."""
UNPRIVILEGED = 65534


def scene_at(base: Path, user: int) -> Scene:
    if user:
        for path in (base, *base.parents):
            if path.owner() == "root" and path != Path(path.anchor) and path.name != "tmp":
                path.chmod(0o755)
    return Scene(base / "scene", user)


@pytest.mark.parametrize("user", [0, UNPRIVILEGED], ids=["cgroup", "rlimits"])
@pytest.mark.parametrize("act", ACTS)
def test_a_random_kill_leaves_nothing(
    tmp_path: Path, need: Callable[[object, str], None], act: str, user: int
) -> None:
    need(anyio.run(detect).level is not SandboxLevel.NONE, "no sandbox here")
    need(os.geteuid() == 0, "not root")
    need(not user or SYSTEM_PYTHON.exists(), f"no {SYSTEM_PYTHON}")
    scene, chance = scene_at(tmp_path, user), random.Random(f"{act} {user}")
    for _ in range(TRIALS):
        said = scene.trial(act, chance, after_seconds=delay(chance))
        assert ENDLESS not in said
        assert (said, scene.left()) == (said, [])
        scene.seen.clear()


def test_what_a_killed_process_and_its_watch_left_goes_with_the_next_verb(
    tmp_path: Path, need: Callable[[object, str], None]
) -> None:
    need(anyio.run(detect).level is not SandboxLevel.NONE, "no sandbox here")
    scene = Scene(tmp_path / "scene")
    state = tmp_path / "scene/home/.local/state/skillhouse/sandbox"
    process = scene.start(*ACTS["exec"])
    scene.owner = f"{process.pid}-{start_of(process.pid)}-"
    try:
        while not list((tmp_path / "scene/project").iterdir()):
            assert process.poll() is None
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
