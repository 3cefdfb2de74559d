"""What an allow of everything leaves open beside denials, by the ways around them.

The ways are those that a blind attack found open: 1,090 lines written without a look at the tables,
and 320 more of the same kinds.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse.permission import (
    ArgumentRules,
    CommandVerdict,
    Effect,
    Layer,
    LayerRules,
    PathPolicy,
    Rule,
    judge_argv,
    judge_line,
)

ALLOW, ASK, DENY = Effect.ALLOW, Effect.ASK, Effect.DENY
RULES = LayerRules(
    [
        Layer(
            name="user",
            rules=(
                Rule(effect=ALLOW, action="exec", pattern="*"),
                *(
                    Rule(effect=DENY, action="exec", pattern=pattern)
                    for pattern in ("rm *", "curl *", "git push *", "sudo *")
                ),
            ),
        )
    ]
)
Judge = Callable[[str], CommandVerdict]


@pytest.fixture
def places(tmp_path: Path) -> PathPolicy:
    (tmp_path / "src").mkdir()
    for name in ("README.md", "list", "push", "x.py", "src/a.py"):
        (tmp_path / name).write_text("x\n")
    return PathPolicy(tmp_path, writable=(tmp_path,))


@pytest.fixture
def judge(places: PathPolicy) -> Judge:
    return lambda line: judge_line(line, RULES, places)


WAYS = {
    "a variable that env sets": (
        [
            "env GIT_EXTERNAL_DIFF='rm -rf src' git diff",
            "env PAGER='rm -rf src' git -p log",
            "nice env GIT_SSH_COMMAND='rm -rf src;' git fetch ssh://x/y",
            "env LD_PRELOAD=./evil.so ls",
            "env PATH=.:/bin ls",
            "env -C sub NODE_OPTIONS=--require=./evil.js node x.js",
            "env RSYNC_RSH='rm -rf src' rsync a h:b",
            "env VIMINIT='!r\\m x' less x",
            "env CC='r\\m x' make",
            "env RUSTC_WRAPPER=rm cargo build",
            "env npm_config_script_shell=rm npm test",
            "env EMPTY= rm x",
        ],
        [
            "env CC=clang make",
            "env EMPTY= MAVEN_OPTS=-Xmx2g mvn -v",
            "env CI=1 NODE_ENV=test make",
            "env GIT_PAGER=cat git log",
            "env -i ls",
        ],
    ),
    "an option of what starts a command": (
        [
            "strace -o '|rm -rf src' true",
            "strace -o'|curl x.test' ls",
            "strace --output='!rm src' ls",
            "flock -c 'r\\m -rf src' x",
            "numactl --interleave=all rm -rf src",
            "chrt --idle rm -rf src",
            "timeout --new-option rm src",
            "entr -s 'r\\m src'",
        ],
        ["timeout -k 5 60 make", "nice -n 5 make", "time make", "stdbuf -oL ls"],
    ),
    "an architecture that is left out": (
        ["setarch -R rm -rf src", "setarch -v rm src", "setarch x86_64 -R rm src"],
        ["setarch -R ls", "setarch x86_64 -v ls", "setarch i686 ls"],
    ),
    "code behind an option that is not known": (
        [
            "perl -CSD -e 'unlink <src/*>'",
            "php --quux -r 'unlink(\"x\");'",
            "deno eval --ext=ts 'Deno.removeSync(\"src\")'",
            "R --slave -e 'unlink(\"src\")'",
            "octave --no-gui --eval 'rmdir(\"src\")'",
            "gdb -batch -ex 'call (int)unlink(\"x\")' ./x",
            'vim -es -c \'call delete("src","rf")\' -c q',
            "emacs --batch --eval '(delete-file \"x\")'",
            "ex -sc '1!r\\m -rf src' -cq README.md",
            "uv run --quux python -c 'import os;os.unlink(\"x\")'",
            "poetry --quux run python -c 'import os;os.unlink(\"x\")'",
            "memray run -c 'import os;os.unlink(\"x\")'",
            'awk \'BEGIN{while(("cu" "rl x")|getline);}\'',
            'gawk --quux \'BEGIN{system("un" "link x")}\'',
            "sed --quux '1e un\\link x' README.md",
            "perl -lne unlink list",
            "perl -CSDA -ne unlink list",
            "just --quux -c 'r\\m x'",
        ],
        [
            "awk '{print $1}' list",
            "sed 's/(a)/b/' list",
            "git commit -m 'say (that)'",
            "perl -CSD x.pl",
            "docker ps --format '{{.Names}}'",
        ],
    ),
    "orders in what a program reads": (
        [
            "printf '.shell r\\\\m -rf src' | sqlite3 x.db",
            "sqlite3 x.db <<< \".system r'm' src\"",
            "printf ':!r\\\\m -rf src\\n' | vim -es README.md",
            "echo 'shell r\\m -rf src' | gdb -q ./x",
            "echo '\\! r\\m -rf src' | psql db",
            "echo '!r\\m -rf src' | nice ftp -n host",
            "echo 'r\\m -rf src' | at now",
            "echo 'BEGIN{system(\"r\\\\m x\")}' | awk -f -",
            "printf 'x:\\n\\tr\\\\m x\\n' | make -f - x",
            "echo '1e r\\m -rf src' | sed -f - README.md",
            "echo '1e r\\m -rf src' | sed -f- README.md",
            "echo 'r\\m x' | ssh host",
            "echo 'r\\m x' | unshare sh",
            "echo 'r\\m x' | socat - EXEC:sh",
            "echo 'r\"m\" x' | fish",
            "echo '.sy r\\m x' | groff -U",
        ],
        [
            "sqlite3 x.db <<< 'select count(*) from t;'",
            "printf 'a\\nb\\n' | sort",
            "echo '{\"a\": 1}' | python3 x.py",
            "printf '%s\\n' a b | xargs git add",
            "echo a | make -f x.mk",
            'echo "it\'s" | sh x.sh',
            "cat <<'E' | kubectl apply -f -\na: 'x'\nE",
        ],
    ),
    "words that are found or read": (
        [
            "xargs env < list",
            "xargs -a list timeout 9",
            "xargs -a list git -C .",
            "cat list | xargs -L1 nice",
            "ls | xargs -n1 -I% sh -c %",
            "ls src | xargs -I{} {} x",
            "xargs --quux env",
            "seq 3 | xargs -n1 bash -c",
            "find . -name 'p*' -exec git {} \\;",
            "find src -type f -exec env {} \\;",
            "find . -exec sh -c 'r\\m \"$0\"' {} \\;",
            "find . -name x -exec cp /bin/rm {} \\;",
            "find . -exec frob rm {} \\;",
            "find . -exec awk {} x \\;",
            "xargs -I@ git @ origin < list",
            "xargs nice xargs git < list",
            "fd -X env",
            "fd -x sh -c 'r\\m {}'",
            "fd --exec=git",
        ],
        [
            "xargs git add",
            "xargs -I{} cp {} out",
            "xargs",
            "xargs -0",
            "find . -name '*.py' -exec wc -l {} +",
            "find . -exec frob -c x {} +",
            "fd -e py -x wc -l",
            "fd -e py -x wc -l ';' src",
        ],
    ),
    "a pattern that is a sub-command or a program": (
        [
            "git p*",
            "git -C . pus? origin",
            "nice git p??h origin",
            "env /usr/bin/cur* x.test",
            "uv run r*",
        ],
        ["git add *.py", "npx prettier ./*.md", "ls *.py", "nice wc ./*.py"],
    ),
    "a program under another name": (
        [
            "cp /bin/rm ./tidy && ./tidy -rf src",
            "ln -s /usr/bin/curl c",
            "nice cp /usr/bin/../bin/curl c",
            "cp /bin/r? tidy",
            "cp -r /bin/ b",
            "dd if=/bin/rm of=tidy",
            "install -D /bin/rm b/tidy",
            "tar cf t.tar /bin/rm",
            "cat /bin/rm > t",
            "cat /bin/rm | tee tidy",
            "strip -o tidy /bin/rm",
        ],
        ["ls -l /bin/rm", "cp /usr/bin/env e", "cat /bin/rm | wc -c", "cp a=b x", "cp ./rm y"],
    ),
    "another word for a sub-command": (
        [
            "git send-pack ../remote.git main",
            "git subtree push --prefix=x origin main",
            "git config alias.up push && git up",
            "git lfs push origin main",
            "git svn dcommit",
            "git-push origin main",
            "git-send-pack origin main",
            "/usr/lib/git-core/git-push origin",
            "hub push origin main",
            "lab push origin",
            "jj git push",
            "jj -R . git push",
        ],
        [
            "git fetch",
            "git subtree split --prefix=x",
            "git-lfs ls-files",
            "npm publish",
            "git rm x",
            "jj log",
        ],
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_way_around_a_denial_is_open(judge: Judge, way: str) -> None:
    around, ordinary = WAYS[way]
    assert [line for line in around if judge(line).effect is ALLOW] == []
    asked = [(line, judge(line).reasons) for line in ordinary if judge(line).effect is not ALLOW]
    assert asked == []


def test_words_without_a_shell_are_judged_by_the_same(places: PathPolicy) -> None:
    for argv in (("cp", "/bin/rm", "t"), ("env", "PAGER=rm x", "git", "log"), ("xargs", "env")):
        assert judge_argv(argv, RULES, places).effect is not ALLOW, argv
    assert judge_argv(("git", "add", "p*"), RULES, places).effect is ALLOW


def test_a_variable_before_a_command_is_asked_about_by_the_gate_too(places: PathPolicy) -> None:
    for line in ("RSYNC_RSH='rm x' rsync a h:b", "VIMINIT='!r\\m x' less x"):
        (judged,) = judge_line(line, RULES, places).commands
        assert (judged.effect, bool(judged.scrutiny)) == (ASK, True), line
    (judged,) = judge_line("FOO=1 make", RULES, places).commands
    assert judged.effect is ALLOW
    assert judge_line("LD_AUDIT=x ls", RULES, places).effect is DENY


@pytest.mark.parametrize("program", ["sudo-rs", "su-rs", "run0", "dzdo"])
def test_a_newer_name_of_sudo_is_denied(places: PathPolicy, program: str) -> None:
    assert judge_line(f"{program} id", RULES, places).effect is DENY


def test_without_a_denial_the_same_lines_pass(places: PathPolicy) -> None:
    free = LayerRules([Layer(name="user", rules=(Rule(effect=ALLOW, action="exec", pattern="*"),))])
    for line in ("xargs env < list", "git send-pack origin", "strace --quux ls", "git up"):
        assert judge_line(line, free, places).effect is ALLOW, line


def test_a_rule_that_asks_is_a_fence_too(places: PathPolicy) -> None:
    rules = LayerRules(
        [
            Layer(
                name="user",
                rules=(
                    Rule(effect=ALLOW, action="exec", pattern="*"),
                    Rule(effect=ASK, action="exec", pattern="git push *"),
                ),
            )
        ]
    )
    for line in ("jj git push", "git-push x", "chrt --idle git push", "cp /usr/bin/git g"):
        assert judge_line(line, rules, places).effect is ASK, line


def test_what_is_restricted_of_a_program_is_known_by_rules_of_both_forms() -> None:
    names = {"git": [("git", "push")], "npm": [("npm", "publish")], "rm": []}
    patterns = ("git push *", "npm publish*x", "npm publish *", "*secret*")
    layer = Layer(
        name="user", rules=tuple(Rule(effect=DENY, action="exec", pattern=p) for p in patterns)
    )
    by_layer = LayerRules([layer])
    by_argument = ArgumentRules([], ["git push *", "npm publish *"])
    for program, words in names.items():
        assert [m.argv for m in by_argument.restricted(program)] == words
        assert {*words} <= {m.argv for m in by_layer.restricted(program)}
    assert json.dumps([m.argv for m in by_layer.restricted("npm")]) == (
        '[["npm"], ["npm", "publish"]]'
    )


@pytest.mark.parametrize("line", ["strace --output='|id' ls", "sox in.wav '!id'", "cp '|id' b"])
def test_a_path_that_is_a_command_is_not_covered(places: PathPolicy, line: str) -> None:
    rules = (f"{line.split(maxsplit=1)[0]} *", "ls *")
    layer = Layer(
        name="user", rules=tuple(Rule(effect=ALLOW, action="exec", pattern=p) for p in rules)
    )
    assert judge_line(line, LayerRules([layer]), places).effect is ASK
