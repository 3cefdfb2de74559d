"""Findings of the first review, and of the third those of issues 34 to 36: what keeps each away."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest
from scripts.words import REFUSED
from scripts.words import main as refused_words

from tests.test_house import fresh_modules

TESTS = Path(__file__).resolve().parent
FINDINGS = tomllib.loads((TESTS / "data/review_findings.toml").read_text(encoding="utf-8"))
THIRD = (
    "A1 B8 B10 B12 B13 B14 B19 B20 B21 F2 F4 N3 N4 N5 N6 N13",
    "B1 B2 B3 B4 B5 B6 B7 B15 B16 B17 B18 N16 R1 R2 R3 R4 R5 R6 R7 A2 W6",
    "N7 N10 N11 N12 N15 N17 N18 B22 B23 B24 B25 B26 B27 B28 B29 B30 B31 B32 B33 B34 B36 F3 F5",
)
"""Of the third review, by the issue: 35, 34 and 36."""
EXPECTED = (
    [f"D{number}" for number in (1, 3, 4, 5, 6, 9, 10)]
    + [f"N{number}" for number in range(1, 11)]
    + [f"H{number}" for number in range(1, 7)]
    + [f"3-{name}" for names in THIRD for name in names.split()]
)


def names_of(file: Path) -> set[str]:
    """Return the tests that a file defines at its top."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, kinds)}


def test_every_finding_has_a_test_a_record_or_the_issue_that_it_is_left_to() -> None:
    assert list(FINDINGS) == EXPECTED
    for finding in FINDINGS.values():
        assert finding["about"]
        assert finding.keys() & {"tests", "records", "issue"}
        assert finding.keys() <= {"about", "tests", "records", "issue"}


@pytest.mark.parametrize("name", EXPECTED)
def test_what_a_finding_names_exists(name: str) -> None:
    for node in FINDINGS[name].get("tests", ()):
        file, _, test = node.partition("::")
        assert (TESTS / file).is_file(), node
        assert not test or test in names_of(TESTS / file), node
    for record in FINDINGS[name].get("records", ()):
        assert list((TESTS.parent / "docs/decisions").glob(f"{record}-*.md")), record


def test_n1_the_version_loads_no_part_of_the_house() -> None:
    loaded = fresh_modules(
        "import contextlib, io; from skillhouse.frontends.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()): main(['--version'])"
    )
    parts = {name.split(".")[1] for name in loaded if name.startswith("skillhouse.")}
    assert parts <= {"lazy_exports", "frontends"}
    assert not loaded & {"msgspec", "yaml", "sqlite3", "asyncio"}


@pytest.mark.parametrize(
    "text",
    [
        "no rule speaks, and exec is ask by default",
        "skills of ~ lie where not every client looks, or it lies there itself",
        "with the eyes of every client that somebody told us",
        "Nothing happens beside the door.",
        "it was asked anew",
    ],
)
def test_n9_the_words_of_the_review_are_found_where_they_are_written(text: str) -> None:
    assert REFUSED.search(text)


@pytest.mark.slow
def test_n9_no_text_of_ours_has_a_word_that_the_style_refuses(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (refused_words([]), capsys.readouterr().out) == (0, "")
