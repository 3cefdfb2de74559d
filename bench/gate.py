"""What the gate costs: a call through it beside the same work done by hand.

`./x bench gate [--rounds N] [--reads N] [--directory DIR]` measures wall time in one process and
one event loop, rounds interleaved, medians and the least. Other work on the machine moves the
medians; the least of 200 rounds is what the code costs. DIR says whose disk is measured; without it
a temporary one. A run by hand is bare bubblewrap with the mounts of an `exec`, but without filter,
limits and placeholders; the launcher adds those, and the gate the decision and the log.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import anyio

from _measure import Case, in_turns
from skillhouse.audit import AuditDraft, AuditLog
from skillhouse.floor import PROTECTED_NAMES
from skillhouse.house import Locations, Skillhouse, configured
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.sandbox import Launcher, SandboxLevel, SandboxProfile, launcher_for
from skillhouse.tools.command_inputs import sign_workspace

READ_TARGET_MS = 1.0
"""Most that the gate may add to a read."""
EXEC_TARGET_MS = 4.0
"""Most that it may add to a run in the sandbox."""
FILES = 10_000
"""Files of the large workspace, 20 in a directory."""
EXEC_IN_FILES_TARGET_MS = 30.0
"""Most that it may add to a run there."""
BINDING_TARGET_MS = 60.0
"""Longest to sign it, for a question (the same issue)."""
TEXT = "a line of an ordinary file\n" * 150
ALLOW = Rule(effect=Effect.ALLOW, action="exec", pattern="*")


@dataclass(frozen=True, slots=True)
class Took:
    """What a case took, in µs."""

    median: float
    least: float

    def beyond(self, other: Took) -> Took:
        """Return how much more that is than another case."""
        return Took(self.median - other.median, self.least - other.least)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the gate.")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--reads", type=int, default=20, help="reads and appends in a round")
    parser.add_argument("--directory", help="where the project and its log are")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        base = Path(directory).resolve()
        fill(base / "large/project")
        with house_in(base) as house, house_in(base / "large") as large:
            anyio.run(report, house, large, base, options.rounds, options.reads)


def house_in(base: Path) -> Skillhouse:
    """Return a house whose project has one file to read."""
    for name in ("home", "project/.git"):
        (base / name).mkdir(parents=True)
    (base / "project/a.txt").write_text(TEXT)
    places = Locations(
        start=base / "project", home=base / "home", environment={}, managed_file=base / "none"
    )
    return Skillhouse(configured(places), layers=(Layer(name="user", rules=(ALLOW,)),))


def fill(project: Path) -> None:
    """Make the files of a large project, two levels deep."""
    for number in range(FILES // 20):
        directory = project / f"package{number % 50}/module{number}"
        directory.mkdir(parents=True)
        for name in range(20):
            (directory / f"file{name}.py").write_text("x = 1\n")


async def report(house: Skillhouse, large: Skillhouse, base: Path, rounds: int, reads: int) -> None:
    """Measure all cases and print the table."""
    status = await house.services.sandbox.status()
    cases = {**read_cases(house, base), **append_cases(base)}
    counts = dict.fromkeys(cases, reads)
    has_sandbox = status.level is not SandboxLevel.NONE
    if has_sandbox:
        launcher = launcher_for(status, state=base / "stash")
        of_exec = {**exec_cases(house, launcher, base), **large_cases(large, base)}
        cases |= of_exec
        counts |= dict.fromkeys(of_exec, 1)
    taken = await in_turns(cases, rounds, counts)
    found = {name: Took(statistics.median(took), min(took)) for name, took in taken.items()}
    fsync = found["append, durable"].beyond(found["append"])
    binding = f"binding {FILES:,} files"
    targets = {binding: BINDING_TARGET_MS}
    rows = [row(name, took, targets.get(name, 0)) for name, took in found.items()]
    rows.append(row("fsync of a durable record", fsync))
    read = found["read, gate"].beyond(found["read, by hand"])
    rows.append(row("what a read adds to reading", read, READ_TARGET_MS))
    if has_sandbox:
        by_hand, gate = found["exec true, by hand"], found["exec true, gate"].beyond
        rows.append(row("what an exec adds to bubblewrap", gate(by_hand), EXEC_TARGET_MS))
        rows.append(row("… without that fsync", gate(by_hand).beyond(fsync)))
        launched = found["exec true, launcher"].beyond(by_hand)
        rows.append(row("… of which the launcher", launched))
        in_files = found[f"exec true, gate, {FILES:,} files"].beyond(by_hand)
        rows.append(row(f"the same with {FILES:,} files", in_files, EXEC_IN_FILES_TARGET_MS))
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg()[:2])
    print(f"sandbox: {status.level}; {rounds} rounds, of {reads} reads or appends and one exec;")
    print(f"load of the last 1 and 5 minutes: {load}\n")
    print("| case | median | least | target |", "| --- | --: | --: | --: |", sep="\n")
    print(*(f"| {' | '.join(cells)} |" for cells in rows), sep="\n")


def row(title: str, took: Took, most_ms: float = 0) -> tuple[str, str, str, str]:
    """Return a row of the table, with what it may take."""
    target = f"{most_ms * 1_000:,.0f} µs" if most_ms else ""
    return title, f"{took.median:,.0f} µs", f"{took.least:,.0f} µs", target


def read_cases(house: Skillhouse, base: Path) -> dict[str, Case]:
    async def by_hand() -> None:
        (base / "project/a.txt").read_text()

    async def gate() -> None:
        result = await house.call("read", {"path": "a.txt"})
        assert result.content == TEXT

    return {"read, by hand": by_hand, "read, gate": gate}


def append_cases(base: Path) -> dict[str, Case]:
    log = AuditLog(base / "bench.jsonl")
    draft = AuditDraft(kind="intent", tool="exec", arguments={"command": "true"})

    async def written() -> None:
        log.append(draft, durable=False)

    async def durable() -> None:
        log.append(draft, durable=True)

    return {"append": written, "append, durable": durable}


def exec_cases(house: Skillhouse, launcher: Launcher, base: Path) -> dict[str, Case]:
    project = base / "project"

    command = bare(base)

    async def by_hand() -> None:
        await anyio.run_process(command, stdin=subprocess.DEVNULL, env={})

    async def launched() -> None:
        done = await launcher.run(("true",), SandboxProfile(project), cwd=project)
        assert done.exit_code == 0

    async def gate() -> None:
        result = await house.call("exec", {"command": "true"})
        assert not result.is_error

    return {
        "exec true, by hand": by_hand,
        "exec true, launcher": launched,
        "exec true, gate": gate,
    }


def large_cases(house: Skillhouse, base: Path) -> dict[str, Case]:
    root = str(base / "large/project")

    async def gate() -> None:
        result = await house.call("exec", {"command": "true"})
        assert not result.is_error

    async def signed() -> None:
        assert sign_workspace(root).digest

    return {f"exec true, gate, {FILES:,} files": gate, f"binding {FILES:,} files": signed}


def bare(base: Path) -> tuple[str, ...]:
    """Return a command of bubblewrap with the mounts of an `exec`, made once and for all."""
    place = base / "bare"
    covered = [place / path for path in PROTECTED_NAMES if "*" not in path]
    for path in covered:
        path.mkdir(parents=True)
    covers = [word for path in covered for word in ("--size", "4096", "--tmpfs", str(path))]
    devices = [
        word
        for name in ("null", "zero", "urandom")
        for word in ("--dev-bind", f"/dev/{name}", f"/dev/{name}")
    ]
    return (
        *("bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--uid", "65534"),
        *("--gid", "65534", "--cap-drop", "ALL", "--hostname", "sandbox", "--new-session"),
        *("--die-with-parent", "--clearenv", "--setenv", "PATH", "/usr/bin", "--proc", "/proc"),
        *("--remount-ro", "/proc", "--tmpfs", "/dev", *devices, "--tmpfs", "/dev/shm"),
        *("--tmpfs", "/tmp", "--bind", str(place), str(place), *covers),
        *("--chdir", str(place), "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"),
        *("--symlink", "usr/lib64", "/lib64", "--ro-bind", "/usr", "/usr", "--", "true"),
    )


if __name__ == "__main__":
    main()
