"""How a model hears of each skill, in the same words by every verb, on the page and in the API."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from skillhouse.discovery.catalog import LISTED, NOT_LISTED, OVER_MCP, SEARCH_ONLY
from skillhouse.house import Skillhouse, configured
from tests.extensions.server.api.place import API, COOKIE, client_of
from tests.frontends.conftest import Run
from tests.house.places import make_places, write_skill

COUNT = 600
LAST = f"kite-number-{COUNT - 1:04}"
"""Which no list has room for."""
MIDDLE = "kite-number-0200"
"""Which only the list over MCP has no room for."""
FIRST = "kite-number-0000"


@pytest.fixture
def many(place: Path) -> Path:
    """A home with more skills than a list names."""
    for at in range(COUNT):
        write_skill(place / f"home/.claude/skills/kite-number-{at:04}", "Builds kites of paper.")
    # A name that is nothing like the others', for a search.
    write_skill(place / "home/.claude/skills/zebra", "Counts striped animals.")
    return place


WANTED = {
    FIRST: LISTED,
    MIDDLE: SEARCH_ONLY + OVER_MCP,
    LAST: SEARCH_ONLY,
    "zebra": SEARCH_ONLY,
}


def test_every_verb_marks_what_lists_leave_out(many: Path, run: Run) -> None:
    _, out, _ = run("list", "--json")
    listed = {one["name"]: one["listing"] for one in json.loads(out)["skills"]}
    assert {name: listed[name] for name in WANTED} == WANTED
    _, out, _ = run("list")
    lines = {line.split()[0]: line for line in out.split("\n") if line.strip()}
    for name, mark in WANTED.items():
        assert (f"[{mark}]"[:40] in lines[name]) is (mark != LISTED)
    for name, mark in WANTED.items():
        _, out, _ = run("show", name, "--json")
        assert json.loads(out)["listing"] == mark
        _, out, _ = run("show", name)
        assert f"for a model    {mark}\n" in out
    for verb, key in (("search", "hits"), ("rehearse", "hits")):
        _, out, _ = run(verb, "count striped animals", "--json")
        assert json.loads(out)[key][0]["name"] == "zebra"
        assert json.loads(out)[key][0]["listing"] == SEARCH_ONLY
        _, out, _ = run(verb, "count striped animals")
        assert SEARCH_ONLY in out


def test_doctor_says_what_the_list_costs_a_request(many: Path, run: Run) -> None:
    _, out, err = run("doctor")
    said = " ".join(f"{out}{err}".split())
    assert "the list of skills costs each request about 1,9" in said or "about 2,000" in said
    assert f"{SEARCH_ONLY}" in said


@pytest.mark.slow
def test_list_page_and_api_have_the_same_numbers_and_they_add_up(many: Path, run: Run) -> None:
    listed = json.loads(run("list", "--json")[1])
    counts = {key: listed[key] for key in ("listings", "states")}
    assert sum(counts["listings"].values()) == counts["states"]["in-use"] == listed["total"]
    assert set(counts["listings"]) == {"listed", "search-only", "search-only-mcp"}
    texts = [
        f"{counts['listings'][word]:,} {mark}"
        for word, mark in (
            ("listed", LISTED),
            ("search-only", SEARCH_ONLY),
            ("search-only-mcp", SEARCH_ONLY + OVER_MCP),
        )
    ]
    assert f"in use: {listed['total']} ({', '.join(texts)}); not in use: 0" in run("list")[1]
    with Skillhouse(configured(make_places(many)), cache_directory=None) as house:
        client = client_of(house)
        library = client.get(f"{API}/library", params={"limit": 1}).json()
        assert {key: library[key] for key in counts} == counts
        page = client.get("/", headers=COOKIE).text
        for word, count in counts["listings"].items():
            found = client.get(f"{API}/library", params={"limit": 1, "state": word}).json()
            assert found["total"] == count
            assert f'<a href="/?state={word}#skills">{count:,}<' in page


@pytest.mark.slow
def test_page_and_api_mark_the_same(many: Path) -> None:
    with Skillhouse(configured(make_places(many)), cache_directory=None) as house:
        client = client_of(house)
        found = client.get(f"{API}/library", params={"limit": 200, "q": "zebra"}).json()["skills"]
        assert [one["listing"] for one in found] == [SEARCH_ONLY]
        for name, mark in WANTED.items():
            assert client.get(f"{API}/skills/{name}").json()["listing"] == mark
            assert mark in client.get(f"/skills/user:{name}", headers=COOKIE).text
        found = client.get(f"{API}/search", params={"q": "striped animals"}).json()["hits"]
        assert found[0]["listing"] == SEARCH_ONLY
        page = client.get("/rehearse", params={"q": "striped animals"}, headers=COOKIE).text
        assert f'<span class="note">{SEARCH_ONLY}</span>' in page
        page = client.get("/?q=zebra", headers=COOKIE).text
        assert re.search(rf'class="c-listing"[^>]*>{SEARCH_ONLY}</td>', page)


@pytest.mark.parametrize(
    ("profile", "mark"),
    [("openseed", SEARCH_ONLY), ("owliabot-js", NOT_LISTED), ("opencode", LISTED)],
)
def test_a_profile_that_lists_nothing_or_all_says_so(
    tmp_path: Path, profile: str, mark: str
) -> None:
    write_skill(tmp_path / "given/pdf")
    places = configured(make_places(tmp_path))
    with Skillhouse(places, profile=profile, roots=[tmp_path / "given"]) as house:
        view = house.view()
        [skill] = [one for one in view.visible.skills if one.name == "pdf"]
        assert view.mark(skill) == mark


def test_the_words_for_people_are_those_of_the_marks() -> None:
    assert {LISTED, SEARCH_ONLY, NOT_LISTED} == {"listed", "found by search only", "not listed"}
