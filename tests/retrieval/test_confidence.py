"""Tests of retrieval/confidence.py: how well a hit fits, in libraries of any size."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.retrieval import CONFIDENT, Fit, HeadIndex, SearchIndex, fit_of, reason
from skillhouse.retrieval.confidence import BOUNDS, UNFIT, bounds
from skillhouse.skill import SkillIndex
from tests.retrieval.test_index import LIBRARY

DEVELOPMENT = Path(__file__).resolve().parents[3] / "shared/data/retrieval-dev"
EVERYDAY = Path(__file__).resolve().parents[2] / "bench/data/everyday.tsv"
WRITTEN = ("evals", "hand_en", "hand_zh")


class Rated(NamedTuple):
    confidence: float


@pytest.mark.parametrize(
    ("confidences", "fit"),
    [
        ([], Fit.GOOD),
        ([CONFIDENT, 0.0], Fit.GOOD),
        ([0.0, CONFIDENT - 0.01], Fit.WEAK),
        ([UNFIT], Fit.WEAK),
        ([UNFIT - 0.01, 0.0], Fit.NONE),
    ],
)
def test_the_best_hit_says_how_well_it_fits(confidences: Sequence[float], fit: Fit) -> None:
    assert fit_of(map(Rated, confidences)) is fit


@given(skills=st.integers(0, 10**7), signs=st.floats(0, 1))
def test_the_bounds_lie_between_those_of_the_measured_sizes(skills: int, signs: float) -> None:
    unfit, sure = bounds(skills, signs)
    assert unfit < sure
    for value, name in ((unfit, "unfit"), (sure, "sure")):
        known = [bound for each in BOUNDS for bound in getattr(each, name)]
        assert min(known) - 1e-9 <= value <= max(known) + 1e-9


def test_at_a_measured_size_the_bounds_are_its_own() -> None:
    for each in BOUNDS:
        for at, signs in enumerate((0.0, 1.0)):
            assert bounds(each.skills, signs) == pytest.approx((each.unfit[at], each.sure[at]))
    assert bounds(BOUNDS[0].skills - 50, 0.0) == bounds(BOUNDS[0].skills, 0.0)


def test_a_part_of_a_library_is_judged_by_the_size_of_the_whole() -> None:
    index = SearchIndex.from_documents(LIBRARY)
    query = "will the forecast change tomorrow"
    small, large = (index.search(query, of=size)[0].confidence for size in (20, 9_000))
    assert small != large
    assert HeadIndex(SkillIndex()).search("weather") == []


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("wether", "description: weather (wether)"),
        ("天气", "description: weather (天气)"),
        ("spreadshets", "description: spreadsheets (spreadshets)"),
        ("xls", "part of its name"),
        ("forecast", "description: forecast"),
    ],
)
def test_a_reason_names_words_that_are_there(query: str, why: str) -> None:
    index = SearchIndex.from_documents(
        [
            ("user:wx", "wx", "Tells the weather and a forecast", "fuzzy logic"),
            ("user:xlsx", "xlsx", "Works with spreadsheets", ""),
        ]
    )
    assert reason(index.search(query)[0]) == why


def test_words_to_ask_with_weigh_less_where_only_descriptions_are_searched() -> None:
    def share(body: str) -> float:
        """Return the score of the skill for eggs beside that of one that only asks alike."""
        documents = [
            ("user:answers", "answers", "Says how you can", body),
            ("user:kitchen", "kitchen", "Boils eggs", body),
            *((f"user:other-{at}", f"other-{at}", "Does other things", body) for at in range(8)),
        ]
        index = SearchIndex.from_documents(documents)
        score = {hit.name: hit.score for hit in index.search("how can you do eggs")}
        return score["kitchen"] / score["answers"]

    assert share("") > 1.3 * share("text")


def rows(name: str) -> list[dict[str, str]]:
    text = (DEVELOPMENT / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(("size", "of_written", "of_everyday"), [(60, 8, 65), (300, 8, 50)])
def test_few_requests_that_a_skill_fits_are_said_to_fit_none(
    size: int, of_written: float, of_everyday: float
) -> None:
    if not (DEVELOPMENT / "corpus.jsonl").is_file():
        pytest.skip(f"no development set in `{DEVELOPMENT}`")
    documents = {
        r["id"]: (r["id"], r["name"], r["description"], r["body"]) for r in rows("corpus.jsonl")
    }
    fitting: dict[str, set[str]] = {}
    for row in rows("qrels.jsonl"):
        fitting.setdefault(row["qid"], set()).add(row["doc_id"])
    written = [row for row in rows("queries.jsonl") if row["type"] in WRITTEN]
    everyday = [
        line.split("\t")[1]
        for line in EVERYDAY.read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]
    told: dict[str, list[bool]] = {"written": [], "everyday": []}
    chance = random.Random(size)
    for _ in range(5):
        chosen = {
            chance.choice(sorted(fitting[q["qid"]])) for q in chance.sample(written, size // 3)
        }
        rest = sorted(documents.keys() - chosen)
        chosen |= set(chance.sample(rest, size - len(chosen)))
        index = SearchIndex.from_documents(documents[key] for key in sorted(chosen))
        answered = [q["text"] for q in written if fitting[q["qid"]] & chosen]
        for kind, texts in (("written", answered), ("everyday", everyday)):
            told[kind] += [is_told(index, text) for text in texts]
    shares = {kind: 100 * sum(each) / len(each) for kind, each in told.items()}
    assert shares["written"] <= of_written
    assert shares["everyday"] >= of_everyday


def is_told(index: SearchIndex, request: str) -> bool:
    hits = index.search(request)
    return not hits or fit_of(hits) is Fit.NONE
