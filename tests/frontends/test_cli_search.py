"""Tests of how `skillhouse search` reads a request."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skillhouse.retrieval import QUERY_TERMS_MAX
from tests.frontends.conftest import Run
from tests.house.places import write_skill

SKILLS = {
    "pdf-merge": "Joins documents into one.",
    "table-of-contents": "Writes an outline of a book.",
    "tower-pipes": "Plans pipes for the cooling of water in towers, and draws them.",
    "fans": "Water pumps, cooling rooms; water in halls, cooling by fans.",
    "release-notes": "Writes notes of a release.",
}


@pytest.fixture
def hits(run: Run, place: Path) -> Callable[[str], list[dict[str, Any]]]:
    """Return the hits of a request that is made on the command line."""
    for name, description in SKILLS.items():
        write_skill(place / "home/.agents/skills" / name, description=description)

    def search(query: str) -> list[dict[str, Any]]:
        _, out, _ = run("search", query, "--json")
        found: list[dict[str, Any]] = json.loads(out)["hits"]
        return found

    return search


@pytest.mark.parametrize("query", ["release-notes", "Release Notes", "user:release-notes"])
def test_a_skill_that_the_request_names_comes_first(hits, query):
    first = hits(query)[0]
    assert (first["name"], first["confidence"]) == ("release-notes", 1.0)


@pytest.mark.parametrize("query", ["pdf-me", "tabl", "releas"])
def test_a_skill_whose_name_begins_with_the_request_comes_first(hits, query):
    assert hits(query)[0]["name"].startswith(query)


@pytest.mark.parametrize("query", ['"cooling of water"', "cooling water", "the cooling of water"])
def test_words_that_follow_each_other_find_the_skill_that_has_them_so(hits, query):
    assert hits(query)[0]["name"] == "tower-pipes"


def test_words_beyond_the_most_that_are_searched_find_nothing(hits):
    others = [f"zq{number}zq" for number in range(QUERY_TERMS_MAX)]
    assert hits(" ".join([*others[1:], "outline"]))[0]["name"] == "table-of-contents"
    assert hits(" ".join([*others, "outline"])) == []


@pytest.mark.parametrize(
    "query", ["天气", "Wetter", "météo", "天気", "날씨", "tiempo", "погода", "Wettervorhersage"]
)
def test_the_weather_skill_is_found_in_eight_languages(hits, query):
    assert hits(query)[0]["name"] == "weather"


@pytest.mark.parametrize("query", ["outlne of a bok", "outliine", "coolng pipess"])
def test_misspelt_words_are_read_as_they_were_meant(hits, query):
    names = {"outl": "table-of-contents", "cool": "tower-pipes"}
    assert hits(query)[0]["name"] == names[query[:4]]


def test_a_skill_that_is_found_by_letters_of_its_name_says_so(run: Run, place: Path) -> None:
    write_skill(place / "home/.agents/skills/xlsx", "Works on such files.")
    assert "(part of its name)\n" in run("search", "xls")[1]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("pddf", "`pdf`"), ("qwop pfd", "`pdf`"), ("vse", "`vsce`"), ("qwop zzzz", ""), ("pd", "")],
)
def test_a_short_name_that_is_misspelt_is_asked_about(
    run: Run, place: Path, typed: str, meant: str
) -> None:
    for name in ("pdf", "vsce"):
        write_skill(place / "home/.agents/skills" / name, "Works on such files.")
    code, _, err = run("search", typed)
    said = f"; did you mean {meant}" if meant else ""
    assert (code, err) == (1, f"no skill fits{said}; `skillhouse list` shows all\n")
