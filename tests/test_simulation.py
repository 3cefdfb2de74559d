"""bench/simulation.py: one seed gives the same rows, and costs are figures that were measured."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "bench/simulation.py"


@pytest.fixture(scope="module")
def simulation() -> Mapping[str, Any]:
    sys.path.insert(0, str(FILE.parent))
    try:
        return runpy.run_path(str(FILE))
    finally:
        sys.path.remove(str(FILE.parent))


def test_the_file_is_as_short_as_was_asked_for() -> None:
    assert len(FILE.read_text(encoding="utf-8").splitlines()) <= 200


def test_the_same_seed_gives_the_same_rows(simulation: Mapping[str, Any]) -> None:
    first, again, other = (simulation["outcome"](100, 2, 4, seed, 20) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_what_there_is_too_little_of_is_what_breaks(simulation: Mapping[str, Any]) -> None:
    outcome = simulation["outcome"]
    assert outcome(100, 4, 20, 1, 30)[-1] == ""
    assert outcome(1_000, 1, 200, 1, 30)[-1] == "**commands**"
    assert outcome(1_000, 20, 2, 1, 30)[-1] == "**executors**"


def test_work_is_neither_lost_nor_made(simulation: Mapping[str, Any]) -> None:
    one = simulation["Simulation"](50, 2, 4, 1)
    one.run(60)
    executors = [each.processor for each in one.executors]
    stations = [*(part for parts in one.replicas for part in parts), one.database, *executors]
    assert all(0 <= each.busy <= each.many for each in stations)
    # An agent thinks five seconds between two calls, so a call takes more than that.
    assert 50 * 60 / 12 < len(one.added) < 50 * 60 / 5
    assert min(one.added) > 0


def test_every_cost_is_a_figure_of_the_benchmarks(simulation: Mapping[str, Any]) -> None:
    lines = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8").splitlines()
    for name, (cost, words) in simulation["COSTS"].items():
        # Requests a second stand for what one takes.
        figure = f"{1_000 / cost:.0f}" if words.split()[-1].isdigit() else f"{cost:g}"
        found = [line for line in lines if words in line]
        assert found, name
        number = re.compile(rf"(?<![\d.]){re.escape(figure)}(?![\d])(?!\.[1-9])")
        assert any(number.search(line) for line in found), (name, figure, found)
