"""Records tests/suite.json: what each file of tests costs, enters, and whether it can wait for CI.

`./x py -m scripts.suite_tracer` runs everything, an hour of CPU; `--new` only the files of which
no record says what they reach, and leaves the rest as it is; `--again` only chooses anew from the
last recording, and `--fast` what is in the fast part from what each test took in its last run. It
needs Python 3.12 (`sys.monitoring`), and a machine with all that CI has: what is skipped reaches
nothing. A process that was killed leaves no lines.

The choice: `./x test` has all of the fast part; of the others that are not heavy those that reach
most new lines for their cost, until `--lines` of what everything reaches are reached; and then the
cheapest, up to `--seconds`, in which a quarter of the time that a test waits counts too. CI has
those up to `--ci-seconds`.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import resource
import shutil
import site
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from scripts import suite_reach
from scripts.suite import COSTS, chosen
from scripts.suite_record import PLACE, ROOT, SOURCE, Record, packed

RAW = ROOT / ".x" / "reach"
PACKAGE = f"{ROOT / SOURCE}/"
COLLECTING = "(collect)"
HEAVY_SECONDS = 3.0
"""What a heavy test counts that was not recorded: 1,097 of them took about 3,300 seconds of CPU."""
ROWS_MAX = 40
WHOLE = ("tests/extensions/cells/",)
"""Folders of which no test waits for CI: some look for processes that others left behind."""
LAWS, LAW_SECONDS = "tests/test_", 4.0
"""Tests of the tree itself: they reach no line of the package, and none up to this waits."""
LEFT = ("tests/extensions/postgres/test_suites_on_",)
"""What `./x test` leaves to CI in any case."""
WAIT_SHARE = 0.25
"""Of the time that a test waits, what counts as its own: a judge, a cell or a browser that it
leaves behind is in no one's seconds of CPU, and these were a third of what `./x test` used."""
BIG_SECONDS = 2.0
"""From this on the rows of one table of a test are chosen one by one."""


# The plugin, in each process of pytest.

_out = RAW / f"worker.{os.getpid()}.jsonl"


def _cpu() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, kinds))


def _begin(test: str) -> None:
    (RAW / f"current.{os.getpid()}").write_text(test, encoding="utf-8")


def _note(test: str, marks: list[str], seconds: float) -> None:
    row = {"test": test, "marks": marks, "cpu": round(seconds, 4), "lines": suite_reach.take()}
    with _out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def pytest_configure() -> None:
    suite_reach.start(PACKAGE)
    _begin(COLLECTING)


def pytest_collection_finish() -> None:
    _note(COLLECTING, [], _cpu())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _begin(item.nodeid)
    marks = [mark.name for mark in item.iter_markers() if mark.name in ("slow", "heavy")]
    before, begun = _cpu(), time.monotonic()
    result = yield
    used = _cpu() - before
    waited = max(0.0, time.monotonic() - begun - used)
    _note(item.nodeid, marks, used + WAIT_SHARE * waited)
    return result


# The choice, from what the plugin wrote.


@dataclass(slots=True, kw_only=True)
class Unit:
    """A test with all its rows, or one row of a dear one."""

    mark: str = "fast"
    seconds: float = 0.0
    lines: dict[str, int] = field(default_factory=dict)
    """By file: bits of the lines that ran."""

    def add(self, lines: Mapping[str, str]) -> None:
        """Add lines; bits come as hexadecimal bytes, the lowest first."""
        for name, bits in lines.items():
            number = int.from_bytes(bytes.fromhex(bits), "little")
            self.lines[name] = self.lines.get(name, 0) | number


