"""Tests of discovery/scan.py: an index on disk into which changes are patched."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from skillhouse.discovery import discover
from skillhouse.discovery.scan import CACHE_FILE, PART_FILES, PATCH_MAX
from skillhouse.floor.structs import field_names, replace
from skillhouse.skill import DEFAULT_POLICY, DEFAULT_PROFILE, Profile, SkillIndex
from tests.discovery.trees import everything, later, names, probe, write_refused, write_skill

pytestmark = pytest.mark.slow

COUNT = PART_FILES + 44


def indexed(root: Path, cache: Path, profile: Profile = DEFAULT_PROFILE) -> SkillIndex:
    index = discover([root], cache=cache, clock=later, profile=profile)
    assert everything(index) == everything(discover([root], profile=profile))
    return index


def read(root: Path, cache: Path) -> list[str]:
    """Return the names of the skills whose file one more start opens."""
    opened = probe(root, cache=cache).opened
    return [Path(path).parent.name for path in opened if path.endswith("SKILL.md")]


def sizes(cache: Path) -> list[int]:
    """Return the length of the entries of each row, the patch first."""
    with closing(sqlite3.connect(cache / CACHE_FILE)) as connection:
        rows = connection.execute("SELECT root, length(entries) FROM snapshot").fetchall()
    return [length for _, length in sorted(rows)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number in range(COUNT):
        write_skill(tmp_path / "root" / f"s{number:03}", description=f"Thing {number}.")
    write_refused(tmp_path / "root" / "refused")
    return tmp_path / "root"


def test_a_change_is_patched_in_and_believed_at_the_next_start(root: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    indexed(root, cache)
    small, large = sizes(cache)
    assert small == 0
    for at, name in ((0, "s000"), (1, "s299"), (2, "s000")):
        write_skill(root / name, name=name if at != 2 else "renamed", description=f"New {at}.")
        index = indexed(root, cache)
        assert f"New {at}." in {skill.description for skill in index.skills}
        assert sizes(cache)[1] == large
        assert 0 < sizes(cache)[0] < 1_000
    assert read(root, cache) == []
    # By name, as everything else.
    assert names(indexed(root, cache)) == sorted(names(index))


def test_of_a_changed_part_only_the_changed_file_is_read(root: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    indexed(root, cache)
    write_skill(root / "s007", description="New.")
    time.sleep(0.15)
    assert read(root, cache) == ["s007"]
    assert read(root, cache) == []


def test_many_changes_are_written_anew(root: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    indexed(root, cache)
    for number in range(PATCH_MAX + 1):
        write_skill(root / f"s{number:03}", description="New.")
    indexed(root, cache)
    assert sizes(cache)[0] == 0
    # As well as when they come one after the other.
    for number in range(PATCH_MAX - 1):
        write_skill(root / f"s{number:03}", description="Newer.")
    indexed(root, cache)
    assert sizes(cache)[0] > 0
    for name in ("s290", "s291"):
        write_skill(root / name, description="Newer.")
        indexed(root, cache)
    assert sizes(cache)[0] == 0


@pytest.mark.parametrize("change", ["refused", "mended", "linked", "gone", "new", "nested"])
def test_what_a_patch_cannot_say_is_walked_anew(root: Path, tmp_path: Path, change: str) -> None:
    cache = tmp_path / "cache"
    write_skill(root / "s001" / "below")
    write_skill(root / "refused" / "below-refused")
    indexed(root, cache)
    if change == "refused":
        write_refused(root / "s001")
    elif change == "mended":
        write_skill(root / "refused")
    elif change == "linked":
        (root / "s002" / "SKILL.md").unlink()
        (root / "s002" / "SKILL.md").symlink_to("../s003/SKILL.md")
    elif change == "gone":
        (root / "s002" / "SKILL.md").unlink()
    elif change == "new":
        write_skill(root / "s0005")
    else:
        write_skill(root / "refused" / "another")
    found = names(indexed(root, cache))
    assert ("below" in found) == (change == "refused")
    assert ("below-refused" in found) == (change != "mended")
    assert names(indexed(root, cache)) == found


def test_a_patch_to_entries_that_were_replaced_meanwhile_is_not_believed(
    root: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    indexed(root, cache)
    write_skill(root / "s007", description="New.")
    indexed(root, cache)
    with closing(sqlite3.connect(cache / CACHE_FILE, isolation_level=None)) as connection:
        connection.execute("UPDATE snapshot SET entries = x'90' WHERE root LIKE '% entries'")
    assert len(indexed(root, cache)) == COUNT
    assert read(root, cache) == []


OTHERS: dict[str, Any] = {
    "yaml_repair": False, "no_frontmatter": "body", "name_from": "directory",
    "missing_name": "skip", "missing_description": "empty", "bad_name": "skip",
    "name_mismatch": "skip", "long_description": "skip", "replaced_characters": "o",
    "tabs_mended": True, "trim_body": True, "reader": "bun-yaml", "tools_form": "free",
}  # fmt: skip


def test_an_index_serves_no_other_way_of_reading_or_walking(tmp_path: Path) -> None:
    root, cache = tmp_path / "root", tmp_path / "cache"
    write_skill(root / "one", name="Other", description="x" * 2_000)
    for place, text in (("two", "Only text.\n"), ("three", "---\nname: three\n---\n"),
                        (".four", "---\ndescription: Use: x\nmore:\n\ta: b\n---\n")):  # fmt: skip
        write_skill(root / place).write_text(text)
    (root / "link").symlink_to("one")
    policies = [replace(DEFAULT_POLICY, **{key: value}) for key, value in OTHERS.items()]
    profiles = [replace(DEFAULT_PROFILE, parse_policy=policy) for policy in policies]
    profiles += [
        replace(DEFAULT_PROFILE, symlinks="ignore"),
        replace(DEFAULT_PROFILE, dotfiles=False),
        replace(DEFAULT_PROFILE, nested_skills=True),
        replace(DEFAULT_PROFILE, root_skill=True),
        replace(DEFAULT_PROFILE, symlinks="follow", link_files=False),
        DEFAULT_PROFILE,
    ]
    for _ in range(2):
        for profile in profiles:
            # Each time as without an index.
            indexed(root, cache, profile)


def test_every_field_of_the_policy_is_tried() -> None:
    known = set(field_names(DEFAULT_POLICY)) - {"yaml_fast_path", "file_max"}
    assert set(OTHERS) == known
