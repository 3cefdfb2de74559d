"""What a week of answers suggests as rules, and what is never suggested."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from skillhouse.approval import Answer
from skillhouse.audit.redaction import HIDDEN
from skillhouse.floor import structs
from skillhouse.house import Skillhouse, configured
from skillhouse.house.rule_suggestions import RuleSuggestions, suggest_rules, with_user_rule
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.tools import ForecastCache
from tests.house.places import make_places
from tests.house.recorded_week import (
    EACH_TIME,
    REFUSED,
    Call,
    get,
    play_week,
    record,
    record_week,
    run,
    write,
)
from tests.permission.lines import DANGEROUS, DENIED, HIDDEN_RM

TESTS = Path(__file__).parents[1]


def suggested(base: Path, *rules: Rule, **options: Any) -> RuleSuggestions:
    with house_with(base, rules) as house:
        return suggest_rules(house, **options)


def house_with(base: Path, rules: Sequence[Rule]) -> Skillhouse:
    config = configured(make_places(base))
    user = (Layer(name="user", rules=tuple(rules)),) if rules else ()
    return Skillhouse(structs.replace(config, layers=user))


def patterns(found: RuleSuggestions) -> list[str]:
    return [f"{one.rule.action} {one.rule.pattern}" for one in found.rules]


def hostile_lines() -> list[str]:
    """Return the lines of the tables of hostile commands that are about some programs of the week,
    and those that are hostile under any harmless rule."""
    tables = (TESTS / "permission/lines_of" / f"{name}.toml" for name in ("git", "rg", "ls", "sed"))
    lines = [
        entry["line"]
        for table in tables
        for entry in tomllib.loads(table.read_text("utf-8")).get("hostile", ())
    ]
    rows = tomllib.loads((TESTS / "permission/rows.toml").read_text("utf-8"))
    lines += [line for row in rows.values() for line in row["hostile"]]
    unlisted = tomllib.loads((TESTS / "attacks/unlisted_lines.toml").read_text("utf-8"))
    lines += [*unlisted["name"].strip().split("\n"), *DANGEROUS, *DENIED, *HIDDEN_RM]
    return list(dict.fromkeys(lines))


HARMLESS_HERE = ("ls *.md",)
"""Hostile where a file is named like an option, of which the week's project has none."""


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("week")
    record_week(base)
    return base


@pytest.mark.slow
def test_a_few_rules_answer_most_of_what_a_week_asked_again_and_again(week: Path) -> None:
    found = suggested(week)
    assert 0 < len(found.rules) <= 8
    assert found.answered_repeated >= 0.7 * found.repeated
    assert found.questions == found.allowed + found.refused
    assert "exec git *" in patterns(found)


@pytest.mark.slow
def test_no_suggestion_lets_a_hostile_line_pass(week: Path) -> None:
    rules = tuple(one.rule for one in suggested(week, rules_max=100).rules)
    assert len(rules) > 8
    lines = hostile_lines()
    assert len(lines) > 60
    # A program of the workspace with the name of a known one: its bytes are asked about.
    (week / "project/ls").write_text("#!/bin/sh\nrm x\n")
    (week / "project/ls").chmod(0o755)
    calls = [run(line) for line in lines]
    assert now_allowed(week, rules, calls) == [run(line) for line in HARMLESS_HERE]


def now_allowed(base: Path, rules: Sequence[Rule], calls: Sequence[Call]) -> list[Call]:
    """Return the calls that the gate lets pass with some rules, and not without them."""
    cache = ForecastCache()
    with house_with(base, rules) as house, house_with(base, ()) as before:
        return [
            call
            for call in calls
            if house.forecast(*call, cache=cache).effect is Effect.ALLOW
            and before.forecast(*call, cache=cache).effect is not Effect.ALLOW
        ]


@pytest.mark.slow
def test_what_was_refused_once_or_is_a_hazard_is_asked_about_as_before(week: Path) -> None:
    rules = [one.rule for one in suggested(week, rules_max=100).rules]
    hazards = [call for _, of in EACH_TIME for call in of]
    assert now_allowed(week, rules, [*REFUSED, *hazards]) == []


