"""Patterns of rules about commands: what they cover, what they leave, what they deny."""

from __future__ import annotations

import pytest

from skillhouse.permission import (
    Decision,
    Effect,
    Layer,
    LayerRules,
    PathPolicy,
    Permission,
    Rule,
    command_resource,
    decide,
    judge_command,
    judge_line,
)
from skillhouse.permission.command_reader import read_command


def allowed(pattern: str, line: str, *, unbound: bool = False) -> bool:
    rule = Rule(effect=Effect.ALLOW, action="exec", pattern=pattern, unbound=unbound)
    rules = LayerRules([Layer(name="user", rules=(rule,))])
    return judge_line(line, rules, PathPolicy()).effect is Effect.ALLOW


def denied(pattern: str, line: str) -> bool:
    every = Rule(effect=Effect.ALLOW, action="exec", pattern="*")
    rule = Rule(effect=Effect.DENY, action="exec", pattern=pattern)
    by_layer = judge_line(
        line, LayerRules([Layer(name="user", rules=(every, rule))]), PathPolicy()
    ).effect
    if "*" not in pattern.removesuffix(" *"):  # Rules by argument have no other wildcard.
        by_argument = judge_command(line, allow=["*"], deny=[pattern]).effect
        assert (by_layer is Effect.DENY) == (by_argument is Effect.DENY)
    return by_layer is Effect.DENY


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("git log *", "git log"),
        ("git log *", "git --no-pager log --oneline -5"),
        ("git log", "git --no-pager log"),
        ("git log --oneline *", "git log -5 --oneline"),
        ("git push origin *", "git push origin main"),
        ("git push --force *", "git push origin main --force"),
        ("npm run build *", "npm run build -- --fast"),
        ("npm run build *", "npm --silent run build"),
        ("npm run build", "npm run-script build"),
        ("python scripts/x.py *", "python scripts/x.py a b"),
        ("docker exec web ls *", "docker exec web ls -l"),
        ("g?t log*", "git log -5"),
        ("made-up go *", "made-up go there"),
        ("./tools/gen.sh *", "./tools/gen.sh a"),
    ],
)
def test_a_pattern_covers_what_it_names(pattern: str, line: str) -> None:
    assert allowed(pattern, line)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        # G9: words without a table entry, options and addresses that run a program.
        ("git clone *", "git clone -c core.sshCommand=x https://example.org/a.git"),
        ("git rebase *", "git rebase -x make main"),
        ("git bisect *", "git bisect run make"),
        ("git frobnicate *", "git frobnicate --exec x"),
        ("git fetch *", "git fetch ext::sh%20-c%20x"),
        ("git push *", "git push --force"),
        ("git push *", "git push origin +main"),
        ("git push *", "git push origin :main"),
        ("git push origin *", "git push --delete origin main"),
        # G10: a word before the sub-command hides nothing.
        ("npm *", "npm run deploy"),
        ("npm *", "npm -s run deploy"),
        ("npm *", "npm --prefix x run y"),
        ("npm run *", "npm run deploy"),
        ("npm run build *", "npm --prefix ../other run build"),
        ("npm *", "npm i left-pad"),
        ("npm *", "npm insta left-pad"),
        ("docker *", "docker --context far run x"),
        ("uv *", "uv --quiet run x"),
        ("go *", "go -C ../x generate"),
        ("cargo *", "cargo +nightly run"),
        # Interpreters.
        ("python *", "python scripts/x.py"),
        ("python scripts/x.py *", "python -c x"),
        ("python scripts/x.py *", "python -i scripts/x.py"),
        ("python scripts/*", "python scripts/x.py"),
        ("python ../x.py *", "python ../x.py"),
        ("python -m *", "python -m http.server"),
        ("python -m pytest *", "python -m pytest tests"),
        ("make *", "make test"),
        ("xargs *", "xargs rm"),
        ("xargs rm *", "xargs rm"),
        ("made-up go *", "made-up --first go"),
        ("./tools/gen.sh *", "tools/gen.sh a"),
        ("* status", "git push status"),
    ],
)
def test_a_wildcard_does_not_cover_what_it_does_not_name(pattern: str, line: str) -> None:
    assert not allowed(pattern, line)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("pytest *", "pytest tests"),
        ("make test *", "make test"),
        ("python -m pytest *", "python -m pytest tests -q"),
        ("npm test *", "npm test"),
        # The workspace comes before the library for modules.
        ("python -m json.tool *", "python -m json.tool a.json"),
        ("uv run pytest *", "uv run pytest -q"),
    ],
)
def test_only_an_unbound_rule_covers_what_runs_the_workspace(pattern: str, line: str) -> None:
    assert allowed(pattern, line, unbound=True)
    assert not allowed(pattern, line)


