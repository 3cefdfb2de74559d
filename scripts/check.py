"""Runs what a change has to pass, and says for each that failed what to run: `./x check`.

Lint, the generated files with the public contract, and the tests that the change reaches. The
tests, which take long, run once the other two are well. Exit code 1 if one of them failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENTRY = ROOT / "x"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command, and what to do when it fails."""

    name: str
    command: tuple[str, ...]
    advice: str
    is_long: bool = False
    """It waits until nothing before it fails."""


def steps() -> list[Step]:
    """Return what a change has to pass, the quick ones first."""
    x = str(ENTRY)
    return [
        Step(
            name="lint",
            command=(x, "lint"),
            advice=(
                "`./x lint --fix` fixes format and imports, `./x lint --lower-bars` lowers the bars"
                " of what got better; the rest by hand, as the lines above say"
            ),
        ),
        Step(
            name="docs",
            command=(x, "docs", "--check"),
            advice=(
                "`./x docs` writes the generated files, which belong to the commit; what is gone or"
                " changed in the public contract stays, or goes with a decision record"
            ),
        ),
        Step(
            name="tests",
            command=(x, "test", "changed"),
            advice="`./x test failed` runs the failed ones again, alone and in one process",
            is_long=True,
        ),
    ]


def run(found: Sequence[Step]) -> int:
    """Run some steps, and print what to do about those that failed."""
    failed, waiting = list[Step](), list[Step]()
    for step in found:
        if failed and step.is_long:
            waiting.append(step)
            continue
        print(f"=== {step.name}: {' '.join(step.command)}", file=sys.stderr, flush=True)
        if subprocess.run(step.command, cwd=ROOT, check=False).returncode:
            failed.append(step)
    for step in failed:
        print(f"check: {step.name} failed: {step.advice}", file=sys.stderr)
    for step in waiting:
        print(f"check: {step.name} did not run: they do once the rest is well", file=sys.stderr)
    if not failed:
        print("check: all is well; CI runs `./x test ci` as well", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    argparse.ArgumentParser(prog="./x check", description=__doc__).parse_args()
    raise SystemExit(run(steps()))
