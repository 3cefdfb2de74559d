"""Runs the tests in several processes, each over files of its own: `./x test [PART] [K/N] [ARGS]`.

The files of a part are cut by the recorded cost of each (scripts/suite_record.py) into portions of
neighbours, which share what a directory's tests set up; a process that is done takes the next
portion. pytest-xdist would read every test in every process, 25 seconds of CPU each.

Parts: `fast`, nothing marked slow or heavy; the default, nothing heavy and nothing that
tests/suite.json leaves for later; `ci`, twice the default, and every attack; `all`;
`changed [--base REV]`, what reaches a file that differs from REV (the branch point with `main`);
`failed`, what failed in the last run; `nightly`, the property tests with new examples and what is
marked so. `K/N` runs the K-th of N shares, for N machines. Other arguments go to pytest.

Where the superuser runs it and there is memory, /tmp is in memory for the tests
(docs/decisions/0470); `SKILLHOUSE_TEST_ON_DISK=1` leaves it on the disk, as named tests do.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.suite_record import Record, changed_files, keep_seconds, reaching

ROOT = Path(__file__).resolve().parents[1]
FAILED = ROOT / ".x" / "failed-tests.txt"
"""Node ids that failed in the last run, a line each, for `./x test failed`."""
COSTS = ROOT / ".x" / "test-costs.tsv"
"""Seconds of CPU, on the clock, and node id of each test of the last run that was no second look,
the dearest first."""
DEAREST, DEAR_SECONDS = 20, 10
"""Tests that a run names at its end: at most so many, each of so much CPU."""
DEAREST = 5
"""Changed files that `changed` names with what they reach."""
PARTS = ("fast", "default", "ci", "all", "changed", "failed", "nightly")
MARKS = {
    "fast": "not slow and not heavy",
    "default": "not heavy",
    "ci": "not heavy",
    "changed": "not heavy",
    "all": "not nightly",
    "nightly": "hypothesis or nightly",
}
EXAMPLES = {
    "fast": "fast",
    "default": "fast",
    "ci": "fast",
    "changed": "fast",
    "nightly": "nightly",
}
"""Profiles of tests/conftest.py for property tests; the others have its own."""
PROCESSES = min(8, 2 * (os.cpu_count() or 1))
"""At once: half of the time a test waits, for a sandbox, a browser or a server. With five on two
cores tests ran into their own time limits."""
PORTION_SIZES = (4, 3, 2, 1)
"""Portions of each process, by size: the small ones come last, so that all end at about one time
also where a cost was not foreseen. Each more would cost a start of a second and a half."""
LAST_SIZE = 0.5
"""Of `all`, of whose portions one of size 1 takes two minutes."""
POLL_SECONDS = 0.2
SAID_EVERY_SECONDS = 20
CLONE_NEWNS = 0x0002_0000
MEMORY_KIB = 8 << 20
"""From this much available memory on, /tmp is put there; the whole suite fills some 2 GiB of it."""
ENDED_WELL = (0, 1, 5)
"""Exit codes of pytest: all passed, some failed, none collected."""


@dataclass(slots=True, kw_only=True)
class Portion:
    """Test files that one process runs, and what became of them."""

    files: list[str]
    number: int
    reports: Path
    log: Path
    process: subprocess.Popen[bytes] | None = None
    outcomes: dict[str, str] = field(default_factory=dict)
    costs: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By test: seconds of CPU, of what it waited for too, and seconds on the clock."""
    read: int = 0

    def start(self, options: Sequence[str], environment: dict[str, str]) -> None:
        """Start pytest over the files."""
        # A cache for each: two processes that write one lose each other's entries.
        cache = f"cache_dir={ROOT / '.x' / 'pytest-cache' / str(self.number)}"
        command = [sys.executable, "-m", "pytest", "-q", "-o", cache, *options, *self.files]
        environment = {**environment, "SUITE_REPORTS": str(self.reports)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def take(self) -> None:
        """Read the reports that are new."""
        if not self.reports.exists():
            return
        with self.reports.open("rb") as file:
            file.seek(self.read)
            # What is being written may end amid a line; its rest is for the next time, also where
            # it arrives between two reads of this one.
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self.read += len(whole)
        for line in whole.splitlines():
            node, *said = json.loads(line)
            if len(said) == 2:
                self.costs[node] = (said[0], said[1])
            # A test is as good as the worst of its phases.
            elif self.outcomes.get(node) != "failed":
                self.outcomes[node] = said[0]


def portions_of(
    files: Sequence[str], costs: Sequence[float], sizes: Sequence[float]
) -> list[list[str]]:
    """Return the files in runs of neighbours whose costs are to each other as the sizes.

    >>> portions_of(["a", "b", "c", "d"], [1, 1, 1, 3], (1, 1))
    [['a', 'b', 'c'], ['d']]
    >>> portions_of(["a", "b", "c", "d"], [1, 1, 1, 3], (1, 2))
    [['a', 'b'], ['c', 'd']]
    """
    share = sum(costs) / sum(sizes)
    ends = [share * end for end in itertools.accumulate(sizes)]
    cut: list[list[str]] = [[]]
    spent = 0.0
    for file, cost in zip(files, costs, strict=True):
        # A file goes where its middle is, so that no portion is over by more than half a file.
        while len(cut) < len(sizes) and spent + cost / 2 > ends[len(cut) - 1]:
            cut.append([])
        cut[-1].append(file)
        spent += cost
    return [portion for portion in cut if portion]


def share_of(files: Sequence[str], costs: Sequence[float], share: str) -> list[str]:
    """Return the files of the share `K/N`.

    >>> share_of(["a", "b"], [1.0, 1.0], "2/2")
    ['b']
    """
    number, of = map(int, share.split("/"))
    if not 1 <= number <= of:
        raise SystemExit(f"suite: expected a share such as 1/2, got {share}")
    cut = portions_of(files, costs, (1,) * of)
    return cut[number - 1] if number <= len(cut) else []


def has_tmp_in_memory() -> bool:
    """Give this process and its children a /tmp of their own in memory, where that is possible.

    On a disk two fifths of the kernel's time are files that a test makes and pytest removes.
    """
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return False
    if os.environ.get("SKILLHOUSE_TEST_ON_DISK") or tempfile.gettempdir() != "/tmp":
        return False
    if any(Path(path).is_relative_to("/tmp") for path in (ROOT, sys.prefix, sys.base_prefix)):
        return False
    memory = Path("/proc/meminfo").read_text(encoding="ascii")
    available = re.search(r"^MemAvailable:\s+(\d+) kB$", memory, re.MULTILINE)
    if available is None or int(available[1]) < MEMORY_KIB:
        return False
    # A container may refuse both; /tmp is what it was then.
    if ctypes.CDLL(None).unshare(CLONE_NEWNS) != 0:
        return False
    private = ["mount", "--make-rprivate", "/"]
    mounted = ["mount", "-t", "tmpfs", "-o", "mode=1777", "skillhouse-tests", "/tmp"]
    return all(
        subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0
        for command in (private, mounted)
    )


def run(portions: list[Portion], options: Sequence[str], *, processes: int) -> None:
    """Run all portions, `processes` at a time, the dearest first as they are given."""
    waiting, running = list(portions), list[Portion]()
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    said = time.monotonic()
    stops: list[int] = []
    # Ctrl-C between two processes, not while one starts: it would be left running.
    before = signal.signal(signal.SIGINT, lambda number, _: stops.append(number))
    try:
        while waiting or running:
            if stops:
                raise KeyboardInterrupt
            while waiting and len(running) < processes:
                running.append(waiting.pop(0))
                running[-1].start(options, environment)
            time.sleep(POLL_SECONDS)
            for portion in portions:
                portion.take()
            running = [one for one in running if one.process and one.process.poll() is None]
            if time.monotonic() > said + SAID_EVERY_SECONDS:
                said = time.monotonic()
                _say(portions, running)
    finally:
        for portion in running:
            if portion.process is not None:
                portion.process.send_signal(signal.SIGINT)
        for portion in running:
            if portion.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    portion.process.wait(timeout=10)
                portion.process.kill()
                portion.process.wait()
        signal.signal(signal.SIGINT, before)


def _say(portions: Iterable[Portion], running: Sequence[Portion]) -> None:
    counts = Counter(outcome for portion in portions for outcome in portion.outcomes.values())
    done = sum(1 for one in portions if one.process is not None and one not in running)
    line = f"suite: {done} portions done, {len(running)} running: {counts['passed']} passed"
    print(f"{line}, {counts['failed']} failed", file=sys.stderr, flush=True)


def finish(portions: Sequence[Portion], seconds: float, used: float, part: str) -> int:
    """Print what failed and the counts; return the exit code."""
    code, failed = 0, list[str]()
    for portion in portions:
        portion.take()
        ended = portion.process.returncode if portion.process else 2
        own = [node for node, outcome in portion.outcomes.items() if outcome == "failed"]
        failed += own
        if ended in ENDED_WELL and not own and ended != 1:
            _print_skips(portion.log)
            continue
        print(portion.log.read_text(encoding="utf-8", errors="replace"))
        if ended not in ENDED_WELL:
            print(f"suite: portion {portion.number} ended with exit code {ended}", file=sys.stderr)
        code = max(code, 1 if ended in ENDED_WELL else 2)
    FAILED.parent.mkdir(exist_ok=True)
    FAILED.write_text("".join(f"{node}\n" for node in failed), encoding="utf-8")
    costs = {node: cost for portion in portions for node, cost in portion.costs.items()}
    rows = sorted(costs.items(), key=lambda row: -row[1][0])
    if part != "failed":
        COSTS.write_text("".join(f"{c}\t{w}\t{n}\n" for n, (c, w) in rows), encoding="utf-8")
    for node, (cpu, wall) in rows[:DEAREST]:
        if cpu >= DEAR_SECONDS:
            print(f"suite: {cpu:.0f} s CPU, {wall:.0f} s wall: {node[:110]}")
    counts = Counter(outcome for portion in portions for outcome in portion.outcomes.values())
    print(*(f"FAILED {node}" for node in failed), sep="\n", end="\n" if failed else "")
    print(f"suite: {seconds:.0f} s wall, {used:.0f} s CPU")
    counted = f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"
    print(counted)
    return code if counts or code else 5


def _print_skips(log: Path) -> None:
    """Print pytest's lines about skips, as it does after a run."""
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("SKIPPED ["):
            print(line)


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def chosen(part: str, record: Record, base: str | None) -> list[str]:
    """Return the test files of a part, or node ids where it is about single tests."""
    if part == "failed":
        return FAILED.read_text(encoding="utf-8").splitlines() if FAILED.exists() else []
    everything = record.files()
    if part != "changed":
        return [file for file in everything if record.has_any(file, part)]
    changed = changed_files(base)
    found = reaching(changed, record, everything)
    print(f"suite: {len(changed)} files differ, {len(found)} files of tests reach them")
    for line in dearest(changed, record, everything):
        print(f"suite: {line}")
    return found


def dearest(changed: Sequence[str], record: Record, everything: Sequence[str]) -> list[str]:
    """Return a line for each of the changed files that most of the time is for, dearest first."""
    costs = {}
    for path in changed:
        files = reaching([path], record, everything)
        minutes = sum(record.cost(file, "changed") for file in files) / 60
        costs[path] = (minutes, len(files))
    first = sorted(costs, key=lambda path: costs[path], reverse=True)[:DEAREST]
    return [
        f"{path} by itself: {costs[path][1]} files, {costs[path][0]:.0f} minutes of CPU"
        for path in first
        if costs[path][0] >= 1
    ]


def options_of(part: str, arguments: Sequence[str]) -> Iterator[str]:
    """Yield the options of pytest for a part."""
    yield from ("-p", "scripts.suite_plugin")
    if part in MARKS:
        yield from ("-m", MARKS[part])
    if part in EXAMPLES:
        yield f"--hypothesis-profile={EXAMPLES[part]}"
    yield from arguments


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./x test", description="Run a part of the tests.")
    parser.add_argument("part", nargs="?", default="default", choices=PARTS)
    parser.add_argument("share", nargs="?", default="1/1", metavar="K/N")
    parser.add_argument("--base", metavar="REV", help="of `changed`: what to compare with")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--list", action="store_true", help="print the files, run nothing")
    kept = "keep the seconds of each file, by which the portions of later runs are cut"
    parser.add_argument("--keep-seconds", action="store_true", help=kept)
    given = list(arguments)
    if given and re.fullmatch(r"\d+/\d+", given[0]):
        given.insert(0, "default")
    if given and given[0].startswith("-"):
        given.insert(0, "default")
    options, others = parser.parse_known_args(given)
    part = options.part
    for before, word in itertools.pairwise(given):
        if word in PARTS and word in others and before not in ("-k", "-m"):
            # pytest would take it for the name of a file, beside another part than was meant.
            raise SystemExit(f"suite: the part goes first: ./x test {word} …")
    record = Record.read()
    files = chosen(part, record, options.base)
    costs = [record.cost(file, part) for file in files]
    if options.share != "1/1":
        files = share_of(files, costs, options.share)
        costs = [record.cost(file, part) for file in files]
    if options.list:
        print(*files, sep="\n")
        return 0
    if not files:
        print("suite: nothing to run\n0 passed, 0 failed")
        return 0
    processes = 1 if part in ("fast", "failed") else options.processes
    parts = (*PORTION_SIZES, LAST_SIZE) if part == "all" else PORTION_SIZES
    sizes = (1,) if processes == 1 else [size for size in parts for _ in range(processes)]
    cut = portions_of(files, costs, sizes)
    cut.sort(key=lambda one: -sum(record.cost(file, part) for file in one))
    os.environ["SUITE_PART"] = part
    if has_tmp_in_memory():
        # What failed is looked at by its name, on the disk.
        others = ["-o", "tmp_path_retention_count=1", *others]
        print("suite: /tmp is in memory", file=sys.stderr)
    # A process that `./x` made the environment in has spent what that took.
    begun, spent = time.monotonic(), _cpu()
    with tempfile.TemporaryDirectory(prefix="suite-") as directory:
        place = Path(directory)
        portions = [
            Portion(files=one, number=n, reports=place / f"{n}.jsonl", log=place / f"{n}.log")
            for n, one in enumerate(cut)
        ]
        run(portions, list(options_of(part, others)), processes=processes)
        code = finish(portions, time.monotonic() - begun, _cpu() - spent, part)
        if options.keep_seconds:
            tests = (cost for one in portions for cost in one.costs.items())
            keep_seconds(part, {node: wall for node, (_, wall) in tests})
        return code


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("suite: stopped", file=sys.stderr)
        sys.exit(130)
