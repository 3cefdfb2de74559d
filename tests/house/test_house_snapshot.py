"""Tests of house/house_snapshot.py, and of how a house swaps one look for another."""

from __future__ import annotations

import gc
import queue
import threading
import time
import weakref
from pathlib import Path

import anyio
import pytest

from skillhouse.discovery.scan import FRESH_NANOSECONDS
from skillhouse.floor import UnknownSkillError
from skillhouse.house import Difference, Skillhouse, configured
from tests.harness import until
from tests.house.places import make_places, write_skill


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    write_skill(tmp_path / "home/.claude/skills/notes", body="Old.\n")
    return tmp_path


def skills_of(place: Path) -> Path:
    return place / "home/.claude/skills"


def names(difference: Difference) -> tuple[list[str], list[str], list[str]]:
    return (
        [skill.name for skill in difference.added],
        [skill.name for skill in difference.removed],
        [skill.name for skill in difference.changed],
    )


def test_a_file_that_cannot_be_used_is_shown_without_another_change(place: Path) -> None:
    house = Skillhouse(configured(make_places(place)))
    assert not house.index.diagnostics
    broken = write_skill(skills_of(place) / "broken") / "SKILL.md"
    broken.write_text("---\nname: 'x\n---\n")
    assert house.refresh()
    assert [one.path for one in house.index.diagnostics] == [broken]
    assert not house.refresh()


def settle() -> None:
    time.sleep(FRESH_NANOSECONDS / 1e9)


def test_a_scan_of_unchanged_files_has_the_skills_of_the_one_before(place: Path) -> None:
    house = Skillhouse(configured(make_places(place)))
    # Of files that changed just before a scan nothing is kept.
    settle()

    def same() -> list[str]:
        """Return the skills that the next scan takes from the one in use."""
        known = {id(skill) for skill in house.index.skills}
        return [one.name for one in house.services.scan().index.skills if id(one) in known]

    assert house.index.get("notes").name == "notes"
    every = [one.name for one in house.index.skills]
    # The first scan read files, and the second what was kept of them.
    assert not house.refresh()
    assert same() == every
    # A body that changed changes no list, and at most its skill is another.
    write_skill(skills_of(place) / "notes", body="A body that is longer.\n")
    settle()
    assert not house.refresh()
    assert set(every) - {"notes"} <= set(same())
    assert not house.refresh()
    assert set(every) - {"notes"} <= set(same())


def test_a_later_look_tells_what_came_went_and_changed(place: Path) -> None:
    house = Skillhouse(configured(make_places(place)))
    before = house.snapshot
    assert house.index.get("notes").name == "notes"
    assert not house.refresh()
    assert house.snapshot is before
    write_skill(skills_of(place) / "new")
    write_skill(skills_of(place) / "notes", description="Changed.")
    house.management.set_enabled("weather", enabled=False)
    house.refresh()
    assert names(house.snapshot.since(before)) == (["new"], ["weather"], ["notes"])


@pytest.mark.slow
def test_watching_swaps_what_agents_see_and_says_what_is_different(place: Path) -> None:
    house = Skillhouse(configured(make_places(place)))
    assert "later" not in house.catalog().text
    told: queue.Queue[Difference] = queue.Queue()
    stop = threading.Event()
    thread = threading.Thread(target=house.watch, args=(told.put,), kwargs={"stop": stop})
    thread.start()
    try:
        time.sleep(0.3)
        write_skill(skills_of(place) / "later")
        assert names(told.get(timeout=20))[0] == ["later"]
        assert "later" in house.catalog().text
        (skills_of(place) / "later/SKILL.md").unlink()
        assert names(told.get(timeout=20))[1] == ["later"]
        assert "later" not in house.catalog().text
    finally:
        stop.set()
        thread.join(20)
    assert not thread.is_alive()


@pytest.mark.slow
def test_trap_7_a_call_under_way_ends_with_the_look_it_began_with(place: Path) -> None:
    """Listing and loading went by two lists, so that what was listed was not found."""
    house = Skillhouse(configured(make_places(place)))
    stop = threading.Event()

    def churn() -> None:
        for number in range(10_000):
            if stop.is_set():
                return
            write_skill(skills_of(place) / f"extra-{number % 3}", description=f"{number}.")
            house.refresh()

    async def calls() -> None:
        for _ in range(200):
            listed = {tool.name: tool for tool in house.tools()}["skill"]
            assert "notes" in listed.schema["properties"]["name"]["enum"]
            result = await house.call("skill", {"name": "notes"})
            assert not result.is_error, result.content

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        anyio.run(calls)
    finally:
        stop.set()
        thread.join(20)
        house.close()


def test_a_profile_without_a_cache_looks_at_every_call(place: Path) -> None:
    profiles = place / "home/.config/skillhouse/profiles"
    profiles.mkdir(parents=True)
    (profiles / "fresh.toml").write_text('cache = "none"\n')
    places = make_places(place)
    fresh, usual = Skillhouse(configured(places), profile="fresh"), Skillhouse(configured(places))
    for house in (fresh, usual):
        assert "later" not in house.catalog().text
    write_skill(skills_of(place) / "later")
    assert "later" in fresh.catalog().text
    assert "later" not in usual.catalog().text


def use_everything(house: Skillhouse) -> None:
    """Make all that a snapshot can hold: views, menus, gates with tools, an index of the search."""
    house.view().search.at_hand()
    house.search("body")
    house.catalog(request="body")
    house.invocable()
    assert house.call_sync("skill", {"name": "pdf"}).status == "ok"
    house.forecast("exec", {"command": "ls"})
    assert house.tools()
    with pytest.raises(UnknownSkillError):
        house.load("none")


def test_a_snapshot_is_gone_with_the_next_one_without_a_collector(tmp_path: Path) -> None:
    """A service scans each second, and a process that starts quickly collects garbage rarely."""
    places = make_places(tmp_path)
    root = places.home / ".agents/skills"
    write_skill(root / "pdf")
    with Skillhouse(configured(places), cache_directory=tmp_path / "cache") as house:
        use_everything(house)
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            kept: list[weakref.ref[object]] = []
            for number in range(3):
                kept += [weakref.ref(one) for one in (house.snapshot, house.view(), house.index)]
                kept.append(weakref.ref(house.view().search.index()))
                write_skill(root / "pdf", f"Changed {number} times.")
                assert house.refresh()
                use_everything(house)
            # The search of a model may be reading in the background.
            until(lambda: all(one() is None for one in kept))
            assert [one() for one in kept] == [None] * len(kept)
        finally:
            if was_enabled:
                gc.enable()
