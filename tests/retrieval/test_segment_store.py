"""Tests of retrieval/segment_store.py and the segments below it, by the searches that use them."""

from __future__ import annotations

import io
import itertools
import json
import os
import random
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillhouse.discovery import discover
from skillhouse.retrieval import Hit, SearchIndex, segment, segment_store
from skillhouse.retrieval.segment import DamagedError, Segment, SegmentBuilder
from skillhouse.retrieval.segment_store import KeyedDocument, add_documents
from skillhouse.skill import Skill, SkillIndex, load

WORDS = "pdf merge merging chart 数据 天气 kite the useEffect data".split()
TEXTS = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)
NAMES = [f"s{number}" for number in range(5)]
TIMES = itertools.count(10**18)
LATER = 1 << 62
"""A clock by which no file was changed a moment ago."""


def write(root: Path, name: str, description: str = "Flies a kite.", body: str = "") -> Path:
    file = root / name / "SKILL.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"---\nname: {name}\ndescription: D {description}\n---\n{body}", "utf-8")
    # No two changes have one time, however few ticks of the kernel's clock they took.
    os.utime(file, ns=(next(TIMES), next(TIMES)))
    return file


def found(*roots: Path, clock: int = LATER) -> SkillIndex:
    return discover(roots, clock=lambda: clock)


def anew(index: SkillIndex) -> SearchIndex:
    """Return an index of the same documents that knows nothing of a cache."""
    return SearchIndex.from_documents(
        (skill.id, skill.name, skill.description, load(skill).body) for skill in index.skills
    )


class OpenedProtection:
    """An index over a cache, and how many bodies were read for it."""

    def __init__(self, index: SkillIndex, cache: Path, *, bodies: bool = True) -> None:
        self.read = 0
        self.index = SearchIndex.from_skills(
            index, cache=cache, bodies=bodies, progress=self._count
        )

    def _count(self, _: int, __: int) -> None:
        self.read += 1


def hits(index: SearchIndex) -> list[list[Hit]]:
    return [index.search(query, limit=50) for query in (*WORDS, *NAMES, " ".join(WORDS))]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for number in range(40):
        write(root, f"kite-{number:02}", f"Number {number}", "wind " * (number % 7) + "rain")
    return root


def files_of(cache: Path) -> list[Path]:
    return sorted((cache / "words").iterdir())


@pytest.mark.slow
def test_a_second_index_reads_no_body(root, tmp_path):
    index = found(root)
    first, second = (OpenedProtection(index, tmp_path / "cache") for _ in range(2))
    assert (first.read, second.read) == (40, 0)
    for query in ("wind", "rain", "number 7", "kite-03"):
        expected = anew(index).search(query, limit=50)
        assert first.index.search(query, limit=50) == expected
        assert second.index.search(query, limit=50) == expected


STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "remove", "move"]), st.sampled_from(NAMES), TEXTS, TEXTS),
    min_size=1,
    max_size=6,
)


@pytest.mark.slow
@settings(max_examples=30)
@given(STEPS, st.sets(st.sampled_from(NAMES)), st.booleans())
def test_what_is_kept_and_updated_is_as_an_index_made_anew(steps, hidden, small):
    with tempfile.TemporaryDirectory() as place:
        root, cache = Path(place, "root"), Path(place, "cache")
        root.mkdir()
        with pytest.MonkeyPatch.context() as patched:
            if small:
                # So that both segments, and their union, come about.
                patched.setattr(segment_store, "CHANGES_LEAST", 1)
                patched.setattr(segment_store, "OTHERS_LEAST", 1)
            for step, name, description, body in steps:
                file = root / name / "SKILL.md"
                if step == "write":
                    write(root, name, description, body)
                elif file.exists() and step == "remove":
                    file.unlink()
                elif file.exists():
                    write(root, "moved", description, body)
                index = found(root)
                seen = index.where(lambda skill: skill.name not in hidden)
                assert hits(OpenedProtection(index, cache).index) == hits(anew(index))
                # Whoever may not see a skill gets the scores of a library that has none of it.
                assert hits(OpenedProtection(seen, cache).index) == hits(anew(seen))
                assert OpenedProtection(index, cache).read == 0


