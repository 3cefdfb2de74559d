"""Tests of permission/plain_line.py: words are bash's, and known variables are in their places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skillhouse.permission import Effect, judge_command
from tests.permission.lines import ALLOW

VARIABLES = {"X": "a.txt", "DIR": "sub", "OPT": "-n", "WORDS": "a b", "STAR": "*", "EMPTY": ""}
ECHO = ["echo *", "cat *", "cd *", "ls *", "env *"]


def plan(line: str, **more: Any) -> tuple[tuple[str, ...], ...] | None:
    return judge_command(line, allow=ECHO, environment=VARIABLES, **more).plan


def test_an_exact_rule_is_not_widened_by_what_the_parser_lost() -> None:
    # Review G11: the parser made two words of it, and `rm` deleted `foo`.
    assert judge_command("rm -f 'foo'\\*", allow=["rm *"]).plan == (("rm", "-f", "foo*"),)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("echo 'a'\\*", ("a*",)),
        ("echo a\"b\"'c'\\ d", ("abc d",)),
        ("echo a\\\nb", ("ab",)),
        ("echo a \\\n b", ("a", "b")),
        ("echo 'a\\\nb'", ("a\\\nb",)),
        ('echo "a\\\nb"', ("ab",)),
        ("echo a#b #c\\\n", ("a#b",)),
        ("echo \\\n#c", ()),
        ("ec\\\nho a", ("a",)),
        ("echo \"a$\" $ '$X' \\$X", ("a$", "$", "$X", "$X")),
        ('echo $X ${X}.bak "$DIR/$X"', ("a.txt", "a.txt.bak", "sub/a.txt")),
        ("X=b echo $X", ("a.txt",)),
        ("X=b; echo $X", ("b",)),
        ("export X=b && echo $X", None),
        ("Y=1 Z=c; echo $Y$Z", ("1c",)),
        ("Y=$DIR/e; echo $Y", ("sub/e",)),
        ("cd sub && X=b && echo $X", None),
        ("echo $WORDS", None),
        ("echo $STAR", None),
        ("echo $EMPTY", None),
        ("echo $UNSET", None),
        ("echo ${X:-a}", None),
        ("echo $OPT", None),
        ('echo "$OPT"', None),
        ("$X", None),
        ("$DIR/tool a", None),
        ("X='a b'; echo $X", None),
        ("X=$(id); echo $X", None),
        ("false || X=b; echo $X", None),
        ("ls && X=b; echo $X", None),
        ("X=b || echo $X", None),
        ("X=b | cat; echo $X", None),
        ("A=1 B=$A; echo $B", None),
        ("RANDOM=1; echo $RANDOM", None),
        ("PWD=/; echo $PWD", None),
        ("X=~; echo $X", None),
        ("X=b", None),
        ("A=1 export B=2; echo $A$B", None),
        ("export A=1 -p; echo $A", None),
        ("export A=1 >f; echo $A", None),
        ("export A=1 B=$A; echo $B", None),
        ("cd a || cd b; echo b", None),
        ("export A=1 && cd a || echo b", None),
        ("ls; X=b", None),
        ('echo $"hi"', None),
        ("echo $'a\\tb\\x41'", ("a\tbA",)),
        ("echo $'\\u00e9'", None),
        ("echo $'\\x1b[31m'", None),
        ("echo a/{b,c}.{x,y}", ("a/b.x", "a/b.y", "a/c.x", "a/c.y")),
        ("echo {3..1} {01..2}", None),
        ("echo {3..1} x{,y}", ("3", "2", "1", "x", "xy")),
        ("echo {,}", None),
        ("echo \"$(cat <<'E'\nit's $X\n\nE\n)\"", ("it's $X",)),
        ('echo "$(cat <<E\nan $X\nE\n)"', None),
        ('echo "$(cat <<E\nan x\nE\n)"', ("an x",)),
        ("echo $(git rev-parse --show-toplevel)", None),
        ("(echo a)", ("a",)),
        ("(echo a) && (echo b)", None),
        ("(echo a #)", None),
        ("((1+1))", None),
        ("set -e; echo a", ("a",)),
        ("for F in a; do echo $F; done", ("a",)),
        ("for F in -n; do echo $F; done", None),
        ("for F in 'a b'; do echo $F; done", None),
        ("for F in a; do echo $F; done | cat", None),
        ("for F in a; do echo $F; done > out", None),
        ("for PATH in a; do echo $F; done", None),
        ("for F in ./*; do echo $F; done", None),
        ("for F in $(ls); do echo $F; done", None),
        ("bash -lc 'echo a'", ("a",)),
        ("bash -c 'bash -c \"echo a\"'", ("a",)),
        ("zsh -c 'echo *'", (("zsh", "-c", "echo *"),)),
        ("echo {fd}>f", None),
        ("{fd}>f echo a", None),
        ("echo 3>f", None),
        ("echo a=~", None),
        ("echo a=b:~", None),
        ("} a", None),
        ("then ls", None),
        ("! ls", None),
        ("echo a &", None),
        ("echo a;; ls", None),
        ("echo a &\\\n ls", None),
        ("cat <<E\n$X\nE", None),
        ("cat <<E\na", None),
        ("cat <<-E\n\ta\nE", None),
        ('echo $? "<$?>" ', ("$?", "<$?>")),
        ("ls; rm $?", None),
        ("ls; $?", None),
        ("ls > $?", None),
        ("X=$?; echo $X", None),
        ("ls; X=1; echo $?", None),
        ("ls; set -e; echo $?", None),
        ("ls; echo $? | cat", None),
        ("ls; echo a*$?", None),
        ('ls; echo "\\$? $?"', None),
        ("echo ${PIPESTATUS[0]}", None),
        ("ls; echo ${PIPESTATUS[1]}", None),
        ("ls || ls | cat; echo ${PIPESTATUS[1]}", None),
        ("ls; echo ${PIPESTATUS[@]}", None),
        ("ls; echo $?? $??b", None),
        ("ls; echo {$?,b}", None),
    ],
)
def test_words_are_those_of_bash_or_a_shell_is_needed(
    line: str, words: tuple[str, ...] | None
) -> None:
    found = plan(line)
    if words is not None:
        is_other = words and not isinstance(words[0], str)
        assert found == (words if is_other else (("echo", *words),))
    elif found is not None:
        assert found[0][0] in ("export", "cd")
        assert found[-1] == ("echo", "b")


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("for F in a b; do echo $F && ls; done || ls", "echo a; && ls; echo b; && ls; || ls"),
        (
            "for F in 1 2; do for G in a b; do echo $F$G; done; done",
            "echo 1a; echo 1b; echo 2a; echo 2b",
        ),
        ("for F in ./*.md; do cat $F; done", "cat ./a.md; cat ./b.md"),
        ('for F in *.md; do cat "$F"; done', "cat a.md; cat b.md"),
        ("(cd sub && ls)", "ls"),
        ("set -e; ls; echo a || echo b; ls", "ls; && echo a; || echo b; && ls"),
        ("set -euo pipefail\nls\nls", "ls; && ls"),
        ("set -euo pipefail; ls | cat", ""),
        ("set -e; ls && echo a; ls", ""),
        ('cd "$(git rev-parse --show-toplevel)/sub" && ls', "ls"),
        ('ls && cd "$(git rev-parse --show-toplevel)"', ""),
    ],
)
def test_a_loop_is_its_commands_and_set_e_ends_with_the_first_that_fails(
    line: str, commands: str, tmp_path: Path
) -> None:
    for name in ("a.md", "b.md", "a b.txt"):
        (tmp_path / name).touch()
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git").mkdir()
    found = judge_command(line, allow=ECHO, cwd=tmp_path)
    pipelines = found.structure.pipelines if found.structure else ()
    said = [f"{one.joined} {' '.join(one.commands[0].argv)}".strip() for one in pipelines]
    assert ("; ".join(said), found.needs_shell) == (commands, not commands)


def test_a_pattern_that_may_be_an_option_passes_where_none_is_now(tmp_path: Path) -> None:
    (tmp_path / "a.md").touch()
    lines = {
        "cat *.md": ["*.md"],
        "grep -r x --include=*.md sub": ["--include=*.md"],
        "cat -- *.md": [],
    }
    for line, guarded in lines.items():
        found = judge_command(line, allow=[*ECHO, "grep *"], cwd=tmp_path)
        assert found.effect is Effect.ALLOW
        assert found.structure is not None
        (command,) = found.structure.commands()
        assert [command.argv[at] for at in command.guarded] == guarded
    (tmp_path / "-n.md").touch()
    assert judge_command("cat *.md", allow=ECHO, cwd=tmp_path).effect is Effect.ASK


def test_a_loop_of_more_commands_than_a_line_may_have_is_asked_about(tmp_path: Path) -> None:
    for number in range(70):
        (tmp_path / f"{number}.md").touch()
    assert judge_command("for F in *.md; do cat $F; done", allow=ECHO, cwd=tmp_path).needs_shell


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        ("find . -name '*.md' | xargs wc -l", "allow"),
        ("find . -print0 | xargs -0 sort", "allow"),
        ("git ls-files | xargs -n 5 cat", "allow"),
        ("find sub -name '*.md' -exec wc -l {} +", "allow"),
        ("find sub -exec grep -l x {} \\; -exec wc {} \\;", "allow"),
        # A part of a name may be an option of sort, which writes.
        ("find . | xargs sort", "ask"),
        ("find . -print0 | xargs sort", "ask"),
        ("find . -printf '-o x' | xargs -0 sort", "ask"),
        ("cat a.txt | xargs wc", "ask"),
        ("find . | xargs -a /etc/passwd wc", "ask"),
        ("find . | xargs -I{} wc {}", "ask"),
        ("find . | xargs rm", "ask"),
        ("find . -exec rm {} +", "ask"),
        ("find . -exec sort -o {} a \\;", "ask"),
        ("find . -exec sh -c 'wc {}' \\;", "ask"),
        ("find . -exec wc {} + -delete", "ask"),
        ("find -L . -exec wc {} +", "ask"),
        ("find -exec wc {} +", "ask"),
        ("find . -exec wc x{} +", "ask"),
        ("find . -exec cat /etc/shadow {} +", "ask"),
        ("find /etc -exec cat {} +", "ask"),
        ("tar czf out.tgz sub", "allow"),
        ("tar cIf 'sh -c x' out.tar sub", "ask"),
    ],
)
def test_commands_over_names_that_are_found(line: str, effect: str, tmp_path: Path) -> None:
    rules = [*(f"{name} *" for name in ("find", "wc", "grep", "sort", "cat", "rm", "git", "tar"))]
    found = judge_command(line, allow=rules, cwd=tmp_path, writable=[tmp_path])
    assert found.effect.value == effect
    if effect == "ask" and "rm" in line:
        assert judge_command(line, allow=["*"], deny=["rm *"]).effect is Effect.DENY


@pytest.mark.parametrize(
    ("line", "redirects"),
    [
        ("cat 0<a", [[0, "read", "a"]]),
        ("cat < a", [[0, "read", "a"]]),
        ("cat <<E\n  a\n\tb\nE", [[0, "text", "  a\n\tb\n"]]),
        ("cat <<'E'\n$X \\\n\nE\n", [[0, "text", "$X \\\n\n"]]),
        ("cat <<E\nE", [[0, "text", ""]]),
        ("cat <<< 'a b'", [[0, "text", "a b\n"]]),
        ("cat <<< $X", [[0, "text", "a.txt\n"]]),
        ("cat 2>&1 >/dev/null", [[2, "copy", "1"], [1, "write", "/dev/null"]]),
        ("cat &>/dev/null", [[1, "write", "/dev/null"], [2, "copy", "1"]]),
        ("cat 2\\\n>/dev/null", [[2, "write", "/dev/null"]]),
    ],
)
def test_redirections_are_those_of_bash(line: str, redirects: list[Any]) -> None:
    found = judge_command(line, allow=ECHO, environment=VARIABLES)
    assert found.structure is not None
    (command,) = found.structure.value()["pipelines"][0]["commands"]
    assert (command["argv"], command["redirects"]) == (["cat"], redirects)


def test_a_variable_is_judged_as_the_word_that_it_is() -> None:
    variables = {"P": "/etc/passwd", "S": ".env", "R": "/", "F": "-delete"}

    def effect(line: str) -> Effect:
        return judge_command(line, allow=[*ALLOW, "rm *"], environment=variables).effect

    assert effect("cat $P") is Effect.ASK
    assert effect('cat "$S"') is Effect.ASK
    assert effect("rm -rf $R") is Effect.DENY
    assert effect("find . $F") is Effect.ASK
    assert effect("X=/etc/passwd; cat $X") is Effect.ASK
    assert effect("export P=.; cat $P") is Effect.ASK


def test_what_is_exported_reaches_later_commands_only() -> None:
    found = judge_command("ls; export LANG=C; env ls | cat; A=1; cat a", allow=ECHO)
    assert found.effect is Effect.ALLOW
    assert found.structure is not None
    given = [command.environment for command in found.structure.commands()]
    assert given == [(), (("LANG", "C"),), (("LANG", "C"),), (("LANG", "C"),)]
    inherited = judge_command("A=1; ls", allow=ECHO, environment={"A": "0"})
    assert inherited.effect is Effect.ALLOW
    assert inherited.structure is not None
    assert [c.environment for c in inherited.structure.commands()] == [(("A", "1"),)]


@pytest.mark.parametrize(
    "line", ["PATH=x; ls", "export PATH=x; ls", "LD_PRELOAD=x; ls", "export NODE_OPTIONS=-r; ls"]
)
def test_what_decides_what_runs_is_denied_as_an_assignment_too(line: str) -> None:
    assert judge_command(line, allow=["*"]).effect is Effect.DENY


def test_a_deny_reaches_what_needs_no_rule() -> None:
    for line in ("export X=b; ls", "cd src && ls", "echo a; ls", "type ls; ls", "true; ls"):
        name = line.split()[0].rstrip(";")
        assert judge_command(line, allow=["ls *"]).effect is Effect.ALLOW or name == "export"
        assert judge_command(line, allow=["ls *"], deny=[f"{name} *"]).effect is Effect.DENY


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        ("echo a b", "allow"),
        ("printf '%s\\n' a", "allow"),
        ("true", "allow"),
        (": a", "allow"),
        ("[ -f a.txt ]", "allow"),
        ("test -d sub && echo there || echo missing", "allow"),
        ("command -v git", "allow"),
        ("type git ls", "allow"),
        ("which git", "allow"),
        ("cd sub && echo a", "allow"),
        ("echo ./*.md", "allow"),
        ("echo ../*", "ask"),
        ("echo /etc/*", "ask"),
        ("[ -f /etc/passwd ]", "ask"),
        ("test -f .env", "ask"),
        ("test -v X", "ask"),
        ("printf -v x y", "ask"),
        ("echo a > b", "ask"),
        ("command touch x", "ask"),
        ("command -p ls", "ask"),
        ("type -a ls", "ask"),
        ("cd .. && echo a", "ask"),
        ("A=1 echo a", "ask"),
        ("CI=1 RUST_BACKTRACE=1 PYTHONUNBUFFERED=1 NODE_ENV=test echo a", "allow"),
        ("RAILS_ENV=production echo a", "ask"),
        ("NODE_OPTIONS=x echo a", "deny"),
        ("GIT_SSH_COMMAND=x echo a", "ask"),
    ],
)
def test_what_prints_or_tests_needs_no_rule(line: str, effect: str) -> None:
    assert judge_command(line).effect.value == effect


def test_a_reason_names_the_directory_that_is_left() -> None:
    found = judge_command("cd .. && git status", allow=["git status"])
    assert "`cd ..`: `..` is outside the current tree" in found.reasons


def test_a_directory_that_is_a_link_or_none_is_asked_about(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("sub")

    def effect(line: str) -> str:
        return judge_command(line, allow=ALLOW, cwd=tmp_path).effect.value

    assert effect("cd sub && ls") == "allow"
    assert effect("cd ./sub/ && ls") == "allow"
    # A shell goes back from a link to where the link is.
    assert effect("cd link && ls") == "ask"
    assert effect("cd missing; ls") == "ask"


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        ("cat ./*.md", "allow"),
        ("cp ./*.md out/", "allow"),
        ("uniq ./*.md", "ask"),
        ("uniq a ./*.md", "ask"),
        ("grep ./* a.txt", "ask"),
        ("grep a ./*", "allow"),
        ("head -n ./* a", "ask"),
        ("timeout 5 cat ./*.md", "allow"),
        ("timeout 5 uniq ./*.md", "ask"),
    ],
)
def test_a_pattern_may_be_several_words(line: str, effect: str) -> None:
    rules = [*ALLOW, "uniq *", "cp *"]
    assert judge_command(line, allow=rules).effect.value == effect


@pytest.mark.parametrize("line", ["rm -r .", "rm -rf ./", "rm -r sub/..", "mv . x", "rmdir ../ws"])
def test_the_whole_current_tree_is_not_removed_by_a_wildcard(line: str, tmp_path: Path) -> None:
    (tmp_path / "ws/sub").mkdir(parents=True)
    rules = ["rm *", "mv *", "rmdir *"]
    for cwd in (tmp_path / "ws", None):
        found = judge_command(line, allow=rules, cwd=cwd, writable=[tmp_path / "ws"])
        assert found.effect is not Effect.ALLOW


@pytest.mark.parametrize("target", ["out/", "out/.", "none/../x", "out/.."])
def test_a_target_that_is_no_file_is_asked_about(target: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    found = judge_command(f"ls > {target}", allow=ALLOW, cwd=tmp_path, writable=[tmp_path])
    assert found.effect is Effect.ASK
