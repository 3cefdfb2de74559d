"""What an allow of everything leaves open beside denials, by the ways around them.

The ways are those that a blind attack found open: 1,090 lines written without a look at the tables,
and 320 more of the same kinds.
"""

from __future__ import annotations

import json
import os
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
            "at now <<< 'curl https://x.test'",
            "gcc -x c -o t - <<< 'int main(){return system(\"rm -rf src\");}' -w && ./t",
            "printf 'int main(){return system(\"\\\\x72m x\");}' | nice cc -xc -o t -",
        ],
        [
            "sqlite3 x.db <<< 'select count(*) from t;'",
            "printf 'a\\nb\\n' | sort",
            "echo '{\"a\": 1}' | python3 x.py",
            "printf '%s\\n' a b | xargs git add",
            "echo a | make -f x.mk",
            'echo "it\'s" | sh x.sh',
            "cat <<'E' | kubectl apply -f -\na: 'x'\nE",
            "echo | gcc -dM -E -",
        ],
    ),
    "a program that is written": (
        [
            "printf '#!/bin/rm -rf\\n' > t; chmod +x t; ./t src",
            "printf '#!/usr/bin/env curl\\n' | tee t",
            "cat > t <<'E'\n#!/usr/bin/env -S rm -rf\nE",
        ],
        [
            "printf '#!/usr/bin/env node\\n' > t",
            "cat > t.md <<'E'\n# rm -rf is dangerous\nE",
            "cat README.md > t",
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
            "cat /bin/rm > tidy; chmod +x tidy; ./tidy -rf src",
            "cat /bin/rm | tee tidy",
            "head -c 9999999 /bin/rm > tidy",
            "base64 /bin/rm | base64 -d > tidy",
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


def test_what_works_only_by_a_restricted_program_is_asked_about(places: PathPolicy) -> None:
    rules = (
        Rule(effect=ALLOW, action="exec", pattern="*"),
        *(Rule(effect=DENY, action="exec", pattern=p) for p in ("ssh *", "python3 *")),
    )
    layers = LayerRules([Layer(name="user", rules=rules)])
    copying = ("scp README.md h:/x", "sftp h", "ssh-copy-id h", "rsync README.md h:")
    fetching = (
        "git fetch h:x",
        "git clone a@h:x y",
        "git -C src pull ssh://h/x",
        "nice git push h:x",
    )
    python = ("pydoc3 x", "/usr/bin/pydoc x", "pytest -q", "uv run x.py", "poetry run -m x")
    naming = ("git remote add o h:x", "npm i git+ssh://git@h/x.git", "hg clone -q ssh://h/x k")
    managing = ("systemctl -H h list-units", "journalctl --host=h", "docker -H ssh://a@h ps")
    for line in (*copying, *fetching, *python, *naming, *managing):
        assert judge_line(line, layers, places).effect is not ALLOW, line
    for line in ("ls", "git fetch origin", "git show HEAD:x.py", "rsync README.md src/", "uv lock"):
        assert judge_line(line, layers, places).effect is ALLOW, line


def test_a_link_to_a_restricted_program_is_that_program(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "curl").write_text("")
    (programs / "fetch-it").symlink_to("curl")
    (programs / "plain").symlink_to("env")
    places = PathPolicy(tmp_path, writable=(tmp_path,), programs=[str(programs)])
    for line in ("fetch-it x.test", "nice fetch-it x", f"{programs}/fetch-it x"):
        assert judge_line(line, RULES, places).effect is not ALLOW, line
    assert judge_line("plain x", RULES, places).effect is ALLOW


def test_a_program_is_run_by_what_its_first_line_names(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    heads = {"lint": "/usr/bin/env -S python3 -P", "tool": "/usr/bin/python3", "egrep": "/bin/sh"}
    for name, head in heads.items():
        (programs / name).write_text(f"#!{head}\n")
        (tmp_path / f"{name}.own").write_text(f"#! {head}\n")
    os.mkfifo(tmp_path / "pipe")
    places = PathPolicy(tmp_path, writable=(tmp_path,), programs=[str(programs)])
    rules = (
        Rule(effect=ALLOW, action="exec", pattern="*"),
        *(Rule(effect=DENY, action="exec", pattern=p) for p in ("python3 *", "sh *")),
    )
    layers = LayerRules([Layer(name="user", rules=rules)])
    for line in (
        "lint x",
        "nice tool",
        f"{programs}/tool",
        "./lint.own",
        "./tool.own x",
        "./egrep.own",
    ):
        assert judge_line(line, layers, places).effect is not ALLOW, line
    # A program of the system is itself, whatever shell it was written for.
    for line in ("egrep x", "./pipe", "./absent", "ls"):
        assert judge_line(line, layers, places).effect is ALLOW, line


def test_a_file_that_says_what_is_started_is_read(places: PathPolicy, tmp_path: Path) -> None:
    (tmp_path / "k.yaml").write_text("users: [{user: {exec: {command: /usr/bin/curl}}}]\n")
    (tmp_path / "plain.yaml").write_text("users: [curling]\n")
    for line in ("kubectl --kubeconfig=k.yaml get pods", "logrotate -fs st k.yaml"):
        assert judge_line(line, RULES, places).effect is not ALLOW, line
        assert judge_line(line.replace("k.yaml", "plain.yaml"), RULES, places).effect is ALLOW


def test_a_file_that_the_line_writes_may_lead_what_follows(judge: Judge) -> None:
    for line in (
        "echo 'execute_process(COMMAND rm README.md)' > k.cmake; cmake -P k.cmake",
        "printf 'all:\n\trm x\n' > a.mk && make -f a.mk",
        "echo 'project(x) rm' | tee CMakeLists.txt; nice cmake .",
        "cat > x.nim <<'E'\ncurl x\nE\nnim e x.nim",
    ):
        assert judge(line).effect is not ALLOW, line
    for line in (
        "echo 'never rm -rf it' > notes.txt; cat notes.txt",
        "echo 'project(x)' > CMakeLists.txt; cmake .",
        "cmake . ; echo 'do not rm' > notes.txt",
    ):
        assert judge(line).effect is ALLOW, (line, judge(line).reasons)


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


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        ("frobnicate touch hit", ASK),
        ("frobnicate -v cp a b", ASK),
        ("frobnicate stat src", ALLOW),
        ("frobnicate src touch", ALLOW),
        ("frobnicate no-such-program src", ALLOW),
    ],
)
def test_the_first_word_of_an_unknown_program_may_be_what_it_starts(
    places: PathPolicy, line: str, effect: Effect
) -> None:
    rules = [Layer(name="user", rules=(Rule(effect=ALLOW, action="exec", pattern="frobnicate *"),))]
    assert judge_line(line, LayerRules(rules), places).effect is effect


def test_programs_that_are_denied_whatever_their_words_are() -> None:
    patterns = ("rm *", "curl", "git push *", "rm -rf *", "py* *")
    rules = [*(Rule(effect=DENY, action="exec", pattern=p) for p in patterns)]
    rules.append(Rule(effect=ASK, action="exec", pattern="ssh *"))
    assert LayerRules([Layer(name="user", rules=tuple(rules))]).denied_programs() == {"rm"}
