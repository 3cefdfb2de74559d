"""The kept files of calls: names, bounds, order, retention and damage."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.house import Caller, SkillCodeSettings
from skillhouse.sandbox.code_call import OutputPart
from skillhouse.tools import ArtifactError, Artifacts
from skillhouse.tools.artifacts import (
    BLOCK,
    DAY_SECONDS,
    LEFT_OUT_MAX,
    STALE_SECONDS,
    KeptArtifacts,
    artifact_uri,
    name_fault,
    read_uri,
    shown_name,
)

OWNER = Caller(agent="default", user="local", channel="mcp")


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def store_at(place: Path, clock: Clock | None = None, **bounds: int) -> Artifacts:
    given = {"files": 4, "bytes": 100, "days": 30, "total_bytes": 1 << 20, **bounds}
    settings = SkillCodeSettings(**{f"artifact_{name}": value for name, value in given.items()})  # type: ignore[arg-type]
    return Artifacts(place, lambda: settings, clock=clock or Clock())


def kept(store: Artifacts, *parts: tuple[str, bytes] | tuple[str, bytes, str]) -> KeptArtifacts:
    draft = store.draft("kite:tool", OWNER)
    for name, data, *why in parts:
        draft.take(OutputPart(name=name, data=data, left_out=why[0] if why else ""))
    return draft.finish()


def test_pieces_of_one_name_are_one_file(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    found = kept(store, ("a.txt", b"one"), ("a.txt", b"two"), ("b/c.csv", b""), ("d", b"\0"))
    assert [(one.name, one.bytes, one.media_type) for one in found.files] == [
        ("a.txt", 6, "text/plain"),
        ("b/c.csv", 0, "text/csv"),
        ("d", 1, "application/octet-stream"),
    ]
    assert [store.data(found.id, one.name) for one in found.files] == [
        (found.files[0], b"onetwo"),
        (found.files[1], b""),
        (found.files[2], b"\0"),
    ]
    assert read_uri(found.files[1].uri) == (found.id, "b/c.csv")
    (place,) = store.directory.iterdir()
    assert place.stat().st_mode & 0o077 == 0


def test_a_call_that_wrote_nothing_leaves_nothing(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    assert kept(store) == KeptArtifacts()
    assert not store.directory.exists()


def test_what_is_left_out_frees_its_room(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    found = kept(
        store,
        ("large", b"x" * 60),
        ("large", b"x" * 60),
        ("large", b"more of it"),
        ("half", b"x" * 90),
        ("half", b"", "it grew while it was read"),
        ("fits", b"x" * 100),
        ("late", b"x"),
        ("fits", b"again"),
        ("FITS", b"again"),
    )
    assert [(one.name, one.bytes) for one in found.files] == [("fits", 100)]
    assert found.left_out == (
        "large: 100 bytes of a call are kept",
        "half: it grew while it was read",
        "late: 100 bytes of a call are kept",
        "fits: another file has this name",
        "FITS: another file has this name",
    )
    assert store.data(found.id, "fits")[1] == b"x" * 100
    (place,) = store.directory.iterdir()
    assert sorted(path.name for path in place.iterdir()) == ["0", "set.json"]


def test_many_that_are_left_out_are_counted(tmp_path: Path) -> None:
    found = kept(store_at(tmp_path), *((f"../{n}", b"x") for n in range(LEFT_OUT_MAX + 5)))
    assert (found.files, len(found.left_out)) == ((), LEFT_OUT_MAX + 1)
    assert found.left_out[-1] == "and 5 more"


def test_a_draft_that_is_dropped_leaves_nothing(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    draft = store.draft("kite:tool", OWNER)
    draft.take(OutputPart(name="a", data=b"x"))
    assert len(list(store.directory.iterdir())) == 1
    draft.discard()
    assert list(store.directory.iterdir()) == []


def test_the_oldest_go_first(tmp_path: Path) -> None:
    clock = Clock()
    store = store_at(tmp_path, clock, total_bytes=3 * BLOCK)
    ids = []
    for _ in range(5):
        ids.append(kept(store, ("a", b"x")).id)
        clock.now += 1
    assert [one.id for one in store.sets()] == ids[:1:-1]
    clock.now += 30 * DAY_SECONDS - 1.5
    last = kept(store, ("a", b"x")).id
    assert [one.id for one in store.sets()] == [last, ids[4]]
    with pytest.raises(ArtifactError, match="no files of a call"):
        store.get(ids[0])


def test_the_newest_stays_though_it_is_larger_than_all(tmp_path: Path) -> None:
    store = store_at(tmp_path, total_bytes=10)
    found = kept(store, ("a", b"x" * 50))
    assert [one.id for one in store.sets()] == [found.id]


def test_what_a_killed_process_left_goes_after_a_day(tmp_path: Path) -> None:
    clock = Clock()
    store = store_at(tmp_path, clock)
    store.directory.mkdir()
    for name in (".new-a", ".gone-a"):
        (store.directory / name).mkdir()
        os.utime(store.directory / name, (clock.now - STALE_SECONDS - 1,) * 2)
    (store.directory / ".new-b").mkdir()
    os.utime(store.directory / ".new-b", (clock.now,) * 2)
    kept(store, ("a", b"x"))
    assert sorted(path.name for path in store.directory.iterdir())[:1] == [".new-b"]
    assert len(list(store.directory.iterdir())) == 2


def test_a_changed_file_is_not_given(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    found = kept(store, ("a", b"one"))
    (place,) = store.directory.iterdir()
    (place / "0").write_bytes(b"two")
    with pytest.raises(ArtifactError, match="was changed or removed"):
        store.data(found.id, "a")
    (place / "0").unlink()
    (place / "0").symlink_to("/etc/passwd")
    with pytest.raises(ArtifactError, match="was changed or removed"):
        store.data(found.id, "a")
    (place / "set.json").write_text("{")
    assert list(store.sets()) == []
    with pytest.raises(ArtifactError, match="no files of a call"):
        store.get(found.id)


def test_an_id_is_found_by_its_beginning(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    found = kept(store, ("a", b"one"))
    assert store.find(found.id[:5]) == store.get(found.id)
    for wrong in ("", "zz", "..", found.id[1:]):
        with pytest.raises(ArtifactError, match="no files of a call"):
            store.find(wrong)
    other = kept(store, ("a", b"one"))
    while other.id[0] != found.id[0]:
        other = kept(store, ("a", b"one"))
    with pytest.raises(ArtifactError, match="several ids"):
        store.find(found.id[0])


def test_a_disk_without_room_costs_the_file_and_not_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_at(tmp_path)
    draft = store.draft("kite:tool", OWNER)
    draft.take(OutputPart(name="a", data=b"one"))
    draft.take(OutputPart(name="b", data=b""))
    with open("/dev/full", "wb") as full:
        os.dup2(full.fileno(), draft._written.handle)  # type: ignore[union-attr] # noqa: SLF001
        draft.take(OutputPart(name="b", data=b"two"))
    found = draft.finish()
    assert [one.name for one in found.files] == ["a"]
    assert found.left_out == ("b: the disk of the state has no room",)


NAMES = st.text(st.sampled_from("ab./\\ -\n\t\x00\x7f\u202e\u200bé\U000e0041"), max_size=12)


@given(name=NAMES)
def test_a_name_that_is_kept_is_one_line_below_its_directory(name: str) -> None:
    if name_fault(name):
        return
    parts = name.split("/")
    assert name.isprintable()
    assert not {"", ".", ".."} & set(parts)
    assert not any(part.startswith((".", "-", " ")) for part in parts)
    assert read_uri(artifact_uri("0" * 32, name)) == ("0" * 32, name)


@given(text=st.text(max_size=300))
def test_what_is_shown_of_a_name_is_one_line(text: str) -> None:
    assert shown_name(text).isprintable()
