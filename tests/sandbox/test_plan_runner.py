"""Tests of sandbox/interpreters.py and of the runner, outside the sandbox and beside a shell."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skillhouse.permission import judge_command
from skillhouse.sandbox import plan_argv
from skillhouse.sandbox.interpreters import RUNNER
from tests.harness import Need

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc for files"),
]


def run(plan: Any, place: Path) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-I", "-S", str(RUNNER), json.dumps(plan)]
    return subprocess.run(command, cwd=place, capture_output=True, check=False, timeout=30)


@pytest.mark.parametrize(
    "line",
    [
        "echo a | cat | wc -c",
        "true && echo a || echo b",
        "false && echo a || echo b",
        "false || false; echo c",
        "echo 1; false",
        "printf 'b\\na\\n' | sort | head -n 1",
        "echo x > f; cat f; echo y >> f && cat < f",
        "echo ./*.md 'a  b' \\* \"./*.md\"",
        "ls none 2>&1 | wc -l",
        "echo out 2>&1 >/dev/null",
        "cat <<'E'\na $b\nE",
        "sh -c 'exit $((6 + 1))'",
        "sh -c 'kill -TERM $$'",
        "yes | head -n 2",
        "true | false",
        "cat missing || echo no",
        "cat < one.md two.md",
        "LC_ALL=C sh -c 'echo $LC_ALL'",
        "echo a |& cat",
        "echo x &> both; cat both",
        "cat ./*.md > all.md; cat all.md",
        "echo ./*.md > ./new.md; cat new.md",
        "echo ./*.md 2> ./new.md",
        "echo x > /dev/null; cat < /dev/null",
        "echo to-the-pipe | cat < /dev/stdin",
        "echo x > /dev/stdout",
        "command -v ls cd if nope",
        "command -v nope",
        "type ls cd if nope 2>/dev/null",
        "ls > /dev/null; type ls",
        "X=one.md; cat $X",
        "export LC_ALL=C; sh -c 'echo $LC_ALL'",
        "cat <<< 'a  b'",
        "cat <<E\n  a\nE",
        "cat 0<one.md",
        "echo 'a'\\* b\\\nc",
        "[ -f one.md ] && test ! -d one.md && echo file",
        "false; echo $?",
        "echo $?; sh -c 'exit 3'; echo \"exit: $?\" $?; echo $?",
        'true | false; echo "${PIPESTATUS[0]} ${PIPESTATUS[1]} $?"',
        "sh -c 'exit 4' | cat; echo ${PIPESTATUS[0]}; echo ${PIPESTATUS[0]}",
        "false || true; echo $? ${PIPESTATUS[0]}",
        "false && ls; echo $?",
        "X=1; echo $?",
        "X=1; false; echo $X $?",
        "set -e; true; echo $?; false; echo $?",
        'for N in 1 2; do sh -c "exit $N"; echo $N $?; done; echo $?',
        "sh -c 'kill -TERM $$'; echo $?",
        "false; [ $? -ne 0 ] && echo failed; test $? -eq 0 && echo well",
        "false; echo $? > code; cat code",
        "false; echo '$?' \\$? \"${PIPESTATUS[0]}\"",
        "printf '%s:%s\\n' a $?",
        "no-such-program; echo $?",
    ],
)
def test_a_plan_does_what_bash_does(line: str, tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        for file in ("one.md", "two.md"):
            (tmp_path / name / file).write_text(f"{file}\n")
    found = judge_command(line, cwd=tmp_path / "ours")
    assert found.structure is not None
    ours = run(found.structure.value(), tmp_path / "ours")
    theirs = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path / "theirs", capture_output=True, check=False
    )
    code = theirs.returncode if theirs.returncode >= 0 else 128 - theirs.returncode
    assert (ours.stdout, ours.returncode) == (theirs.stdout, code)
    files = [
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("ours", "theirs")
    ]
    assert files[0] == files[1]


def one(*argv: str, redirects: Any = (), **more: Any) -> dict[str, Any]:
    command = {"argv": list(argv), "patterns": [], "environment": [], **more}
    command["redirects"] = [list(redirect) for redirect in redirects]
    return {"directory": "", "pipelines": [{"joined": "", "commands": [command]}]}


def test_a_target_that_is_not_the_judged_file_keeps_its_content(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/kept").write_text("kept")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "last").symlink_to("real/kept")
    for target in ("link/kept", "last"):
        done = run(one("echo", "x", redirects=[(1, "write", f"{tmp_path}/{target}")]), tmp_path)
        assert done.returncode == 1
        assert done.stderr
    assert (tmp_path / "real/kept").read_text() == "kept"


@pytest.mark.parametrize("kind", ["read", "write", "append"])
def test_a_fifo_without_another_end_ends_the_command_at_once(tmp_path: Path, kind: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = run(one("cat", redirects=[(int(kind != "read"), kind, f"{tmp_path}/pipe")]), tmp_path)
    assert done.returncode == 1
    assert done.stderr


@pytest.mark.parametrize("kind", ["read", "write", "append"])
def test_a_device_of_the_workspace_is_not_opened(tmp_path: Path, kind: str, need: Need) -> None:
    try:
        os.mknod(tmp_path / "device", 0o600 | stat.S_IFCHR, os.makedev(5, 2))
    except PermissionError:
        need(None, "no right to make devices")
    done = run(one("cat", redirects=[(int(kind != "read"), kind, f"{tmp_path}/device")]), tmp_path)
    assert done.returncode == 1
    assert done.stderr


def test_a_target_that_is_no_regular_file_is_not_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        plan = one("echo", "x", redirects=[(1, "write", f"{tmp_path}/pipe")])
        assert run(plan, tmp_path).returncode == 1
    finally:
        os.close(reader)


def test_codes_are_those_of_a_shell(tmp_path: Path) -> None:
    (tmp_path / "no-program").write_text("x")
    assert run(one("no-such-program"), tmp_path).returncode == 127
    assert run(one("./no-program"), tmp_path).returncode == 126
    assert run({**one("true"), "directory": str(tmp_path / "none")}, tmp_path).returncode == 1


def test_the_words_of_a_plan_reach_the_runner_as_one_argument() -> None:
    plan = one("echo", "'; rm -rf / #", "$(id)", "日本")
    argv = plan_argv(plan)
    assert json.loads(argv[-1]) == plan
    assert argv[-5:-2] == ("-I", "-S", "-c")
    assert os.access(argv[0], os.X_OK)


def test_a_name_that_became_an_option_is_refused_where_none_was_judged(tmp_path: Path) -> None:
    (tmp_path / "-n.md").write_text("x")
    pattern = {"patterns": [[1, "*.md"]]}
    done = run(one("cat", "*.md", **pattern, guarded=[1]), tmp_path)
    assert (done.returncode, b"an option" in done.stderr) == (1, True)
    # After a question it is given to the program, as bash does.
    assert b"an option" not in run(one("cat", "*.md", **pattern), tmp_path).stderr
