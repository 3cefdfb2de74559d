"""Trials in which a random process of ours is killed at a random moment, and what is left then."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from skillhouse.floor.crash_cleanup import COMMON_NAME, SANDBOX_NAME, is_placeholder
from tests.machines import PACKAGES, as_user, python_of, without_bubblewrap

LEFT_SECONDS = 5.0
"""Longest time in which everything has to be gone."""
LIVE_SECONDS = 20.0
ENDLESS = "it had to be killed after all"
"""A program that was not itself killed ends by itself within this time."""
GROUPS = Path("/sys/fs/cgroup")

MANIFEST = """
[project]
name = "slow"
version = "0.1.0"
description = "Takes a while"

[[tool.skillhouse.tools]]
name = "wait"
description = "Waits"
security = { level = "read" }
[tool.skillhouse.tools.parameters]
type = "object"
"""
SOURCE = """
import os, time

def wait(args, context):
    for _ in range(3):
        if os.fork() == 0:
            time.sleep(600)
    time.sleep(0.3)
    return {"ok": 1}

tools = {"wait": wait}
"""
SETTINGS = """
[skill_code]
enabled = true
[[rules]]
effect = "allow"
action = "*"
pattern = "*"
"""
COMMAND = '{"command": "sh", "params": ["-c", "sleep 600 & setsid sleep 600 & sleep 0.3"]}'
ACTS: dict[str, tuple[str, ...]] = {
    "call": ("call", "slow:wait"),
    "exec": ("call", "exec", "--args", COMMAND),
    "reload": ("reload",),
    "self-test": ("sandbox", "status"),
}


@dataclass
class Scene:
    """A home, a project and a temporary directory, which one user's processes use."""

    base: Path
    user: int = 0
    """Another one than ours, if not 0."""
    has_bubblewrap: bool = True
    seen: set[tuple[int, int]] = field(default_factory=set)
    """Process id and start time of all that a trial started."""
    owner: str = "none"
    """Begins the names of what the trial's process made: others run on this machine too."""

    def __post_init__(self) -> None:
        skill = self.base / "home/.agents/skills/slow"
        for directory in (skill, self.base / "project", self.base / "temporary"):
            directory.mkdir(parents=True)
        (skill / "pyproject.toml").write_text(MANIFEST)
        (skill / "main.py").write_text(SOURCE)
        settings = self.base / "home/.config/skillhouse/config.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text(SETTINGS)
        if self.user:
            for path in (self.base, *self.base.rglob("*")):
                os.chown(path, self.user, self.user)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        # The namespace first: only the superuser makes one without a user namespace.
        prefix = () if self.has_bubblewrap else without_bubblewrap()
        program = (*prefix, *as_user(self.user), python_of(self.user), "-m", "skillhouse")
        return subprocess.Popen(
            (*program, *arguments),
            cwd=self.base / "project",
            env={
                "HOME": str(self.base / "home"),
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": PACKAGES,
                "TMPDIR": str(self.base / "temporary"),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def trial(self, act: str, chance: random.Random, *, after_seconds: float) -> str:
        """Kill one process of the act after a while; return which.

        Args:
            after_seconds: From the moment in which the process has started another one; negative
                from its own start.
        """
        process = self.start(*ACTS[act])
        self.owner = owner_start(process.pid)
        while after_seconds >= 0 and process.poll() is None and not tree(process.pid):
            time.sleep(0.002)
        until = time.monotonic() + abs(after_seconds)
        while time.monotonic() < until and process.poll() is None:
            self.seen.update(tree(process.pid))
            time.sleep(0.002)
        living = [process.pid, *(pid for pid, _ in tree(process.pid))]
        victim = process.pid if chance.random() < 0.5 else chance.choice(living)
        said = f"{act} after {after_seconds:.3f} s: {_shown(victim)} of {len(living)}"
        with contextlib.suppress(ProcessLookupError):
            if process.poll() is None:
                os.kill(victim, signal.SIGKILL)
        ends = time.monotonic() + LIVE_SECONDS
        while process.poll() is None and time.monotonic() < ends:
            self.seen.update(tree(process.pid))
            time.sleep(0.002)
        if process.poll() is None:
            said += f"; {ENDLESS}"
            process.kill()
        output, _ = process.communicate()
        return f"{said}; exit code {process.returncode}: {output[-200:].decode(errors='replace')}"

    def left(self) -> list[str]:
        """Return what is left, after at most `LEFT_SECONDS`."""
        until = time.monotonic() + LEFT_SECONDS
        while (found := list(self._left())) and time.monotonic() < until:
            time.sleep(0.05)
        return found

    def _left(self) -> Iterator[str]:
        for pid, started in self.seen:
            if start_of(pid) == started:
                yield f"process {_shown(pid)}"
        for pid in pids():
            if _words(pid).startswith(f"{SANDBOX_NAME}{self.owner}".encode()):
                yield f"sandbox {_shown(pid)}"
        for place, groups, _ in os.walk(GROUPS):
            for name in groups:
                if name.startswith(f"{COMMON_NAME}{self.owner}"):
                    yield f"group {place}/{name}"
        for path in (self.base / "temporary").iterdir():
            yield f"temporary {path.name}"
        for path in (self.base / "project").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if is_placeholder(str(path)):
                    yield f"placeholder {path.name}"
        for path in (self.base / "home/.local/state/skillhouse").glob("*/*"):
            if path.name.startswith(("placeholders-", "running-")):
                yield f"state {path.name}"
        for path in (self.base / "home/.local/state/skillhouse/cells/cells").glob("*"):
            yield f"copy {path.name}"


def delay(chance: random.Random) -> float:
    """Return a moment to kill at, for `Scene.trial`: mostly one in which more than one lives."""
    return chance.uniform(0, 0.8) if chance.random() < 0.8 else -chance.uniform(0.1, 1.6)


def tree(pid: int) -> set[tuple[int, int]]:
    """Return the descendants of a process, with their start times."""
    found: set[tuple[int, int]] = set()
    waiting = [pid]
    while waiting:
        below = children(waiting.pop())
        waiting += [child for child, _ in below]
        found |= below
    return found


def children(pid: int) -> set[tuple[int, int]]:
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            found.update(map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split()))
    return {(child, started) for child in found if (started := start_of(child))}


def pids() -> Sequence[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def owner_start(pid: int) -> str:
    """Return how the names of what a process leaves begin, after their kind."""
    return f"{pid:x}.{start_of(pid):x}."


def start_of(pid: int) -> int:
    """Return the start time of a process; 0 for one that is gone, or only waits to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _shown(pid: int) -> str:
    words = _words(pid)[:80].replace(b"\0", b" ").decode(errors="replace")
    try:
        state = Path(f"/proc/{pid}/stat").read_text().partition(" ")[2][:24]
    except OSError:
        state = "gone"
    return f"{pid} {state} `{words}`"


def main() -> None:
    """Make many trials: `kills.py COUNT [SEED] [USER] [without-bubblewrap]`."""
    words = [word for word in sys.argv[1:] if word != "without-bubblewrap"]
    count, seed, user = (int(word) for word in (*words, *"000"[len(words) :]))
    chance = random.Random(seed)
    base = Path(tempfile.mkdtemp(prefix="kills-"))
    base.chmod(0o755)
    scene = Scene(base, user, has_bubblewrap="without-bubblewrap" not in sys.argv)
    bad = 0
    for number in range(count):
        act = chance.choice(list(ACTS))
        if act in ("call", "exec") and chance.random() < 0.3:
            # The self-test of a first use.
            shutil.rmtree(base / "home/.local/state/skillhouse/sandbox", ignore_errors=True)
        said = scene.trial(act, chance, after_seconds=delay(chance))
        left = scene.left()
        if left or ENDLESS in said:
            bad += 1
            print(number, said, *left, sep="\n    ", flush=True)
        elif number % 20 == 0:
            print(number, said, flush=True)
        scene.seen.clear()
    print(f"{bad} of {count} left something")


if __name__ == "__main__":
    main()
