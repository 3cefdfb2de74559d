"""Tests of house/recent.py: what was loaded lately stands first, also in the next process."""

from __future__ import annotations

import os
from pathlib import Path

from skillhouse.house import Skillhouse, configured
from skillhouse.house.usage import FILE_MAX, READ_BYTES, RECENT_FILE, RecentSkills
from tests.house.places import make_places, write_skill


def house_at(base: Path) -> Skillhouse:
    """Return a house below `base`, with a cache."""
    return Skillhouse(configured(make_places(base)))


def listed(house: Skillhouse) -> list[str]:
    """Return the names of the compact catalog."""
    return [line.split(":")[0] for line in house.catalog(style="compact").text.split("\n")]


def test_a_loaded_skill_comes_first_in_its_scope_from_the_next_process_on(tmp_path: Path) -> None:
    for name in ("ant", "bee", "cat"):
        write_skill(tmp_path / f"home/.agents/skills/{name}")
    with house_at(tmp_path) as house:
        before = listed(house)
        assert before[:3] == ["ant", "bee", "cat"]
        assert house.call_sync("skill", {"name": "cat"}).status == "ok"
        assert house.call_sync("skill", {"name": "web-search"}).status == "ok"
        assert house.call_sync("skill", {"name": "bee"}).status == "ok"
        # A client takes another order for a change, so it stays for as long as nothing changes.
        house.refresh()
        assert listed(house) == before
    with house_at(tmp_path) as house:
        assert listed(house) == ["bee", "cat", "ant", "web-search", "github", "weather"]
        tool = next(tool for tool in house.tools() if tool.name == "skill")
        assert tool.description.index("\nbee: ") < tool.description.index("\nant: ")
        # The other lists keep the order of the index.
        assert [skill.name for skill in house.catalog().included][:3] == ["ant", "bee", "cat"]


def test_what_was_refused_or_denied_is_not_recent(tmp_path: Path) -> None:
    write_skill(tmp_path / "home/.agents/skills/ant")
    with house_at(tmp_path) as house:
        assert house.call_sync("skill", {"name": "none"}).is_error
    assert not (tmp_path / "home/.cache/skillhouse" / RECENT_FILE).exists()


def test_without_a_cache_nothing_is_remembered() -> None:
    recent = RecentSkills(None)
    recent.note("/s/SKILL.md")
    assert recent.ranks() == {}


def test_the_newest_has_the_lowest_rank_and_each_one_rank(tmp_path: Path) -> None:
    recent = RecentSkills(tmp_path / "new")
    for file in ("/a", "/b\n/c", "/a", "/ö"):
        recent.note(file)
    assert RecentSkills(tmp_path / "new").ranks() == {"/ö": 0, "/a": 1, "/b\n/c": 2}
    assert (tmp_path / "new" / RECENT_FILE).stat().st_mode & 0o777 == 0o600


def test_the_file_stays_small(tmp_path: Path) -> None:
    recent = RecentSkills(tmp_path)
    (tmp_path / RECENT_FILE).write_bytes(b'"/old"\n' * (FILE_MAX // 7 + 1))
    recent.note("/new")
    assert recent.ranks() == {"/new": 0, "/old": 1}
    assert (tmp_path / RECENT_FILE).stat().st_size < READ_BYTES
    assert [path.name for path in tmp_path.iterdir()] == [RECENT_FILE]


def test_a_damaged_file_costs_the_order_alone(tmp_path: Path) -> None:
    file = tmp_path / RECENT_FILE
    file.write_bytes(b"\xff\x00{[\n" + b"[" * 5_000 + b'\n{"a": 1}\n"/a"\n12\n"/b')
    assert RecentSkills(tmp_path).ranks() == {"/a": 0}
    file.unlink()
    file.symlink_to("/etc/passwd")
    RecentSkills(tmp_path).note("/a")
    assert RecentSkills(tmp_path).ranks() == {}
    file.unlink()
    os.mkfifo(file)
    assert RecentSkills(tmp_path).ranks() == {}