@pytest.mark.heavy
def test_the_gate_leaves_the_log_that_the_script_writes(week: Path, tmp_path: Path) -> None:
    play_week(tmp_path)
    played, recorded = suggested(tmp_path), suggested(week)
    assert [one.rule.pattern.replace(str(tmp_path), "") for one in played.rules] == [
        one.rule.pattern.replace(str(week), "") for one in recorded.rules
    ]
    assert played.answered == recorded.answered


def week_of(base: Path, *calls: Call, refused: Sequence[Call] = ()) -> Path:
    """Return a base in whose log each call was allowed four times, and some were refused."""
    project = make_places(base).start
    for name in ("src/a", "src/b", "docs"):
        (project / name).mkdir(parents=True, exist_ok=True)
    (project / "a.txt").write_text("a\n")
    record(base, [(call, True) for call in calls] * 4 + [(call, False) for call in refused])
    return base


@pytest.mark.parametrize(
    ("calls", "refused", "expected"),
    [
        ((run("ls src"),), (), ["exec ls *"]),
        ((run("git log --oneline -3"),), (), ["exec git log --oneline -3 *"]),
        ((run("git log -3"), run("git log --stat")), (), ["exec git log *"]),
        ((run("frobnicate a.txt"),), (), ["exec frobnicate a.txt"]),
        # Three sub-commands are needed for a rule for all that is harmless.
        (
            (run("git status"), run("git log"), run("git branch")),
            (),
            ["exec git *"],
        ),
        # What was refused once is covered by none.
        ((run("cat a.txt"),), (run("cat docs/b.txt"),), []),
        ((run("git log --stat"),), (run("git log -p"),), ["exec git log --stat *"]),
        ((get("https://a.example/1"),), (get("https://a.example/2"),), []),
        ((write("src/a/x"), write("src/b/y")), (), ["write {}/src/*"]),
        ((write("src/a/x"), write("src/a/y")), (), ["write {}/src/a/*"]),
        (
            (write("src/a/x"), write("src/b/y")),
            (write("src/b/z"),),
            ["write {}/src/a/x", "write {}/src/b/y"],
        ),
        ((write("top.txt"),), (), ["write {}/top.txt"]),
        ((get("https://docs.example/a"),), (), ["fetch GET https://docs.example"]),
        # Hazards, and what is approved by its bytes.
        ((run("git push"),), (), []),
        ((run("pytest -q"), run("make"), run("cargo test")), (), []),
        ((run("npm install x"), run("rm a.txt"), run("curl https://a.example")), (), []),
        ((run("python3 -c 'print(1)'"), run("python3 run.py"), run("bash x.sh")), (), []),
        ((run("npm ci --offline"), run("sudo ls"), run("LD_PRELOAD=x ls")), (), []),
        ((run("cat .env"), run("cat ../x"), write(".env"), write(".github/workflows/x")), (), []),
        ((("fetch", {"url": "https://a.example", "method": "POST"}),), (), []),
        ((("read", {"path": "../outside.txt"}), ("read", {"path": "/etc/hostname"})), (), []),
    ],
)
def test_a_rule_is_as_narrow_as_what_it_answers(
    calls: tuple[Call, ...], refused: tuple[Call, ...], expected: list[str], tmp_path: Path
) -> None:
    found = suggested(week_of(tmp_path, *calls, refused=refused))
    root = (tmp_path / "project").resolve()
    assert sorted(patterns(found)) == sorted(one.format(root) for one in expected)


def test_a_line_of_two_commands_takes_two_rules(tmp_path: Path) -> None:
    found = suggested(week_of(tmp_path, run("git add -A && git commit -q -m x")))
    assert sorted(patterns(found)) == ["exec git add -A *", "exec git commit -q -m x *"]
    assert [(one.answers, one.with_others) for one in found.rules] == [(0, 4), (0, 4)]
    assert (found.questions, found.answered, found.repeated) == (4, 4, 4)


def test_narrow_suggests_no_rule_for_a_whole_program(tmp_path: Path) -> None:
    base = week_of(tmp_path, run("git status"), run("git log"), run("git branch"))
    found = suggested(base, narrow=True)
    assert sorted(patterns(found)) == ["exec git branch *", "exec git log *", "exec git status *"]