def units() -> tuple[dict[str, Unit], Unit]:
    """Return the recorded tests by node id, and what reading them all entered."""
    found: dict[str, Unit] = defaultdict(Unit)
    for path in sorted(RAW.glob("worker.*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            unit = found[row["test"]]
            unit.seconds += row["cpu"]
            unit.mark = next((m for m in ("heavy", "slow") if m in row["marks"]), unit.mark)
            unit.add(row["lines"])
    for path in sorted(RAW.glob("child.*")):
        row = json.loads(path.read_text(encoding="utf-8"))
        if row["test"] in found:
            found[row["test"]].add(row["lines"])
    collecting = found.pop(COLLECTING, Unit())
    return by_function(found), collecting


def by_function(found: Mapping[str, Unit]) -> dict[str, Unit]:
    """Return the rows of cheap tests as one unit each."""
    sums: dict[str, float] = defaultdict(float)
    for node, unit in found.items():
        sums[node.partition("[")[0]] += unit.seconds
    merged: dict[str, Unit] = {}
    for node, unit in found.items():
        function = node.partition("[")[0]
        name = node if sums[function] > BIG_SECONDS else function
        into = merged.setdefault(name, Unit(mark=unit.mark))
        into.seconds += unit.seconds
        for file, bits in unit.lines.items():
            into.lines[file] = into.lines.get(file, 0) | bits
    return merged


def count(lines: Mapping[str, int]) -> int:
    """Return how many lines are in bits by file.

    >>> count({"a.py": 0b101})
    2
    """
    return sum(bits.bit_count() for bits in lines.values())


def union(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return all lines of several."""
    found: dict[str, int] = {}
    for lines in parts:
        for name, bits in lines.items():
            found[name] = found.get(name, 0) | bits
    return found


def later(
    found: Mapping[str, Unit],
    imported: Mapping[str, int],
    dear: Collection[str],
    *,
    seconds: float,
    share: float,
) -> list[str]:
    """Return the tests that wait for `all`, greedily: the least lines a second go first.

    The fast part stays: what is not marked and not among the dear; and the laws. Then what brings
    most new lines for its seconds comes, until the share of all lines is reached; then what is
    cheapest, until the seconds are used up.
    """
    everything = count(union([imported, *(unit.lines for unit in found.values())]))
    mine = {n: u for n, u in found.items() if u.mark != "heavy"}
    waiting = {
        n: u
        for n, u in mine.items()
        if (u.mark == "slow" or n in dear)
        and not n.startswith(WHOLE)
        and not (n.startswith(LAWS) and u.seconds <= LAW_SECONDS)
    }
    kept = [u for n, u in mine.items() if n not in waiting]
    have = union([imported, *(unit.lines for unit in kept)])
    spent = sum(unit.seconds for unit in kept)
    # What a test adds only shrinks while others come, so most need no second look.
    heap = [(-math.inf, name) for name in sorted(waiting)]
    while heap and count(have) < share * everything:
        _, name = heapq.heappop(heap)
        unit = waiting[name]
        new = sum((bits & ~have.get(f, 0)).bit_count() for f, bits in unit.lines.items())
        gain = -new / (unit.seconds + 0.01)
        if heap and gain > heap[0][0]:
            heapq.heappush(heap, (gain, name))
        elif new:
            spent += waiting.pop(name).seconds
            have = union([have, unit.lines])
    for name in sorted(waiting, key=lambda name: waiting[name].seconds):
        if spent + waiting[name].seconds > seconds:
            break
        spent += waiting.pop(name).seconds
    reached = count(union([have, *(u.lines for n, u in mine.items() if n not in waiting)]))
    said = f"{spent:.0f} s in tests, {reached / everything:.1%} of {everything} lines"
    print(f"up to {seconds:.0f} s: {said}")
    return sorted(waiting)


def not_fast(found: Mapping[str, Unit], *, seconds: float) -> list[str]:
    """Return the dearest tests without a mark, so that all others need no more than `seconds`."""
    fast = sorted((n for n, u in found.items() if u.mark == "fast"), key=lambda n: found[n].seconds)
    spent, kept = 0.0, 0
    for name in fast:
        spent += found[name].seconds
        kept += spent <= seconds
    return sorted(fast[kept:])


def choose_fast(costs: Path, read: Iterable[str], *, seconds: float) -> None:
    """Choose the fast part again from the costs of a run of it and the files that it read.

    What it left out stays out.
    """
    kept = json.loads(PLACE.read_text(encoding="utf-8"))
    found: dict[str, Unit] = defaultdict(Unit)
    for line in costs.read_text(encoding="utf-8").splitlines():
        cpu, _, node = line.split("\t", 2)
        found[node].seconds += float(cpu)
    dear = not_fast(by_function(found), seconds=seconds)
    left = {*dear, *filter(_is_there, kept["not_fast"])}
    # A file of which no test is left, or none ran, is not read either.
    ran = {_file(name) for name in found}
    read = set(read)
    if not ran <= read or 2 * len(ran) < len(read):
        raise SystemExit("expected the costs of `./x test fast`: run that first")
    whole = read - {_file(name) for name in by_function(found) if name not in left}
    names = {name for name in left if _file(name) not in whole} | whole
    text = PLACE.read_text(encoding="utf-8")
    old, new = (json.dumps(sorted(one), indent=2) for one in (kept["not_fast"], names))
    if (begin := f'"not_fast": {old}') not in text:
        raise SystemExit(f"{PLACE.name} is not as it was written: record it again")
    PLACE.write_text(text.replace(begin, f'"not_fast": {new}'), encoding="utf-8")


def folded(names: Iterable[str], found: Mapping[str, Unit]) -> list[str]:
    """Return files in the place of all their tests, where every one of them is named."""
    chosen = set(names)
    by_file: dict[str, list[str]] = defaultdict(list)
    for name, unit in found.items():
        if unit.mark != "heavy":
            by_file[_file(name)].append(name)
    result: list[str] = []
    for file, own in by_file.items():
        result += [file] if chosen.issuperset(own) else [name for name in own if name in chosen]
    return sorted(result)


def unrecorded_heavy(found: Mapping[str, Unit]) -> dict[str, float]:
    """Return what the heavy tests of files count of which the recording has none."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-m",
        "heavy and not nightly",
    ]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    known = {_file(name) for name, unit in found.items() if unit.mark == "heavy"}
    nodes = (line.partition("::")[0] for line in listed.splitlines() if "::" in line)
    counts = Counter(file for file in nodes if file not in known)
    # Hundreds of heavy tests of one file are the rows of a table.
    return {file: min(number, ROWS_MAX) * HEAVY_SECONDS for file, number in counts.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What the parts may cost, in seconds of tests, and the share of all lines that they reach."""

    seconds: float
    ci_seconds: float
    fast_seconds: float
    share: float


def write(bounds: Bounds, *, keep: Record) -> None:
    """Write the record from what the last recording left, beside what is kept of the one before."""
    found, collecting = units()
    entered: dict[str, set[str]] = defaultdict(set)
    costs: dict[str, dict[str, float]] = defaultdict(
        lambda: dict.fromkeys(("fast", "slow", "heavy"), 0.0)
    )
    for file, cost in unrecorded_heavy(found).items():
        costs[file]["heavy"] = cost
    for name, unit in found.items():
        file = _file(name)
        costs[file][unit.mark] += unit.seconds
        entered[file].update(unit.lines)
    for file, one in keep.by_file.items():
        costs[file] = {"fast": one.fast, "slow": one.slow, "heavy": one.heavy}
        entered[file] = set(one.sources)
    names = sorted(set().union(*entered.values()))
    found = {n: one for n, one in found.items() if _is_there(n) and _file(n) not in keep.by_file}
    rows = [
        f"  {json.dumps(file)}: "
        + json.dumps(
            [*(round(cost, 2) for cost in costs[file].values()), packed(entered[file], names)]
        )
        for file in sorted(costs)
        if _is_there(file)
    ]
    # Beside what is kept the new files may cost their share of the bounds.
    part = len({_file(name) for name in found}) / max(1, len(rows))
    dear = not_fast(found, seconds=bounds.fast_seconds * part)
    left, by_ci = (
        later(found, collecting.lines, dear, seconds=seconds * part, share=bounds.share)
        for seconds in (bounds.seconds, bounds.ci_seconds)
    )
    left += (name for name in found if name.startswith(LEFT))
    unseen = {*folded(by_ci, found), *filter(_is_there, keep.left_by_ci)}
    waiting = sorted({*folded(left, found), *filter(_is_there, keep.later)} - unseen)
    slow = sorted({*dear, *filter(_is_there, keep.not_fast)})
    text = '{\n "sources": ' + json.dumps(names) + ',\n "later": ' + json.dumps(waiting, indent=2)
    text += ',\n "left_by_ci": ' + json.dumps(sorted(unseen), indent=2)
    text += ',\n "not_fast": ' + json.dumps(slow, indent=2)
    text += ',\n "files": {\n' + ",\n".join(rows) + "\n }\n}\n"
    PLACE.write_text(text, encoding="utf-8")


def _file(name: str) -> str:
    return name.partition("::")[0]


def _is_there(name: str) -> bool:
    return (ROOT / _file(name)).exists()


def record(run: Sequence[str]) -> None:
    """Run tests by a command's arguments to Python, recorded."""
    shutil.rmtree(RAW, ignore_errors=True)
    RAW.mkdir(parents=True)
    place = Path(site.getsitepackages()[0])
    copied, hook = place / "suite_reach.py", place / "zz_suite_reach.pth"
    try:
        shutil.copy(Path(suite_reach.__file__), copied)
        call = f"suite_reach.in_child({str(RAW)!r}, {PACKAGE!r})"
        hook.write_text(f"import suite_reach; {call}\n", encoding="utf-8")
        subprocess.run(
            [sys.executable, "-m", *run, "-p", "scripts.suite_tracer"], cwd=ROOT, check=False
        )
    finally:
        hook.unlink(missing_ok=True)
        copied.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Record what the tests cost and enter.")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--again", action="store_true", help="choose from the last recording")
    only.add_argument("--fast", action="store_true", help="choose from the last ./x test fast")
    only.add_argument("--new", action="store_true", help="record only files that have no record")
    parser.add_argument("--seconds", type=float, default=470, help="for ./x test")
    parser.add_argument("--ci-seconds", type=float, default=1_000, help="for CI, without attacks")
    parser.add_argument("--fast-seconds", type=float, default=60, help="for the fast part")
    parser.add_argument("--lines", type=float, default=0.955, help="share of all that are reached")
    options = parser.parse_args()
    if options.fast:
        read = chosen("fast", Record.read(), None)
        choose_fast(COSTS, read, seconds=options.fast_seconds)
        return
    if not options.again and not hasattr(sys, "monitoring"):
        raise SystemExit("expected Python 3.12 or later: it counts lines with sys.monitoring")
    keep = Record.read() if options.new else Record(by_file={}, later=frozenset())
    if options.new:
        # What has a cost of its heavy tests alone and enters nothing is a guess (unrecorded_heavy).
        by_file = keep.by_file.items()
        known = {file: one for file, one in by_file if one.sources or one.fast or one.slow}
        files = [file for file in keep.files() if file not in known]
        keep = replace(keep, by_file=known)
        if not files:
            raise SystemExit("each file has a record")
        record(["pytest", "-q", "-m", "not nightly", *files])
    elif not options.again:
        record(["scripts.suite", "all"])
    bounds = Bounds(
        seconds=options.seconds,
        ci_seconds=options.ci_seconds,
        fast_seconds=options.fast_seconds,
        share=options.lines,
    )
    write(bounds, keep=keep)


if __name__ == "__main__":
    main()
