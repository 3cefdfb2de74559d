"""Compares what the source is like with scripts/bars.toml, which only goes down.

`./x lint` runs it. `./x lint --lower-bars` lowers each bar to what the tree has now, and raises
none: that is done by hand, in a commit that says why. `./x lint --set-bars` writes what the tree
has, for a merge. Exit code 1 when something is above its bar, or a bar above the tree.

Names are files below src/skillhouse, packages, classes or walks. What the bars are for, and how
they were chosen: docs/decisions/0360-bars.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from scripts import duplicates, size, walk

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "scripts" / "bars.toml"
ROUNDS = 3
TOLERANCE = "tolerance"
RAISE = (
    "Save elsewhere what a change adds. Where it is worth more than what it adds, raise the bar by"
    " hand in scripts/bars.toml, in a commit that says why."
)
LOWER = "lower the bar: ./x lint --lower-bars"
HEADER = """\
# What the source may have at most (scripts/bars.py). Lint fails above a bar, and below it until
# `./x lint --lower-bars` has lowered it. A bar is raised by hand, in a commit that says why.
# Lines are in hundreds, rounded up. `tolerance` is how far a value may be off its bar: what a walk
# enters depends on the machine (which sandbox it has) and, by a timer, on the moment.
"""

Values = dict[str, int]
Bars = dict[str, Values]


class Tree:
    """A checkout, read once."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def sizes(self) -> Mapping[str, size.Size]:
        """Files and lines of each package."""
        return size.sizes(self.root)

    @cached_property
    def structure(self) -> size.Structure:
        """Names, cycles and complexity."""
        return size.structure(self.root)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One kind of what has a bar."""

    values: Callable[[Tree], Values]
    unit: str
    advice: str
    """What to do about a value above its bar."""
    step: int = 1
    """Bars are multiples of it."""


def _cycles(tree: Tree) -> Values:
    structure = tree.structure
    every = [*structure.file_cycles.values(), *structure.sibling_cycles.values()]
    return {" ".join(cycle): len(cycle) for cycles in every for cycle in cycles}


MEASURES: dict[str, Measure] = {
    "modules": Measure(
        values=lambda tree: {name: each.files for name, each in tree.sizes.items()},
        unit="files",
        advice="put the new code into a file that has its idea, or merge two files of one idea",
    ),
    "lines": Measure(
        values=lambda tree: {name: each.total for name, each in tree.sizes.items()},
        unit="lines",
        advice="delete as many lines as you add",
        step=100,
    ),
    "names": Measure(
        values=lambda tree: dict(tree.structure.public_names),
        unit="public names of the package",
        advice="offer only what another package uses",
    ),
    "classes": Measure(
        values=lambda tree: {n: len(p) for n, p in tree.structure.repeated_classes.items()},
        unit="classes of this name",
        advice="give the new class a name that no other has",
    ),
    "participles": Measure(
        values=lambda tree: dict.fromkeys(tree.structure.participles, 1),
        unit="module whose name ends in -ing or -ed",
        advice="name it by a noun or by a verb in the imperative",
    ),
    "cycles": Measure(
        values=_cycles,
        unit="files that import each other in a circle",
        advice="move what both need into a third file, or one of them into the other",
    ),
    "complexity": Measure(
        values=lambda tree: dict(tree.structure.complexity),
        unit=f"decisions in a function, of which a new one may have {size.COMPLEXITY_MAX}",
        advice="take a part out of it, or put the cases into a table",
    ),
    "duplicates": Measure(
        values=lambda tree: duplicates.by_files(duplicates.in_tree(tree.root)),
        unit="lines that are there twice (`./x py -m scripts.duplicates` shows them)",
        advice="make one function of them",
    ),
}
WALKS = Measure(
    values=lambda _: {},  # `walked` takes them, because it looks at the bars first.
    unit="files entered (`./x py -m scripts.walk --names` lists them)",
    advice="do without the new file on this way, or load it only when it is needed",
)


def measured(tree: Tree) -> Bars:
    """Return the values of a tree, but those of its walks."""
    return {name: measure.values(tree) for name, measure in MEASURES.items()}


def walked(tree: Tree, bars: Bars) -> tuple[Values, list[str]]:
    """Return how many files each walk enters, and a line for each that could not be walked.

    The fewest of up to three rounds count: a timer may add a file, and nothing takes one away.
    """
    tolerance = bars.get(TOLERANCE, {}).get("walks", 0)
    wanted = bars.get("walks", {})

    def least(name: str) -> int | str:
        counts: list[int] = []
        while len(counts) < ROUNDS:
            try:
                counts.append(len(walk.files_of(walk.walked(name, tree.root))))
            except SystemExit as ended:
                return f"walks: {name}: not measured: {ended}"
            if name in wanted and abs(counts[-1] - wanted[name]) <= tolerance:
                break
        return min(counts)

    with ThreadPoolExecutor(max_workers=2) as pool:
        found = dict(zip(walk.WALKS, pool.map(least, walk.WALKS), strict=True))
    values = {name: value for name, value in found.items() if isinstance(value, int)}
    return values, [value for value in found.values() if isinstance(value, str)]


def faults(values: Bars, bars: Bars) -> list[str]:
    """Return a line for each value that is above its bar, and for each bar that is too high."""
    found = []
    for kind, name, value, bar in _pairs(values, bars):
        measure, tolerance = _measure(kind), bars.get(TOLERANCE, {}).get(kind, 0)
        said = f"{kind}: {name}: {value} {measure.unit}, the bar is {bar}"
        if value > bar + tolerance:
            found.append(f"{said}: {measure.advice}")
        elif _rounded(value, measure.step) < bar - tolerance:
            found.append(f"{said}: {LOWER}")
    return found


def lowered(values: Bars, bars: Bars) -> Bars:
    """Return the bars, each no higher than what the tree has."""
    made: Bars = {kind: {} for kind in values}
    for kind, name, value, bar in _pairs(values, bars):
        tolerance = bars.get(TOLERANCE, {}).get(kind, 0)
        new = _rounded(value, _measure(kind).step)
        made[kind][name] = new if new < bar - tolerance else bar
    return {kind: made.get(kind, table) for kind, table in bars.items()} | made


def _pairs(values: Bars, bars: Bars) -> Iterator[tuple[str, str, int, int]]:
    """Yield each kind and name with its value and its bar; what is not there is 0."""
    for kind, now in values.items():
        listed = bars.get(kind, {})
        for name in sorted({*now, *listed}):
            yield kind, name, now.get(name, 0), listed.get(name, 0)


def _measure(kind: str) -> Measure:
    return WALKS if kind == "walks" else MEASURES[kind]


def _rounded(value: int, step: int) -> int:
    """Return the value, rounded up to a multiple.

    >>> _rounded(4089, 100), _rounded(7, 1)
    (4100, 7)
    """
    return -(-value // step) * step


def written(bars: Bars) -> str:
    """Return the text of the file."""
    tables = [
        "\n".join(
            [f"[{kind}]", *(f"{_key(name)} = {bar}" for name, bar in sorted(table.items()) if bar)]
        )
        for kind, table in bars.items()
    ]
    return "\n\n".join([HEADER.rstrip("\n"), *tables]) + "\n"


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() else json.dumps(name)


def read(file: Path) -> Bars:
    """Return the bars of a file; none when there is no such file."""
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the source with scripts/bars.toml.")
    parser.add_argument("--tree", type=Path, default=ROOT, metavar="DIR")
    parser.add_argument("--bars", type=Path, default=FILE, metavar="FILE")
    parser.add_argument("--no-walks", action="store_true", help="start no processes")
    change = parser.add_mutually_exclusive_group()
    change.add_argument("--lower", action="store_true", help="lower the bars to what is there")
    change.add_argument("--set", action="store_true", help="write what is there, higher or lower")
    options = parser.parse_args()
    bars = read(options.bars)
    if not bars and not options.set:
        print(f"expected bars in {options.bars}: ./x lint --set-bars", file=sys.stderr)
        return 1
    tree = Tree(options.tree.resolve())
    # All rounds of each walk when its bar is set.
    known: Bars = {TOLERANCE: bars.get(TOLERANCE, {})} if options.set else bars
    values, missing = measured(tree), list[str]()
    if not options.no_walks:
        values["walks"], missing = walked(tree, known)
    # A walk needs what this machine may lack, a sandbox for instance; CI has all of it.
    print(*missing, sep="\n", file=sys.stderr, end="\n" if missing else "")
    for name in () if "CI" in os.environ else missing:
        failed = name.split(": ")[1]
        values["walks"][failed] = bars.get("walks", {}).get(failed, 0)
    if options.set:
        steps = {
            kind: {name: _rounded(value, _measure(kind).step) for name, value in table.items()}
            for kind, table in values.items()
        }
        bars = {TOLERANCE: bars.get(TOLERANCE, {}), **steps}
        options.bars.write_text(written(bars), encoding="utf-8")
    elif options.lower:
        bars = lowered(values, bars)
        options.bars.write_text(written(bars), encoding="utf-8")
    found = faults(values, bars)
    print(*found, sep="\n", end="\n" if found else "")
    if any(LOWER not in fault for fault in found):
        print(RAISE)
    return 1 if found or (missing and "CI" in os.environ) else 0


if __name__ == "__main__":
    raise SystemExit(main())