@pytest.mark.slow
def test_only_what_changed_is_read_again(root, tmp_path):
    cache = tmp_path / "cache"
    OpenedProtection(found(root), cache)
    write(root, "kite-03", "Number 3", "gravel")
    write(root, "new", "Number 3", "gravel")
    (root / "kite-04" / "SKILL.md").unlink()
    (root / "kite-05").rename(root / "renamed")
    index = found(root)
    opened = OpenedProtection(index, cache)
    # A file that was moved is another skill.
    assert opened.read == 3
    assert hits(opened.index) == hits(anew(index))
    assert {hit.name for hit in opened.index.search("gravel")} == {"kite-03", "new"}
    assert OpenedProtection(index, cache).read == 0


def test_a_body_that_changed_by_neither_size_nor_time_is_read_again(root, tmp_path):
    cache = tmp_path / "cache"
    file = write(root, "sly", body="gravel")
    index = found(root)
    before = file.stat()
    assert [hit.name for hit in OpenedProtection(index, cache).index.search("gravel")] == ["sly"]
    write(root, "sly", body="pebble")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = file.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    opened = OpenedProtection(found(root), cache)
    assert opened.read == 1
    assert [opened.index.search(word) != [] for word in ("gravel", "pebble")] == [False, True]


def test_a_file_of_a_moment_ago_is_searched_and_not_kept(root, tmp_path):
    index = found(root, clock=0)
    assert {skill.signature for skill in index.skills} == {None}
    opened = OpenedProtection(index, tmp_path / "cache")
    assert hits(opened.index) == hits(anew(index))
    assert not (tmp_path / "cache").exists()
    assert OpenedProtection(index, tmp_path / "cache").read == 40


def test_bodies_that_are_not_searched_are_not_found_by_an_index_that_has_them(root, tmp_path):
    index = found(root)
    OpenedProtection(index, tmp_path / "cache")
    opened = OpenedProtection(index, tmp_path / "cache", bodies=False)
    assert opened.index.search("rain") == []
    assert len(opened.index.search("number", limit=50)) == 40


def test_a_skill_that_is_there_twice_is_found_twice(root, tmp_path):
    skills = found(root).skills
    index = SkillIndex([*skills, skills[0]])
    names = [
        hit.name for hit in OpenedProtection(index, tmp_path / "cache").index.search("kite-00")
    ]
    assert names[:2] == ["kite-00", "kite-00"]


@pytest.mark.slow
def test_roots_share_nothing_and_each_is_kept_once(root, tmp_path):
    other, cache = tmp_path / "other", tmp_path / "cache"
    write(other, "lamp", body="rain")
    assert OpenedProtection(found(root), cache).read == 40
    both = found(other, root)
    assert OpenedProtection(both, cache).read == 1
    assert hits(OpenedProtection(both, cache).index) == hits(anew(both))
    assert OpenedProtection(found(root), cache).read == 0


def test_words_of_merged_segments_are_still_corrections(root, tmp_path):
    OpenedProtection(found(root), tmp_path / "cache")
    for names, about in ((["n1", "n2"], "Implementing gliders."), (["n3"], "Paints walls.")):
        for name in names:
            write(root, name, about)
        opened = OpenedProtection(found(root), tmp_path / "cache")
    assert {hit.name for hit in opened.index.search("implmenting")} == {"n1", "n2"}


def test_what_others_wanted_stays_until_it_is_too_much(root, tmp_path, monkeypatch):
    monkeypatch.setattr(segment_store, "CHANGES_LEAST", 0)
    monkeypatch.setattr(segment_store, "CHANGES_SHARE", 1_000)
    monkeypatch.setattr(segment_store, "OTHERS_LEAST", 1)
    cache = tmp_path / "cache"
    index = found(root)
    parts = [SkillIndex(index.skills[at:end]) for at, end in itertools.pairwise((0, 10, 20, 40))]
    assert [OpenedProtection(part, cache).read for part in parts] == [10, 10, 20]
    # Ten more and ten more were no more than twice as many as were wanted.
    assert [OpenedProtection(part, cache).read for part in parts] == [0, 0, 0]
    write(root, "one", body="gravel")
    OpenedProtection(SkillIndex([found(root).get("one")]), cache)
    assert OpenedProtection(parts[0], cache).read == 10


