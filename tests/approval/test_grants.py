"""Tests of approval/grants.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.approval import (
    ApprovalError,
    ApprovedScript,
    Grant,
    GrantStore,
    Pattern,
    ScriptStore,
)
from skillhouse.approval.grants import DIGESTS_MAX, narrowed
from skillhouse.floor import structs
from skillhouse.permission import narrows
from skillhouse.store import STATE, Store
from tests.store.databases import at_version


def test_grants_are_kept_once_and_can_be_forgotten(tmp_path: Path) -> None:
    store = GrantStore(tmp_path)
    grant = Grant(action="exec", pattern="git status", place="/w")
    assert (store.all(), store.clear(), store.revoke("x")) == ((), 0, None)
    store.add([grant])
    store.add([grant, structs.replace(grant, expires_ms=9)])
    (kept,) = store.all()
    assert (kept, kept.expires_ms) == (grant, 9)
    assert store.revoke(kept.id) == kept
    store.add([grant])
    assert store.clear() == 1
    assert store.all() == ()


def test_grants_of_users_agents_and_places_stand_side_by_side(tmp_path: Path) -> None:
    store = GrantStore(tmp_path)
    grant = Grant(action="exec", pattern="git status", place="/w")
    others = [
        structs.replace(grant, user="another"),
        structs.replace(grant, agent="another"),
        structs.replace(grant, place="another"),
        structs.replace(grant, skill_digest="another"),
    ]
    store.add([grant, *others])
    assert store.all() == (grant, *others)
    here = {"user": "local", "agent": "default", "place": "/w", "skill_digest": ""}
    assert [g.is_for(**here) for g in store.all()] == [True, False, False, False, False]
    everywhere = structs.replace(grant, place="")
    assert everywhere.is_for(**{**here, "place": "/elsewhere"})


def grants_of_version_0(tmp_path: Path, *grants: tuple[str, str, str]) -> GrantStore:
    path = tmp_path / "state.sqlite3"
    with Store(path, at_version(0, STATE)) as store, store.transaction() as connection:
        for at, (action, pattern, place) in enumerate(grants):
            connection.execute(
                "INSERT INTO lasting_grant VALUES (?, ?, ?, ?, '', 'local', 'default', 1, 2)",
                (f"g{at}", action, pattern, place),
            )
    return GrantStore(tmp_path)


@pytest.mark.file_state
def test_what_was_granted_before_devices_were_noted_stays(tmp_path: Path) -> None:
    (grant,) = grants_of_version_0(tmp_path, ("skill", "pdf", "/w")).all()
    assert grant == Grant(action="skill", pattern="pdf", place="/w")
    assert (grant.id, grant.granted_ms, grant.expires_ms, grant.device) == ("g0", 1, 2, "")


@pytest.mark.file_state
def test_older_grants_are_narrowed_to_one_directory_or_ended_and_it_is_said_once(
    tmp_path: Path,
) -> None:
    store = grants_of_version_0(
        tmp_path,
        ("write", "/w/sub/*", "/w"),
        ("write", "/w/sub/deep/*", "/w"),
        ("read", "/w/sub/*", "/w"),
        ("write", "/w/*", "/w"),
        ("write", "/w/sub/*", ""),
        ("write", "/elsewhere/*", "/w"),
        ("write", "/was/x/*", "/w"),
        ("exec", "git push", "/w"),
        ("exec", "git push *", "/w"),
        ("fetch", "GET https://x.test", "/w"),
    )
    assert [(grant.action, grant.pattern, grant.is_directory) for grant in store.all()] == [
        ("write", "/w/sub/", True),
        ("write", "/w/sub/deep/", True),
        ("fetch", "GET https://x.test", False),
    ]
    assert store.take_notice() == (
        "older standing approvals covered more than was shown: 2 narrowed, 7 ended"
    )
    assert store.take_notice() == ""


@pytest.mark.file_state
def test_a_state_without_older_grants_has_nothing_to_say(tmp_path: Path) -> None:
    assert GrantStore(tmp_path).take_notice() == ""
    assert grants_of_version_0(tmp_path, ("skill", "pdf", "/w")).take_notice() == ""


OFFERED = (
    Pattern(action="exec", pattern="git log *"),
    Pattern(action="write", pattern="/w/notes/"),
)


@pytest.mark.parametrize(
    ("offered", "rule", "pattern"),
    [
        (OFFERED, "exec git log *", "git log *"),
        (OFFERED, "exec git log --oneline *", "git log --oneline *"),
        (OFFERED, "write /w/notes/ (files directly in it)", "/w/notes/"),
        (OFFERED, "write /w/notes/", "/w/notes/"),
        (OFFERED, " write /w/notes/a.md ", "/w/notes/a.md"),
        (OFFERED[1:], "/w/notes/a.md", "/w/notes/a.md"),
        (OFFERED[:1], "git log", "git log"),
        (OFFERED, "/w/notes/a.md", ""),
        (OFFERED, "read /w/notes/a.md", ""),
        (OFFERED, "write /w/notes/b/a.md", ""),
        (OFFERED, "write /w/notes/*", ""),
        (OFFERED, "write /w/notes/..", ""),
        (OFFERED, "write /w/", ""),
        (OFFERED, "write /w/notes", ""),
        (OFFERED, "exec git push *", ""),
        (OFFERED, "exec *", ""),
        (OFFERED, "", ""),
        ((), "exec git log", ""),
    ],
)
def test_a_person_may_narrow_what_is_offered(
    offered: tuple[Pattern, ...], rule: str, pattern: str
) -> None:
    if pattern:
        (given,) = narrowed(offered, [rule], narrows)
        assert given.pattern == pattern
        return
    with pytest.raises(ApprovalError, match="is not covered by what was offered") as failed:
        narrowed(offered, [rule], narrows)
    assert failed.value.code == "too-wide"


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
