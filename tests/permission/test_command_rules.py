"""Tests of permission/command_rules.py."""

from __future__ import annotations

import shlex

import pytest

from skillhouse.floor.rules import Effect
from skillhouse.permission import ArgumentRules, Breadth, LayerRules
from skillhouse.permission.command_rules import narrows, standing_rule
from skillhouse.permission.decision import Layer, Rule


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("git status", "git status *"),
        ("git log --oneline -5 main", "git log --oneline -5 *"),
        ("git log main --oneline", "git log --oneline *"),
        ("git --no-pager diff a b", "git --no-pager diff *"),
        ("git", "git"),
        ("gh pr view 1", "gh pr view *"),
        ("docker compose ps", "docker compose ps *"),
        ("docker compose", "docker compose"),
        ("ls -l sub", "ls -l *"),
        ("cat a.txt", "cat *"),
        ("cp a.txt b.txt", "cp a.txt b.txt"),
        ("tee out.txt", "tee out.txt"),
        ("no-such-program --now x", "no-such-program --now x"),
        ("no-such-program 'a b'", "no-such-program 'a b'"),
        ("node -p process.version", "node -p process.version"),
        ("node --input-type=module -e 'a()'", "node --input-type=module -e a()"),
        ("python3 -c 'import x; x.y()'", "python3 -c 'import x; x.y()'"),
        (".venv/bin/python -c 'print(1)'", ".venv/bin/python -c print(1)"),
        ("npm ci --offline --no-audit", "npm ci --offline --no-audit"),
        ("npm i --offline", "npm i --offline"),
        ("pnpm install --offline --frozen-lockfile", "pnpm install --offline --frozen-lockfile"),
    ],
)
def test_a_standing_approval_is_the_sub_command_with_its_options(line: str, rule: str) -> None:
    argv = tuple(shlex.split(line))
    assert standing_rule(argv) == rule
    layer = Layer(name="grants", rules=(Rule(effect=Effect.ALLOW, action="exec", pattern=rule),))
    ruling = LayerRules([layer]).rule(argv)
    assert (ruling.cover is not Breadth.NONE, ruling.left) == (True, "")


@pytest.mark.parametrize(
    "line",
    [
        "git push",
        "git push origin main",
        "git -c core.pager=./x log",
        "git fetch https://example.org/x.git",
        "git log --no-such-option",
        "git no-such-word",
        "npm install lodash",
        "npm test",
        "npm publish",
        "gh pr merge 1",
        "gh api repos",
        "pip install x",
        "docker compose down -v",
        "docker run image",
        "curl https://example.org",
        "rm x",
        "rm -rf build",
        "rmdir x",
        "python x.py",
        "python3.11 -m pytest",
        "perl x.pl",
        "bash -c ls",
        "sudo ls",
        "env ls",
        "env FOO=1 ls",
        "timeout 5 ls",
        "xargs rm",
        "find . -delete",
        "/x",
        "make",
        "no-such-program *",
        "no-such-program a?",
        "no-such-program 'a\\b'",
        "ls 'a*b'  -l --no-such",
        "node -e 'a * b'",
        "node -e",
        "node -e a() x.js",
        "node -e a() -e b()",
        "node -r ./x.js -e a()",
        "node --env-file=x -e a()",
        "node",
        "python3 -c 'print(1)' x.py",
        "python3 -W error::x.Y -c print(1)",
        "python3 -X pycache_prefix=x -c print(1)",
        "/usr/bin/python3 -c print(1)",
        "uv run python -c print(1)",
        "env A=1 node -e a()",
        "perl -e 1",
        "npm ci",
        "npm install",
        "npm install --offline lodash",
        "npm install --offline ./x",
        "npm install --offline -g",
        "npm install --offline --no-package-lock",
        "npm install --offline --script-shell=./x",
        "npm ci --offline=false",
        "npm ci --offline --registry=https://example.org",
        "npm ci --offline --userconfig=x",
        "npm ci --offline --prefix sub",
        "npm ci --offline --force",
        "npm update --offline",
        "npm rebuild --offline",
        "npm install-test --offline",
        "pnpm -r install --offline",
        "pnpm install --offline --pnpmfile=x.cjs",
        "pnpm add --offline x",
        "yarn install --offline",
        "uv sync --offline",
        "uv run --offline x.py",
    ],
)
def test_there_is_none_for_a_hazard_or_for_what_is_not_understood(line: str) -> None:
    assert standing_rule(shlex.split(line)) == ""