def test_files_are_for_the_user_alone(root, tmp_path):
    cache = tmp_path / "cache"
    previous = os.umask(0)
    try:
        OpenedProtection(found(root), cache)
        write(root, "new")
        OpenedProtection(found(root), cache)
    finally:
        os.umask(previous)
    modes = {path.suffix: stat.S_IMODE(path.stat().st_mode) for path in files_of(cache)}
    assert modes == {".base": 0o600, ".changes": 0o600, ".lock": 0o600}
    assert stat.S_IMODE((cache / "words").stat().st_mode) == 0o700


def test_a_cache_that_cannot_be_written_costs_the_cache_alone(root, tmp_path):
    cache = tmp_path / "cache"
    cache.write_text("a file")
    index = found(root)
    opened = OpenedProtection(index, cache)
    assert opened.read == 40
    assert hits(opened.index) == hits(anew(index))


def test_an_update_that_fails_half_way_leaves_nothing_behind(root, tmp_path):
    cache = tmp_path / "cache"

    class Stopped(BaseException):
        pass

    def stop(done: int, _: int) -> None:
        if done == 20:
            raise Stopped

    with pytest.raises(Stopped):
        SearchIndex.from_skills(found(root), cache=cache, progress=stop)
    assert [path.suffix for path in files_of(cache)] == [".lock"]
    assert OpenedProtection(found(root), cache).read == 40


def test_what_a_writer_that_died_left_and_roots_of_long_ago_are_removed(
    root, tmp_path, monkeypatch
):
    monkeypatch.setattr(segment_store, "ROOTS_KEPT", 2)
    cache = tmp_path / "cache"
    OpenedProtection(found(root), cache)
    for path in files_of(cache):
        os.utime(path, (1, 1))
    dead, alive = cache / "words" / ".dead", cache / "words" / ".alive"
    for path in (dead, alive):
        path.touch()
    os.utime(dead, (1, 1))
    for name in ("a", "b"):
        write(tmp_path / name, "lamp")
        OpenedProtection(found(tmp_path / name), cache)
    assert (dead.exists(), alive.exists()) == (False, True)
    assert sum(path.suffix == ".base" for path in files_of(cache)) == 2
    assert OpenedProtection(found(root), cache).read == 40


def damaged_ways(data: bytes, chance: random.Random) -> list[bytes]:
    """Return a file as power loss, a bad disk or another program may leave it."""
    places = {*range(min(len(data), 140)), *(chance.randrange(len(data)) for _ in range(30))}
    flipped = [
        data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        for at in sorted(places)
    ]
    cut = [data[: chance.randrange(len(data))] for _ in range(10)]
    return [*flipped, *cut, b"", data + b"\0", bytes(len(data)), b"SQLite format 3\0" * 400]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".base", ".changes"])
def test_a_damaged_file_is_never_a_crash_or_another_answer(tmp_path, suffix):
    root, cache = tmp_path / "root", tmp_path / "cache"
    for name in ("kite", "lamp"):
        write(root, name, body=f"{name} rain")
    OpenedProtection(found(root), cache)
    write(root, "new", body="rain kite")
    index = found(root)
    OpenedProtection(index, cache)
    queries = ("kite", "rain", "new", "D", "lamp rain")
    expected = [anew(index).search(query) for query in queries]
    whole = {path: path.read_bytes() for path in files_of(cache)}
    [file] = [path for path in whole if path.suffix == suffix]
    for data in damaged_ways(whole[file], random.Random(7)):
        for path, before in whole.items():
            path.write_bytes(before)
        file.write_bytes(data)
        for _ in range(2):
            opened = OpenedProtection(index, cache)
            assert [opened.index.search(query) for query in queries] == expected
        write(root, "new", body="rain kite")
        assert [
            OpenedProtection(found(root), cache).index.search(query) for query in queries
        ] == expected


