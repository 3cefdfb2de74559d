"""Tests of discovery/scan.py: what a warm start reads, and what it notices."""

from __future__ import annotations

import base64
import json
import os
import stat
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.discovery import Root, discover, scan
from skillhouse.discovery.scan import READING
from skillhouse.floor import digest, encode
from skillhouse.skill import ParsePolicy, Profile, SkillIndex, read_metadata
from tests.discovery.trees import everything, later, names, probe, write_refused, write_skill

pytestmark = pytest.mark.slow

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "frontmatter.jsonl"


def indexed(*roots: Path, cache: Path) -> SkillIndex:
    """Discover with an index that may be trusted from then on."""
    return discover(roots, cache=cache, clock=later)


def skill_files(paths: list[str], root: Path) -> list[str]:
    """Return the SKILL.md files that there are among `paths`, relative to `root`."""
    return [
        os.path.relpath(path, root)
        for path in paths
        if path.endswith("SKILL.md") and os.path.isfile(path)
    ]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Some skills, deep and shallow, linked and refused."""
    root = tmp_path / "root"
    for place in ("pdf", "csv", "more/xls", "more/docs/odt"):
        write_skill(root / place)
    write_refused(root / "broken")
    write_skill(root / "broken" / "below")
    (root / ".git" / "hidden").mkdir(parents=True)
    write_skill(root / ".git" / "hidden" / "linked")
    (root / "linked").symlink_to(".git/hidden/linked")
    (root / "file-link").mkdir()
    (root / "file-link" / "SKILL.md").symlink_to("../pdf/SKILL.md")
    return root


@pytest.mark.req("S001-33")
def test_a_warm_start_opens_no_unchanged_skill_file(tree: Path, tmp_path: Path) -> None:
    cold = probe(tree)
    assert len(skill_files(cold.opened, tree)) >= 8
    indexed(tree, cache=tmp_path / "cache")
    warm = probe(tree, cache=tmp_path / "cache")
    assert skill_files(warm.opened, tree) == []
    assert warm.everything == cold.everything


def test_a_warm_start_reads_only_the_file_that_changed(tree: Path, tmp_path: Path) -> None:
    indexed(tree, cache=tmp_path / "cache")
    write_skill(tree / "csv", description="Changed.")
    warm = probe(tree, cache=tmp_path / "cache")
    assert skill_files(warm.opened, tree) == ["csv/SKILL.md"]
    assert warm.everything == probe(tree).everything
    assert any("Changed." in line for line in warm.everything)


def test_a_file_that_cannot_be_opened_makes_no_other_be_read_again(
    tree: Path, tmp_path: Path
) -> None:
    os.mkfifo(tree / "more" / "SKILL.md")
    indexed(tree, cache=tmp_path / "cache")
    warm = probe(tree, cache=tmp_path / "cache")
    assert skill_files(warm.opened, tree) == []
    assert warm.everything == probe(tree).everything


def rewritten(file: Path, new: bytes) -> None:
    file.write_bytes(new)


def replaced(file: Path, new: bytes) -> None:
    beside = file.with_name("new")
    beside.write_bytes(new)
    beside.rename(file)


def moved_in(file: Path, new: bytes) -> None:
    """Put a file there whose times are all as old as can be."""
    other = write_skill(file.parent.parent / "other", name="other")
    other.write_bytes(new)
    os.utime(other, ns=(0, 0))
    other.rename(file)
    other.parent.rmdir()


@pytest.mark.parametrize("change", [rewritten, replaced, moved_in])
def test_a_change_that_keeps_size_and_mtime_is_seen(
    tmp_path: Path, change: Callable[[Path, bytes], None]
) -> None:
    file = write_skill(tmp_path / "root" / "pdf", description="Reads it.")
    before = file.stat()
    indexed(tmp_path / "root", cache=tmp_path / "cache")
    change(file, file.read_bytes().replace(b"Reads", b"Sends"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    (skill,) = indexed(tmp_path / "root", cache=tmp_path / "cache").skills
    assert skill.description == "Sends it."


def test_a_fresh_file_is_read_again_although_it_looks_unchanged(tmp_path: Path) -> None:
    root, cache = tmp_path / "root", tmp_path / "cache"
    old, fresh = write_skill(root / "old"), write_skill(root / "fresh")
    os.utime(fresh)
    # As if the index were written 90 ms after the last change, and long after all others.
    discover([root], cache=cache, clock=lambda: fresh.stat().st_ctime_ns + 90_000_000)
    opened = skill_files(probe(root, cache=cache).opened, root)
    assert "fresh/SKILL.md" in opened
    if fresh.stat().st_ctime_ns - old.stat().st_ctime_ns > 10_000_000:
        assert opened == ["fresh/SKILL.md"]


def test_of_two_changes_in_one_moment_the_second_is_seen(tmp_path: Path) -> None:
    root, cache = tmp_path / "root", tmp_path / "cache"
    for description in ("First.", "Again.", "Third."):
        file = write_skill(root / "pdf", description=description)
        changed = file.stat().st_ctime_ns
        (skill,) = discover([root], cache=cache, clock=partial(int, changed)).skills
        assert skill.description == description


def test_a_clock_that_is_behind_the_file_system_makes_nothing_stale(tmp_path: Path) -> None:
    root, cache = tmp_path / "root", tmp_path / "cache"
    for description in ("First.", "Again."):
        write_skill(root / "pdf", description=description)
        (skill,) = discover([root], cache=cache, clock=lambda: 0).skills
        assert skill.description == description


def test_a_skill_that_comes_or_goes_is_noticed(tree: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    before = names(indexed(tree, cache=cache))
    write_skill(tree / "new" / "one")
    (tree / "csv" / "SKILL.md").unlink()
    after = names(indexed(tree, cache=cache))
    assert set(after) - set(before) == {"one"}
    assert set(before) - set(after) == {"csv"}


def test_a_link_that_is_turned_to_another_file_is_noticed(tree: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    indexed(tree, cache=cache)
    (tree / "file-link" / "SKILL.md").unlink()
    (tree / "file-link" / "SKILL.md").symlink_to("../csv/SKILL.md")
    index = indexed(tree, cache=cache)
    assert everything(index) == everything(discover([tree]))
    found = [one.path for one in index.diagnostics if one.code == "same-directory"]
    assert tree / "file-link/SKILL.md" in found


@pytest.mark.req("S001-35", "S001-37", "S001-38")
def test_an_index_serves_no_other_root_scope_or_setting(tree: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    write_skill(tree / "pdf" / "nested")
    (tree / "colon").mkdir()
    (tree / "colon" / "SKILL.md").write_text("---\nname: colon\ndescription: a: b\n---\n")
    variants: list[tuple[list[Root], Profile]] = [
        ([Root(tree)], Profile()),
        ([Root(tree, "user")], Profile()),
        ([Root(tree / "more")], Profile()),
        ([Root(tree)], Profile(nested_skills=True)),
        ([Root(tree)], Profile(parse_policy=ParsePolicy(yaml_repair=False))),
        ([Root(tree)], Profile(skipped_directories=frozenset({"more", "pdf"}))),
        ([Root(tree)], Profile(skipped_directories=frozenset({"more pdf"}))),
        ([Root(tree)], Profile(skipped_directories=frozenset({"more', 'pdf"}))),
    ]
    plain = [everything(discover(roots, profile=profile)) for roots, profile in variants]
    for _ in range(2):
        for (roots, profile), expected in zip(variants, plain, strict=True):
            found = discover(roots, profile=profile, cache=cache, clock=later)
            assert everything(found) == expected


def test_the_index_is_decoded_only_when_somebody_looks(tree: Path, tmp_path: Path) -> None:
    index = indexed(tree, cache=tmp_path / "cache")
    assert "_content" not in vars(index)
    assert "pdf" in names(index)


# A small place, so that changes meet each other.
NAMES = st.sampled_from(("a", "b", "a/b", "b/a"))
CHANGES = st.one_of(
    st.tuples(st.just("skill"), NAMES, st.sampled_from(("one", "two"))),
    st.tuples(st.just("refused"), NAMES, st.just("")),
    st.tuples(st.just("unlink"), NAMES, st.just("")),
    st.tuples(st.just("link"), NAMES, st.sampled_from(("../a", "..", "../../b", "/"))),
    st.tuples(st.just("directory"), NAMES, st.just("")),
)


def apply(root: Path, change: tuple[str, str, str]) -> None:
    """Make one change, or none where the place does not allow it."""
    kind, name, value = change
    place = root / name
    try:
        if kind == "skill":
            write_skill(place, name=value, description=value)
        elif kind == "refused":
            write_refused(place)
        elif kind == "unlink":
            (place / "SKILL.md").unlink()
        elif kind == "link":
            place.symlink_to(value)
        else:
            (place / "SKILL.md").mkdir(parents=True)
    except OSError:
        pass


@pytest.mark.req("S001-37")
@given(changes=st.lists(CHANGES, max_size=12), fresh=st.booleans(), nested=st.booleans())
def test_an_index_always_says_what_the_files_say(
    changes: list[tuple[str, str, str]], fresh: bool, nested: bool
) -> None:
    with TemporaryDirectory() as directory:
        root, cache = Path(directory, "root"), Path(directory, "cache")
        root.mkdir()
        profile = Profile(nested_skills=nested)
        for change in changes:
            apply(root, change)
            clock = time.time_ns if fresh else later
            found = discover([root], profile=profile, cache=cache, clock=clock)
            assert everything(found) == everything(discover([root], profile=profile))


READ_AS = {6: "sha256:75af012059f86a88873bf41d086e0dee0cd7aa08b7f53536c22c47e5e5fb09f1"}
"""What the vectors are read as, by the number that indexes are kept under."""


def test_whoever_changes_what_is_read_raises_the_number_of_the_index(tmp_path: Path) -> None:
    read = []
    for line in VECTORS.read_text(encoding="utf-8").splitlines():
        given = json.loads(line)["given"]
        data = base64.b64decode(given["skill_md_b64"])
        if fill := given.get("fill"):
            data = data[: fill["at"]] + bytes([fill["byte"]]) * fill["count"] + data[fill["at"] :]
        file = tmp_path / "SKILL.md"
        file.write_bytes(data)
        handle = os.open(file, os.O_RDONLY)
        try:
            found, findings = read_metadata(handle, len(data), given["directory"], ParsePolicy())
        finally:
            os.close(handle)
        read.append((found, [(finding.code, finding.fatal) for finding in findings]))
    # Indexes on people's disks hold what was read before: after a change they must not be used.
    assert digest(encode(read)) == READ_AS.get(READING), "raise READING, and note it in READ_AS"


def test_a_time_of_a_far_year_is_kept():
    """Memory file systems have times beyond 64 bits of nanoseconds; ext4 has not."""
    info = SimpleNamespace(
        st_mode=stat.S_IFREG | 0o644,
        st_mtime_ns=2**40 * 10**9,
        st_ctime_ns=1,
        st_size=1,
        st_ino=1,
    )
    signature: Any = scan._signature  # noqa: SLF001 - the system under us has no such time.
    assert encode(signature(info, "a"))
