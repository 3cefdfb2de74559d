"""Tests of discovery/scan.py: a stored index that is damaged, lost, shared or blocked."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.discovery import discover, discover_since
from skillhouse.discovery.scan import CACHE_FILE, ROOTS_KEPT, ScanSnapshots, Snapshot
from skillhouse.skill import SkillIndex
from tests.discovery.trees import (
    everything,
    give_to_nobody,
    later,
    names,
    place_for_all,
    probe,
    probe_as_nobody,
    write_refused,
    write_skill,
)

pytestmark = pytest.mark.slow


def indexed(root: Path, cache: Path) -> SkillIndex:
    return discover([root], cache=cache, clock=later)


def make_tree(root: Path) -> Path:
    for number in range(40):
        write_skill(root / f"s{number:02}", description=f"Does thing {number}. " + "x" * 200)
    write_refused(root / "refused")
    return root


def read_in_vain(root: Path, cache: Path) -> list[str]:
    """Return the skill files that one more start opens, though none has changed."""
    return [path for path in probe(root, cache=cache).opened if path.endswith("SKILL.md")]


def change(cache: Path, *statements: str) -> None:
    with closing(sqlite3.connect(cache / CACHE_FILE, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


BYTES: dict[str, Callable[[bytes], bytes]] = {
    "garbage": lambda _: b"garbage " * 4_000,
    "garbage_behind_the_header": lambda data: data[:100] + b"\xff" * (len(data) - 100),
    "garbage_behind_the_first_pages": lambda data: data[:8_192] + b"\xff" * (len(data) - 8_192),
    "half": lambda data: data[: len(data) // 2],
    "nothing": lambda _: b"",
    "one_letter_changed": lambda data: data.replace(b"Does thing 7.", b"Does thing 8."),
}
"""What becomes of the file of the index."""
CUT = "UPDATE snapshot SET entries = substr(entries, 1, 1000) WHERE length(entries) > 0"
STATEMENTS = {
    "newer": ("PRAGMA user_version = 99",),
    "foreign": ("CREATE TABLE snapshot (theirs TEXT)", "PRAGMA user_version = 1"),
    "without_its_table": ("DROP TABLE snapshot",),
    "of_another_type": ("UPDATE snapshot SET observed = 'text', entries = 7",),
    "entries_cut": (CUT,),
}
"""What is done to its tables, by name; a `foreign` file had none of ours."""


def spoil(cache: Path, name: str) -> None:
    file = cache / CACHE_FILE
    if name in BYTES:
        before = file.read_bytes()
        file.write_bytes(BYTES[name](before))
        assert file.read_bytes() != before
        return
    if name == "foreign":
        file.unlink()
    change(cache, *STATEMENTS[name])


@pytest.mark.parametrize("name", [*BYTES, *STATEMENTS])
def test_an_index_that_cannot_be_believed_is_made_anew(tmp_path: Path, name: str) -> None:
    root, cache = make_tree(tmp_path / "root"), tmp_path / "cache"
    expected = everything(indexed(root, cache))
    spoil(cache, name)
    assert everything(indexed(root, cache)) == expected
    assert read_in_vain(root, cache) == []


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, bytes]:
    """A tree, its cache directory, and the bytes of the index in it."""
    base = tmp_path_factory.mktemp("pristine")
    root, cache = make_tree(base / "root"), base / "cache"
    indexed(root, cache)
    return root, cache, (cache / CACHE_FILE).read_bytes()


@given(at=st.floats(0, 1, exclude_max=True), wrong=st.integers(1, 255), length=st.integers(1, 99))
def test_no_damage_to_an_index_makes_an_answer_wrong(
    pristine: tuple[Path, Path, bytes], at: float, wrong: int, length: int
) -> None:
    root, cache, data = pristine
    spoilt = bytearray(data)
    start = int(at * len(data))
    for place in range(start, min(start + length, len(data))):
        spoilt[place] ^= wrong
    (cache / CACHE_FILE).write_bytes(spoilt)
    plain = everything(discover([root]))
    for _ in range(2):
        found = [line for line in everything(indexed(root, cache)) if "cache-unusable" not in line]
        assert found == plain


@given(length=st.integers(0, 40_000))
def test_no_cut_of_an_index_makes_an_answer_wrong(
    pristine: tuple[Path, Path, bytes], length: int
) -> None:
    root, cache, data = pristine
    (cache / CACHE_FILE).write_bytes(data[:length])
    plain = everything(discover([root]))
    for _ in range(2):
        assert everything(indexed(root, cache)) == plain


def a_file_in_the_way(cache: Path) -> None:
    cache.write_text("a file")


def a_directory_in_its_place(cache: Path) -> None:
    (cache / CACHE_FILE / "full").mkdir(parents=True)


def a_pipe_in_its_place(cache: Path) -> None:
    cache.mkdir()
    os.mkfifo(cache / CACHE_FILE)


@pytest.mark.parametrize(
    "spoil", [a_file_in_the_way, a_directory_in_its_place, a_pipe_in_its_place]
)
def test_a_cache_that_cannot_be_used_is_a_warning_and_the_answer_is_whole(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    root, cache = make_tree(tmp_path / "root"), tmp_path / "cache"
    spoil(cache)
    report = probe(root, cache=cache)
    assert len(report.skills) == 40
    assert report.findings[0] == ["warning", "cache-unusable", str(cache / CACHE_FILE)]
    assert report.codes == ["cache-unusable", "yaml-error"]
    assert everything(indexed(root, cache)) == report.everything


@pytest.mark.parametrize("filled", [False, True], ids=["empty", "with an index"])
def test_a_cache_directory_that_is_read_only_is_no_reason_to_find_less(filled: bool) -> None:
    with place_for_all() as base:
        root, cache = make_tree(base / "root"), base / "cache"
        cache.mkdir()
        if filled:
            indexed(root, cache)
        # The files of other owners are refused (decision 0170).
        give_to_nobody(cache)
        cache.chmod(0o500)
        report = probe_as_nobody(root, cache=cache)
        # An index that can be read is used; there is only nothing new to write.
        unusable = [] if filled else ["cache-unusable"]
        assert report.codes == [*unusable, "yaml-error"]
        assert len(report.skills) == 40
        write_skill(root / "new")
        report = probe_as_nobody(root, cache=cache)
        assert report.codes == ["cache-unusable", "yaml-error"]
        assert len(report.skills) == 41
        cache.chmod(0o755)


def test_a_cache_in_a_path_that_is_no_path_is_a_warning(tmp_path: Path) -> None:
    write_skill(tmp_path / "pdf")
    index = discover([tmp_path], cache=Path("no\0path"))
    assert names(index) == ["pdf"]
    assert [found.code for found in index.diagnostics] == ["cache-unusable"]


@pytest.mark.parametrize("lock", ["EXCLUSIVE", "IMMEDIATE"])
def test_an_index_that_another_process_holds_is_not_waited_for_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    monkeypatch.setattr("skillhouse.store.store.BUSY_SECONDS", 0.01)
    snapshots = ScanSnapshots(tmp_path)
    snapshots.put("root", Snapshot(b"observed", b"entries"))
    with closing(sqlite3.connect(tmp_path / CACHE_FILE, isolation_level=None)) as other:
        other.execute(f"BEGIN {lock}")
        # Whoever may only not write can still read.
        readable = Snapshot(b"observed", b"entries") if lock == "IMMEDIATE" else None
        assert snapshots.get("root") == readable
        snapshots.put("root", Snapshot(b"new", b"new"))
        assert snapshots.fault is not None
        assert snapshots.get("root") is None
        other.execute("ROLLBACK")
    snapshots.close()
    snapshots = ScanSnapshots(tmp_path)
    assert snapshots.get("root") == Snapshot(b"observed", b"entries")
    snapshots.close()


def test_of_many_roots_the_one_written_longest_ago_is_forgotten(tmp_path: Path) -> None:
    snapshots = ScanSnapshots(tmp_path)
    for number in range(ROOTS_KEPT + 3):
        snapshots.put(f"root {number}", Snapshot(b"observed", b"entries"))
        snapshots.put("root 1", Snapshot(b"observed", b"again"))
    assert snapshots.get("root 1") == Snapshot(b"observed", b"again")
    assert snapshots.get("root 2") is None
    assert snapshots.get(f"root {ROOTS_KEPT + 2}") == Snapshot(b"observed", b"entries")
    snapshots.close()
    with closing(sqlite3.connect(tmp_path / CACHE_FILE)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM snapshot").fetchone()
    assert count <= 2 * ROOTS_KEPT
    assert snapshots.fault is None


def test_snapshots_that_are_closed_hold_nothing_and_are_no_fault(tmp_path: Path) -> None:
    snapshots = ScanSnapshots(tmp_path)
    snapshots.close()
    snapshots.close()
    snapshots.put("root", Snapshot(b"observed", b"entries"))
    snapshots.patch("root", Snapshot(b"observed", b"entries", b"patch"))
    assert snapshots.get("root") is None
    assert snapshots.fault is None


def test_a_patch_replaces_what_is_small_and_leaves_the_entries(tmp_path: Path) -> None:
    snapshots = ScanSnapshots(tmp_path)
    snapshots.put("root", Snapshot(b"observed", b"entries"))
    snapshots.patch("root", Snapshot(b"later", b"not written", b"patch"))
    assert snapshots.get("root") == Snapshot(b"later", b"entries", b"patch")
    snapshots.put("root", Snapshot(b"observed", b"entries"))
    assert snapshots.get("root") == Snapshot(b"observed", b"entries")
    snapshots.close()


def test_a_patch_to_a_table_that_is_gone_is_a_fault_that_ends_the_use(tmp_path: Path) -> None:
    snapshots = ScanSnapshots(tmp_path)
    spoil(tmp_path, "without_its_table")
    snapshots.patch("root", Snapshot(b"observed", b"entries", b"patch"))
    assert snapshots.fault is not None
    assert snapshots.get("root") is None


def test_a_removed_cache_is_made_again(tmp_path: Path) -> None:
    root, cache = make_tree(tmp_path / "root"), tmp_path / "cache"
    expected = everything(indexed(root, cache))
    shutil.rmtree(cache)
    assert everything(indexed(root, cache)) == expected
    assert read_in_vain(root, cache) == []


def test_what_was_found_earlier_is_taken_only_while_nothing_changed(tmp_path: Path):
    root, cache = make_tree(tmp_path / "root"), tmp_path / "cache"

    def again(before: SkillIndex | None) -> SkillIndex:
        return discover_since(
            before, [root], profile="default", trusted=True, cache=cache, clock=later
        )

    first = again(None)
    assert not first.is_decoded
    kept = again(first)  # The first one is from before anything was kept.
    assert kept.skills == first.skills
    same = again(kept)
    assert same.is_decoded
    assert same.skills is kept.skills
    # A file that changed, one that came, one that went, and a link, behind which no scan looks.
    (root / "s00/SKILL.md").write_text("---\nname: s00\ndescription: Changed.\n---\n")
    changed = again(same)
    assert [one.description for one in changed.skills if one.name == "s00"] == ["Changed."]
    write_skill(root / "new")
    assert "new" in names(grown := again(changed))
    shutil.rmtree(root / "new")
    assert names(again(grown)) == names(changed)
    write_skill(tmp_path / "elsewhere/linked")
    (root / "linked").symlink_to(tmp_path / "elsewhere/linked")
    once = again(again(None))
    assert not again(once).is_decoded
