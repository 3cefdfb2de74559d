"""Tests of audit/state_heads.py and server_logs.py: chains of several servers."""

from __future__ import annotations

import json
import threading
from itertools import count
from pathlib import Path

import pytest

from skillhouse.audit import AuditError, AuditLog, Query, read_records, verify_log
from skillhouse.audit.log_files import keys_of, read_keys
from skillhouse.audit.record import DAY_MILLISECONDS
from skillhouse.audit.server_logs import entries_of_all, find_logs
from skillhouse.audit.state_heads import (
    HEADS_EVERY,
    StateHead,
    StateHeads,
    heads_by_log,
    is_sealed_head,
    sealed_head,
)
from skillhouse.floor import StateError
from skillhouse.floor.machine import SERVER_NAME
from tests.audit.logs import intent, outcome, refusal, small_log

KEYS = keys_of(b"k" * 32, Path("audit.jsonl"))


def head(seq: int, at_ms: int = 0) -> StateHead:
    return sealed_head(KEYS, seq=seq, server="core-a", record_hash=f"{seq:064}", at_ms=at_ms)


def test_a_log_without_a_name_is_as_it_was(tmp_path: Path) -> None:
    log = small_log(tmp_path / "audit.jsonl")
    assert b'"server"' not in log.path.read_bytes()
    assert {entry.record.server for entry in read_records(log.path)} == {""}
    assert (log.verify().servers, log.verify().heads) == ((), 0)
    assert not (tmp_path / "state.sqlite3").exists()


def test_every_record_of_a_server_has_its_name_also_those_of_the_log_itself(
    tmp_path: Path,
) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditLog(path, server="core-a", max_bytes=600) as log:
        first = log.append(intent(), durable=True)
        log.append(outcome(first.id), durable=False)
        log.append_or_keep(refusal())
    names = [json.loads(line)["server"] for line in path.read_bytes().splitlines()]
    assert set(names) == {"core-a"}
    # The records about the rotation too.
    found = verify_log(path)
    assert (found.problems, found.servers, found.archives > 0) == ((), ("core-a",), True)
    kinds = {entry.record.kind for entry in read_records(path)}
    assert "rotation" in kinds


def test_a_log_that_gets_a_name_later_is_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditLog(path) as before:
        before.append(refusal(), durable=True)
    with AuditLog(path, server="core-a", heads=StateHeads(tmp_path)) as after:
        after.append(refusal(), durable=True)
    found = verify_log(path, heads=heads_by_log(StateHeads(tmp_path).all()))
    assert (found.records, found.problems, found.servers) == (2, (), ("core-a",))


def test_the_state_has_the_last_record_when_a_log_is_closed(tmp_path: Path) -> None:
    heads = StateHeads(tmp_path)
    with AuditLog(tmp_path / "audit.jsonl", server="core-a", heads=heads) as log:
        last = [log.append(refusal(), durable=False) for _ in range(4)][-1]
    (*_, found) = heads.all()
    assert (found.seq, found.hash, found.server) == (4, last.hash, "core-a")
    keys = read_keys(tmp_path / "audit.jsonl", None)
    assert keys is not None
    assert is_sealed_head(found, keys)
    assert heads.last(keys) == found


