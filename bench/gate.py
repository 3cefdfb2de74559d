"""What the gate costs: a call through it beside the same work done by hand.

`./x bench gate [--rounds N] [--reads N] [--directory DIR]` measures wall time in one process and
one event loop, rounds interleaved, medians. DIR says whose disk is measured; without it a temporary
one. A run by hand is bare bubblewrap with the mounts of an `exec`, but without filter, limits and
placeholders; the launcher adds those, and the gate the decision and the log.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import anyio

from skillhouse.audit import AuditDraft, AuditLog
from skillhouse.floor import PROTECTED_NAMES
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.runtime import Locations, Skillhouse, configured
from skillhouse.sandbox import Launcher, SandboxLevel, SandboxProfile, launcher_for

READ_TARGET_MS = 1.0
"""Most that the gate may add to a read (issue "tools")."""
EXEC_TARGET_MS = 4.0
"""Most that it may add to a run in the sandbox."""
TEXT = "a line of an ordinary file\n" * 150
ALLOW = Rule(effect=Effect.ALLOW, action="exec", pattern="*")

Case = Callable[[], Awaitable[object]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the gate.")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--reads", type=int, default=20, help="reads and appends in a round")
    parser.add_argument("--directory", help="where the project and its log are")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        base = Path(directory).resolve()
        with house_in(base) as house:
            anyio.run(report, house, base, options.rounds, options.reads)


def house_in(base: Path) -> Skillhouse:
    """Return a house whose project has one file to read."""
    for name in ("home", "project/.git"):
        (base / name).mkdir(parents=True)
    (base / "project/a.txt").write_text(TEXT)
    places = Locations(
        start=base / "project", home=base / "home", environment={}, managed_file=base / "none"
    )
    return Skillhouse(configured(places), layers=(Layer(name="user", rules=(ALLOW,)),))


async def report(house: Skillhouse, base: Path, rounds: int, reads: int) -> None:
    """Measure all cases and print the table."""
    status = await house.cells.status()
    cases = {**read_cases(house, base), **append_cases(base)}
    counts = dict.fromkeys(cases, reads)
    if status.level is not SandboxLevel.NONE:
        of_exec = exec_cases(house, launcher_for(status, state=base / "stash"), base)
        cases |= of_exec
        counts |= dict.fromkeys(of_exec, 1)
    found = await interleaved(cases, counts, rounds)
    fsync = found["append, durable"] - found["append"]
    rows = [(name, f"{us:,.0f} µs", "") for name, us in found.items()]
    rows.append(("fsync of a durable record", f"{fsync:,.0f} µs", ""))
    rows.append(added("what a read adds to reading", found, "read", READ_TARGET_MS))
    if status.level is not SandboxLevel.NONE:
        rows.append(added("what an exec adds to bubblewrap", found, "exec true", EXEC_TARGET_MS))
        own = found["exec true, gate"] - found["exec true, by hand"] - fsync
        rows.append(("… without that fsync", f"{own:,.0f} µs", ""))
        launcher = found["exec true, launcher"] - found["exec true, by hand"]
        rows.append(("… of which the launcher", f"{launcher:,.0f} µs", ""))
    print(f"sandbox: {status.level}; {rounds} rounds, of {reads} reads or appends and one exec\n")
    print("| case | median | target |", "| --- | --: | --: |", sep="\n")
    print(*(f"| {' | '.join(row)} |" for row in rows), sep="\n")


def added(
    title: str, found: Mapping[str, float], case: str, most_ms: float
) -> tuple[str, str, str]:
    """Return the row of what the gate adds to a case, beside what it may add."""
    us = found[f"{case}, gate"] - found[f"{case}, by hand"]
    return title, f"{us:,.0f} µs", f"{most_ms * 1_000:,.0f} µs"


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


async def interleaved(
    cases: Mapping[str, Case], counts: Mapping[str, int], rounds: int
) -> dict[str, float]:
    """Return the median of each case in µs, each round starting with another case."""
    found: dict[str, list[float]] = {name: [] for name in cases}
    names = list(cases)
    for case in cases.values():
        await case()
    for turn in range(rounds):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            case = cases[name]
            for _ in range(counts[name]):
                began = time.perf_counter_ns()
                await case()
                found[name].append((time.perf_counter_ns() - began) / 1_000)
    return {name: statistics.median(values) for name, values in found.items()}


if __name__ == "__main__":
    main()
