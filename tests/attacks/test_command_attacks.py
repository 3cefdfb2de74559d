"""Attacks on the judge of commands: judges of the usual kinds fall for each, ours does not.

reference/security.md 6: 60 adversarial commands, 65 what a lasting yes must not cover, 67 the
edges of wildcards.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse.permission import (
    Effect,
    Layer,
    LayerRules,
    PathPolicy,
    Rule,
    command_resource,
    judge_command,
    judge_line,
    matches,
    standing_rule,
)
from skillhouse.tools import shown_variables
from tests.permission.lines import ALLOW, DANGEROUS, vectors


def by_string_prefix(line: str, allow: list[str]) -> bool:
    """Allow what begins like a rule, as many permission lists do."""
    return any(line.strip().startswith(rule.removesuffix("*").strip()) for rule in allow)


def by_first_word(line: str, allow: list[str]) -> bool:
    """Allow by the program that shlex sees first (`shlex.split(line)[0]`)."""
    try:
        words = shlex.split(line)
    except ValueError:
        return False
    return bool(words) and words[0] in {rule.split()[0] for rule in allow}


def by_split_operators(line: str, allow: list[str]) -> bool:
    """Allow when the first word of each part between operators is allowed."""
    parts = [part for part in re.split(r"&&|\|\||[;|\n]", line) if part.strip()]
    return bool(parts) and all(by_first_word(part, allow) for part in parts)


NAIVE: list[Callable[[str, list[str]], bool]] = [
    by_string_prefix,
    by_first_word,
    by_split_operators,
]
"""The judges of reference/security.md 2.4, which it measured at 66%, 60% and 48% bypassed."""

ATTACKS = {
    "a second command": "ls; touch x",
    "a second line": "ls\ntouch x",
    "a command in the background": "ls & touch x",
    "a substitution": "echo $(touch x)",
    "a substitution in quotes": 'echo "`touch x`"',
    "a process as a file": "cat <(touch x)",
    "a redirection": "echo x > /outside/canary",
    "a start file": "echo evil > ~/.bashrc",
    "a variable in a target": "echo x > $HOME/.profile",
    "a wrapper": "env touch x",
    "a wrapper that splits": "env -S 'touch x'",
    "find that runs": "find . -exec touch x ;",
    "find that deletes": "find . -delete",
    "find that writes": "find . -fprintf /outside/canary x",
    "a shortened option": "sort --outp=x /dev/null",
    "an option that runs a program": "sort --compress-program=./evil a",
    "an escape that parsers drop": 'cat a"b"\\ ; touch x',
    "a pattern that becomes an option": "sort *",
    "a function with an allowed name": "ls() { touch x; }; ls",
}
WRAPPING = [*ALLOW, "env *"]


@pytest.mark.parametrize("name", ATTACKS)
def test_a_command_that_does_more_than_it_seems_is_not_allowed(name: str) -> None:
    line = ATTACKS[name]
    assert any(judge(line, WRAPPING) for judge in NAIVE)
    assert judge_command(line, allow=WRAPPING).effect is not Effect.ALLOW


@pytest.mark.parametrize("naive", NAIVE, ids=lambda judge: judge.__name__)
def test_naive_judges_are_bypassed_by_the_adversarial_vectors_and_ours_never(
    naive: Callable[[str, list[str]], bool],
) -> None:
    attacks = [v for v in vectors() if v["expect"]["effect"] != "allow"]
    bypassed, ours = 0, 0
    for vector in attacks:
        given = vector["given"]
        bypassed += naive(given["command"], given["allowlist"])
        verdict = judge_command(given["command"], allow=given["allowlist"])
        ours += verdict.effect is Effect.ALLOW
    # The reference counted a half to two thirds on its larger set.
    assert bypassed > len(attacks) / 4
    assert ours == 0


@pytest.mark.parametrize("naive", NAIVE, ids=lambda judge: judge.__name__)
def test_naive_judges_are_bypassed_by_our_own_lines(
    naive: Callable[[str, list[str]], bool],
) -> None:
    assert sum(naive(line, ALLOW) for line in DANGEROUS) > len(DANGEROUS) / 5


NOT_COVERED = [
    "git status; touch x",
    "git status && touch x",
    "git status | sh",
    "git status\ntouch x",
    "git status > .bashrc",
    "git status $(touch x)",
    "git -c core.fsmonitor=./evil status",
    "git -C /elsewhere status",
    "GIT_DIR=/elsewhere git status",
    "gitk",
    "gitk status",
    "git statusx",
    "env -S 'git status; x'",
    "git push",
    "git",
]


@pytest.mark.parametrize("line", NOT_COVERED)
def test_always_for_git_status_covers_nothing_else(line: str) -> None:
    patterns = [standing_rule(("git", "status"))]
    # What a prefix makes of the same yes.
    naive = by_string_prefix(line, ["git*"]) or by_first_word(line, ["git *"])
    grants = Layer(
        name="grants",
        rules=tuple(Rule(effect=Effect.ALLOW, action="exec", pattern=p) for p in patterns),
    )
    found = judge_line(line, LayerRules([grants]), PathPolicy())
    assert found.effect is not Effect.ALLOW
    assert naive or line.startswith(("GIT_DIR", "env"))
    assert judge_line("git status -s", LayerRules([grants]), PathPolicy()).effect is Effect.ALLOW


def test_a_line_is_more_than_the_text_that_a_pattern_matches() -> None:
    """`git status *` as a text covers a whole second command; by command it does not."""
    line = "git status ; rm -rf build"
    assert matches("git status *", line)
    rule = Rule(effect=Effect.ALLOW, action="exec", pattern="git status *")
    verdict = judge_line(line, LayerRules([Layer(name="user", rules=(rule,))]), PathPolicy())
    assert verdict.effect is Effect.ASK


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("*", ["", "ls", "a\nb"], []),
        ("**", ["", "ls"], []),
        ("a*", ["a", "ab"], ["ba", ""]),
        ("[x]", ["[x]"], ["x"]),
        ("?", ["a"], ["", "ab"]),
        ("", [""], ["a"]),
    ],
)
def test_the_edges_of_wildcards_mean_one_thing(
    pattern: str, matching: list[str], other: list[str]
) -> None:
    assert all(matches(pattern, text) for text in matching)
    assert not any(matches(pattern, text) for text in other)


def test_ten_thousand_stars_do_not_stop_the_judge() -> None:
    rules = tuple(
        Rule(effect=Effect.DENY, action="exec", pattern=pattern)
        for pattern in ("*" * 10_000 + "b", "*a" * 10_000 + "b", "*?" * 10_000 + "b")
    )
    layers = [Layer(name="user", rules=rules)]
    began = time.process_time()
    verdict = judge_line(f"ls {'a' * 8_000}", LayerRules(layers), PathPolicy())
    assert verdict.effect is Effect.ASK
    # Some tens of milliseconds; trying every way to share the text between the stars never ends.
    assert time.process_time() - began < 2


def test_deny_of_the_operator_holds_against_allow_of_the_project() -> None:
    deny = Layer(name="managed", rules=(Rule(effect=Effect.DENY, action="exec", pattern="curl *"),))
    for trusted in (True, False):
        rules = (Rule(effect=Effect.ALLOW, action="exec", pattern="*"),)
        project = Layer(name="project", rules=rules, trusted=trusted)
        for line in ("curl x", "ls | curl x", "env curl x", "sh -c 'curl x'", "(curl x)"):
            verdict = judge_line(line, LayerRules([deny, project]), PathPolicy())
            assert verdict.effect is Effect.DENY


def test_launchers_of_a_generous_list_do_not_run_what_is_not_on_it(tmp_path: Path) -> None:
    """A published default list held `env` and `find`; by their first word these pass."""
    allow = ["env *", "find *", "xargs *", "rm *", "curl *"]
    for line in ("env bash -c id", "find . -exec bash -c id ;", "echo id | xargs bash -c"):
        assert by_first_word(line, [*allow, "echo *"])
        verdict = judge_command(line, allow=[*allow, "echo *"], cwd=tmp_path)
        assert verdict.effect is Effect.ASK
    assert judge_command("rm -rf /", allow=allow, cwd=tmp_path).effect is Effect.DENY


def test_the_text_of_a_resource_keeps_words_apart() -> None:
    assert command_resource(["rm", "a b"]) != command_resource(["rm", "a", "b"])


@pytest.mark.parametrize(
    "line",
    [
        # What is in a variable could be several words, a pattern, an option or a program.
        *("ls $SPLIT", "ls $STAR", "ls $OPT", "ls $EMPTY", "$PROGRAM a", '"$PROGRAM" a'),
        *("cat $OUTSIDE", "cat < $OUTSIDE", "ls > $OUTSIDE", 'cat "$SECRET"', "ls $UNSET"),
        # Assignments that a shell takes back, splits by, or never makes.
        *("IFS=/; ls $PLAIN", "PLAIN=/etc/passwd; cat $PLAIN", "false && PLAIN=a; cat $PLAIN"),
        *("PLAIN=a | ls $PLAIN", "(PLAIN=a); ls $PLAIN; (ls)", "PLAIN=a ls $PLAIN; UID=0; ls $UID"),
        *("export PATH=.; ls", "PATH=.; ls", "export LD_PRELOAD=x; ls", "A=1 export PATH=x; ls"),
        # Words that another reader takes apart in another way.
        *('ls $"a"', "ls {fd}>x", "ls 3>x", "ls a=~", "then ls", "cat <<E\n$(touch x)\nE"),
        # Names that match and were not judged.
        *("uniq ./*", "uniq a ./*", "head -n ./* a", "cat ./*/../../x", "echo ../*"),
        # What needs no rule, and does more than to say something.
        *("echo a > x", "test -f /etc/passwd", "[ -e ~/x ]", "command touch x", "type -p ls"),
        *("env command touch x", "printf -v PATH x", "cd .. && echo a", "echo $(touch x)"),
    ],
)
def test_words_variables_and_commands_without_a_rule_widen_nothing(line: str) -> None:
    variables = {
        "PLAIN": "a/b",
        "SPLIT": "a -la",
        "STAR": "./*",
        "OPT": "-la",
        "EMPTY": "",
        "PROGRAM": "touch",
        "OUTSIDE": "/etc/passwd",
        "SECRET": ".env",
    }
    rules = [*ALLOW, "uniq *", "env *", "head *"]
    found = judge_command(line, allow=rules, environment=variables)
    assert found.effect is not Effect.ALLOW


def test_a_plan_never_shows_a_variable_with_a_secret_name(tmp_path: Path) -> None:
    given = {"API_TOKEN": "canary", "DB_PASSWORD": "canary", "EDITOR": "vi", "http_proxy": "canary"}
    shown = shown_variables(given, tmp_path)
    assert "canary" not in shown.values()
    assert (shown["EDITOR"], shown["PWD"]) == ("vi", str(tmp_path))


@pytest.mark.parametrize("line", ["cp {} b", "bash -c 'cp {} b'", "ls; cat {}"])
def test_a_pattern_of_thousands_of_directories_is_refused(tmp_path: Path, line: str) -> None:
    """Looking for its names went as deep as the pattern, and ended the call by a fault of ours."""
    verdict = judge_command(line.format("*/" * 2500 + "x"), allow=["*"], cwd=tmp_path)
    assert verdict.effect is Effect.DENY
    assert "a pattern of more than 64 directories" in verdict.reasons
