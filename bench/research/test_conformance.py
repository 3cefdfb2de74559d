"""Tests of conformance.py on made-up checkouts, and on real ones where there are some."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from research import conformance
from research.conformance import (
    DECIDED,
    SUITES,
    CheckoutError,
    Result,
    main,
    page,
    played,
    skills_ref,
    titles_digest,
    translated,
)
from research.conformance_ground import (
    Ground,
    Judge,
    Suite,
    agree,
    apart,
    differ,
    skill_text,
)
from research.conformance_pi import FIXTURES
from skillhouse.floor.structs import replace

PAGE = Path(__file__).parents[2] / "docs/conformance.md"
MADE_UP = """
from skills_ref.errors import SkillError
from skills_ref.parser import ParseError, parse_frontmatter, read_properties
from skills_ref.prompt import to_prompt
from skills_ref.validator import validate
import skills_ref
import pytest

def put(tmp_path, name, text):
    (tmp_path / name).mkdir()
    (tmp_path / name / "SKILL.md").write_text(text)
    return tmp_path / name

def test_good(tmp_path):
    text = "---\\nname: good\\ndescription: A\\nmetadata:\\n  a: 1.0\\n---\\nB"
    good = put(tmp_path, "good", text)
    assert validate(good) == skills_ref.validate(good) == []
    found = read_properties(good).to_dict()
    assert found == {"name": "good", "description": "A", "metadata": {"a": "1.0"}}
    assert "<name>good</name>" in to_prompt([good])
    repaired, _ = parse_frontmatter("---\\nname: [good\\ndescription: A\\n---\\nB")
    assert repaired["name"] == "[good"

def test_bad(tmp_path):
    (only,) = validate(put(tmp_path, "Bad", "---\\nname: Bad\\ndescription: A\\n---\\n"))
    assert "lowercase" in only
    assert "does not exist" in validate(tmp_path / "none")[0]
    with pytest.raises(SkillError, match="must start with"):
        parse_frontmatter("# Text")

def test_that_we_fail():
    assert to_prompt([]) == "something"

def test_skipped():
    pytest.skip("not here")
"""
"""Tests as skills-ref has them."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout like that of skills-ref."""
    tests = tmp_path / "checkout/skills-ref/tests"
    tests.mkdir(parents=True)
    (tests / "test_made.py").write_text(MADE_UP, encoding="utf-8")
    return tmp_path / "checkout"


