"""Tests of `stop` and `resume`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse.floor import make_private
from skillhouse.tiers.emergency_stop import OwnLine
from tests.frontends.conftest import Run


@pytest.mark.under("owliabot")
@pytest.mark.req("S000-108")
def test_stop_is_kept_recorded_and_done_again_when_asked(run: Run) -> None:
    assert run("stop", "--status")[:2] == (0, "not stopped\n")
    code, out, err = run("stop", "--reason", "a test")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "everything is stopped",
        "  0 calls ended",
        "  end the session keys: done",
        "  withdraw open questions: done",
        "  write to the log: done",
    ]
    assert run("stop", "--status", "--json")[:2] == (
        1,
        '{\n  "stopped": true,\n  "reason": "a test (by local)"\n}\n',
    )
    again = json.loads(run("stop", "--json")[1])
    assert again == {
        "new": False,
        "ended": 0,
        "silent": [],
        "killed": 0,
        "done": ["end the session keys", "withdraw open questions", "write to the log"],
        "failed": [],
    }
    records = json.loads(run("audit", "list", "--json")[1])["records"]
    assert "system:emergency-stop" in json.dumps(records)


def test_a_log_that_cannot_be_written_does_not_keep_it_from_stopping(run: Run) -> None:
    make_private(Path.home() / ".local/state/skillhouse/audit.jsonl")
    code, _, err = run("stop")
    assert code == 1
    assert "all tools are stopped, but this failed: " in err
    assert run("stop", "--status")[0] == 1


STATE = ".local/state/skillhouse"


def empty(database: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{database}{suffix}").write_bytes(b"")


def remove(database: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{database}{suffix}").unlink(missing_ok=True)


def spoil(database: Path) -> None:
    remove(database)
    database.write_bytes(b"no database at all, and long enough to have a header" * 40)


@pytest.mark.file_state
@pytest.mark.parametrize("lose", [empty, remove, spoil])
def test_a_stop_outlives_the_database(run: Run, lose: Callable[[Path], None]) -> None:
    run("stop", "--reason", "a test")
    lose(Path.home() / STATE / "state.sqlite3")
    assert run("stop", "--status")[:2] == (1, "stopped: a test (by local)\n")
    (Path.cwd() / "a.txt").write_text("x")
    code, out, _ = run("call", "read", "--args", '{"path": "a.txt"}')
    assert (code != 0, out) == (True, "")


def test_a_stop_outlives_its_file(run: Run) -> None:
    run("stop", "--reason", "a test")
    (Path.home() / STATE / "stop/stopped").unlink()
    assert run("stop", "--status")[:2] == (1, "stopped: a test (by local)\n")


@pytest.mark.file_state
@pytest.mark.slow
def test_a_resume_lifts_a_stop_whose_database_was_lost(run: Run, typing: Run) -> None:
    run("stop")
    remove(Path.home() / STATE / "state.sqlite3")
    assert typing("resume", "resume")[:2] == (0, "the tools go on\n")
    assert run("stop", "--status")[0] == 0


@pytest.mark.under("owliabot")
@pytest.mark.req("S000-109")
def test_no_program_can_resume(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("stop")
    read, write = os.pipe()
    os.write(write, b"resume\n")
    os.close(write)
    with os.fdopen(read) as piped:
        monkeypatch.setattr(sys, "stdin", piped)
        code, _, err = run("resume")
    assert (code, "cannot ask without a terminal" in err) == (2, True)
    assert run("stop", "--status")[0] == 1


@pytest.mark.slow
@pytest.mark.under("owliabot")
@pytest.mark.req("S000-109")
def test_the_owner_resumes_at_the_terminal_with_a_word(run: Run, typing: Run) -> None:
    run("stop")
    code, out, said = typing("yes", "resume")
    assert (code, out, "nothing was resumed" in said) == (1, "", True)
    assert run("stop", "--status")[0] == 1
    assert typing("resume", "resume")[:2] == (0, "the tools go on\n")
    assert run("stop", "--status")[0] == 0
    assert typing("resume", "resume")[0] == 1
    assert "system:emergency-resume" in run("audit", "list", "--json")[1]


def test_a_fault_in_the_configuration_does_not_keep_it_from_stopping(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLHOUSE_CACHE", "perhaps")
    code, out, err = run("stop")
    assert code == 0, err
    assert out.startswith("everything is stopped\n")
    assert "stopping what uses the usual state directory" in err
    monkeypatch.delenv("SKILLHOUSE_CACHE")
    assert run("stop", "--status")[0] == 1


@pytest.mark.slow
def test_a_process_that_does_not_answer_is_named(run: Run) -> None:
    line = OwnLine(Path.home() / STATE / "stop")
    line.write(1, 0)
    code, out, err = run("stop")
    line.close()
    assert (code, "  0 calls ended" in out.splitlines()) == (1, True)
    assert f"in process {os.getpid()}; 0 commands killed from here" in err