@pytest.mark.parametrize("kind", ["link", "directory", "fifo"])
def test_something_else_in_the_place_of_a_file_is_not_read(root, tmp_path, kind):
    cache, index = tmp_path / "cache", found(root)
    OpenedProtection(index, cache)
    [base] = [path for path in files_of(cache) if path.suffix == ".base"]
    elsewhere = base.rename(tmp_path / "elsewhere")
    before = elsewhere.read_bytes()
    if kind == "link":
        base.symlink_to(elsewhere)
    elif kind == "directory":
        base.mkdir()
    else:
        os.mkfifo(base)
    opened = OpenedProtection(index, cache)
    assert opened.read >= 40
    assert hits(opened.index) == hits(anew(index))
    assert elsewhere.read_bytes() == before


def test_each_stem_is_found_and_no_part_of_one():
    builder = SegmentBuilder()
    stems = [f"{first}{second}" for first in "abcdefgh" for second in ("", *"abcdefghij")]
    builder.add(bytes(16), bytes(8), ({}, {}, dict.fromkeys(stems, 1)), b"")
    file = io.BytesIO()
    builder.write(file)
    segment = Segment(file, file.getbuffer().nbytes)
    assert [segment.find(stem) for stem in sorted(stems)] == [*range(len(stems))]
    others = ("0", "ba0", "ia", "jb", "z", "aab", "\0")
    assert [segment.find(stem) for stem in others] == [None] * len(others)


def test_postings_are_checked_against_the_documents(monkeypatch):
    builder = SegmentBuilder()
    add_documents(
        builder,
        [KeyedDocument(bytes(16), "kite", "", ""), KeyedDocument(bytes(16), "kite", "", "")],
    )
    builder._postings["kite"][2] = 2  # noqa: SLF001 a document that is none
    monkeypatch.setattr(segment, "length_classes", lambda _: [0, 0, 0])
    file = io.BytesIO()
    builder.write(file)
    made = Segment(file, len(file.getvalue()))
    number = made.find("kite")
    assert number is not None
    with pytest.raises(DamagedError, match="damaged postings"):
        made.postings(number)


def test_a_file_that_is_cut_while_it_is_open_is_made_again(root, tmp_path):
    cache, index = tmp_path / "cache", found(root)
    OpenedProtection(index, cache)
    opened = OpenedProtection(index, cache)
    for path in files_of(cache):
        os.truncate(path, 0)
    assert hits(opened.index) == hits(anew(index))


@pytest.mark.slow
def test_several_threads_may_ask_an_index_that_is_kept(root, tmp_path):
    opened = OpenedProtection(found(root), tmp_path / "cache")
    queries = ["wind", "rain", "number", "kite-07"] * 25
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(opened.index.search, queries)) == [
            opened.index.search(query) for query in queries
        ]


PROBE = """
import json, sys
from pathlib import Path
from skillhouse.discovery import discover
from skillhouse.floor import structs
from skillhouse.retrieval import SearchIndex
sys.stdin.read()
index = discover([Path(sys.argv[1])], cache=Path(sys.argv[2]))
search = SearchIndex.from_skills(index, cache=Path(sys.argv[2]))
print(json.dumps([structs.asdict(hit) for hit in search.search("wind rain", limit=50)]))
"""


@pytest.mark.slow
def test_twelve_processes_on_a_cold_cache_give_one_answer(root, tmp_path):
    for path in root.rglob("SKILL.md"):
        os.utime(path, (1, 1))
    command = [sys.executable, "-c", PROBE, str(root), str(tmp_path / "cache")]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(12)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    answers = [(process.communicate(timeout=120)[0], process.returncode) for process in processes]
    assert {code for _, code in answers} == {0}
    assert len({answer for answer, _ in answers}) == 1
    assert len(json.loads(answers[0][0])) == 40
    index = found(root)
    assert OpenedProtection(index, tmp_path / "cache").read == 0


def test_a_skill_without_a_file_is_found_by_its_description(tmp_path):
    skill = Skill(
        name="far",
        description="Flies a kite",
        scope="remote",
        file=str(tmp_path / "far/SKILL.md"),
        root=str(tmp_path / "far"),
        packed_fields=b"",
    )
    opened = OpenedProtection(SkillIndex([skill]), tmp_path / "cache")
    assert [hit.id for hit in opened.index.search("kite")] == ["remote:far"]
