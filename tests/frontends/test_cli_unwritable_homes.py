"""A home that is read-only or missing: what only reads works, and what writes names the setting."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.frontends.conftest import Run
from tests.frontends.test_cli_homes import skill
from tests.harness import Need, ran
from tests.machines import OWN_MOUNTS, check_machine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare: nothing is mounted"),
]

READING = """
list
list --json
list --problem
search stand-up
show standup
load standup
files standup
catalog
rehearse stand-up
tools
profiles
audit
audit verify
policy list
policy lint
policy explain exec ls
config
config check
approvals
outdated
verify
trust --list
delete --list
mcp status
mcp servers
remote list
tokens list
keys list
reload
validate ~/.agents/skills/standup
completions bash
call skill name=standup
"""
STATE = "set SKILLHOUSE_STATE_DIRECTORY to a directory that you can write"
HOME = "set HOME to a directory that you can write"
WRITING = {
    "disable standup": STATE,
    "delete standup --yes": STATE,
    "trust . --yes": STATE,
    "new another --description 'Use when asked.'": STATE,
    "export standup --to claude-code": STATE,
    "install ~/.agents/skills/standup --yes": STATE,
    "call read path=/etc/hostname": STATE,
    "call exec command=ls": STATE,
    "stop": STATE,
    "policy allow exec 'git log *' --yes": STATE,
    "policy init developer --yes": STATE,
}
PROGRAM = """
import contextlib, io, json, os, shlex, sys
from skillhouse.frontends.cli import main
for line in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        words = [os.path.expanduser(word) for word in shlex.split(line)]
        code = main(words)
    print(json.dumps([line, code, out.getvalue(), err.getvalue()]))
"""
READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
MOUNTS = ("unshare", "--mount") if os.geteuid() == 0 else OWN_MOUNTS


@pytest.fixture
def home(place: Path) -> Path:
    skill(place / "home/.agents/skills/standup", "Write a stand-up note.")
    return place / "home"


def said(place: Path, lines: Sequence[str], **variables: str) -> dict[str, tuple[int, str, str]]:
    """Return the exit code and the output of commands, in one process with a read-only home."""
    done = ran(
        [*MOUNTS, "sh", "-c", READ_ONLY, "sh", str(place / "home"), sys.executable, "-c", PROGRAM],
        input=json.dumps(lines),
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stderr
    found = map(json.loads, done.stdout.splitlines())
    return {line: (code, out, err) for line, code, out, err in found}


def used(run: Run) -> None:
    """Make state, with a log of SQLite, by verbs of each kind."""
    for line in ("trust . --yes", "disable standup", "enable standup", "call exec command=ls"):
        run(*shlex.split(line))


@pytest.mark.parametrize("is_used", [False, True], ids=["fresh", "used"])
def test_reading_needs_no_state_and_writing_names_the_setting(
    run: Run, home: Path, place: Path, need: Need, *, is_used: bool
) -> None:
    check_machine(need, MOUNTS)
    if is_used:
        used(run)
        assert (home / ".local/state/skillhouse/state.sqlite3").is_file()
    files = sorted(home.rglob("*"))
    reading = [line for line in READING.splitlines() if line]
    found = said(place, [*reading, *WRITING])
    assert {line: found[line] for line in reading if found[line][0]} == {}
    assert "standup" in found["list"][1]
    for line, advice in WRITING.items():
        code, _, err = found[line]
        assert (line, code in (1, 3)) == (line, True)
        assert advice in err, line
        assert "Traceback" not in err
    assert sorted(home.rglob("*")) == files


def test_doctor_names_the_setting(home: Path, place: Path, need: Need) -> None:
    check_machine(need, MOUNTS)
    code, out, _ = said(place, ["doctor --client codex"])["doctor --client codex"]
    assert code == 1
    assert STATE in " ".join(out.split())


def test_with_the_setting_what_writes_state_works(home: Path, place: Path, need: Need) -> None:
    check_machine(need, MOUNTS)
    state = str(place / "state")
    lines = ["disable standup", "list --problem", "trust . --yes", "audit"]
    lines += ["policy allow exec pwd --yes", "policy init developer --yes", "sandbox status"]
    found = said(place, lines, SKILLHOUSE_STATE_DIRECTORY=state)
    # 1 is that of a list with problems; 3 that of a machine without a sandbox.
    codes = [code for code, _, _ in found.values()]
    assert codes[:-1] == [0, 1, 0, 0, 3, 3]
    assert codes[-1] in (0, 3)
    assert "disabled" in found["list --problem"][1]
    assert "disable: user:standup" in found["audit"][1]
    # The log can be written now; the person's file of rules cannot.
    assert all(HOME in found[line][2] for line in lines[4:6])


def test_a_home_that_is_missing_and_cannot_be_made(home: Path, place: Path, need: Need) -> None:
    check_machine(need, MOUNTS)
    lines = ["list", "doctor --client codex", "trust . --yes", "policy init developer --yes"]
    found = said(place, lines, HOME=str(home / "missing"))
    assert found["list"][0] == 0
    assert STATE in " ".join(found["doctor --client codex"][1].split())
    assert STATE in found["trust . --yes"][2]
    assert STATE in found["policy init developer --yes"][2]


def test_a_call_of_the_library_is_a_result_and_no_exception(
    home: Path, place: Path, need: Need
) -> None:
    check_machine(need, MOUNTS)
    calls = {"read": {"path": "/etc/hostname"}, "exec": {"command": "ls"}}
    calls["write"] = {"path": "a", "content": "b"}
    code = (
        "from skillhouse import Skillhouse\n"
        "with Skillhouse() as house:\n"
        f"    for name, given in {calls!r}.items():\n"
        "        print(house.call_sync(name, given).content)\n"
    )
    command = [*MOUNTS, "sh", "-c", READ_ONLY, "sh", str(home), sys.executable, "-c", code]
    done = ran(command, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("nothing was done: ") and line.endswith(STATE) for line in lines)


def test_commands_run_in_a_workspace_that_is_read_only(home: Path, place: Path, need: Need) -> None:
    check_machine(need, MOUNTS)
    work = home / "work"
    work.mkdir()
    (work / "a.txt").write_text("text of a\n")
    own = home / ".config/skillhouse/config.toml"
    own.parent.mkdir(parents=True)
    own.write_text('[[rules]]\neffect = "allow"\naction = "exec"\npattern = "*"\n')
    looks = f"call exec 'command=cat a.txt' -C {work}"
    writes = f"call exec 'command=touch b' -C {work}"
    lines = ["sandbox status", looks, writes]
    found = said(place, lines, SKILLHOUSE_STATE_DIRECTORY=str(place / "state"))
    need(found["sandbox status"][0] == 0, "no sandbox in a namespace of its own")
    assert found[looks][:2] == (0, "text of a\n"), found[looks]
    code, out, err = found[writes]
    assert (code, "Read-only file system" in out + err) == (1, True), found[writes]
    assert [path.name for path in work.iterdir()] == ["a.txt"]