def test_an_exact_rule_covers_its_words_whatever_they_do() -> None:
    assert allowed("make test", "make test")
    assert allowed("python -c 'print(1)'", "python -c 'print(1)'")
    assert not allowed("make test", "make test -B")


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("git push *", "git push"),
        ("git push *", "git -C sub push origin main"),
        ("git push *", "git -c a.b=c push"),
        ("git push *", "/usr/bin/git push"),
        ("git push *", "timeout 5 git push"),
        ("git push --force *", "git push origin main --force"),
        ("git push --force *", "git push origin -f"),
        ("git push --force *", "git push -uf origin"),
        ("git push --force *", "git push --forc"),
        ("git push --force *", "git push --unheard-of --force"),
        ("git push", "git --no-pager push"),
        ("npm install *", "npm i x"),
        ("npm install *", "npm --prefix sub add x"),
        ("npm install *", "npm insta x"),
        ("npm publish *", "npm --registry https://x.example publish"),
        ("docker compose down *", "docker-compose down -v"),
        ("docker rm *", "docker container rm x"),
        ("docker container rm *", "docker rm x"),
        ("docker container *", "docker -H tcp://x container rm y"),
        ("helm uninstall *", "helm -n x del y"),
        ("kubectl get secrets *", "kubectl get pods,secrets"),
        ("make deploy *", "make all deploy"),
        ("bash -c *", "bash -lc ls"),
        ("pip install *", "python -m pip install x"),
        ("pip install *", "pip3 install x"),
        ("pytest *", "uv run pytest"),
        ("npm exec *", "npx cowsay"),
        ("make *", "gmake x"),
        ("*push*", "git -C sub push"),
        ("git pu*", "git --no-pager push"),
    ],
)
def test_a_deny_reaches_every_spelling(pattern: str, line: str) -> None:
    assert denied(pattern, line)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("git push *", "git commit -m push"),
        ("git push *", "git log --grep push"),
        ("npm install *", "npm run install-hooks"),
        ("git push --force *", "git push origin main"),
    ],
)
def test_a_deny_is_about_nothing_else(pattern: str, line: str) -> None:
    assert not denied(pattern, line)


def decision_of(effect: Effect, pattern: str, *argv: str) -> Decision:
    layer = Layer(name="user", rules=(Rule(effect=effect, action="exec", pattern=pattern),))
    wanted = Permission(action="exec", resource=command_resource(argv), argv=argv)
    return decide([layer], wanted)


def test_a_decision_about_a_command_goes_by_its_grammar() -> None:
    assert decision_of(Effect.DENY, "git push *", "git", "push").effect is Effect.DENY
    assert decision_of(Effect.DENY, "npm install *", "npm", "i", "x").effect is Effect.DENY
    assert decision_of(Effect.ALLOW, "git log *", "git", "-P", "log").effect is Effect.ALLOW
    assert decision_of(Effect.ALLOW, "git log *", "git", "push").layer == "default"


def test_a_command_is_read_as_its_program_reads_it() -> None:
    meaning = read_command(("git", "--no-pager", "-C", "sub", "log", "-5", "--", "a"))
    assert meaning.path == ("log",)
    assert meaning.directory == ["sub"]
    assert meaning.words(meaning.operands) == ("a",)
    assert not meaning.unknown
    inner = read_command(("uv", "run", "python", "x.py")).started
    assert inner is not None
    assert inner.scripts == [("x.py",)]
