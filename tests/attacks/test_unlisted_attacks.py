"""Attacks by programs that no table knows, and by those that start others (red team R1).

The lines were written before anybody looked at the tables. A rule by its text, as permission lists
have it, allows every hostile one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from skillhouse.permission import (
    CommandVerdict,
    Effect,
    Layer,
    LayerRules,
    PathPolicy,
    Rule,
    judge_line,
)

ALLOW, DENY = Effect.ALLOW, Effect.DENY
LINES = {
    kind: text.strip("\n").split("\n")
    for kind, text in tomllib.loads(
        Path(__file__).with_name("unlisted_lines.toml").read_text(encoding="utf-8")
    ).items()
}
Judge = Callable[..., CommandVerdict]


def rule(effect: Effect, pattern: str, *, unbound: bool = False) -> Rule:
    return Rule(effect=effect, action="exec", pattern=pattern, unbound=unbound)


FENCE = (
    rule(ALLOW, "*"),
    *(rule(DENY, pattern) for pattern in ("rm *", "git push *", "curl *", "npm publish *")),
)


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    for name in ("a.txt", "data.csv", "x.py", "a.c", "evil.conf"):
        (tmp_path / name).write_text("x\n")
    (tmp_path / "evil").write_text("#!/bin/sh\n")
    (tmp_path / "evil").chmod(0o755)
    for name in ("src", "v"):
        (tmp_path / name).mkdir()

    def judge(line: str, *rules: Rule) -> CommandVerdict:
        layers = LayerRules([Layer(name="user", rules=rules)])
        return judge_line(line, layers, PathPolicy(tmp_path, writable=(tmp_path,)))

    return judge


def own(line: str) -> Rule:
    return rule(ALLOW, f"{line.split(maxsplit=1)[0]} *")


def test_r1_no_hostile_line_passes_under_a_rule_for_its_program(judge: Judge) -> None:
    assert all(fnmatchcase(line, own(line).pattern) for line in LINES["name"])
    passed = [line for line in LINES["name"] if judge(line, own(line)).effect is ALLOW]
    assert passed == []


def test_r1_no_spelling_of_what_is_denied_passes_beside_an_allow_of_everything(
    judge: Judge,
) -> None:
    denied = [rule.pattern for rule in FENCE[1:]]
    naive = [one for one in LINES["fence"] if not any(fnmatchcase(one, p) for p in denied)]
    assert len(naive) > 100
    assert [line for line in naive if judge(line, *FENCE).effect is ALLOW] == []


def test_ordinary_lines_pass_under_both(judge: Judge) -> None:
    for line in LINES["daily"]:
        assert judge(line, own(line)).effect is ALLOW, line
        assert judge(line, *FENCE).effect is ALLOW, line


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # A denied program is denied at its place, in a word and behind a letter.
        *(("frob rm x", "deny"), ("frob 'a:rm x'", "deny"), ("frob -xrm x", "deny")),
        *(
            ("./evil rm x", "deny"),
            ("python3 -m frob rm x", "deny"),
            ("timeout 5 frob rm x", "deny"),
        ),
        ("uv run frob rm x", "deny"),
        # A text that a program reads.
        *(("echo 'rm x' | sh", "ask"), ("sqlite3 a.db <<< '.shell rm x'", "ask")),
        ("cat <<'E' > a.txt\nrm x\nE", "allow"),
        ("git commit -m 'no rm'", "allow"),
        ("grep rm a.txt", "allow"),
        # Programs of the workspace are code that no rule sees.
        *(("./evil --x=1", "allow"), ("python3 x.py --rm", "allow"), ("pytest -q", "allow")),
    ],
)
def test_what_a_fence_sees(judge: Judge, line: str, expected: str) -> None:
    assert judge(line, *FENCE).effect == expected


@pytest.mark.parametrize(
    ("pattern", "line", "expected"),
    [
        ("frob *", "frob a.txt src --json", "allow"),
        ("frob *", "frob x.py", "ask"),
        ("frob *", "frob evil", "ask"),
        ("frob *", "frob nothing/here", "ask"),
        ("frob *", "frob -o out", "ask"),
        ("frob --x=1 *", "frob --x=1 a.txt", "allow"),
        ("frob push *", "frob push", "allow"),
        ("frob *", "frob push", "ask"),
        ("python3 -m frob *", "python3 -m frob x.py", "ask"),
        ("python3 -m frob *", "python3 -m frob -v a.txt", "allow"),
    ],
)
def test_what_a_wildcard_covers_of_an_unknown_program(
    judge: Judge, pattern: str, line: str, expected: str
) -> None:
    assert judge(line, rule(ALLOW, pattern)).effect == expected


def test_an_unbound_rule_covers_all_words_without_network(judge: Judge) -> None:
    free = rule(ALLOW, "frob *", unbound=True)
    verdict = judge("frob --x=1 sh -c y ./evil", free)
    assert (verdict.effect, verdict.commands[0].unbound) == (ALLOW, True)
    assert judge("frob sh -c 'rm x'", free, rule(DENY, "rm *")).effect is DENY
    assert judge("frob deploy", free, rule(Effect.ASK, "deploy")).effect is Effect.ASK


def test_a_long_line_is_judged_in_time(judge: Judge) -> None:
    line = "frob " + "time a:b " * 900
    assert judge(line, *FENCE).effect is not ALLOW
