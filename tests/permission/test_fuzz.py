"""What judged lines do in our runner is what bash does with them, and no more than rules cover."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from skillhouse.permission import Effect, Pipeline, SimpleCommand, judge_command
from skillhouse.sandbox.interpreters import RUNNER
from tests.harness import Need, ran
from tests.permission import fuzz_lines, twin_runs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs bubblewrap"),
]

READING = [f"{name} *" for name in fuzz_lines.READERS]
WRITING = [f"{name} *" for name in fuzz_lines.WRITERS]
LINES = 20_000
ALLOWED_AT_LEAST = 3_000
PARTS = 8
"""Tests that they are, so that several processes share them; the lines of each stay the same."""
IN_CI = 2
"""The others are nightly."""
BATCH = 500


@dataclass(frozen=True, slots=True)
class Case:
    line: str
    plan: Any
    may_write: bool
    """Whether rules cover programs that write to the workspace; else only to `out`."""


def judged(seed: int, lines: int, place: Path) -> Iterator[Case]:
    """Yield the lines that are allowed, of so many that are made."""
    chance = random.Random(seed)
    variables = {**fuzz_lines.VARIABLES, "PWD": str(place)}
    for _ in range(lines):
        line, may_write = fuzz_lines.line(chance), chance.random() < 0.3
        verdict = judge_command(
            line,
            allow=[*READING, *WRITING] if may_write else READING,
            cwd=place,
            writable=[place if may_write else place / "out"],
            environment=variables,
        )
        if verdict.effect is Effect.ALLOW:
            assert verdict.structure is not None
            if not any(map(_is_unsteady, verdict.structure.pipelines)):
                yield Case(line, verdict.structure.value(), may_write)


def _is_unsteady(pipeline: Pipeline) -> bool:
    """Whether the commands of a pipeline may get in the way of each other, with bash as well, or
    print messages of the shell itself, which are not those of our programs."""
    for command in pipeline.commands:
        merges = any(r.kind == "copy" and r.descriptor == 2 for r in command.redirects)
        if merges and command.argv[0] in fuzz_lines.SAYING_OF_THE_SHELL:
            return True
        if command.argv[0] == "diff" and "-" in command.argv:
            # It prints the time at which it read its input.
            return True
    writing = [_writes(command) for command in pipeline.commands]
    naming = [len(command.argv) > 1 for command in pipeline.commands]
    others = any(w and any(naming[:at] + naming[at + 1 :]) for at, w in enumerate(writing))
    return len(writing) > 1 and (sum(writing) > 1 or others)


def _writes(command: SimpleCommand) -> bool:
    kinds = {redirect.kind for redirect in command.redirects}
    return not kinds.isdisjoint(("write", "append")) or command.argv[0] in fuzz_lines.WRITERS


def run_both(cases: list[Case], place: Path) -> Iterator[tuple[Case, Any, Any]]:
    """Yield what our runner and bash did with each case, in a tree of their own in memory."""
    base = place.parent
    command = [
        *("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all"),
        *("--die-with-parent", "--tmpfs", "/tmp", "--tmpfs", str(base), "--chdir", "/"),
        *("--uid", "1000", "--gid", "1000", "--cap-drop", "ALL", "--clearenv", "--"),
        *(os.path.realpath("/usr/bin/python3"), "-I", "-S", "-c", _SOURCE),
    ]
    for first in range(0, len(cases), BATCH):
        batch = cases[first : first + BATCH]
        given = {
            "runner": RUNNER.read_text(),
            "tree": fuzz_lines.TREE,
            "base": str(base),
            "place": place.name,
            "environment": {**fuzz_lines.VARIABLES, "PWD": str(place)},
            "cases": [{"line": case.line, "plan": case.plan} for case in batch],
        }
        done = ran(command, input=json.dumps(given))
        assert done.returncode == 0, done.stderr[-2000:]
        for case, text in zip(batch, done.stdout.splitlines(), strict=True):
            yield case, *json.loads(text)


_SOURCE = Path(twin_runs.__file__).read_text(encoding="utf-8")


def faults(cases: list[Case], place: Path) -> list[str]:
    found = []
    for case, ours, theirs in run_both(cases, place):
        uncovered = [name for name in ours[2] if not _is_covered(name, case)]
        if "bash: line " in f"{theirs[1:]}":
            # Messages of the shell itself are not those of our runner.
            ours, theirs = [[did[0], sorted(did[2])] for did in (ours, theirs)]
        if ours != theirs or uncovered:
            found.append(f"{case.line!r}\n  ours   {ours}\n  bash   {theirs}\n  more   {uncovered}")
    return found


def _is_covered(changed: str, case: Case) -> bool:
    if not case.may_write:
        return changed.startswith("ws/out/")
    return changed.startswith("ws/") and not changed.startswith(("ws/.git", "ws/.env"))


@pytest.fixture
def place(tmp_path: Path, need: Need) -> Path:
    """Return the workspace that lines are judged for; what runs has one of its own."""
    need(shutil.which("bwrap") and shutil.which("bash"), "no bubblewrap or no bash")
    base = tmp_path / "twins"
    base.mkdir()
    twin_runs.make(str(base), fuzz_lines.TREE)
    return base / "ws"


def test_allowed_lines_do_what_bash_does_with_them(place: Path) -> None:
    cases = list(judged(1, 600, place))
    assert len(cases) > 100
    assert faults(cases, place) == []


@pytest.mark.heavy
@pytest.mark.parametrize(
    "part",
    [
        *range(IN_CI),
        *(pytest.param(n, marks=pytest.mark.nightly) for n in range(IN_CI, PARTS)),
    ],
)
def test_many_allowed_lines_do_what_bash_does_with_them(part: int, place: Path) -> None:
    cases = list(judged(1500 + part, LINES // PARTS, place))
    assert len(cases) >= ALLOWED_AT_LEAST // PARTS
    assert faults(cases, place) == []


@pytest.mark.heavy
@settings(max_examples=3, phases=[Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_allowed_lines_of_any_seed_do_what_bash_does_with_them(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.mktemp("twins")
    twin_runs.make(str(base), fuzz_lines.TREE)
    assert faults(list(judged(seed, 1_500, base / "ws")), base / "ws") == []
