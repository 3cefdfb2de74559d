"""Tests of extensions/meaning: search by meaning, with an encoder that the tests train."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.extensions.meaning.small_encoder import Floats, Held, SmallEncoder, encoders

from skillhouse.extensions.meaning import EncoderError, Encoders, encoders_of
from skillhouse.floor import MissingExtraError
from skillhouse.retrieval import MeaningState, SearchIndex, is_weak

DOCUMENTS = [
    ("user:car", "car-repair", "Mends a car that broke down on the road", ""),
    ("user:clinic", "clinic", "Finds a doctor for a sick patient", ""),
    ("user:sky", "sky", "Says what weather comes, rain or sun", ""),
    ("user:chinese", "tianqi", "天气预报", ""),
]


def search_index(*made: SmallEncoder) -> SearchIndex:
    index = SearchIndex.from_documents(DOCUMENTS, encoders=encoders(*made))
    assert index.meanings is not None
    assert index.meanings.wait(30)
    return index


@pytest.mark.parametrize(
    ("query", "wanted"),
    [("physician", "user:clinic"), ("forecast", "user:sky")],
)
def test_a_skill_is_found_by_words_that_it_does_not_have(query: str, wanted: str) -> None:
    by_words = SearchIndex.from_documents(DOCUMENTS).search(query)
    assert wanted not in [hit.id for hit in by_words]
    found = {hit.id: hit for hit in search_index(SmallEncoder()).search(query)}
    hit = found[wanted]
    assert (hit.fields, hit.matches) == ((), {})
    assert hit.similarity == max(each.similarity for each in found.values()) > 0.2


def test_words_alone_are_searched_until_an_encoder_is_ready() -> None:
    held = Held()
    index = SearchIndex.from_documents(DOCUMENTS, encoders=encoders(held))
    assert index.meanings is not None
    assert index.search("physician") == []
    assert [hit.id for hit in index.search("car")] == ["user:car"]
    assert index.meaning_state == MeaningState(encoders=("small",), ready=(), done=0, total=4)
    held.go.set()
    assert index.meanings.wait(30)
    assert index.meaning_state == MeaningState(
        encoders=("small",), ready=("small",), done=4, total=4
    )
    assert index.search("physician")[0].id == "user:clinic"


def test_an_encoder_has_no_vote_where_it_cannot_read() -> None:
    index, plain = search_index(SmallEncoder()), SearchIndex.from_documents(DOCUMENTS)
    for query in ("天气", "", "\0", "😀", "qqqq"):
        assert index.search(query) == plain.search(query)


def test_a_skill_that_is_named_stays_first() -> None:
    hits = search_index(SmallEncoder()).search("clinic automobile road car")
    assert hits[0].id == "user:car"
    named = search_index(SmallEncoder()).search("clinic")[0]
    assert (named.id, named.exact, named.confidence) == ("user:clinic", True, 1.0)


def test_what_is_near_to_nothing_is_a_weak_match() -> None:
    index = search_index(SmallEncoder("use"))
    assert is_weak(index.search("the"))
    assert not is_weak(index.search("automobile drives on the road"))


class Broken(SmallEncoder):
    def encode(self, texts: Sequence[str]) -> Floats:
        return np.full((len(texts), self.dimensions), np.nan, np.float32)


def refused() -> SmallEncoder:
    raise EncoderError("other weights")


@pytest.mark.parametrize(
    ("maker", "fault"),
    [
        (lambda: Broken("broken"), "broken: an encoder gave numbers that are not finite"),
        (refused, "broken: other weights"),
    ],
)
def test_an_encoder_that_fails_costs_its_own_votes_alone(maker, fault: str) -> None:
    made = Encoders({"broken": maker, "small": SmallEncoder})
    index = SearchIndex.from_documents(DOCUMENTS, encoders=made)
    assert index.meanings is not None
    assert index.meanings.wait(30)
    state = index.meaning_state
    assert state is not None
    assert (state.ready, state.fault) == (("small",), fault)
    assert index.search("physician")[0].id == "user:clinic"


def test_nothing_is_encoded_after_the_index_is_closed(tmp_path: Path) -> None:
    held = Held()
    made = encoders(held)
    many = [(f"user:{n}", f"car-{n}", f"A car of number {n}", "") for n in range(200)]
    index = SearchIndex.from_documents(many, encoders=made)
    assert index.meanings is not None
    index.close()
    held.go.set()
    assert index.meanings.wait(30)
    assert len(held.encoded) < len(many)


def test_the_base_loads_no_numpy() -> None:
    code = """
import sys
from skillhouse.retrieval import SearchIndex
from skillhouse.extensions.meaning import encoders_of
assert encoders_of("none") is None
SearchIndex.from_documents([("a", "car", "Mends a car", "")]).search("mend")
sys.exit("numpy" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_encoder_that_is_named_and_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert encoders_of("auto") is None
    with pytest.raises(MissingExtraError, match=r"semantic"):
        encoders_of("use")
