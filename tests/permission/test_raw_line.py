"""Tests of raw_line.py: what is static is judged, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.permission import judge_command, plan_text

ALLOW = ("git commit *", "gh pr create *", "cut *", "ls *", "ls", "wc *", "echo *", "cat *")
DENY = ("rm *", "rm")
COMMIT = "git commit -m \"$(cat <<'EOF'\n{}\nEOF\n)\""


@pytest.mark.parametrize(
    ("line", "plan"),
    [
        (
            COMMIT.format("fix: a\n\nb's $X `y` ) \""),
            ["git", "commit", "-m", "fix: a\n\nb's $X `y` ) \""],
        ),
        (COMMIT.format("").replace("'", '"'), ["git", "commit", "-m", ""]),
        (
            "git commit -m a\\\nb \"$(cat <<'EOF'\na\\\nb\nEOF\n)\"",
            ["git", "commit", "-m", "ab", "a\\\nb"],
        ),
        (
            "gh pr create --title x --body \"$(cat <<'EOF'\n## What\n\n`a` $X\nEOF\n)\"",
            ["gh", "pr", "create", "--title", "x", "--body", "## What\n\n`a` $X"],
        ),
        ("git commit -m $'a\\n\\nb\\'s'", ["git", "commit", "-m", "a\n\nb's"]),
        ("cut -d$'\\t' -f1 a", ["cut", "-d\t", "-f1", "a"]),
        ("echo $'\\x41\\102'", ["echo", "AB"]),
        ("ls a/{b,c}.md", ["ls", "a/b.md", "a/c.md"]),
        ("ls -{l,a}", ["ls", "-l", "-a"]),
        ("(ls a)", ["ls", "a"]),
    ],
)
def test_a_static_form_is_a_plan(line: str, plan: list[str]) -> None:
    found = judge_command(line, allow=ALLOW, deny=DENY, cwd=Path("/w"))
    assert (found.effect.value, found.plan) == ("allow", (tuple(plan),)), found.reasons


def test_a_loop_over_words_is_its_rounds() -> None:
    line = 'for f in a.md b.md; do wc -l "$f" && echo {x,y}; done'
    found = judge_command(line, allow=ALLOW, cwd=Path("/w"))
    round_of = lambda name: (("wc", "-l", name), ("echo", "x", "y"))  # noqa: E731
    assert found.effect.value == "allow"
    assert found.plan == (*round_of("a.md"), *round_of("b.md"))


@pytest.mark.parametrize(
    "line",
    [
        "$'\\x72m' x",
        "$'r\\155' x",
        "(rm x)",
        "(ls; rm x)",
        "for f in a b; do rm $f; done",
        "for f in rm; do $f x; done",
        COMMIT.format("x") + " && rm x",
        COMMIT.format("x").replace("\n)", "\nrm x\n)"),
        COMMIT.format("x").replace("'EOF'", "'EOF' | rm x"),
        COMMIT.format("$(rm x)").replace("'EOF'", "EOF"),
        "git commit -m \"$(cat <<'EOF'\nEOF\nrm x\nEOF\n)\"",
        "ls {a,b}; rm x",
        "{rm,x}",
        "(ls) && (rm x)",
    ],
)
def test_a_denied_program_is_seen_through_each_form(line: str) -> None:
    found = judge_command(line, allow=["*", "echo *", *ALLOW], deny=DENY, cwd=Path("/w"))
    assert found.effect.value in ("deny", "ask"), found
    assert found.effect.value == "deny" or "{rm,x}" in line or "$f" in line, found.reasons


@pytest.mark.parametrize(
    "line",
    [
        "echo $'\\e[2J'",
        "echo $'a\\x0'",
        "echo $'\\u0041'",
        "echo {a,}",
        "echo {a,b}{c,d}{e,$X}",
        "for f in *.md; do wc -l $f; done",
        "for f in -n a; do echo $f; done",
        "for f in a b; do echo '; done",
        "for f in a; do cat <<E; done\nx\nE",
        "for f in $(ls); do echo $f; done",
        "for f in a; do echo $f; done > out",
        "for PATH in a; do echo x; done; ls",
        "(ls) > out",
        "(ls # )",
        "ls >> 2> /dev/null",
        "((ls))",
        "(ls \\)",
        "git commit -m \"x $(cat <<'EOF'\na\nEOF\n)\"",
        "git commit -m $(cat <<'EOF'\na  b\nEOF\n)",
        "\"$(cat <<'EOF'\nls\nEOF\n)\"",
    ],
)
def test_what_is_not_surely_static_needs_a_shell(line: str) -> None:
    found = judge_command(line, allow=ALLOW, cwd=Path("/w"))
    assert found.effect.value != "allow", found.plan
    assert found.plan is None


@pytest.mark.parametrize(
    ("line", "plan"),
    [
        ("set -e; ls; cat a", "ls\nif that succeeds: cat a"),
        ("set -euo pipefail\nls && cat a", "ls\nif that succeeds: cat a"),
        ("set -u; ls; cat a", "ls\ncat a"),
        ("bash -lc 'ls && cat a'", "ls\nif that succeeds: cat a"),
        ("bash -c 'bash -c ls'", "ls"),
        ("set -e; ls && cat a; ls", None),
        ("set -e; X=a; cat $X", "cat a"),
        ("set -eo pipefail; ls | wc -l", None),
        ("ls; set -e; cat a", "ls\ncat a"),
        ("set -x; ls", None),
        ("set -e", None),
        ("bash -lc 'ls $(cat a)'", None),
        ("bash -c 'ls \"$1\"' x a", None),
        ("A=1 bash -c 'ls'", None),
    ],
)
def test_what_a_shell_is_told_first_is_in_the_plan(line: str, plan: str | None) -> None:
    found = judge_command(line, allow=ALLOW, cwd=Path("/w"))
    if plan is None:
        assert found.effect.value == "ask"
        return
    assert found.structure is not None, found.reasons
    shown = plan_text(found.structure).replace('["', "").replace('"]', "").replace('", "', " ")
    assert (found.effect.value, shown) == ("allow", plan)


@pytest.mark.parametrize(
    "line", ["bash -lc 'ls; rm x'", "set -e; ls; rm x", "bash -c 'bash -c \"rm x\"'"]
)
def test_a_denial_holds_in_the_line_of_a_shell(line: str) -> None:
    assert judge_command(line, allow=["*"], deny=DENY, cwd=Path("/w")).effect.value == "deny"


def test_rules_about_the_shell_itself_go_before_its_line() -> None:
    line = "bash -lc 'ls'"
    assert judge_command(line, allow=ALLOW, deny=["bash *"], cwd=Path("/w")).effect.value == "deny"
    exact = judge_command(line, allow=["bash -lc ls"], cwd=Path("/w"))
    assert exact.plan == (("bash", "-lc", "ls"),)
