"""Tests of house/agent_search.py, and of searches in a house whose files change."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path

import pytest

from skillhouse.house import Skillhouse, configured
from skillhouse.house import agent_search as searching
from skillhouse.retrieval import Hit
from skillhouse.skill import Skill, load_body
from tests.house.places import make_places, write_skill

write_kite = partial(write_skill, description="Flies things.")
"""A description with a word of its own: others lose part of their score."""


@pytest.fixture(autouse=True)
def _no_file_is_too_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skillhouse.discovery.scan.FRESH_NANOSECONDS", 0)


@pytest.fixture
def house(tmp_path: Path) -> Skillhouse:
    for number in range(200):
        write_kite(tmp_path / f"home/.agents/skills/kite-{number}", body="Needs zephyrs.\n")
    return Skillhouse(configured(make_places(tmp_path)))


class Held:
    """The reading of bodies, which goes on when it is let."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: list[str] = []
        self.go = threading.Event()

        def held(skill: Skill) -> str:
            assert self.go.wait(30)
            self.read.append(skill.name)
            return load_body(skill)

        monkeypatch.setattr("skillhouse.retrieval.index.load_body", held)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


def names(hits: list[Hit]) -> list[str]:
    return [hit.name for hit in hits]


@pytest.mark.slow
def test_a_model_is_answered_by_names_and_descriptions_while_bodies_are_read(
    house: Skillhouse, held: Held
) -> None:
    [by_body, by_name] = [
        house.call_sync("search_skills", {"query": query, "limit": 1})
        for query in ("zephyrs", "kite")
    ]
    said = (
        "(found by names and descriptions alone: the index of the skills' texts is being built; "
        "search again in a moment for all)"
    )
    assert by_body.content == f"no skill fits; try other words, or English\n\n{said}"
    assert by_body.data == {"skills": [], "partial": True}
    assert by_name.content == f"kite-0: Flies things. (name: kite)\n\n{said}"
    held.go.set()
    # Who needs the whole index waits for the one that is being made.
    assert names(house.search("zephyrs", limit=1)) == ["kite-0"]
    assert len(held.read) == len(house.view().visible)
    whole = house.call_sync("search_skills", {"query": "zephyrs", "limit": 1})
    assert (whole.content, whole.data) == (
        "kite-0: Flies things. (body: zephyrs)",
        {
            "skills": [{"name": "kite-0", "description": "Flies things."}],
            "reasons": ["body: zephyrs"],
        },
    )
    house.close()


