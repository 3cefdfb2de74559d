"""Measures search by meaning beside search by words, with weights fitted on other folds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from operator import mul
from pathlib import Path

from _measure import markdown_table
from _relevance import (
    DEPTH,
    FOLDS,
    MEASURES,
    Collection,
    Judged,
    Query,
    interval,
    judge,
    quality_rows,
)
from _relevance_fit import Candidates, fit
from _robustness import nothing_fits
from _shipped import Kept
from _trees import trees_without_the_fold
from skillhouse.retrieval import SearchIndex, encoders_of

_HEADER = ("requests", "number", *MEASURES)
_HOUR = 3_600.0


def by_meaning(collection: Collection, words: Sequence[Judged], cache: Path, *, write: bool) -> str:
    """Return the report; `words` are the results of search by words.

    `write` also writes the trees that are shipped.
    """
    encoders = encoders_of("auto")
    if encoders is None:
        return "search by meaning: skipped, the extra `semantic` is not installed"
    start = time.perf_counter()
    index = SearchIndex.from_documents(collection.documents, encoders=Kept(encoders, cache))
    assert index.meanings is not None
    index.meanings.wait(_HOUR)
    state = index.meaning_state
    assert state is not None
    made = f"{'+'.join(state.ready)}: ready after {time.perf_counter() - start:.1f} s wall"
    judged: list[Judged] = []
    spent: list[float] = []
    for query in collection.queries:
        before = time.process_time()
        hits = index.search(query.text, limit=DEPTH)
        spent.append(1_000 * (time.process_time() - before))
        judged.append(judge([hit.id for hit in hits], query.relevance))
    spent.sort()
    p50, p99 = (spent[int(len(spent) * share)] for share in (0.5, 0.99))
    return "\n\n".join(
        (
            f"with encoders, shipped weights ({made}; a query CPU p50 {p50:.1f}, p99 {p99:.1f} ms)",
            markdown_table(_HEADER, quality_rows(collection.queries, judged)),
            _fitted(index, collection.queries, words),
            _ordered_by_trees(index, collection.queries, words, write=write),
            nothing_fits(index, collection.queries),
        )
    )


def _fitted(index: SearchIndex, queries: Sequence[Query], words: Sequence[Judged]) -> str:
    """Return the quality under encoders' weights that were fitted on other folds, by language."""
    parts = []
    for lang in ("en", "zh"):
        asked = [query for query in queries if query.lang == lang]
        candidates, names = _candidates(index, asked)
        pairs = list(zip(asked, candidates, strict=True))
        weights = [
            fit([pair for pair in pairs if pair[0].fold != fold], [1.0] * len(names))
            for fold in range(FOLDS)
        ]
        results = [_result(query, found, weights[query.fold]) for query, found in pairs]
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
    index: SearchIndex, queries: Sequence[Query], words: Sequence[Judged], *, write: bool
) -> str:
    english = [query for query in queries if query.lang == "en"]
    results = trees_without_the_fold(index, english, write=write)
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
    index: SearchIndex, queries: Sequence[Query]
) -> tuple[list[Candidates], Sequence[str]]:
    """Return the words' sum and the cosines of each candidate, and what they are."""
    found = [index.judged(query.text) for query in queries]
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
