"""What a run in the sandbox costs beside bare bubblewrap running the same command.

`./x bench sandbox [--rounds N]` runs `true` in turn, so that a slow moment hits all: bare
bubblewrap with new namespaces only; bubblewrap alone with all options of our profile; our
launcher at each level, in one event loop; and an `exec` through the gate of a warm process, beside
bubblewrap with the same mounts, made once by hand, and in a linked worktree of git with the PATH of
whoever measures. All cases start from this process.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median

import anyio

from _measure import markdown_table
from gate import ALLOW, exec_cases, house_in
from skillhouse.house import Locations, Skillhouse, configured
from skillhouse.permission import Layer
from skillhouse.sandbox import (
    Launcher,
    SandboxLevel,
    SandboxProfile,
    SandboxStatus,
    detect,
    launcher_for,
)
from skillhouse.sandbox.mountpoints import KeptPlaceholders
from skillhouse.sandbox.protected_mounts import protected_mounts
from skillhouse.sandbox.run_options import RunMasks, options

BARE = ("bwrap", "--unshare-all", "--ro-bind", "/", "/")
BARE_NAME = "bare bubblewrap"
TARGET_MS = 4.0
"""What a run may cost over bare bubblewrap."""
GATE_TARGET_MS = 4.0
"""What an `exec` may cost over the same bubblewrap."""
LINKED_TARGET_MS = 8.0
"""What it may cost in a linked worktree with the person's PATH."""
WARM_UP = 3
SAME_MOUNTS, THROUGH_GATE = "exec true, by hand", "exec true, gate"
LINKED = "exec true, gate, linked worktree and PATH"

Case = Callable[[], Awaitable[object]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the sandbox.")
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory).resolve()
        with house_in(place / "house") as house, house_in_worktree(place / "linked") as linked:
            print(anyio.run(compare, place, house, linked, rounds))


def house_in_worktree(base: Path) -> Skillhouse:
    """Return a house of a linked worktree, with the PATH of this process."""
    repository, home = base / "repository", base / "home"
    for place in (repository, home):
        place.mkdir(parents=True)
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (
        ("init", "-q"),
        (*identity, "commit", "-q", "--allow-empty", "-m", "one"),
        ("worktree", "add", "-q", str(base / "worktree")),
    ):
        subprocess.run(("git", *words), cwd=repository, check=True)
    environment = {"PATH": os.environ["PATH"]}
    places = Locations(
        start=base / "worktree", home=home, environment=environment, managed_file=base / "none"
    )
    return Skillhouse(configured(places), layers=(Layer(name="user", rules=(ALLOW,)),))


async def compare(place: Path, house: Skillhouse, linked: Skillhouse, rounds: int) -> str:
    """Return the table of all cases."""
    workspace, held = (make_workspace(place / name) for name in ("workspace", "held"))
    profile = SandboxProfile(workspace)
    cases: dict[str, Case] = {BARE_NAME: partial(spawn, BARE)}
    for level in (SandboxLevel.CGROUP, SandboxLevel.RLIMITS):
        # The superuser is not offered rlimits, but their cost is the same for him.
        status = await detect(most=level)
        if status.level is level or level is SandboxLevel.RLIMITS:
            launcher = launcher_for(SandboxStatus(level=level), state=place / "state")
            cases[f"ours, {level}"] = partial(launch, launcher, profile)
            open_profile = SandboxProfile(workspace, protected=())
            cases[f"ours, {level}, nothing protected"] = partial(launch, launcher, open_profile)
    # In a workspace of its own, whose placeholders stay: bubblewrap's own part of our runs.
    same = SandboxProfile(held)
    async with protected_mounts(str(held), same.protected, stash=KeptPlaceholders()) as found:
        nothing = place / "nothing"
        nothing.touch()
        masks = RunMasks(empty=lambda: str(nothing))
        full = options(same, found.covers, around={}, cwd=held, files={}, masks=masks)
        cases["bubblewrap with our options"] = partial(spawn, ("bwrap", *full))
        launcher = launcher_for(await house.services.sandbox.status(), state=place / "state")
        by_gate = exec_cases(house, launcher, place / "house")
        cases |= {name: by_gate[name] for name in (SAME_MOUNTS, THROUGH_GATE)}
        cases[LINKED] = exec_cases(linked, launcher, place / "linked")[THROUGH_GATE]
        times = await measure(cases, rounds)
    floor = median(times[BARE_NAME])
    rows = [
        (
            name,
            f"{median(taken):.2f}",
            f"{min(taken):.2f}",
            f"{median(taken) - floor:+.2f}",
            f"{median(taken) / floor:.2f}",
        )
        for name, taken in times.items()
    ]
    header = (f"`true`, {rounds} rounds", "median ms", "min ms", "over bare", "ratio")
    least = {name: min(taken) for name, taken in times.items()}
    over = least[THROUGH_GATE] - least[SAME_MOUNTS]
    plain, worktree = (least[name] - least[BARE_NAME] for name in (THROUGH_GATE, LINKED))
    return (
        f"{markdown_table(header, rows)}\n\nTarget: at most {TARGET_MS:+.2f} ms over bare.\n"
        f"An `exec` through the gate, least of {rounds}: over bubblewrap with the same mounts "
        f"{over:+.2f} ms, target {GATE_TARGET_MS:+.2f}; over bare bubblewrap {plain:+.2f}, target "
        f"{TARGET_MS:+.2f}; in a linked worktree {worktree:+.2f}, target {LINKED_TARGET_MS:+.2f}."
    )


def make_workspace(place: Path) -> Path:
    """Make a project with a git directory, as most have."""
    (place / ".git" / "hooks").mkdir(parents=True)
    (place / ".git" / "config").touch()
    return place


async def measure(cases: dict[str, Case], rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of each case in each round."""
    found: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds + WARM_UP):
        for name, case in cases.items():
            began = time.perf_counter()
            await case()
            if number >= WARM_UP:
                found[name].append((time.perf_counter() - began) * 1_000)
    return found


async def spawn(command: tuple[str, ...]) -> None:
    """Run a command as simply as Python can; nothing else is to run meanwhile."""
    subprocess.run(  # noqa: ASYNC221
        (*command, "true"), check=True, stdin=subprocess.DEVNULL, capture_output=True
    )


async def launch(launcher: Launcher, profile: SandboxProfile) -> None:
    done = await launcher.run(("true",), profile, cwd=profile.workspace)
    assert done.exit_code == 0


if __name__ == "__main__":
    main()
