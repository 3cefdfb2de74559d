"""`./x check` runs what a change has to pass, and says for each failure what to run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from scripts import check

ROOT = Path(__file__).resolve().parents[1]


def step(name: str, code: int, *, is_long: bool = False) -> check.Step:
    command = (sys.executable, "-c", f"raise SystemExit({code})")
    return check.Step(name=name, command=command, advice=f"do {name}", is_long=is_long)


def test_every_step_runs_and_each_that_failed_says_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert check.run([step("one", 1), step("two", 0), step("three", 3)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("check: ")] == [
        "check: one failed: do one",
        "check: three failed: do three",
    ]
    assert sum(line.startswith("=== ") for line in lines) == 3
    assert check.run([step("one", 0)]) == 0
    assert capsys.readouterr().err.splitlines()[-1].startswith("check: all is well")


def test_tests_wait_until_the_quick_steps_are_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.run([step("one", 1), step("two", 0), step("tests", 0, is_long=True)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines if line.startswith("=== ")] == [
        "=== one", "=== two",
    ]  # fmt: skip
    assert lines[-1].startswith("check: tests did not run")
    assert check.run([step("one", 0), step("tests", 4, is_long=True)]) == 1


def test_it_runs_lint_the_generated_files_and_tests_by_the_one_entry() -> None:
    x = str(ROOT / "x")
    commands = {each.name: each.command for each in check.steps()}
    assert commands["lint"] == (x, "lint")
    assert commands["docs"] == (x, "docs", "--check")
    assert commands["tests"][:2] == (x, "test")
