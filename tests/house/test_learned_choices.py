"""Tests of house/usage.py: what was loaded after a search comes earlier next time."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.floor import structs
from skillhouse.house import Caller, SearchSettings, Skillhouse, configured
from skillhouse.house.usage import (
    CHOICES_A_DAY,
    CHOICES_MAX,
    LIFT_MAX,
    LearnedChoice,
    LearnedChoices,
    lifted,
    shares,
)
from skillhouse.retrieval import Hit
from tests.harness import Clock
from tests.house.places import make_places, write_skill

DAY = 86_400.0
REQUEST = "write the weekly report of the team"


def house_at(base: Path, *, learn: bool = True) -> Skillhouse:
    for name, words in (("alpha", "weekly report"), ("beta", "weekly reports")):
        write_skill(base / f"home/.agents/skills/{name}", description=f"Writes {words} for teams.")
    return Skillhouse(configured(make_places(base)), search=SearchSettings(learn=learn))


def names(house: Skillhouse, request: str = REQUEST) -> list[str]:
    return [hit.name for hit in house.search(request)]


def choose(house: Skillhouse, name: str, times: int = 3, request: str = REQUEST) -> None:
    """Let a model search and load a skill, each time in a conversation of its own."""
    for number in range(times):
        session = f"{name} {number}"
        house.call_sync("search_skills", {"query": request}, session_id=session)
        assert house.call_sync("skill", {"name": name}, session_id=session).status == "ok"


def test_what_was_loaded_for_similar_requests_comes_first_and_that_is_said(tmp_path: Path) -> None:
    with house_at(tmp_path) as house:
        assert names(house)[:2] == ["alpha", "beta"]
        choose(house, "beta")
        first, second = house.search(REQUEST)[:2]
        assert (first.name, second.name) == ("beta", "alpha")
        assert 0.0 < first.learned <= 1.0
        assert second.learned == 0.0
        assert first.confidence == pytest.approx(second.confidence, abs=0.1)
        answer = house.call_sync("search_skills", {"query": "weekly report of our team"})
        assert answer.content.splitlines()[0].endswith("; loaded for similar requests)")
        # Another request is ranked as before.
        assert [hit.learned for hit in house.search("weather in Tokyo")] == [0.0] * len(
            house.search("weather in Tokyo")
        )
    with house_at(tmp_path) as house:
        assert names(house)[:2] == ["beta", "alpha"]
        assert house.services.learned.forget("local") == 3
        assert names(house)[:2] == ["alpha", "beta"]
        assert house.services.learned.forget("local") == 0


def test_nothing_is_learned_unless_it_is_on(tmp_path: Path) -> None:
    with house_at(tmp_path, learn=False) as house:
        choose(house, "beta")
        assert house.services.learned.choices("local") == ()
        assert names(house)[:2] == ["alpha", "beta"]
    with house_at(tmp_path) as house:
        choose(house, "beta")
    with house_at(tmp_path, learn=False) as house:
        assert names(house)[:2] == ["alpha", "beta"]


def test_only_a_load_after_a_search_in_the_same_conversation_counts(tmp_path: Path) -> None:
    with house_at(tmp_path) as house:
        for number in range(5):
            house.call_sync("skill", {"name": "beta"}, session_id=f"load {number}")
            house.call_sync("search_skills", {"query": REQUEST}, session_id=f"search {number}")
            house.call_sync("search_skills", {"query": "weather"}, session_id=f"other {number}")
            house.call_sync("skill", {"name": "beta"}, session_id=f"other {number}")
        assert house.services.learned.choices("local") == ()


def test_each_user_has_choices_of_their_own(tmp_path: Path) -> None:
    with house_at(tmp_path) as house:
        for number in range(3):
            who = Caller(user="mia", session_id=str(number))
            house.call_sync("search_skills", {"query": REQUEST}, caller=who)
            house.call_sync("skill", {"name": "beta"}, caller=who)
        assert names(house)[:2] == ["alpha", "beta"]
        mine = house.call_sync("search_skills", {"query": REQUEST}, user="mia").content
        assert mine.startswith("beta: ")


def test_choices_decay_and_are_bounded(tmp_path: Path) -> None:
    clock = Clock()
    learned = LearnedChoices(tmp_path, clock=clock)
    for _ in range(9):
        learned.note("local", REQUEST, "/beta")
    assert len(learned.choices("local")) == CHOICES_A_DAY
    fresh = learned.shares("local", REQUEST, ["/beta"])["/beta"]
    clock.now += 20 * DAY
    assert 0.0 < learned.shares("local", REQUEST, ["/beta"])["/beta"] < fresh
    clock.now += 365 * DAY
    assert learned.shares("local", REQUEST, ["/beta"]) == {}
    for number in range(CHOICES_MAX + 5):
        learned.note("local", REQUEST, f"/many-{number}")
    kept = learned.choices("local")
    assert (len(kept), kept[0].file) == (CHOICES_MAX, f"/many-{CHOICES_MAX + 4}")


def test_what_may_be_a_secret_is_not_kept(tmp_path: Path) -> None:
    learned = LearnedChoices(tmp_path, clock=Clock())
    learned.note("local", "deploy with ghp_16C7e42F292c6912E7710c838347Ae178B4a", "/a")
    learned.note("local", "1234 5678", "/b")
    assert [choice.words for choice in learned.choices("local")] == [("deploi", "ghp")]


@pytest.mark.file_state
def test_a_state_that_cannot_be_read_or_written_costs_the_order_alone(tmp_path: Path) -> None:
    learned = LearnedChoices(tmp_path / "state", clock=Clock())
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state/state.sqlite3").write_bytes(b"no database" * 100)
    learned.note("local", REQUEST, "/a")
    assert learned.shares("local", REQUEST, ["/beta"]) == {}


FILES = ("/a", "/b", "/c")


@given(
    st.lists(st.tuples(st.sampled_from(FILES), st.sets(st.sampled_from("uvwxyz")))),
    st.lists(st.floats(0.0, 100.0), min_size=3, max_size=3),
)
def test_a_lift_keeps_the_hits_and_is_bounded(
    chosen: list[tuple[str, set[str]]], scores: list[float]
) -> None:
    choices = [
        LearnedChoice(file=file, words=tuple(sorted(words)), at_ms=0) for file, words in chosen
    ]
    found = shares(choices, ["u", "v"], now_ms=0.0)
    assert all(0.0 < share < 1.0 for share in found.values())
    assert sum(found.values()) < 1.0
    hits = [Hit(id=file, name=file, score=score) for file, score in zip(FILES, scores, strict=True)]
    after = lifted(hits, [found.get(hit.id, 0.0) for hit in hits])
    before = {hit.id: hit for hit in hits}
    assert sorted(hit.id for hit in after) == list(FILES)
    for hit in after:
        own = before[hit.id]
        assert own.score <= hit.score <= own.score * (1.0 + LIFT_MAX)
        assert structs.replace(hit, score=own.score, learned=0.0) == own
