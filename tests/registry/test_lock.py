"""Tests of registry/lock.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.floor import StateError
from skillhouse.floor.structs import replace
from skillhouse.registry import Lock, LockedSignature, LockEntry, entry_of, entry_value, read_lock
from skillhouse.registry.lock import LOCK_MAX, write_lock

DIGEST = "skilltree1:" + "0" * 64
ENTRY = LockEntry(tree_digest=DIGEST, repository="https://one.test", resolved="x", path="a/notes")

texts = st.text(max_size=20)
entries = st.builds(
    LockEntry,
    tree_digest=st.just(DIGEST),
    repository=texts,
    resolved=texts,
    requested=texts,
    version=texts,
    size=st.integers(0, 2**53),
    signature=st.none() | st.builds(LockedSignature, publisher=texts, cert_sha256=texts),
    pinned=st.booleans(),
    pin_reason=texts,
    path=texts,
    previous=st.none() | st.just(entry_value(ENTRY)),
)


@pytest.mark.slow
@given(entries)
def test_an_entry_comes_back_as_it_was_written(entry: LockEntry) -> None:
    assert entry_of(json.loads(json.dumps(entry_value(entry)))) == entry


def test_what_others_wrote_into_the_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "skills.lock"
    write_lock(path, Lock().with_skill("notes", ENTRY))
    value = json.loads(path.read_bytes())
    value["repositories"] = {"official": {"url": "https://one.test"}}
    value["skills"]["notes"]["scan"] = {"verdict": "clean"}
    path.write_text(json.dumps(value))
    lock = read_lock(path)
    assert lock.skills == {"notes": ENTRY}
    write_lock(path, lock.with_skill("other", ENTRY))
    written = json.loads(path.read_bytes())
    assert written["repositories"] == value["repositories"]
    assert written["skills"]["notes"]["scan"] == {"verdict": "clean"}
    assert sorted(written["skills"]) == ["notes", "other"]
    assert path.read_bytes() == read_lock(path).encode()


def test_the_same_bytes_are_decoded_once_and_any_other_anew(tmp_path: Path) -> None:
    path = tmp_path / "skills.lock"
    write_lock(path, Lock().with_skill("notes", ENTRY))
    lock = read_lock(path)
    assert read_lock(path) is lock
    write_lock(path, lock.with_skill("notes", replace(ENTRY, version="2")))
    assert read_lock(path).skills["notes"].version == "2"
    path.write_bytes(b"{}")
    for _ in range(2):
        with pytest.raises(StateError):
            read_lock(path)


def with_entry(**changes: Any) -> dict[str, Any]:
    entry = {**entry_value(ENTRY), **changes}
    return {"lockfile_version": 1, "skills": {"notes": entry}}


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        b'{"lockfile_version": 1, "skills": {}, "skills": {}}',
        with_entry(tree_digest="sha256:0"),
        with_entry(tree_digest="skilltree1:" + "../" * 22),
        with_entry(size="1"),
        with_entry(install=[]),
        with_entry(pinned="yes"),
        {"lockfile_version": 2, "skills": {}},
        {"lockfile_version": 1, "skills": []},
        {"lockfile_version": 1, "skills": {"../../x": entry_value(ENTRY)}},
        {"lockfile_version": 1, "skills": {"Notes": entry_value(ENTRY)}},
        {"lockfile_version": 1, "skills": {"notes": []}},
        b" " * (LOCK_MAX + 1),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_file_that_is_no_lock_is_refused(tmp_path: Path, value: bytes | dict[str, Any]) -> None:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    (tmp_path / "skills.lock").write_bytes(data)
    with pytest.raises(StateError):
        read_lock(tmp_path / "skills.lock")


def test_a_missing_file_holds_no_skills(tmp_path: Path) -> None:
    assert read_lock(tmp_path / "skills.lock") == Lock()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"skills":\n{"pdf": {"version": "\\ud800"}}}', "line 2: half of a surrogate pair"),
        ('{"lockfile_version": 1, "skills": {}, "\\udc00": 1}', "line 1: half of a surrogate pair"),
        ('{"skills":\n\n{"pdf": {"inside": "\\u0000"}}}', "line 3: a NUL in a text"),
        ('{"skills": {}, "x": ' + "[" * 900 + "]" * 900 + "}", "nested deeper than 100 levels"),
        ('{"lockfile_version": 1, "skills": {}, "x": NaN}', "`NaN` is no JSON"),
        ('<<<<<<< ours\n{"lockfile_version": 1}\n', "marks of a merge in line 1"),
    ],
)
def test_a_lock_that_says_no_text_is_refused_with_its_line(
    tmp_path: Path, text: str, reason: str
) -> None:
    path = tmp_path / "skills.lock"
    path.write_text(text)
    with pytest.raises(StateError) as caught:
        read_lock(path)
    assert reason in str(caught.value)
    assert str(path) in str(caught.value)
