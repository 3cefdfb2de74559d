"""Attacks on the logs of several servers: by who has a log's key, and by who writes the state.

Each first succeeds against what the log has by itself: key, side file and checkpoints beside it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from skillhouse.audit import AuditError, AuditLog, Verification, verify_log
from skillhouse.audit.log_files import key_path, read_keys
from skillhouse.audit.server_logs import verify_all
from skillhouse.audit.state_heads import StateHead, StateHeads, heads_by_log, sealed_head
from skillhouse.store import STATE, STATE_FILE, pooled
from tests.audit.logs import intent, refusal

RECORDS = 6


@pytest.fixture
def heads(tmp_path: Path) -> StateHeads:
    return StateHeads(tmp_path / "state")


@pytest.fixture
def log(tmp_path: Path, heads: StateHeads) -> Path:
    """A log of `core-a` with six records, of which the state knows the last."""
    return written(tmp_path / "a/audit.jsonl", heads, server="core-a")


def written(path: Path, heads: StateHeads | None, *, server: str, more: int = RECORDS) -> Path:
    log = AuditLog(path, server=server, heads=heads)
    for _ in range(more - 1):
        log.append(refusal(), durable=True)
    log.append(intent("exec", command="rm -rf data"), durable=True)
    log.close()
    return path


def found(log: Path, heads: StateHeads) -> Verification:
    return verify_log(log, heads=heads_by_log(heads.all()))


def codes(verification: Verification) -> list[str]:
    """Return what is wrong, each once: the state may know the first record and the last."""
    return sorted({one.code for one in verification.problems})


def rewritten(log: Path, tmp_path: Path, *, records: int, more: str = "harmless") -> None:
    """Write another history with the log's own key, and put it, its side file and its checkpoints
    in the place of the true ones: what the administrator of that machine can do."""
    other = tmp_path / "forged/audit.jsonl"
    other.parent.mkdir()
    shutil.copy2(key_path(log), key_path(other))
    forging = AuditLog(other, server="core-a")
    for number in range(records):
        forging.append(refusal(reason=f"{more} {number}"), durable=True)
    forging.close()
    for path in log.parent.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(other.parent, log.parent, dirs_exist_ok=True)


def test_a_log_that_is_as_written_fits_its_heads(log: Path, heads: StateHeads) -> None:
    verification = found(log, heads)
    assert (codes(verification), verification.servers) == ([], ("core-a",))
    assert verification.heads >= 1
    assert verification.head == heads.all()[-1].hash


def test_a_rewritten_log_shows(log: Path, heads: StateHeads, tmp_path: Path) -> None:
    rewritten(log, tmp_path, records=RECORDS)
    # By itself it is whole.
    assert codes(verify_log(log)) == []
    assert codes(found(log, heads)) == ["state-head-mismatch"]


def test_a_rewritten_log_that_goes_on_shows_for_ever(
    log: Path, heads: StateHeads, tmp_path: Path
) -> None:
    rewritten(log, tmp_path, records=RECORDS + 3)
    going_on = AuditLog(log, server="core-a", heads=heads)
    going_on.append(refusal(), durable=True)
    going_on.close()
    assert codes(verify_log(log)) == []
    assert codes(found(log, heads)) == ["state-head-mismatch"]


def test_a_rewritten_log_of_the_same_length_is_not_written_on(
    log: Path, heads: StateHeads, tmp_path: Path
) -> None:
    rewritten(log, tmp_path, records=RECORDS)
    with pytest.raises(AuditError, match="the state knows another last record"):
        AuditLog(log, server="core-a", heads=heads).append(refusal(), durable=True)


def test_a_shortened_log_shows_and_is_not_written_on(
    log: Path, heads: StateHeads, tmp_path: Path
) -> None:
    rewritten(log, tmp_path, records=RECORDS - 2)
    assert codes(verify_log(log)) == []
    assert "truncated" in codes(found(log, heads))
    with pytest.raises(AuditError, match="the state knows 6 records") as refused:
        AuditLog(log, server="core-a", heads=heads).append(refusal(), durable=True)
    assert refused.value.code == "log-truncated"


def test_a_log_that_was_begun_again_shows(log: Path, heads: StateHeads) -> None:
    # Without its key: the new one has another, so the state knows a log that is nowhere.
    for path in log.parent.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    written(log, heads, server="core-a")
    verification = found(log, heads)
    assert codes(verification) == []
    names = {head.log for head in heads.all() if head.server == "core-a"}
    assert len(names) == 2
    assert verification.name in names


def put(heads: StateHeads, tmp_path: Path, head: StateHead) -> None:
    """Write a row as a program does that has the state's address and no key of the log."""
    values = (head.log, head.seq, head.server, head.hash, head.seal, head.at_ms)
    with pooled(tmp_path / "state" / STATE_FILE, STATE) as store, store.transaction() as connection:
        connection.execute(
            "DELETE FROM audit_head WHERE log_name = ? AND seq = ?", (head.log, head.seq)
        )
        connection.execute("INSERT INTO audit_head VALUES (?, ?, ?, ?, ?, ?)", values)


