"""Tests of audit/log_files.py: a log has a key, and without it nothing is written or believed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from skillhouse.audit import AuditError, AuditLog, read_records, verify_log
from skillhouse.audit.log_end import head_path
from skillhouse.audit.log_files import key_path
from skillhouse.floor import canonical_json
from tests.audit.logs import refusal, small_log

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
    assert AuditLog(path, warn=lambda line: None).append_or_keep(refusal()).seq == 0


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


def test_a_log_without_a_key_does_not_get_one(tmp_path: Path) -> None:
    path = small_log(tmp_path / "audit.jsonl").path
    key_path(path).unlink()
    head_path(path).write_bytes(b"")
    assert refused(AuditLog(path)) == "head-unreadable"
    assert not key_path(path).exists()


def test_a_side_file_without_a_seal_is_refused(tmp_path: Path) -> None:
    path = small_log(tmp_path / "audit.jsonl").path
    fields = json.loads(head_path(path).read_text())
    del fields["mac"]
    head_path(path).write_bytes(canonical_json(fields).ljust(255) + b"\n")
    assert refused(AuditLog(path)) == "head-unreadable"
    assert "head-unreadable" in {problem.code for problem in verify_log(path).problems}


def test_a_record_of_another_form_is_not_believed(tmp_path: Path) -> None:
    path = small_log(tmp_path / "audit.jsonl").path
    before = path.read_bytes()
    record = json.loads(before.splitlines()[-1]) | {"version": 1}
    del record["hash"]
    # Version 1 of no release: sorted keys, and a hash that needs no key.
    record["hash"] = hashlib.sha256(canonical_json(record)).hexdigest()
    path.write_bytes(before + canonical_json(record) + b"\n")
    assert "record-unreadable" in {problem.code for problem in verify_log(path).problems}
