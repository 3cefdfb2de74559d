"""Tests of registry/trust_memory.py: what is kept of publishers and repositories, and how long."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from skillhouse.registry import LockEntry, RepositoryLook, TrustMemory, trust_memory
from skillhouse.store import STATE_FILE, close_pooled
from tests.registry.repositories import StaticRepository

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
TREE, FILE = f"skilltree1:{'a' * 64}", "b" * 64
MINUTE = 60_000


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "state"
    made.mkdir(mode=0o700)
    yield made
    close_pooled(made / STATE_FILE)


def test_the_first_time_is_kept_and_noted_once(state: Path) -> None:
    noted: list[tuple[str, str]] = []
    for days in (0, 1, 2):
        # Another process each time.
        memory = TrustMemory(state, note=lambda *what: noted.append(what))
        if memory.verified_at(TREE, FILE) is None:
            memory.keep_verified(TREE, FILE, "acme", NOW + timedelta(days=days))
        assert memory.verified_at(TREE, FILE) == NOW
    assert noted == [(TREE, "acme")]
    # Of this tree with this signature, and of nothing else.
    memory = TrustMemory(state)
    assert memory.verified_at(TREE, "c" * 64) is None
    assert memory.verified_at(f"skilltree1:{'d' * 64}", FILE) is None


@pytest.mark.file_state
def test_reading_makes_no_state(state: Path) -> None:
    memory = TrustMemory(state)
    entry = LockEntry(tree_digest=TREE, repository="official", resolved="x")
    assert (memory.verified_at(TREE, FILE), memory.taken_down(entry)) == (None, None)
    assert (memory.of_skill("notes"), memory.looks()) == ((), ())
    assert not (state / STATE_FILE).exists()


def test_the_oldest_times_go_first(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust_memory, "VERIFIED_MAX", 20)
    for number in range(21):
        TrustMemory(state).keep_verified(TREE, f"{number:064}", "acme", NOW)
    found = [TrustMemory(state).verified_at(TREE, f"{number:064}") for number in range(21)]
    assert [one is not None for one in found] == [False] * 2 + [True] * 19


def test_a_takedown_binds_by_archive_or_files_of_its_own_repository(
    state: Path, tmp_path: Path
) -> None:
    made = StaticRepository(tmp_path / "official")
    release = made.make("1.0.0", state="revoked", reason="no")
    other = made.make("1.0.0", namespace="acme", state="revoked", reason="no")
    memory = TrustMemory(state)
    for skill in made.skills.values():
        assert memory.hear("official", skill, now=NOW) == ""

    def is_taken_down(repository: str, digest: str = "", tree: str = TREE, also: str = "") -> bool:
        entry = LockEntry(
            tree_digest=tree, repository=repository, resolved="x", digest=digest, accepted=also
        )
        return memory.taken_down(entry) is not None

    assert is_taken_down("official", release.digest)
    assert is_taken_down("official", tree=release.tree_digest)
    assert is_taken_down("official", also=release.tree_digest)
    # Another spelling of the same place in a stranger's lock.
    assert is_taken_down("official/@default", release.digest)
    assert is_taken_down("official/@acme", other.digest)
    assert not is_taken_down("official/@acme", release.digest)
    assert not is_taken_down("team", release.digest, release.tree_digest)
    assert not is_taken_down("", release.digest, release.tree_digest)
    assert not is_taken_down("official", f"sha256:{'0' * 64}")
    (found, _) = memory.of_skill("notes")
    assert found.text == "it was revoked by its repository: no (known here since 2026-11-23)"
    memory.lift(found)
    assert not is_taken_down("official", release.digest)


def test_a_look_is_of_one_process_until_its_lease_ends(state: Path) -> None:
    def claim(now_ms: int, url: str = "u") -> RepositoryLook | None:
        return TrustMemory(state).claim(
            "official", url, now_ms=now_ms, longest_ms=60 * MINUTE, lease_ms=4 * MINUTE
        )

    first = claim(1_000)
    assert first is not None
    assert claim(1_000) is None
    assert claim(1_000 + 3 * MINUTE) is None
    assert claim(1_000 + 4 * MINUTE) is not None
    TrustMemory(state).looked(
        RepositoryLook(
            repository="official", url="u", asked_ms=9, next_ms=60 * MINUTE, failures=0, problem=""
        )
    )
    assert claim(10 * MINUTE) is None
    # It is at another address by now, or was planned by a clock that was ahead.
    assert claim(10 * MINUTE, "elsewhere") is not None
    assert [one.url for one in TrustMemory(state).looks()] == ["elsewhere"]
    assert claim(-MINUTE * 600, "elsewhere") is not None