def test_a_head_that_another_replica_forged_shows(
    log: Path, heads: StateHeads, tmp_path: Path
) -> None:
    (*_, true) = heads.all()
    other = written(tmp_path / "b/audit.jsonl", heads, server="core-b")
    keys = read_keys(other, None)
    assert keys is not None
    # Sealed with a key that is there, for the name and the place of the other log.
    own = sealed_head(keys, seq=true.seq, server="core-a", record_hash="0" * 64, at_ms=true.at_ms)
    forged = StateHead(
        log=true.log, seq=own.seq, server=own.server, hash=own.hash, seal=own.seal, at_ms=own.at_ms
    )
    put(heads, tmp_path, forged)
    assert "state-head-forged" in codes(found(log, heads))
    # The seal of another record does not carry over either.
    put(
        heads,
        tmp_path,
        StateHead(
            log=true.log, seq=true.seq, server=true.server, hash="0" * 64, seal=true.seal,
            at_ms=true.at_ms,
        ),
    )  # fmt: skip
    assert "state-head-forged" in codes(found(log, heads))


def test_a_forged_head_stops_no_log(log: Path, heads: StateHeads, tmp_path: Path) -> None:
    (*_, true) = heads.all()
    ahead = StateHead(
        log=true.log, seq=10**9, server="core-a", hash="1" * 64, seal="2" * 64, at_ms=true.at_ms
    )
    put(heads, tmp_path, ahead)
    going_on = AuditLog(log, server="core-a", heads=heads)
    going_on.append(refusal(), durable=True)
    going_on.close()
    assert codes(found(log, heads)) == ["state-head-forged"]


def test_a_head_of_a_rewritten_log_does_not_replace_the_true_one(
    log: Path, heads: StateHeads, tmp_path: Path
) -> None:
    (*_, true) = heads.all()
    keys = read_keys(log, None)
    assert keys is not None
    # Who has the key seals another record for the same place, and the state keeps the first.
    heads.add(
        sealed_head(keys, seq=true.seq, server="core-a", record_hash="0" * 64, at_ms=true.at_ms + 1)
    )
    assert [head for head in heads.all() if head.seq == true.seq] == [true]


def test_the_name_of_a_server_in_a_record_is_sealed(log: Path, heads: StateHeads) -> None:
    data = log.read_bytes()
    assert data.count(b'"server":"core-a"') == RECORDS
    log.write_bytes(data.replace(b"core-a", b"core-b", 1))
    assert "record-changed" in codes(found(log, heads))


def test_a_log_in_the_name_of_another_server_shows(
    log: Path, heads: StateHeads, tmp_path: Path
) -> None:
    other = written(tmp_path / "b/audit.jsonl", None, server="core-a")
    assert codes(verify_log(other)) == []
    both = verify_all((log, other), heads=heads_by_log(heads.all()))
    assert [codes(one) for _, one in both.logs] == [[], ["state-head-missing"]]


def test_a_log_that_is_kept_back_shows(log: Path, heads: StateHeads, tmp_path: Path) -> None:
    other = written(tmp_path / "b/audit.jsonl", heads, server="core-b")
    both = verify_all((log, other), heads=heads_by_log(heads.all()))
    assert (both.absent, [codes(one) for _, one in both.logs]) == ((), [[], []])
    without = verify_all((log,), heads=heads_by_log(heads.all()))
    assert [(head.server, head.seq) for head in without.absent] == [("core-b", RECORDS)]
