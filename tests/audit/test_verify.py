"""Tests of audit/verify.py: each change of a log shows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.audit import AuditError, AuditLog, LogProblem, Verification, verify_log
from skillhouse.audit.log_end import head_path
from skillhouse.audit.log_files import key_path
from skillhouse.floor.structs import replace
from tests.audit.logs import Change, intent, log_at, outcome, refusal, small_log

pytestmark = pytest.mark.slow


@pytest.fixture
def path(tmp_path: Path) -> Path:
    log = small_log(tmp_path / "audit.jsonl")
    log.close()
    return log.path


def codes(path: Path) -> list[str]:
    return [problem.code for problem in verify_log(path).problems]


def test_a_log_that_nobody_touched_verifies(tmp_path: Path) -> None:
    log = log_at(tmp_path / "audit.jsonl")
    first = log.append(intent(), durable=True)
    last = log.append(outcome(first.id), durable=True)
    found = verify_log(log.path)
    assert len(found.name) == 12
    assert replace(found, name="") == Verification(
        records=2, problems=(), notes=(), unknown=(), head=last.hash
    )


def test_a_log_that_was_never_written_verifies(tmp_path: Path) -> None:
    nothing = Verification(records=0, problems=(), notes=(), unknown=(), head="0" * 64)
    assert verify_log(tmp_path / "audit.jsonl") == nothing


def test_a_log_whose_first_append_crashed_at_once_verifies(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for place in (path, head_path(path)):
        place.touch()
    assert verify_log(path).problems == ()
    assert log_at(path).append(refusal(), durable=True).seq == 1
    assert verify_log(path).problems == ()


def test_an_intent_without_outcome_is_unknown(tmp_path: Path) -> None:
    log = log_at(tmp_path / "audit.jsonl")
    done = log.append(intent(), durable=True)
    left = log.append(intent(), durable=True)
    log.append(refusal(), durable=True)
    log.append(outcome(done.id), durable=True)
    assert verify_log(log.path).unknown == (left,)


@pytest.mark.heavy
@pytest.mark.parametrize("value", [0x01, 0x80])
def test_one_changed_byte_anywhere_is_found(path: Path, value: int) -> None:
    data = path.read_bytes()
    missed = []
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ value]) + data[place + 1 :])
        if not verify_log(path).problems:
            missed.append(place)
    assert missed == []


@pytest.mark.heavy
def test_one_removed_or_added_byte_anywhere_is_found(path: Path) -> None:
    data = path.read_bytes()
    missed = []
    for place in range(len(data)):
        # One and the other in turn: each takes a look at the whole log.
        path.write_bytes(data[:place] + b" " * (place % 2) + data[place + 1 - place % 2 :])
        if not verify_log(path).problems:
            missed.append(place)
    assert missed == []


@pytest.mark.heavy
def test_a_log_cut_at_any_byte_is_found(path: Path) -> None:
    data = path.read_bytes()
    found = []
    for size in range(len(data)):
        path.write_bytes(data[:size])
        found.append("truncated" in codes(path))
    assert all(found)


def test_one_changed_byte_of_the_side_file_is_found(path: Path) -> None:
    head = head_path(path)
    data = head.read_bytes()
    # `durable` is for the next append, which has nothing to compare it with; the rest is checked.
    checked = [place for place in range(len(data)) if not data[:place].endswith(b'{"durable":')]
    missed = []
    for place in checked:
        head.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        if not verify_log(path).problems:
            missed.append(place)
    assert missed == []


def without_line(number: int) -> Change:
    def change(data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        return b"".join(lines[:number] + lines[number + 1 :])

    return change


def swapped(data: bytes) -> bytes:
    one, two, *rest = data.splitlines(keepends=True)
    return b"".join([two, one, *rest])


def repeated(data: bytes) -> bytes:
    one, *rest = data.splitlines(keepends=True)
    return b"".join([one, one, *rest])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (without_line(0), [("sequence", 1), ("truncated", 0)]),
        (without_line(1), [("sequence", 2), ("truncated", 0)]),
        (without_line(3), [("truncated", 0)]),
        (swapped, [("sequence", 1), ("sequence", 2), ("sequence", 3)]),
        (repeated, [("sequence", 2), ("head-mismatch", 0)]),
        (lambda data: b"", [("truncated", 0)]),
        (lambda data: data[:-1], [("torn", 4), ("truncated", 0)]),
        (lambda data: data + b"\n", [("record-unreadable", 5)]),
        (lambda data: data + b'{"kind":"intent"}\n', [("record-unreadable", 5)]),
        (lambda data: data + data.splitlines(keepends=True)[-1], [("sequence", 5)]),
        (lambda data: data + b"[" * 100_000 + b"\n", [("record-unreadable", 5)]),
        (lambda data: data + b"[" * 30_000 + b"\n", [("record-unreadable", 5)]),
        (lambda data: data + b"\xff\x00\n", [("record-unreadable", 5)]),
        (lambda data: data + b"x" * 3_000_000, [("record-unreadable", 5)]),
        (lambda data: data.replace(b"denied by", b"allowed by"), [("record-changed", 3)]),
    ],
)
def test_a_changed_log_says_where(
    path: Path, change: Change, expected: list[tuple[str, int]]
) -> None:
    path.write_bytes(change(path.read_bytes()))
    found = [(problem.code, problem.line) for problem in verify_log(path).problems]
    for one in expected:
        assert one in found


def test_the_problem_of_an_edit_stands_at_its_line_alone(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"denied by", b"granted y"))
    assert verify_log(path).problems == (
        LogProblem(line=3, code="record-changed", message="the record does not fit its hash"),
        LogProblem(line=4, code="sequence", message="expected record 3, got 4"),
    )


def test_a_log_without_its_side_file_is_a_problem(path: Path) -> None:
    head_path(path).unlink()
    assert codes(path) == ["head-missing"]


def test_a_log_that_was_removed_is_a_problem(path: Path) -> None:
    path.unlink()
    # The side file and the checkpoint both know more.
    assert codes(path) == ["truncated", "truncated"]


def test_a_side_file_of_another_log_is_a_problem(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    log_at(other).append(refusal(), durable=True)
    head_path(path).write_bytes(head_path(other).read_bytes())
    assert codes(path) == ["head-mismatch"]


def test_a_side_file_that_a_crash_left_behind_is_a_note(tmp_path: Path) -> None:
    log = small_log(tmp_path / "audit.jsonl")
    before = head_path(log.path).read_bytes()
    log.append(refusal(), durable=True)
    log.append(refusal(), durable=True)
    head_path(log.path).write_bytes(before)
    found = verify_log(log.path)
    message = "the side file is behind by 2 records after a crash"
    assert (found.problems, found.notes) == (
        (),
        (LogProblem(line=0, code="head-behind", message=message),),
    )
    # The next append goes on from the log, and the side file is right again.
    log.append(refusal(), durable=True)
    again = verify_log(log.path)
    assert (again.records, again.problems, again.notes) == (7, (), ())


def test_a_record_with_a_hash_of_its_own_does_not_follow(tmp_path: Path, path: Path) -> None:
    key = key_path(path).with_name("forged.jsonl.key")
    shutil.copy(key_path(path), key)
    log = AuditLog(tmp_path / "forged.jsonl")
    for _ in range(5):
        forged = log.append(refusal(), durable=False)
    line = log.path.read_bytes().splitlines(keepends=True)[forged.seq - 1]
    path.write_bytes(path.read_bytes() + line)
    assert codes(path) == ["chain"]


@given(noise=st.binary(max_size=400), place=st.integers(0, 2_000))
def test_verify_never_raises_for_what_the_bytes_hold(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, place: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "audit.jsonl"
    small_log(path).close()
    data = path.read_bytes()
    path.write_bytes(data[:place] + noise + data[place:])
    assert bool(verify_log(path).problems) == bool(noise)


@pytest.mark.parametrize(
    "record",
    [
        [],
        {"hash": "0" * 64},
        {"hash": 7, "seq": 1.5},
        {"seq": float("nan")},
        {"hash": "0" * 64, "id": "x"},
    ],
)
def test_json_that_is_no_record_is_a_problem(path: Path, record: object) -> None:
    path.write_bytes(path.read_bytes() + json.dumps(record).encode() + b"\n")
    assert codes(path) == ["record-unreadable"]


def test_a_log_with_very_many_problems_tells_the_first_thousand(path: Path) -> None:
    line = path.read_bytes().splitlines(keepends=True)[0]
    path.write_bytes(line * 1_500)
    assert len(codes(path)) == 1_001
    assert codes(path)[-1] == "more"


def test_a_log_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AuditError, match="cannot be read") as caught:
        verify_log(tmp_path / "file" / "audit.jsonl")
    assert caught.value.code == "log-unreadable"