def test_a_rule_of_the_person_that_is_stricter_goes_on_counting(tmp_path: Path) -> None:
    base = week_of(tmp_path, write("src/a/x"), write("docs/y"))
    root = (base / "project").resolve()
    deny = Rule(effect=Effect.DENY, action="write", pattern=f"{root}/src/*.key")
    assert patterns(suggested(base, deny)) == [f"write {root}/docs/y"]
    ask = Rule(effect=Effect.ASK, action="exec", pattern="ls *")
    assert patterns(suggested(week_of(tmp_path, run("ls src")), ask)) == []


def test_what_the_rules_of_now_answer_is_no_question_any_more(tmp_path: Path) -> None:
    base = week_of(tmp_path, run("ls src"), run("cat a.txt"))
    first = suggested(base)
    assert sorted(patterns(first)) == ["exec cat *", "exec ls *"]
    rest = suggested(base, *(one.rule for one in first.rules[:1]))
    assert patterns(rest) == patterns(first)[1:]
    assert rest.questions == first.questions - 4


def test_only_questions_of_this_place_and_time_are_answered(tmp_path: Path) -> None:
    base = week_of(tmp_path, run("ls src"), refused=[run("cat a.txt")])
    assert suggested(base, since="2999").questions == 0
    other = base / "project" / "docs"
    (other / ".git").mkdir()
    config = configured(structs.replace(make_places(base), start=other))
    with Skillhouse(config) as house:
        assert suggest_rules(house).questions == 0
    # A refusal counts everywhere, and for ever.
    (base / "project/.git/x").write_text("")
    record(base, [(run("cat docs/x"), True)] * 4, agent="another")
    assert patterns(suggested(base)) == ["exec ls *"]


@pytest.mark.parametrize(
    "line", ["frobnicate 'a\x1b[31mb'", "frobnicate 'a\u202eb'", f"frobnicate {HIDDEN}", "ls '*'"]
)
def test_a_text_that_is_not_plain_makes_no_rule(line: str, tmp_path: Path) -> None:
    assert patterns(suggested(week_of(tmp_path, run(line)))) == []


def test_a_refused_text_that_the_log_cut_blocks_all_of_its_program(tmp_path: Path) -> None:
    long = run(f"git show {'a' * 3_000}")
    base = week_of(tmp_path, run("git status"), run("ls src"), refused=[long])
    assert patterns(suggested(base)) == ["exec ls *"]


def test_what_is_asked_about_all_the_same_says_why(tmp_path: Path) -> None:
    found = suggested(week_of(tmp_path, run("git push"), run("ls src"), run("pytest -q")))
    assert [(one.group, one.count) for one in found.once] == [("git push", 4), ("pytest", 4)]
    assert "sends to another place" in found.once[0].why
    (only,) = found.rules
    assert (only.answers, only.seen, only.covers) == (
        4,
        (("ls src", 4),),
        "harmless options and operands of `ls`",
    )


def test_a_refusal_counts_though_the_call_is_not_repeated(tmp_path: Path) -> None:
    base = week_of(tmp_path, run("ls src"), run("cat a.txt"))
    with house_with(base, ()) as house:
        found = house.call_sync(*run("cat docs/x"))
        assert (found.status, found.approval_id is None) == ("pending", False)
        asked = house.approvals.get(found.approval_id or "").request
        house.approvals.answer(
            asked.id, Answer.NO, by="local", channel="library", nonce=asked.nonce
        )
    found_rules = suggested(base)
    assert patterns(found_rules) == ["exec ls *"]
    assert (found_rules.questions, found_rules.refused) == (9, 1)


def test_a_bundle_and_the_managed_file_count_where_this_user_has_no_rule() -> None:
    deny = Rule(effect=Effect.DENY, action="exec", pattern="rm *")
    far = (Layer(name="bundle team 0", rules=(deny,)), Layer(name="managed", rules=(deny,)))
    near = Layer(name="bundle other 0", rules=(deny,), trusted=False)
    mine = Rule(effect=Effect.ALLOW, action="exec", pattern="ls")
    found = with_user_rule((*far, near), mine)
    assert found == (*far, Layer(name="user", rules=(mine,)), near)
    assert with_user_rule(far[:1], mine) == (far[0], Layer(name="user", rules=(mine,)))