@pytest.mark.slow
def test_a_search_does_not_wait_for_an_index_that_a_program_had_made(
    house: Skillhouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.search("zephyrs")
    monkeypatch.setattr(searching, "PATIENCE_SECONDS", 3_600)
    answered: list[str] = []

    def call() -> None:
        answered.append(house.call_sync("search_skills", {"query": "kite-7"}).content)

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    caller.join(60)
    assert answered[0].startswith("kite-7: Flies things. (exact name)\n")
    house.close()


def test_few_bodies_are_waited_for(tmp_path: Path) -> None:
    write_kite(tmp_path / "home/.agents/skills/kites", body="Needs gravel.\n")
    with Skillhouse(configured(make_places(tmp_path))) as house:
        assert house.call_sync("search_skills", {"query": "gravel"}).content == (
            "kites: Flies things. (body: gravel)"
        )


@pytest.mark.slow
def test_a_second_house_reads_no_body(house: Skillhouse, held: Held) -> None:
    held.go.set()
    first = house.search("zephyrs", limit=50)
    held.read.clear()
    again = Skillhouse(house.config)
    assert again.search("zephyrs", limit=50) == first
    assert held.read == []
    assert again.call_sync("search_skills", {"query": "zephyrs"}).data is not None
    again.close()


def test_without_a_cache_nothing_is_kept(tmp_path: Path) -> None:
    write_kite(tmp_path / "home/.agents/skills/kites", body="Needs zephyrs.\n")
    places = make_places(tmp_path)
    house = Skillhouse(configured(places), cache_directory=None)
    assert names(house.search("zephyrs")) == ["kites"]
    assert not places.cache().exists()


def test_a_body_that_changed_is_found_by_its_new_words(tmp_path: Path) -> None:
    file = write_kite(tmp_path / "home/.agents/skills/kites", body="Needs zephyrs.\n") / "SKILL.md"
    os.utime(file, (1, 1))
    house = Skillhouse(configured(make_places(tmp_path)))
    assert names(house.search("zephyrs")) == ["kites"]
    write_kite(file.parent, body="Needs many pebbles.\n")
    # What is listed is as before, so nobody is told of a change.
    assert not house.refresh()
    assert (names(house.search("zephyrs")), names(house.search("pebbles"))) == ([], ["kites"])
    write_kite(file.parent, body="Needs very much basalt.\n")
    assert not house.refresh()
    assert names(house.view("default").search.at_hand()[0].search("basalt")) == ["kites"]


def test_an_agent_made_after_a_body_changed_finds_it(tmp_path: Path) -> None:
    file = write_kite(tmp_path / "home/.agents/skills/kites", body="Needs zephyrs.\n") / "SKILL.md"
    house = Skillhouse(configured(make_places(tmp_path)))
    assert len(house.index.skills) > 1
    write_kite(file.parent, body="Needs many pebbles.\n")
    assert not house.refresh()
    assert names(house.search("pebbles")) == ["kites"]


def test_the_bodies_of_an_untrusted_project_are_neither_read_nor_kept(
    tmp_path: Path, held: Held
) -> None:
    held.go.set()
    place = make_places(tmp_path)
    write_kite(tmp_path / "project/.agents/skills/sly", body="Needs gravelstone.\n")
    house = Skillhouse(configured(place))
    assert house.search("gravelstone") == []
    assert "sly" not in held.read
    kept = b"".join(path.read_bytes() for path in (place.cache() / "words").iterdir())
    assert b"gravelston" not in kept
    house.project_trust.trust()
    assert names(house.search("gravelstone")) == ["sly"]


def test_a_denied_skill_is_not_found_and_changes_no_score(tmp_path: Path) -> None:
    place = make_places(tmp_path)
    for name in ("kites", "lamps"):
        write_kite(tmp_path / f"home/.agents/skills/{name}", body="Needs zephyrs.\n")
    alone = Skillhouse(configured(place)).search("zephyrs kites")
    for number in range(9):
        write_kite(tmp_path / f"home/.agents/skills/secret-{number}", body="Needs zephyrs.\n")
    # The shared files hold the secret ones too, as somebody else may see them.
    assert len(Skillhouse(configured(place)).search("zephyrs", limit=50)) == 11
    (place.user_file.parent).mkdir(parents=True, exist_ok=True)
    place.user_file.write_text(
        '[[rules]]\neffect = "deny"\naction = "skill"\npattern = "secret-*"\n', "utf-8"
    )
    assert Skillhouse(configured(place)).search("zephyrs kites") == alone


@pytest.mark.slow
def test_what_fails_is_tried_again(house: Skillhouse, monkeypatch: pytest.MonkeyPatch) -> None:
    search = house.view("default").search

    def stop(_: int, __: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search.index(stop)
    assert names(search.index().search("zephyrs", limit=1)) == ["kite-0"]


@pytest.mark.slow
def test_closing_ends_the_reading(house: Skillhouse, held: Held) -> None:
    _, is_complete = house.view("default").search.at_hand()
    assert not is_complete
    [thread] = [each for each in threading.enumerate() if each.name == "search-index"]
    house.close()
    held.go.set()
    thread.join(30)
    assert not thread.is_alive()
    assert len(held.read) == 1


def test_a_slow_disk_is_not_waited_for(
    tmp_path: Path, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "PATIENCE_SECONDS", 0.01)
    write_kite(tmp_path / "home/.agents/skills/kites", body="Needs zephyrs.\n")
    with Skillhouse(configured(make_places(tmp_path))) as house:
        _, is_complete = house.view("default").search.at_hand()
        assert not is_complete
        held.go.set()
        assert names(house.search("zephyrs")) == ["kites"]


def test_an_index_that_is_kept_is_prepared_before_the_first_search(house: Skillhouse) -> None:
    search = house.view().search
    search.start()
    assert search.index().search("zephyrs")
    assert house.config.cache_directory is not None
    assert list(house.config.cache_directory.rglob("*.base"))
    house.close()


def test_without_a_cache_no_index_is_prepared(tmp_path: Path, held: Held) -> None:
    held.go.set()
    write_kite(tmp_path / "home/.agents/skills/kites", body="Needs zephyrs.\n")
    with Skillhouse(configured(make_places(tmp_path)), cache_directory=None) as house:
        house.view().search.start()
        assert held.read == []
        assert names(house.search("zephyrs")) == ["kites"]
        assert "kites" in held.read


HOSTILE = (
    "",
    " ",
    "\0",
    "kite\0 OR 1=1",
    "🎉🎈",
    '" OR kite NEAR(a b) * ^ name:',
    "طائرة ورقية kite",
    "\u202ekite\u202c",
    "\ud800 kite",
    "kite " * 20_000,
    "数据分析" * 8_000,
    "".join(map(chr, range(0x4E00, 0x9FFF))),
    " ".join(f"w{number}" for number in range(20_000)),
)
"""Queries of up to 100 kB that are no plain words."""


@pytest.mark.slow
@pytest.mark.parametrize("query", HOSTILE, ids=range(len(HOSTILE)))
def test_no_query_fails_as_a_tool_call(house: Skillhouse, query: str) -> None:
    result = house.call_sync("search_skills", {"query": query})
    # A lone surrogate is no text that JSON can send, and the schema wants a word.
    refused = "\ud800" in query or not query
    assert (result.status == "ok") is not refused, result.content
    assert "Traceback" not in result.content
    assert isinstance(house.search(query), list)
    house.close()