def test_a_head_is_written_meanwhile_and_no_record_waits_for_it(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Slow(StateHeads):
        def add(self, head: StateHead) -> None:
            begun.set()
            assert go_on.wait(20)
            super().add(head)

    heads = Slow(tmp_path)
    log = AuditLog(tmp_path / "audit.jsonl", server="core-a", heads=heads)
    log.append(refusal(), durable=True)
    assert begun.wait(20)
    for _ in range(HEADS_EVERY + 1):
        log.append(refusal(), durable=False)
    assert heads.all() == ()
    go_on.set()
    log.append(refusal(), durable=False)
    log.close()
    assert heads.all()[-1].seq == HEADS_EVERY + 3


def test_a_state_that_cannot_be_written_stops_no_record_and_is_said(tmp_path: Path) -> None:
    class Broken(StateHeads):
        def add(self, head: StateHead) -> None:
            raise StateError("the state is away", tmp_path)

    log = AuditLog(tmp_path / "audit.jsonl", server="core-a", heads=Broken(tmp_path))
    log.append(refusal(), durable=True)
    log.close()
    (warning,) = log.warnings
    assert "the log's head is not in the state: the state is away" in warning


def test_a_state_that_cannot_be_read_stops_a_verification(tmp_path: Path) -> None:
    class Away(StateHeads):
        def all(self) -> tuple[StateHead, ...]:
            raise StateError("the state is away", tmp_path)

    log = AuditLog(tmp_path / "audit.jsonl", server="core-a", heads=Away(tmp_path))
    log.append(refusal(), durable=True)
    log.close()
    with pytest.raises(StateError):
        log.verify()


def test_of_older_days_the_last_head_stays(tmp_path: Path) -> None:
    heads = StateHeads(tmp_path)
    times = count(1)
    for day in (0, 1, 5):
        for hour in (1, 2, 3):
            heads.add(head(next(times), day * DAY_MILLISECONDS + hour * 3_600_000))
    assert [one.seq for one in heads.all()] == [3, 6, 7, 8, 9]


def test_two_processes_that_share_a_log_add_to_the_same_heads(tmp_path: Path) -> None:
    heads = StateHeads(tmp_path)
    one, two = (AuditLog(tmp_path / "audit.jsonl", server="core-a", heads=heads) for _ in range(2))
    for log in (one, two, one, two):
        log.append(refusal(), durable=True)
    one.close()
    two.close()
    found = one.verify()
    assert (found.problems, found.records) == ((), 4)
    assert heads.all()[-1].seq == 4


def test_a_seal_covers_each_part_of_a_head() -> None:
    true = head(3, 5)
    assert is_sealed_head(true, KEYS)
    for part in ({"seq": 4}, {"server": "b"}, {"hash": "0" * 64}, {"at_ms": 6}, {"log": "x"}):
        fields = {name: getattr(true, name) for name in true.__struct_fields__}
        assert not is_sealed_head(StateHead(**fields | part), KEYS), part
    assert not is_sealed_head(true, keys_of(b"o" * 32, Path("audit.jsonl")))
    assert not is_sealed_head(StateHead(**{**fields, "seal": "\udc80"}), KEYS)


@pytest.mark.parametrize("name", ["core-a", "t-replicas-0", "a", "x" * 63, "a.b_c"])
def test_a_name_of_a_host_or_pod_is_one_of_a_server(name: str) -> None:
    assert SERVER_NAME.fullmatch(name)


@pytest.mark.parametrize("name", ["", "-a", "a-", "x" * 64, 'a"', "a b", "é", "a\n", "a/b"])
def test_what_would_leave_its_place_in_a_record_is_no_name(name: str) -> None:
    assert not SERVER_NAME.fullmatch(name)
    if name:
        with pytest.raises(AuditError, match="no name of a server"):
            AuditLog(Path("audit.jsonl"), server=name)


def test_logs_of_a_folder_are_found_without_following_links(tmp_path: Path) -> None:
    for name in ("core-b", "core-a/log"):
        small_log(tmp_path / "logs" / name / "audit.jsonl")
    outside = tmp_path / "outside"
    small_log(outside / "audit.jsonl")
    (tmp_path / "logs/link").symlink_to(outside)
    (tmp_path / "logs/core-b/deep/er/and/down/there").mkdir(parents=True)
    found = find_logs(tmp_path / "logs")
    assert [str(path.relative_to(tmp_path)) for path in found] == [
        "logs/core-a/log/audit.jsonl", "logs/core-b/audit.jsonl",
    ]  # fmt: skip


def test_records_of_several_logs_come_newest_first(tmp_path: Path) -> None:
    clock = count(1_767_225_600)
    logs = [
        AuditLog(tmp_path / name / "audit.jsonl", server=name, clock=lambda: float(next(clock)))
        for name in ("core-a", "core-b")
    ]
    for number in range(6):
        logs[number % 2].append(refusal(reason=str(number)), durable=False)
    for log in logs:
        log.close()
    paths = find_logs(tmp_path)
    found = entries_of_all(paths, Query())
    assert [(one.record.reason, one.record.server) for one in found] == [
        (str(number), f"core-{'ab'[number % 2]}") for number in (5, 4, 3, 2, 1, 0)
    ]
    one = entries_of_all(paths, Query(server="core-b"))
    assert {entry.record.reason for entry in one} == {"1", "3", "5"}


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="absent"):
        find_logs(tmp_path / "absent")
    (tmp_path / "audit.jsonl").symlink_to(tmp_path / "other")
    with pytest.raises(AuditError, match="symbolic link"):
        verify_log(tmp_path / "audit.jsonl")
