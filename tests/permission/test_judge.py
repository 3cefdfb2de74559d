"""Tests of permission/judge.py: the vectors, what must pass, what must not, and the laws."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skillhouse.permission import (
    STRICTNESS,
    CommandRuleError,
    CommandVerdict,
    Effect,
    Layer,
    LayerRules,
    PathPolicy,
    Rule,
    judge_argv,
    judge_command,
    judge_line,
)
from tests.permission.lines import ALLOW, DANGEROUS, DENIED, HARMLESS, HIDDEN_RM, vectors

CASES = vectors()


@pytest.mark.parametrize("case", CASES, ids=[f"{case['id']}: {case['clause']}" for case in CASES])
def test_a_verdict_is_that_of_the_vector(case: dict[str, Any]) -> None:
    found = judge_command(case["given"]["command"], allow=case["given"]["allowlist"])
    assert found.effect.value in (case["expect"]["effect"], *case["expect"]["also_ok"])


@pytest.mark.parametrize("line", HARMLESS)
def test_an_ordinary_line_whose_commands_are_all_covered_is_allowed(line: str) -> None:
    found = judge_command(line, allow=ALLOW)
    assert (found.effect, found.reasons) == (Effect.ALLOW, ())
    assert found.plan


@pytest.mark.parametrize("line", DANGEROUS, ids=lambda line: ascii(line)[:40])
def test_a_line_that_does_more_than_the_rules_cover_is_not_allowed(line: str) -> None:
    found = judge_command(line, allow=ALLOW)
    assert found.effect is not Effect.ALLOW
    assert found.reasons


@pytest.mark.parametrize("line", DENIED)
def test_what_nothing_allows_is_denied_even_where_everything_is_allowed(line: str) -> None:
    assert judge_command(line, allow=["*", line]).effect is Effect.DENY


@pytest.mark.parametrize("line", HIDDEN_RM)
def test_a_deny_is_seen_through_every_way_to_write_it(line: str) -> None:
    assert judge_command(
        line, allow=["*", "rm *", line.replace('"', "")[:5]], deny=["rm *"]
    ).effect is (Effect.DENY)


def test_the_plan_is_what_programs_get() -> None:
    found = judge_command(
        "cd sub && LANG=C grep -n 'a  b' ./*.md 2>/dev/null | wc -l; echo \\$x || true",
        allow=[*ALLOW, "cd *", "true"],
    )
    assert found.effect is Effect.ALLOW
    assert found.plan == (
        ("cd", "sub"),
        ("grep", "-n", "a  b", "./*.md"),
        ("wc", "-l"),
        ("echo", "$x"),
        ("true",),
    )
    assert found.structure is not None
    assert found.structure.value() == {
        "directory": "sub",
        "pipelines": [
            {
                "joined": "",
                "commands": [
                    {
                        "argv": ["grep", "-n", "a  b", "./*.md"],
                        "patterns": [[3, "./*.md"]],
                        "guarded": [],
                        "environment": [["LANG", "C"]],
                        "redirects": [[2, "write", "/dev/null"]],
                    },
                    _plain("wc", "-l"),
                ],
            },
            {"joined": "", "commands": [_plain("echo", "$x")]},
            {"joined": "||", "commands": [_plain("true")]},
        ],
    }


def _plain(*argv: str) -> dict[str, Any]:
    plain: dict[str, Any] = {"patterns": [], "guarded": [], "environment": [], "redirects": []}
    return {"argv": list(argv), **plain}


@pytest.mark.parametrize(
    ("line", "plan"),
    [
        ("ls $HOME", None),
        ("(ls) | cat", None),
        ("ls 'unclosed", None),
        ("cd a || ls", None),
        ("ls; cd a", None),
        ("cd -", None),
        ("touch x", (("touch", "x"),)),
    ],
)
def test_a_line_has_a_plan_only_when_no_shell_is_needed(line: str, plan: Any) -> None:
    assert judge_command(line, allow=["ls *", "cd *"]).plan == plan


def test_reasons_of_the_strictest_verdict_come_first() -> None:
    found = judge_command("touch x; PATH=. ls", allow=ALLOW)
    assert found.effect is Effect.DENY
    assert found.reasons == (
        "the variable `PATH` decides what programs run or load",
        "no rule covers `touch x`",
    )


def test_limits_deny() -> None:
    assert judge_command("; ".join(["ls"] * 64), allow=ALLOW).effect is Effect.ALLOW
    assert judge_command("; ".join(["ls"] * 65), allow=ALLOW).effect is Effect.DENY
    assert judge_command(f"echo {'x' * 8187}", allow=ALLOW).effect is Effect.ALLOW
    assert judge_command(f"echo {'x' * 8188}", allow=ALLOW).effect is Effect.DENY
    assert judge_command(f"ls {'$(ls;' * 30}{')' * 30}", allow=ALLOW).effect is not Effect.ALLOW


def test_paths_are_followed_where_the_directory_is_known(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "place/out").symlink_to(tmp_path)
    (tmp_path / "place/hooks").symlink_to(".git/hooks")
    (tmp_path / "place/a.txt").touch()

    def effect(line: str, **more: Any) -> str:
        found = judge_command(line, allow=[*ALLOW, "cp *", "cd *"], cwd=tmp_path / "place", **more)
        return found.effect.value

    assert effect("cat a.txt") == "allow"
    assert effect(f"cat {tmp_path}/place/a.txt") == "allow"
    assert effect("cat out/secret") == "ask"
    assert effect("cd out && ls") == "ask"
    assert effect("cp a.txt hooks/pre-commit") == "deny"
    assert effect("cp a.txt b.txt") == "allow"
    assert effect("echo x > b.txt") == "ask"
    assert effect("echo x > b.txt", writable=[tmp_path / "place"]) == "allow"
    assert effect("echo x > hooks/y", writable=[tmp_path / "place"]) == "deny"
    assert effect("echo x > out/y", writable=[tmp_path / "place"]) == "ask"
    assert effect("cd sub && echo x > ../../y", writable=[tmp_path / "place"]) == "ask"
    assert effect("cd .git && echo x > hooks/y", writable=[tmp_path / "place"]) == "deny"


@pytest.mark.parametrize(
    ("rule", "line", "effect"),
    [
        ("git status", "git status", "allow"),
        ("git status", "git status -s", "ask"),
        ("git status *", "git status", "allow"),
        ("git *", "git log", "allow"),
        ("git*", "git log", "ask"),
        ("*", "ls", "allow"),
        ("*", "python3 x.py", "ask"),
        ("python3 x.py", "python3 x.py", "allow"),
        ("python3 *", "python3 x.py", "ask"),
        ("bash -c 'a b'", "bash -c 'a b'", "allow"),
        ("uv run *", "uv run pytest", "ask"),
        ("uv run pytest *", "uv run pytest -q", "allow"),
        ("uv run python *", "uv run python -c x", "ask"),
        ("timeout *", "timeout 5 touch x", "ask"),
        ("/opt/tool *", "/opt/tool x", "allow"),
        ("git bisect *", "git bisect start", "allow"),
        ("git *", "git bisect run x", "ask"),
        ("ls '*'", "ls a", "ask"),
    ],
)
def test_a_rule_covers_what_it_names(rule: str, line: str, effect: str) -> None:
    assert judge_command(line, allow=[rule]).effect.value == effect


@pytest.mark.parametrize("rule", ["", "  ", "echo 'x", 'a "'])
def test_a_rule_that_cannot_be_read_stops_the_judging(rule: str) -> None:
    with pytest.raises(CommandRuleError):
        judge_command("ls", allow=[rule])
    with pytest.raises(CommandRuleError):
        judge_command("ls", deny=[rule])


def test_the_strictest_of_all_layer_rules_wins_for_commands() -> None:
    def layer(name: str, *rules: tuple[Effect, str], trusted: bool = True) -> Layer:
        made = tuple(Rule(effect=e, action="exec", pattern=p) for e, p in rules)
        return Layer(name=name, rules=made, trusted=trusted)

    def effect(line: str, *layers: Layer) -> Effect:
        return judge_line(line, LayerRules(layers), PathPolicy()).effect

    allow, ask, deny = Effect.ALLOW, Effect.ASK, Effect.DENY
    assert effect("ls x", layer("user", (deny, "ls *"), (allow, "ls x"))) is deny
    assert effect("ls x", layer("user", (ask, "ls *"), (allow, "ls x"))) is ask
    assert effect("ls x", layer("user", (ask, "ls *")), layer("grants", (allow, "ls x"))) is allow
    assert effect("ls x", layer("user", (deny, "ls *")), layer("grants", (allow, "ls x"))) is deny
    assert effect("ls x", layer("project", (allow, "*"), trusted=False)) is ask
    assert effect("python3 x", layer("user", (allow, "*"))) is allow
    assert effect("python3 x", layer("user", (allow, "python3 *"))) is ask
    assert effect("ls x | rm y", layer("user", (allow, "*"), (deny, "rm *"))) is deny


def test_words_that_no_shell_reads_are_judged_as_they_are() -> None:
    rules = LayerRules(
        [Layer(name="u", rules=(Rule(effect=Effect.ALLOW, action="exec", pattern="echo *"),))]
    )
    assert judge_argv(["echo", "$(id)", "; rm -rf /", "~", "*"], rules, PathPolicy()).effect is (
        Effect.ALLOW
    )
    assert judge_argv(["env", "rm", "-rf", "/"], rules, PathPolicy()).effect is Effect.DENY


# Pieces that mean something to a shell, so that lines often parse and seldom mean what they seem.
PIECES = st.sampled_from(
    "ls cat echo git status log rm -rf / x a.txt ; && || | > < >> 2>&1 & ( ) { } $( ` $x ${x} ' \" "
    "\\ \n * ? [a] ~ .. env timeout 5 -c sh sudo <<E E # ! = A=b LANG=C if then fi cd \t".split(" ")
)
LINES = st.one_of(
    st.lists(PIECES, max_size=12).map(" ".join),
    st.lists(PIECES, max_size=12).map("".join),
    st.text(max_size=40),
)
RULES = st.lists(
    st.sampled_from(
        ["ls *", "cat *", "echo *", "git *", "git log *", "rm *", "env *", "*", "sh *"]
    ),
    max_size=4,
)


def strictness(verdict: CommandVerdict) -> int:
    return STRICTNESS.index(verdict.effect)


@pytest.mark.slow
@given(line=LINES, allow=RULES, deny=RULES, extra=RULES)
def test_adding_a_deny_never_loosens(
    line: str, allow: list[str], deny: list[str], extra: list[str]
) -> None:
    before = judge_command(line, allow=allow, deny=deny)
    assert strictness(judge_command(line, allow=allow, deny=[*deny, *extra])) >= strictness(before)


@given(line=LINES, allow=RULES, deny=RULES, extra=RULES)
def test_deny_is_final_whatever_is_allowed(
    line: str, allow: list[str], deny: list[str], extra: list[str]
) -> None:
    if judge_command(line, allow=allow, deny=deny).effect is Effect.DENY:
        more = judge_command(line, allow=[*allow, *extra, "*"], deny=deny)
        assert more.effect is Effect.DENY


@given(first=LINES, second=LINES, allow=RULES)
def test_a_line_is_at_least_as_strict_as_each_of_its_parts(
    first: str, second: str, allow: list[str]
) -> None:
    parts = [judge_command(part, allow=allow) for part in (first, second)]
    if any(part.plan is None for part in parts) or "<<" in first + second or "#" in first:
        return
    if any("cd" in (argv[0] for argv in part.plan or ()) for part in parts):
        return
    whole = judge_command(f"{first}\n{second}", allow=allow)
    assert strictness(whole) >= max(map(strictness, parts))


@given(line=LINES, allow=RULES)
@example(line='echo "b"\\ d', allow=["echo *"])
def test_what_is_allowed_has_a_plan_of_covered_commands(line: str, allow: list[str]) -> None:
    found = judge_command(line, allow=allow)
    if found.effect is Effect.ALLOW:
        assert found.structure is not None
        assert found.plan
        assert [c.argv for c in found.structure.commands()] == [
            argv for argv in found.plan if argv[0] != "cd"
        ]


# What bash itself makes of the words of a line that is only one command.
QUOTED = st.lists(
    st.sampled_from(
        ["a", "b c", "'d e'", '"f g"', "\\ ", "\\'", '\\"', "'\"'", '"\'"', "-x", "{}"]
    ),
    min_size=1,
    max_size=8,
).map("".join)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no bash")
@given(words=st.lists(QUOTED, min_size=1, max_size=3))
def test_the_words_of_a_plan_are_those_that_bash_makes(words: list[str]) -> None:
    line = f"echo {' '.join(words)}"
    found = judge_command(line, allow=["echo *"])
    if found.effect is not Effect.ALLOW or found.plan is None:
        return
    done = subprocess.run(
        ["bash", "-c", f"set -- {line}; printf '%s\\0' \"$@\""], capture_output=True, check=True
    )
    assert [*found.plan[0]] == done.stdout.decode().split("\0")[:-1]


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        ("/bin/ls", Effect.ALLOW),
        ("timeout 5 /usr/bin/ls -l", Effect.ALLOW),
        ("/bin/../bin/ls", Effect.ASK),
        ("/usr/bin/rm x", Effect.DENY),
        ("/usr/bin/cat x", Effect.DENY),
        ("/usr/bin/sh -c ls", Effect.ASK),
        ("/usr/bin/echo x", Effect.ALLOW),
        ("./echo x", Effect.ASK),
        ("./command -v x", Effect.ASK),
        ("bin/cd x", Effect.ASK),
    ],
)
def test_a_program_of_the_system_goes_by_its_name(line: str, effect: Effect) -> None:
    allow, deny = ["ls *", "cat *", "echo *"], ["rm *", "/usr/bin/cat *"]
    assert judge_command(line, allow=allow, deny=deny).effect is effect


@pytest.mark.parametrize(
    "line",
    [
        "uniq data.csv {}",
        "shuf -o {} -e x",
        "shuf --output={} data.csv",
        "git archive -o {} HEAD",
        "pip --log {} list",
        "iconv -o {} data.csv",
        "tree -o {}",
        "xmllint --html --output {} data.csv",
        "as -o {} /dev/null",
        "tar --index-file={} -cvf /dev/null data.csv",
        "tar -cf {} data.csv",
        "gcc -o {} data.csv",
        "dot -Tcanon -o {} data.csv",
        "ffmpeg -y -i data.csv -f wav {}",
        "pdftotext data.csv {}",
        "qpdf --empty {}",
        "cwebp data.csv -o {}",
        "lame data.csv {}",
        "rsync data.csv {}",
        "pandoc data.csv -o {}",
    ],
)
def test_what_mostly_looks_overwrites_nothing_unasked(tmp_path: Path, line: str) -> None:
    for name in ("data.csv", "there.txt"):
        (tmp_path / name).write_text("x\n")
    rule = f"{line.split(maxsplit=1)[0]} *"
    assert judge_command(line.format("new.txt"), allow=[rule], cwd=tmp_path).effect is Effect.ALLOW
    asked = judge_command(line.format("there.txt"), allow=[rule], cwd=tmp_path)
    assert asked.effect is Effect.ASK
    assert asked.reasons[0].endswith("`there.txt` is overwritten")


@pytest.mark.parametrize(
    "line", ["lint there.txt", "cp data.csv there.txt", "black there.py", "touch there.txt"]
)
def test_what_is_named_alone_or_copied_to_is_meant(tmp_path: Path, line: str) -> None:
    for name in ("data.csv", "there.txt", "there.py"):
        (tmp_path / name).write_text("x\n")
    rule = f"{line.split(maxsplit=1)[0]} *"
    assert judge_command(line, allow=[rule], cwd=tmp_path).effect is Effect.ALLOW


def test_a_program_without_a_table_may_write_its_last_file(tmp_path: Path) -> None:
    for name in ("data.csv", "there.txt"):
        (tmp_path / name).write_text("x\n")
    asked = judge_command("remake data.csv there.txt", allow=["remake *"], cwd=tmp_path)
    said = "`there.txt` may be overwritten with what is made of `data.csv`"
    assert (asked.effect, asked.reasons[0].endswith(said)) == (Effect.ASK, True)
    for line in ("remake data.csv new.txt", "remake there.txt"):
        assert judge_command(line, allow=["remake *"], cwd=tmp_path).effect is Effect.ALLOW


@pytest.mark.parametrize("word", ["source", "."])
def test_an_activation_is_asked_about_with_what_needs_none(word: str) -> None:
    line = f"{word} .venv/bin/activate && pytest -q"
    first = judge_command(line, allow=["pytest *"]).reasons[0]
    assert first.endswith("needless where programs are named by their path: `.venv/bin/python`")
    assert "needless" not in judge_command(f"{word} setup.sh").reasons[0]
