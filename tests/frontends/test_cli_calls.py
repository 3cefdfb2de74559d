"""Tests of `call`, `audit` and `sandbox`, and of the question at a real terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from skillhouse.sandbox import default_python
from tests.frontends.conftest import Run

WRITE = ("call", "write", "--args", '{"path": "notes/a.txt", "content": "text"}')


@pytest.fixture
def project(place: Path) -> Path:
    return place / "project"


def test_an_allowed_call_prints_its_result_and_is_in_the_log(run: Run, project: Path) -> None:
    (project / "a.txt").write_text("one\n")
    assert run("call", "read", "--args", '{"path": "a.txt"}') == (0, "one\n", "")
    code, out, _ = run("audit", "list", "--json")
    assert code == 0
    (entry,) = json.loads(out)["records"]
    assert (entry["status"], entry["record"]["tool"]) == ("ok", "read")
    code, out, _ = run("audit", "show", entry["record"]["id"])
    assert code == 0
    assert "status: ok" in out
    assert run("audit", "list")[1].count("\n") == 1
    assert run("audit", "verify") == (0, "2 records, the log is whole\n", "")


def test_a_refused_call_says_which_rule_would_allow_it(run: Run, project: Path) -> None:
    code, out, err = run(*WRITE)
    assert (code, out) == (1, "")
    rule = f"write {project.resolve()}/notes/a.txt"
    assert f"a rule that allows `{rule}` would let it through" in err
    assert json.loads(run(*WRITE, "--json")[1])["status"] == "pending"


@pytest.mark.slow
def test_arguments_can_be_words(run: Run, project: Path) -> None:
    (project / "7").write_text("one\ntwo\nthree\n")
    assert run("call", "read", "path=7", "offset=2", "limit=1")[:2] == (0, "two\n")
    for words, message in (
        (("a.txt",), "expected NAME=VALUE, got `a.txt`"),
        (("path=7", "path=8"), "`path` is given twice"),
        (("path=7", "--args", '{"path": "8"}'), "`path` is given twice"),
        (("=7",), "expected NAME=VALUE"),
        (("path=7", "limit=many"), "limit"),
        (("path=7", "way=8"), "way"),
    ):
        code, _, err = run("call", "read", *words)
        assert (code != 0, message in err) == (True, True), (words, err)


def test_arguments_can_come_from_a_file(run: Run, project: Path) -> None:
    (project / "args.json").write_text('{"path": "."}')
    assert run("call", "list", "--args", "@args.json")[1] == ".git/\nargs.json\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("call", "raed"), 2, "unknown tool `raed`; did you mean `read`"),
        (("call", "read", "--args", "{"), 2, "expected JSON after --args"),
        (("call", "read", "--args", "[]"), 2, "expected a JSON object after --args"),
        (("call", "read", "--args", "@none"), 3, "no such file or directory: `none`"),
        (("call", "read", "--agent", "nobody"), 2, "unknown agent `nobody`"),
        (("audit", "show", "01ABC"), 2, "no record begins with `01ABC`"),
        (("audit", "lst"), 2, "invalid choice: 'lst'"),
    ],
)
def test_bad_arguments_are_named(
    run: Run, arguments: tuple[str, ...], code: int, message: str
) -> None:
    found = run(*arguments)
    assert found[:2] == (code, "")
    assert message in found[2]


def test_a_changed_byte_of_the_log_is_a_finding(run: Run, project: Path) -> None:
    run("call", "list")
    log = Path(os.environ["HOME"], ".local/state/skillhouse/audit.jsonl")
    log.write_bytes(log.read_bytes().replace(b'"list"', b'"lisT"', 1))
    code, out, _ = run("audit", "verify")
    assert code == 1
    assert "line 1" in out
    assert json.loads(run("audit", "verify", "--json")[1])["ok"] is False


@pytest.mark.slow
def test_the_sandbox_is_tested_and_its_level_printed(run: Run) -> None:
    code, out, _ = run("sandbox", "status", "--json")
    status = json.loads(out)
    assert (code == 3) is (status["level"] == "none")
    assert all(probe["passed"] for probe in status["probes"])
    default = status["pythons"][0]
    assert default == {
        "program": str(default_python().program),
        "version": default_python().release,
        "why": default_python().why,
    }
    text = run("sandbox", "status")[1]
    assert text.startswith(f"level: {status['level']}\n")
    assert f"  {default['version']:<9}{default['program']}  {default['why']}\n" in text


def ask(typed: bytes, *arguments: str) -> tuple[int, str]:
    """Run a command with a terminal as stdin, type at its question, and return code and stderr."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "skillhouse", *arguments],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(theirs)
    assert process.stderr is not None
    said = b""
    while b"Allow?" not in said and (part := os.read(process.stderr.fileno(), 4096)):
        said += part
    if typed == b"\x03":
        process.send_signal(signal.SIGINT)
    else:
        os.write(ours, typed)
    _, rest = process.communicate(timeout=20)
    os.close(ours)
    return process.returncode, (said + rest).decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "code", "written"),
    [
        *((word, 0, True) for word in (b"y\n", b"  YES \n", b"Confirm\n")),
        *((word, 1, False) for word in (b"n\n", b"what\n", b"\n", b"yes please\n")),
    ],
)
@pytest.mark.req("S000-75")
def test_only_a_yes_at_the_terminal_is_a_yes(
    project: Path, typed: bytes, code: int, written: bool
) -> None:
    found, said = ask(typed, *WRITE)
    assert found == code, said
    assert "content: text" in said
    assert (project / "notes/a.txt").exists() is written


@pytest.mark.slow
def test_an_always_at_the_terminal_is_kept_for_the_directory(project: Path, run: Run) -> None:
    assert ask(b"a\n", *WRITE)[0] == 0
    assert run(*WRITE)[0] == 0


@pytest.mark.slow
def test_ctrl_c_at_the_question_ends_at_once_and_nothing_is_done(project: Path) -> None:
    code, said = ask(b"\x03", *WRITE)
    assert code == 128 + signal.SIGINT
    assert "Traceback" not in said
    assert not (project / "notes").exists()


def test_options_may_stand_between_the_tool_and_its_arguments(run: Run, place: Path) -> None:
    (place / "project/a.txt").write_text("the text")
    there = str(place / "project")
    for words in (
        ("read", "-C", there, "path=a.txt", "--json"),
        ("-C", there, "read", "--json", "path=a.txt"),
        ("read", "--json", "path=a.txt", "-C", there),
    ):
        code, out, err = run("call", *words)
        assert (code, err, json.loads(out)["status"]) == (0, "", "ok"), words
    code, _, err = run("call", "read", "-C", there, "--jsn", "path=a.txt")
    assert (code, "unknown argument `--jsn`; did you mean `--json`" in err) == (2, True)