@pytest.mark.slow
def test_the_tests_of_skills_ref_run_against_our_judgement(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided = {
        "test_made.py::test_that_we_fail": ("nothing", "clause"),
        "test_made.py::test_good": ("something else", "clause"),
        "test_made.py::test_gone": ("something else", "clause"),
    }
    monkeypatch.setattr(conformance, "DECIDED", decided)
    before = sorted(checkout.rglob("*"))
    found = {result.what.partition("::")[2]: result for result in skills_ref(checkout)}
    assert {name: result.outcome for name, result in found.items()} == {
        "test_good": "broken",
        "test_bad": "agree",
        "test_that_we_fail": "differ",
        "test_skipped": "broken",
        "test_gone": "broken",
    }
    assert [found[name].ours for name in ("test_good", "test_skipped", "test_gone")] == [
        "it agrees",
        "skipped",
        "no such test any more",
    ]
    assert found["test_that_we_fail"].clause == "clause"
    assert sorted(checkout.rglob("*")) == before, "nothing is written into a checkout"


@pytest.mark.slow
def test_a_failure_without_a_clause_fails_the_run(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--skills-ref", str(checkout)]) == 1
    shown = capsys.readouterr().out
    assert "| skills-ref | test_that_we_fail | AssertionError" in shown
    assert "| skills-ref | test_good" not in shown


@pytest.mark.slow
def test_tests_that_cannot_be_collected_are_an_error_and_no_agreement(checkout: Path) -> None:
    (checkout / "skills-ref/tests/test_broken.py").write_text("import skills_ref.nothing\n")
    with pytest.raises(CheckoutError, match="pytest ended with 2"):
        list(skills_ref(checkout))


def _unknown(ground: Ground) -> bool:
    return bool(ground.index().get("none"))


def suite_of(checkout: Path) -> Suite:
    """Return a suite of all kinds of cases, and write its test file."""
    titles = ("first", "it's", "a third", "fourth", "fifth", "sixth", "seventh")
    checkout.mkdir()
    lines = [f'  it("{title}", async () => {{}});' for title in titles]
    (checkout / "a.test.ts").write_text("\n".join(lines), encoding="utf-8")
    return Suite(
        name="made up",
        file="a.test.ts",
        titles=titles_digest(titles),
        profile="gemini-cli",
        cases=(
            agree("one", lambda ground: ground.home.is_dir() and not ground.seen()),
            agree("two", lambda _: False),
            differ("three", lambda _: False, "ours", "clause", lambda _: True),
            differ("four", lambda _: True, "ours", "clause", lambda _: True),
            differ("five", lambda _: False, "ours", "clause", lambda _: False),
            apart("six", "why"),
            agree("seven", _unknown),
        ),
    )


def test_a_case_is_broken_unless_it_is_as_written_down(tmp_path: Path) -> None:
    suite = suite_of(tmp_path / "checkout")
    found = list(translated(suite, tmp_path / "checkout"))
    assert [(result.what, result.outcome, result.ours) for result in found] == [
        ("one", "agree", ""),
        ("two", "broken", "it does not agree, and no clause says why"),
        ("three", "differ", "ours"),
        ("four", "broken", "it agrees"),
        ("five", "broken", "neither what is expected nor `ours`"),
        ("six", "apart", "why"),
        ("seven", "broken", "UnknownSkillError: no skill `none`"),
    ]
    text = page(found)
    assert "| made up | 7 | 1 | 1 | 1 |" in text
    assert "| made up | three | ours | clause |" in text
    assert "| made up | one |" not in text
    assert "| made up | one |" in page(found, everything=True)


@pytest.mark.parametrize(
    ("text", "cases"), [('it("other", () => {});', 7), (None, 6)], ids=["titles", "cases"]
)
def test_cases_that_are_not_those_of_the_test_file_are_reported(
    text: str | None, cases: int, tmp_path: Path
) -> None:
    checkout = tmp_path / "checkout"
    suite = suite_of(checkout)
    suite = replace(suite, cases=suite.cases[:cases])
    if text is not None:
        (checkout / suite.file).write_text(text, encoding="utf-8")
    first = next(translated(suite, checkout))
    assert (first.what, first.outcome) == ("a.test.ts", "broken")


def test_each_case_has_a_place_of_its_own(tmp_path: Path) -> None:
    suite = suite_of(tmp_path / "checkout")
    seen: list[list[str]] = []

    def judge_of(name: str) -> Judge:
        def judge(ground: Ground) -> bool:
            ground.put(f"project/.gemini/skills/{name}/SKILL.md", skill_text(name))
            seen.append(ground.seen())
            return True

        return judge

    cases = tuple(agree(name, judge_of(name)) for name in ("one", "two"))
    list(translated(replace(suite, cases=cases), tmp_path / "checkout"))
    assert seen == [["one"], ["two"]]


def test_a_value_that_is_no_yaml_is_repaired_where_pi_skips_the_skill(tmp_path: Path) -> None:
    (suite,) = SUITES["pi"]
    (case,) = [case for case in suite.cases if case.what.startswith("broken YAML")]
    place = tmp_path / FIXTURES / "skills/invalid-yaml/SKILL.md"
    place.parent.mkdir(parents=True)
    # Not their file, but what matters of it: a bracket that nothing closes, on line 3.
    place.write_text(skill_text("invalid-yaml", "[not closed"), encoding="utf-8")
    assert played(case, suite, tmp_path) == ("differ", case.ours)


def test_what_is_missing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([])
    assert stopped.value.code == 2
    for option, part in (
        ("--skills-ref", "no directory `skills-ref/tests`"),
        ("--pi", "no file `packages/coding-agent/test/skills.test.ts`"),
        ("--gemini", "no file `packages/core/src/skills/skillLoader.test.ts`"),
    ):
        assert main([option, str(tmp_path)]) == 3
        assert part in capsys.readouterr().err


def test_the_page_names_every_disagreement_with_its_clause() -> None:
    rows = [
        Result(suite="skills-ref", what=test, outcome="differ", ours=ours, clause=clause)
        for test, (ours, clause) in DECIDED.items()
    ]
    for suites in SUITES.values():
        for suite in suites:
            for case in suite.cases:
                outcome = "differ" if case.clause else "apart" if case.judge is None else "agree"
                rows.append(
                    Result(
                        suite=suite.name,
                        what=case.what,
                        outcome=outcome,
                        ours=case.ours,
                        clause=case.clause,
                    )
                )
    wanted = [line for line in page(rows).splitlines() if "|--:|" not in line]
    # The counts of skills-ref come from its own tests.
    wanted = [line for line in wanted if not line.startswith("| skills-ref | 10 |")]
    assert set(wanted) <= set(PAGE.read_text(encoding="utf-8").splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--skills-ref", "--pi", "--gemini"])
def test_a_real_checkout_is_as_written_down(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    variable = "CONFORMANCE" + option.upper().replace("--", "_").replace("-", "_")
    place = os.environ.get(variable)
    if not place:
        pytest.skip(f"no checkout: set {variable} to its directory")
    assert main([option, place]) == 0, capsys.readouterr()
