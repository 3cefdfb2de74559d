"""Command lines for the tests of the judge, by what is right about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "commands.jsonl"

ALLOW = (
    "ls *|echo *|cat *|pwd|git status|git diff *|git log *|grep *|head *|tail *|wc *|sort *|find *"
).split("|")


def vectors() -> list[dict[str, Any]]:
    """Return the vectors of the command judge."""
    # Not splitlines: one vector holds a line separator of Unicode.
    lines = VECTORS.read_text(encoding="utf-8").strip().split("\n")
    return [json.loads(line) for line in lines]


HARMLESS = [
    "cat a.txt | grep foo | wc -l",
    "ls -la src",
    "git log --oneline -5",
    "git log --since='2 weeks ago' --author=x main..dev",
    "find . -name '*.py' -type f",
    "find . \\( -name a -o -name b \\) -print",
    "echo hello > /dev/null",
    "ls 2>/dev/null",
    "ls 2>&1 | head -5",
    "cat <<'EOF'\nhi $x\nEOF",
    "cat <<EOF\nplain text\nEOF",
    "LANG=C ls",
    "timeout -s KILL 5 ls",
    "nice -n 5 ls",
    "env LANG=C ls",
    "nohup stdbuf -oL ls",
    "command ls",
    "echo 'a;b' a\\;b \"c d\" {} a=b",
    "# comment\nls # comment",
    "sort -k2,2n -t, a.csv",
    "head -c 10 x",
    "ls && pwd; git status || echo no",
    "wc -l src/*.py ./[ab].txt",
    "echo 日本語 👍🏽",
    "ls\n",
    "sort < in.txt",
    "ls -- -x *.md",
    "cat < a b",
    "ls && grep foo x 2>/dev/null | head",
    "echo a\"b\"'c'\\ d; ls '\\ ' x\"y\"\\ z",
    "[ a ]",
    "[ -f a.txt ] && test -d src",
    "command -v git && type ls",
    "cd src && git status",
    'X=src; ls $X "${X}/a"',
    "LANG=C; ls",
    "cat <<E\n  a\nE",
    "ls 'a'\\* b\\\nc",
    'grep "foo$" x',
    "cat 0<a",
    "cat <<< 'a b'",
]
"""What `ALLOW` is enough for."""

DANGEROUS = [
    *("ls; touch x", "ls & touch x", "ls | touch x", "ls\ntouch x", "ls |& touch x", "ls &"),
    *("ls $(touch x)", "ls `touch x`", "ls <(touch x)", "cat <<EOF\n`x`\nEOF", "cat <<< $(x)"),
    *("echo > x", "cat a > b", "ls >| x", "ls &> x", "ls <> x", "echo x >> notes.txt"),
    *("ls ~", "cat /etc/passwd", "cat ../x", "cat .env", "cat id_rsa", "cat < /etc/passwd"),
    *("\\touch x", "'touch' x", 't"ou"ch x', "$'touch' x", "touch$IFS x", "{touch,x}"),
    *("LD_PRELOAD=x ls", "PATH=. ls", "FOO=1 ls", "env FOO=1 ls", "LANG=/tmp/x ls", "TZ=:/x ls"),
    *("env -i touch x", "env -u A touch x", "env -S 'touch x'", "timeout 5 touch x"),
    *("nice touch x", "nohup touch x", "setsid touch x", "time touch x", "command touch x"),
    *("builtin eval x", "exec touch x", "eval ls", "source x", ". x", "trap x EXIT", "exit"),
    *("ls | xargs touch", "find . -exec touch x \\;", "find . -execdir ls {} +", "find . -delete"),
    *("find . -ok touch x \\;", "find . -fls x", "find . -fprint x", "find -newer /etc/x"),
    *("sort -o x a", "sort -ox a", "sort --output=x a", "sort --compress-program=sh a"),
    *("git diff --output=x", "git diff --ext-diff", "git -c x=y log", "git log --textconv"),
    *("git diff -O/x", "git status -x", "ls *.md", "tail -f /x", "grep -f x y"),
    *("wc --files0-from=x", "cd .. && ls", "cd / ; ls", "coproc ls", "! ls", "ls() { :; }; ls"),
    *("if ls; then ls; fi", "while ls; do ls; done", "for i in a; do rm $i; done", "[[ a ]]"),
    *("((1))", "let x=1", "printf -v x y", "export A=b", "unset A", "x=1"),
    *("\u200bls", "ls\u00a0x", "ｌs", "ls\r", "./ls", "/opt/bin/ls", "l?", "~/ls", "$x", "$(x)"),
    *("", "   ", "# only a comment", "&& ls", "ls |", "ls >", "'", '"', "(", "a\0b", "ls \ud800"),
    *("x" * 9000, "ls;" * 65, "é" * 5000, "ls " + "(" * 60),
]
"""What `ALLOW` must not let through."""

DENIED = [
    *("rm -rf /", "rm -rf /*", "rm -fr ~", "rm -rf $HOME", "rm -r -f /", "rm -rf ~/*"),
    *("rm --recursive --force /", "rm -rf --no-preserve-root /", "rm -rf /home", "rm -rf /usr"),
    *("sudo ls", "doas ls", "su -c ls", "/bin/rm -rf /", "env rm -rf /", "busybox rm -rf /"),
    *("bash -c 'rm -rf /'", "echo $(rm -rf /)", "(rm -rf /)", "true && rm -rf /"),
    *("timeout 5 rm -rf /", "find / -delete", "find . -exec rm -rf / ;", "xargs rm -rf /"),
    *("dd if=/dev/zero of=/dev/sda", "mkfs.ext4 /dev/sda1", ":(){ :|:& };:", "echo x > /dev/sda"),
    *("chmod -R 777 /", "chown -R me /", "mv / /x", "shutdown -h now", "reboot", "kill -9 -1"),
    *("echo x > ~/.ssh/authorized_keys", "echo x > .git/hooks/x", "cat x > /etc/passwd"),
    *("rm -f /dev/null", "mv /dev/null x", "mv x /dev/null", "rm -f a //dev/../dev/zero"),
    *("chmod 600 /dev/null", "ln -sf x /dev/null", "cp -sf x /dev/null"),
    *("echo x | tee .bashrc", "cp x .GIT/hooks/y", "eval 'rm -rf /'", "echo x > .//.git//config"),
    "sh -c \"sh -c 'rm -rf /'\"",
    "env env env env env ls",
]
"""What nothing allows."""

HIDDEN_RM = [
    *("rm x", "/bin/rm x", "\\rm x", "'r'm x", "env rm x", "env A=b rm x", "timeout 5 rm x"),
    *("bash -c 'rm x'", "ls; rm x", "ls $(rm x)", "xargs rm", "find . -exec rm {} +"),
    *("nice -n 3 rm x", "(rm x)", "if ls; then rm x; fi", "command rm x", "nohup setsid rm x"),
    *(
        'sh -c "cd a; rm x"',
        "cat <(rm x)",
        "f() { rm x; }",
        "ls | rm x",
        "! rm x",
        'echo "$(rm x)"',
    ),
    *("sudo rm x", "strace rm x", "rm < a -rf", "> a rm x", "< a rm x", "FOO=1 rm x", "eval rm x"),
    *("exec rm x", "time rm x", "flock l rm x", "watch rm x", "script -c 'rm x'", "env -S'rm x'"),
    *("ls `rm x`", "$(rm x)", "echo ${a:-$(rm x)}", "unknown `rm x`; " + "ls;" * 20),
]
"""Ways to write `rm` that a deny of `rm *` sees, whatever is allowed."""
