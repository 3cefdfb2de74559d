"""Tests of approval/grants.py: the bytes of a script that were approved, and earlier ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.approval import ApprovedScript, ScriptStore
from skillhouse.approval.grants import DIGESTS_MAX


@pytest.fixture
def store(tmp_path: Path) -> ScriptStore:
    return ScriptStore(tmp_path)


def approved(path: str, digest: str, *, at: int = 1, **other: str) -> ApprovedScript:
    return ApprovedScript(workspace="/w", path=path, digest=digest, approved_ms=at, **other)


def test_a_path_keeps_what_was_approved_of_it_before(store: ScriptStore) -> None:
    store.add([approved("a.py", "1"), approved("b.py", "1")])
    store.add([approved("a.py", "2", at=2)])
    assert store.of("/w", "local", "default") == {
        "a.py": frozenset({"1", "2"}),
        "b.py": frozenset({"1"}),
    }
    assert store.of("/other", "local", "default") == {}
    assert store.of("/w", "mika", "default") == {}


def test_the_same_bytes_are_one_approval_with_its_latest_device(store: ScriptStore) -> None:
    store.add([approved("a.py", "1", device="old")])
    store.add([approved("a.py", "1", at=5, device="new")])
    assert [(one.device, one.approved_ms) for one in store.all()] == [("new", 5)]


def test_the_oldest_are_forgotten_beyond_the_bound(store: ScriptStore) -> None:
    for number in range(DIGESTS_MAX + 3):
        store.add([approved("a.py", str(number), at=number + 1)])
    # What is approved once more is no longer among the oldest.
    store.add([approved("a.py", "3", at=100), approved("a.py", "new", at=101)])
    kept = store.of("/w", "local", "default")["a.py"]
    assert kept == {str(n) for n in range(5, DIGESTS_MAX + 3)} | {"3", "new"}
    assert len(kept) == DIGESTS_MAX


def test_revoking_ends_the_approvals_of_all_bytes_of_the_path(store: ScriptStore) -> None:
    store.add([approved("a.py", "1"), approved("a.py", "2", at=2), approved("b.py", "1")])
    store.add([approved("a.py", "1", user="mika")])
    (newest,) = (one for one in store.all() if one.digest == "2")
    assert store.revoke(newest.id)
    assert not store.revoke(newest.id)
    assert [(one.path, one.user) for one in store.all()] == [("b.py", "local"), ("a.py", "mika")]