def test_a_program_of_the_workspace_gets_its_exact_words() -> None:
    """Its bytes are asked about besides (tools/approved_scripts.py)."""
    assert standing_rule(["./scripts/run", "a"]) == "./scripts/run a"
    assert standing_rule([".venv/bin/python", "x.py"]) == ""


def test_no_words_have_no_rule() -> None:
    assert (standing_rule([]), standing_rule([""])) == ("", "")


@pytest.mark.parametrize(
    ("lasting", "other"),
    [
        ("git status", "git push"),
        ("git log", "git log --output=x"),
        ("docker compose ps", "docker compose down -v"),
        ("docker compose", "docker compose down"),
        ("gh pr view 1", "gh pr merge 1"),
        ("gh pr view 1", "gh pr view 1 --web"),
        ("npm ls", "npm install lodash"),
        ("git", "git push"),
        ("git remote", "git remote add x ext::sh"),
        ("ls", "lsof"),
        ("cp a b", "cp a c"),
        ("node -p process.version", "node -p process"),
        ("npm ci --offline", "npm ci"),
        ("npm ci --offline", "npm ci --offline --prefix=.."),
    ],
)
def test_it_covers_no_other_sub_command(lasting: str, other: str) -> None:
    rules = ArgumentRules([standing_rule(lasting.split()) or "nothing"])
    ruling = rules.rule(tuple(other.split()))
    assert ruling.cover is Breadth.NONE or ruling.left


@pytest.mark.parametrize(
    ("offered", "given", "is_narrower"),
    [
        ("git log *", "git log *", True),
        ("git log *", "git log", True),
        ("git log *", "git log --oneline *", True),
        ("git log *", "git log main *", True),
        ("cat *", "cat a.txt", True),
        ("git log *", "git *", False),
        ("git log *", "git push *", False),
        ("git log *", "git log*", False),
        ("git log *", "*", False),
        ("git log *", "", False),
        ("git log *", "git log --output=x *", False),
        ("git log *", "git log --no-such *", False),
        ("cat *", "cat ?", False),
        ("cp a b", "cp a b *", False),
        ("cp a b", "cp a", False),
        ("git remote *", "git remote add *", False),
    ],
)
def test_a_person_may_only_narrow_it(offered: str, given: str, is_narrower: bool) -> None:
    assert narrows(offered, given) is is_narrower


@pytest.mark.parametrize(
    ("written", "is_granted"),
    [
        ([], True),
        (["node *"], True),
        (["node -e a()"], False),
        (["npm ci *"], True),
        (["*"], False),
    ],
)
def test_a_rule_that_a_person_wrote_is_no_standing_approval(
    written: list[str], is_granted: bool
) -> None:
    rules = [Rule(effect=Effect.ALLOW, action="exec", pattern=pattern) for pattern in written]
    granted = Rule(effect=Effect.ALLOW, action="exec", pattern="node -e a()")
    layers = [Layer(name="user", rules=tuple(rules)), Layer(name="grants", rules=(granted,))]
    ruling = LayerRules(layers).rule(("node", "-e", "a()"))
    assert ruling.is_granted is is_granted
    assert LayerRules(layers[:1]).rule(("node", "-e", "a()")).is_granted is False


def test_an_install_by_a_standing_approval_runs_code_and_has_no_network() -> None:
    rule = Rule(effect=Effect.ALLOW, action="exec", pattern="npm ci --offline")
    for name, unbound in (("grants", True), ("user", False)):
        ruling = LayerRules([Layer(name=name, rules=(rule,))]).rule(("npm", "ci", "--offline"))
        assert ruling.unbound is unbound
