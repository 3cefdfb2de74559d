"""Runs the skill tests of other projects against skillhouse and says where the two disagree.

Run it from the project root in its environment, with local checkouts of what is to be compared:

    ./x bench research/conformance --skills-ref agentskills --pi pi-mono --gemini gemini-cli

The tests of skills-ref run themselves, on `validate(strict=True)` (conformance_plugin.py). Those of
pi and Gemini CLI are in TypeScript: each is a case in our own words (conformance_pi.py and
conformance_gemini.py), in the order of its test file, whose titles must be those that were read.
Nothing is downloaded, and nothing is written into a checkout. Exit codes: 0 every disagreement is
known, and has its clause; 1 not so; 2 usage; 3 a checkout does not hold the suite.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from research.conformance_gemini import SUITES as GEMINI
from research.conformance_ground import Case, Ground, Judge, Suite
from research.conformance_pi import PI, REPAIR
from skillhouse.floor import SkillhouseError
from skillhouse.skill import load_profile

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_SECONDS = 120
TESTS = "skills-ref/tests"
"""Where the tests of skills-ref lie in its checkout."""
NAMES = "specification, `name`: `a-z`, `0-9` and hyphens; decision 0003; names.jsonl"
EXACT = "client guide: a file named exactly `SKILL.md`; specification, `Directory structure`"

DECIDED: Mapping[str, tuple[str, str]] = {
    "test_parser.py::test_find_skill_md_accepts_lowercase": ("`skill.md` is no skill", EXACT),
    "test_parser.py::test_read_properties_with_lowercase_skill_md": (
        "`skill.md` is not read; the finding names the file", EXACT),
    "test_parser.py::test_invalid_yaml": (
        "an unclosed bracket is read as text, with the warning `yaml-repaired`", REPAIR),
    "test_prompt.py::test_empty_list": (
        "no skills, no block", "client guide: without skills omit the catalog; S000-35"),
    "test_prompt.py::test_single_skill": (
        "an element and its text share a line", "S000-36: the block as that design lays it out"),
    "test_validator.py::test_unexpected_fields": (
        "an unknown field is information, not an error",
        "vectors, frontmatter stage 4: unknown fields are kept; the specification forbids none"),
    "test_validator.py::test_i18n_chinese_name": ("`name-invalid`", NAMES),
    "test_validator.py::test_i18n_russian_name_with_hyphens": ("`name-invalid`", NAMES),
    "test_validator.py::test_i18n_russian_lowercase_valid": ("`name-invalid`", NAMES),
    "test_validator.py::test_nfkc_normalization": (
        "`name-invalid`, and `name-mismatch`: nothing is normalised", NAMES),
}  # fmt: skip
"""Tests of skills-ref that we fail: what we do instead, and what decides it."""
SUITES: Mapping[str, tuple[Suite, ...]] = {"pi": (PI,), "gemini": GEMINI}
"""The translated suites by the option that names their checkout."""

_TITLE = re.compile(r"""\bit\(\s*(['"`])(.*?)\1""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one case came out."""

    suite: str
    what: str
    outcome: str
    """agree, differ, apart, or broken: not as it was written down."""
    ours: str = ""
    clause: str = ""


class CheckoutError(Exception):
    """A checkout does not hold what is to be run."""


def skills_ref(checkout: Path) -> Iterator[Result]:
    """Yield the outcome of each test of skills-ref.

    Raises:
        CheckoutError: there are no tests, or pytest did not come to their end.
    """
    tests = checkout / TESTS
    if not tests.is_dir():
        raise CheckoutError(f"no directory `{TESTS}` in `{checkout}`")
    outcomes = run_pytest(tests)
    for test, why in outcomes.items():
        ours, clause = DECIDED.get(test, ("", ""))
        expected = "differ" if clause else "agree"
        outcome = "differ" if why else "agree"
        if outcome == expected:
            yield Result(suite="skills-ref", what=test, outcome=outcome, ours=ours, clause=clause)
        else:
            yield Result(
                suite="skills-ref", what=test, outcome="broken", ours=why or "it agrees", clause=""
            )
    for test in DECIDED.keys() - outcomes.keys():
        yield Result(suite="skills-ref", what=test, outcome="broken", ours="no such test any more")


def run_pytest(tests: Path) -> dict[str, str]:
    """Return `{test: "" or why it failed}` of the tests run through the shim.

    Raises:
        CheckoutError: pytest did not come to their end.
    """
    with tempfile.TemporaryDirectory() as place:
        report, settings = Path(place, "report.json"), Path(place, "pytest.ini")
        # Neither their settings nor ours, and no plugin but the shim.
        settings.write_text("[pytest]\n", encoding="utf-8")
        environment = os.environ | {
            "CONFORMANCE_REPORT": str(report),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "bench"), str(ROOT / "src")]),
        }
        command = [
            *(sys.executable, "-m", "pytest", "-q", "-p", "research.conformance_plugin"),
            *("-p", "no:cacheprovider", "--import-mode=importlib", "-c", str(settings)),
            *("--rootdir", place, "--basetemp", str(Path(place, "tests")), str(tests)),
        ]
        try:
            done = subprocess.run(
                command,
                cwd=place,
                env=environment,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CheckoutError(f"pytest took over {TIMEOUT_SECONDS} s on `{tests}`") from None
        # 0 and 1 are tests that ran; anything else means that some are missing from the report.
        if done.returncode not in (0, 1) or not report.exists():
            raise CheckoutError(f"pytest ended with {done.returncode}: {done.stdout[-2000:]}")
        found: dict[str, str] = json.loads(report.read_bytes())
        return found


def translated(suite: Suite, checkout: Path) -> Iterator[Result]:
    """Yield the outcome of each case of a suite.

    Raises:
        CheckoutError: its test file is not there.
    """
    file = checkout / suite.file
    if not file.is_file():
        raise CheckoutError(f"no file `{suite.file}` in `{checkout}`")
    titles = [title for _, title in _TITLE.findall(file.read_text(encoding="utf-8"))]
    if titles_digest(titles) != suite.titles or len(titles) != len(suite.cases):
        yield Result(
            suite=suite.name,
            what=suite.file,
            outcome="broken",
            ours=f"{len(titles)} tests there, {len(suite.cases)} cases here, and other titles",
        )
    for case in suite.cases:
        outcome, ours = played(case, suite, checkout)
        yield Result(
            suite=suite.name, what=case.what, outcome=outcome, ours=ours, clause=case.clause
        )


def titles_digest(titles: Sequence[str]) -> str:
    """Return what `Suite.titles` is of these titles."""
    return hashlib.sha256("\n".join(titles).encode()).hexdigest()[:12]


def played(case: Case, suite: Suite, checkout: Path) -> tuple[str, str]:
    """Return a case's outcome, and what we do instead."""
    try:
        return _played(case, suite, checkout)
    except SkillhouseError as error:
        return "broken", f"{type(error).__name__}: {error}"


def _played(case: Case, suite: Suite, checkout: Path) -> tuple[str, str]:
    if case.judge is None:
        return "apart", case.ours
    is_met = stands(case.judge, suite, checkout)
    if case.instead is None:
        return ("agree", "") if is_met else ("broken", "it does not agree, and no clause says why")
    if is_met:
        return "broken", "it agrees"
    if not stands(case.instead, suite, checkout):
        return "broken", f"neither what is expected nor `{case.ours}`"
    return "differ", case.ours


def stands(judge: Judge, suite: Suite, checkout: Path) -> bool:
    """Return what a judge says on a ground of its own."""
    with tempfile.TemporaryDirectory() as place:
        base = Path(place).resolve()
        for name in ("home", "project"):
            (base / name).mkdir()
        profile = load_profile(suite.profile)
        return judge(Ground(checkout=checkout, base=base, profile=profile))


def commit(checkout: Path) -> str:
    """Return the commit of a checkout, or that there is none."""
    command = ["git", "-C", str(checkout), "log", "-1", "--format=%H, %cs"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "no commit known"


def page(results: Sequence[Result], *, everything: bool = False) -> str:
    """Return the tables of the results, in Markdown; agreements are named on request."""
    lines = [
        "| suite | cases | agree | disagree | nothing to compare |",
        "|---|--:|--:|--:|--:|",
    ]
    for suite in dict.fromkeys(result.suite for result in results):
        outcomes = [result.outcome for result in results if result.suite == suite]
        counts = [outcomes.count(outcome) for outcome in ("agree", "differ", "apart")]
        lines.append(f"| {suite} | {len(outcomes)} | {' | '.join(map(str, counts))} |")
    for outcome, head in (
        ("differ", ("suite", "their test", "ours", "decided by")),
        ("apart", ("suite", "their test", "why there is nothing to compare")),
        ("broken", ("suite", "their test", "not as written down")),
        ("agree", ("suite", "their test")),
    ):
        if outcome == "agree" and not everything:
            continue
        rows = [result for result in results if result.outcome == outcome]
        if rows:
            lines += ["", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
        for row in rows:
            cells = [row.suite, row.what.partition("::")[2] or row.what, row.ours, row.clause]
            shown = (cell.replace("|", "\\|") for cell in cells[: len(head)])
            lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what checkouts are given for and print the tables."""
    parser = argparse.ArgumentParser(
        prog="./x bench research/conformance",
        description="Run the skill tests of other projects against skillhouse.",
    )
    parser.add_argument("--skills-ref", type=Path, metavar="DIR", help="agentskills/agentskills")
    parser.add_argument("--pi", type=Path, metavar="DIR", help="badlogic/pi-mono")
    parser.add_argument("--gemini", type=Path, metavar="DIR", help="google-gemini/gemini-cli")
    parser.add_argument("--all", action="store_true", help="name the agreements too")
    options = vars(parser.parse_args(arguments))
    everything = options.pop("all")
    given = {name: path.resolve() for name, path in options.items() if path is not None}
    if not given:
        parser.error("expected at least one checkout")
    results: list[Result] = []
    try:
        for name, checkout in given.items():
            if name == "skills_ref":
                results += skills_ref(checkout)
            for suite in SUITES.get(name, ()):
                results += translated(suite, checkout)
            print(f"{name}: {commit(checkout)}", file=sys.stderr)
    except CheckoutError as error:
        print(error, file=sys.stderr)
        return 3
    print(page(results, everything=everything))
    return 1 if any(result.outcome == "broken" for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
