"""Tests of audit/log_end.py: a second place knows where the chain stood."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.audit import AuditError, AuditLog, verify_log
from skillhouse.audit import chain as chaining
from skillhouse.audit.archives import take_snapshot
from skillhouse.audit.log_end import CHECKPOINT_EVERY, checkpoint_path, read_checkpoints
from tests.audit.logs import intent, keys_of, refusal


def known(log: AuditLog) -> list[int | None]:
    found = read_checkpoints(checkpoint_path(log.checkpoints, keys_of(log.path)), keys_of(log.path))
    return [one.seq if one else None for one in found]


@pytest.mark.slow
def test_a_checkpoint_is_made_every_thousand_records_and_at_the_end(tmp_path: Path) -> None:
    second = tmp_path / "elsewhere"
    log = AuditLog(tmp_path / "audit.jsonl", checkpoints=second)
    for _ in range(2 * CHECKPOINT_EVERY + 5):
        log.append(refusal(), durable=False)
    assert known(log) == [1_000, 2_000]
    log.append(refusal(), durable=True)
    log.close()
    assert known(log) == [1_000, 2_000, 2_006]
    found = verify_log(log.path, checkpoints=second)
    assert (found.problems, found.checkpoints) == ((), 3)
    assert not (tmp_path / "audit-checkpoints").exists()


def test_a_process_that_only_read_leaves_no_checkpoint(tmp_path: Path) -> None:
    with AuditLog(tmp_path / "audit.jsonl") as log:
        log.append_or_keep(intent("read"))
    assert known(log) == []


def three(tmp_path: Path) -> AuditLog:
    for _ in range(3):
        with AuditLog(tmp_path / "audit.jsonl") as log:
            log.append(refusal(), durable=True)
    assert known(log) == [1, 2, 3]
    return log


@pytest.mark.slow
def test_one_changed_byte_of_the_checkpoints_is_found(tmp_path: Path) -> None:
    log = three(tmp_path)
    path = checkpoint_path(log.checkpoints, keys_of(log.path))
    data, missed = path.read_bytes(), []
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        if not verify_log(log.path).problems:
            missed.append(at)
    assert missed == []


def test_a_checkpoint_that_was_removed_shows_in_the_next(tmp_path: Path) -> None:
    log = three(tmp_path)
    path = checkpoint_path(log.checkpoints, keys_of(log.path))
    one, _, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(one + last)
    assert [problem.code for problem in verify_log(log.path).problems] == ["checkpoint-changed"]


def test_changed_checkpoints_stop_the_next_process(tmp_path: Path) -> None:
    log = three(tmp_path)
    path = checkpoint_path(log.checkpoints, keys_of(log.path))
    path.write_bytes(path.read_bytes().replace(b'"seq":3', b'"seq":2'))
    with pytest.raises(AuditError) as caught:
        AuditLog(log.path).append(refusal(), durable=True)
    assert caught.value.code == "checkpoint-changed"


def test_a_checkpoint_that_a_power_cut_tore_is_replaced(tmp_path: Path) -> None:
    log = three(tmp_path)
    path = checkpoint_path(log.checkpoints, keys_of(log.path))
    with path.open("ab") as file:
        file.write(b'{"seq":4,"ha')
    with AuditLog(log.path) as again:
        again.append(refusal(), durable=True)
    assert known(log) == [1, 2, 3, 4]
    assert verify_log(log.path).problems == ()


def test_a_second_place_that_is_gone_stops_no_record_and_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chaining, "CHECKPOINT_EVERY", 2)
    (tmp_path / "file").write_text("")
    log = AuditLog(tmp_path / "audit.jsonl", checkpoints=tmp_path / "file" / "below")
    for _ in range(3):
        log.append(refusal(), durable=True)
    assert log.warnings[0].startswith("no checkpoint can be")
    assert log.degraded is None
    (tmp_path / "file").unlink()
    log.close()
    assert (known(log), log.warnings) == ([3], ())


@pytest.mark.slow
def test_a_checkpoint_that_is_made_while_the_log_is_read_is_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = three(tmp_path)

    def looked(path: Path) -> object:
        taken = take_snapshot(path)
        with AuditLog(path) as writer:
            writer.append(refusal(), durable=True)
        return taken

    monkeypatch.setattr("skillhouse.audit.verify.take_snapshot", looked)
    found = verify_log(log.path)
    assert (found.problems, found.records, known(log)) == ((), 3, [1, 2, 3, 4])
