"""Tests of audit/keys.py: a log has a key, and without it nothing is written or believed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from skillhouse.audit import AuditError, AuditLog, read_records, verify_log
from skillhouse.audit.head import head_path
from skillhouse.audit.keys import key_path
from skillhouse.floor import canonical_json
from tests.audit.logs import log_at, refusal, small_log

KEY = b"an operator's key of some length"


def refused(log: AuditLog) -> str:
    before = log.path.read_bytes()
    with pytest.raises(AuditError) as caught:
        log.append(refusal(), durable=True)
    assert log.path.read_bytes() == before
    return caught.value.code


def test_the_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = small_log(tmp_path / "audit.jsonl").path
    before = key_path(path).read_bytes()
    assert key_path(path).stat().st_mode & 0o777 == 0o600
    AuditLog(path).append(refusal(), durable=True)
    assert key_path(path).read_bytes() == before
    assert json.loads(before)["key"] not in path.read_text()


def test_a_log_whose_key_is_gone_is_neither_written_nor_believed(tmp_path: Path) -> None:
    path = small_log(tmp_path / "audit.jsonl").path
    key_path(path).unlink()
    assert refused(AuditLog(path)) == "key-missing"
    assert not key_path(path).exists()
    assert "key-missing" in {problem.code for problem in verify_log(path).problems}
    with pytest.raises(AuditError) as caught:
        read_records(path)
    assert caught.value.code == "key-missing"
    # Reads go on meanwhile.
    assert AuditLog(path, warn=lambda line: None).append_read(refusal()).seq == 0


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = small_log(tmp_path / "audit.jsonl").path
    key_path(path).chmod(0o640)
    assert refused(AuditLog(path)) == "key-exposed"


@pytest.mark.parametrize("data", [b"", b"{}", b"[", b'{"key":"00","since":0,"hash":""}'])
def test_a_changed_key_file_is_refused(tmp_path: Path, data: bytes) -> None:
    path = small_log(tmp_path / "audit.jsonl").path
    key_path(path).write_bytes(data)
    assert refused(AuditLog(path)) == "key-unreadable"


def test_another_key_fits_nothing(tmp_path: Path) -> None:
    path = small_log(tmp_path / "audit.jsonl").path
    said = json.loads(key_path(path).read_text())
    key_path(path).write_text(json.dumps(said | {"key": "ab" * 32}))
    assert refused(AuditLog(path)) == "head-unreadable"
    assert {"record-changed"} <= {problem.code for problem in verify_log(path).problems}


def test_a_key_of_the_operator_stands_in_no_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditLog(path, key=KEY) as log:
        log.append(refusal(), durable=True)
        assert log.verify().problems == ()
    assert not key_path(path).exists()
    assert verify_log(path, key=KEY).problems == ()
    assert verify_log(path).problems != ()
    assert len(read_records(path, key=KEY)) == 1
    assert refused(AuditLog(path, key=KEY + b"x")) == "head-unreadable"
    # A key of its own would begin another log in the same file.
    assert refused(AuditLog(path)) == "key-missing"


def test_a_key_that_could_be_guessed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AuditError) as caught:
        AuditLog(tmp_path / "audit.jsonl", key=b"short").append(refusal(), durable=True)
    assert caught.value.code == "key-weak"


def version_1(path: Path, count: int = 3, reason: str = "old") -> None:
    """Write a log as the version before did: with hashes and without a key."""
    prev, lines = "0" * 64, []
    for seq in range(1, count + 1):
        record: dict[str, object] = {
            "agent": "", "argument_digest": "", "arguments": {}, "channel": "", "detail": {},
            "duration_ms": 0, "id": f"01ARYZ6S4100000000000000{seq:02}", "intent": "",
            "kind": "refusal", "permissions": [], "prev": prev, "reason": reason, "seq": seq,
            "status": "denied", "tool": "old", "ts": "2016-07-30T22:36:16.385Z", "user": "",
            "version": 1,
        }  # fmt: skip
        record["hash"] = prev = hashlib.sha256(canonical_json(record)).hexdigest()
        lines.append(canonical_json(record) + b"\n")
    path.write_bytes(b"".join(lines))
    size = len(b"".join(lines))
    said = {"durable": count, "hash": prev, "seq": count, "size": size}
    head_path(path).write_bytes(canonical_json(said).ljust(255) + b"\n")


def test_a_log_of_version_1_is_read_and_goes_on_with_a_key(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    version_1(path)
    found = verify_log(path)
    assert (found.records, found.problems) == (3, ())
    with log_at(path) as log:
        log.append(refusal(), durable=True)
    found = verify_log(path)
    assert found.problems == ()
    # It is of another day, so it is closed by a record and the next opened by one.
    assert (found.records, found.archives, found.checkpoints) == (6, 1, 1)
    assert len(read_records(path, tool="old")) == 3
    (archive,) = path.parent.glob("audit-archive/*.gz")
    assert archive.name == "audit-2016-07-30-000001.jsonl.gz"


def test_records_without_a_key_are_believed_only_before_it(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    small_log(path).close()
    version_1(path, 4)
    assert {"unkeyed"} <= {problem.code for problem in verify_log(path).problems}
    assert refused(AuditLog(path)) == "log-unkeyed"


def test_history_from_before_the_key_cannot_be_changed_after_it(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    version_1(path)
    old = path.read_bytes()
    with AuditLog(path, clock=lambda: 1_469_918_176.0) as log:
        log.append(refusal(), durable=True)
    keyed = path.read_bytes().removeprefix(old)
    # Another history without a key, whole in itself, before the records that have one.
    version_1(tmp_path / "forged.jsonl", reason="harmless")
    forged = (tmp_path / "forged.jsonl").read_bytes()
    path.write_bytes(forged + keyed)
    assert {"unkeyed", "chain"} <= {problem.code for problem in verify_log(path).problems}


def test_a_log_of_version_1_does_not_go_on_with_a_key_of_the_operator(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    version_1(path)
    assert refused(AuditLog(path, key=KEY)) == "log-unkeyed"
