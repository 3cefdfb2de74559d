"""Rules with `scripts = true`: any script of the workspace, and nothing else."""

import pytest

from skillhouse.permission import Effect, Layer, LayerRules, PathPolicy, Rule, judge_argv


def verdict(pattern: str, line: str, *, unbound: bool = False) -> str:
    rule = Rule(effect=Effect.ALLOW, action="exec", pattern=pattern, unbound=unbound, scripts=True)
    rules = LayerRules([Layer(name="user", rules=(rule,))])
    return judge_argv(tuple(line.split()), rules, PathPolicy()).effect


@pytest.mark.parametrize(
    ("pattern", "line", "scripts"),
    [
        ("python3 *.py *", "python3 scripts/recalc.py --all", (("scripts/recalc.py",),)),
        ("python3 *", "python3 scripts/recalc.py --all", (("scripts/recalc.py",),)),
        ("npm run *", "npm run deploy", (("package.json",),)),
        ("python3 *.py *", "python3 run.py", (("run.py",),)),
        ("python3 *.py *", "python3 -u run.py x", (("run.py",),)),
        ("python3 scripts/* *", "python3 scripts/run.py", (("scripts/run.py",),)),
        ("bash *.sh *", "bash -e tools/gen.sh", (("tools/gen.sh",),)),
        ("npm run test* *", "npm run test:unit -- -x", (("package.json",),)),
    ],
)
def test_a_rule_about_scripts_covers_one_and_names_its_file(pattern, line, scripts):
    rule = Rule(effect=Effect.ALLOW, action="exec", pattern=pattern, scripts=True)
    rules = LayerRules([Layer(name="user", rules=(rule,))])
    judged = judge_argv(tuple(line.split()), rules, PathPolicy()).commands[0]
    assert (judged.effect, judged.scripts) == (Effect.ALLOW, scripts)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("python3 *.py *", "python3 -c x.py"),
        ("python3 *.py *", "python3 -c import.os x.py"),
        ("python3 *.py *", "python3 -m x run.py"),
        ("python3 *.py *", "python3 -i run.py"),
        ("python3 *.py *", "python3 evil run.py"),
        ("python3 *.py *", "python3 ../run.py"),
        ("python3 *.py *", "python3 a/../../run.py"),
        ("python3 *.py *", "python3 /root/run.py"),
        ("python3 *.py *", "python3 ~/run.py"),
        ("python3 scripts/* *", "python3 scripts"),
        ("node *.js *", "node -r ./x.js run.js"),
        ("node *.js *", "node --import=./x.js run.js"),
        ("bash *.sh *", "bash -c x.sh"),
        ("bash *.sh *", "bash -s x.sh"),
        ("npm run test* *", "npm run deploy test"),
        ("npm run test* *", "npm --prefix=.. run test"),
        ("python3 *", "python3 -"),
        ("python3 *", "python3 /dev/stdin"),
        ("python3 *", "python3"),
        ("python3 *", "python3 ."),
        ("python3 *", "python3 -m build.py"),
        ("node *", "node scripts/x"),
        ("npm run *", "npm exec x"),
        ("npm *", "npm exec x.js"),
        ("npx *", "npx ./x.js"),
        ("npx *", "npx cowsay.js"),
        ("docker *", "docker exec web tools/x.sh"),
        ("docker exec *", "docker exec web ./x.sh"),
        ("uv run *.py *", "uv run evil run.py"),
    ],
)
def test_a_rule_about_scripts_covers_nothing_else(pattern, line):
    assert verdict(pattern, line, unbound=True) == "ask"


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        ("uv run tools/gen.py", "allow"),
        ("uv run ../gen.py", "ask"),
        ("uv run tools/../../gen.py", "ask"),
        ("uv run /root/gen.py", "ask"),
        ("uv run --with x tools/gen.py", "ask"),
    ],
)
def test_a_program_that_is_a_script_is_one_of_the_workspace(line, effect):
    assert verdict("uv run *.py *", line, unbound=True) == effect


def test_a_final_star_covers_no_further_word_also_after_another_wildcard():
    assert verdict("git log --*line *", "git log --oneline") == "allow"


def test_a_denial_with_a_wildcard_inside_sees_the_plain_words():
    rule = Rule(effect=Effect.DENY, action="exec", pattern="git push *force*")
    rules = LayerRules([Layer(name="user", rules=(rule,))])
    for line in ("git push --force", "git -C sub push --force", "/usr/bin/git push --force"):
        assert rules.denies(tuple(line.split())), line


def test_without_the_key_a_wildcard_names_no_script():
    rule = Rule(effect=Effect.ALLOW, action="exec", pattern="python3 *.py *")
    rules = LayerRules([Layer(name="user", rules=(rule,))])
    assert judge_argv(("python3", "run.py"), rules, PathPolicy()).effect is Effect.ASK


@pytest.mark.parametrize(
    "words",
    [
        "make|test|X=$(shell id)",
        "make|X!=id",
        "make|X:=$(shell id)|test",
        "make|--|X=$(shell id)",
        "make|X=a;id|test",
        "make|X=a&&id",
        "make|X=`id`",
        "make|X=a\nid",
        "make|SHELL=./x",
        "make|.SHELLFLAGS=-x",
        "make|MAKEFLAGS=--eval=x",
        "make|CC=./x",
        "make|CC=sh -c id",
        "gmake|PYTHON=rm x|test",
        "just|build|$(id)",
        "just|x=`id`|build",
        "task|build|X=$(id)",
        "task|build|--|;id",
    ],
)
def test_a_word_that_a_recipe_puts_into_its_line_is_no_task(words: str) -> None:
    argv = tuple(words.split("|"))
    rule = Rule(
        effect=Effect.ALLOW, action="exec", pattern=f"{argv[0]} *", scripts=True, unbound=True
    )
    rules = LayerRules([Layer(name="user", rules=(rule,))])
    assert judge_argv(argv, rules, PathPolicy()).effect is Effect.ASK


@pytest.mark.parametrize(
    "argv",
    [
        ("make", "test", "V=1"),
        ("make", "CC=clang", "PREFIX=/usr/local", "all"),
        ("make", "test", "ARGS=-k 'a or b'"),
        ("just", "x=1", "build", "arg"),
        ("task", "build", "X=1"),
    ],
)
def test_plain_variables_of_a_recipe_are_covered(argv: tuple[str, ...]) -> None:
    rule = Rule(
        effect=Effect.ALLOW, action="exec", pattern=f"{argv[0]} *", scripts=True, unbound=True
    )
    rules = LayerRules([Layer(name="user", rules=(rule,))])
    assert judge_argv(argv, rules, PathPolicy()).effect is Effect.ALLOW
