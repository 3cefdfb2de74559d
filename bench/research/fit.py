"""Fits what search ships, and scores it on folds that the fit did not see: decisions 0305 and 0340.

`./x bench research/fit [--folder FOLDER] [--semantic] [--write]`. It fits the weights of the
features and of translations (ten minutes; `confidence_fit.py` has the confidence); `--semantic` an
adapter, weights of encoders and trees too (an hour), and `--write` writes those that are shipped.
Both need the extra `semantic`, torch and lightgbm where this runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from _measure import markdown_table
from _relevance import Query, load, parsed, quality_rows
from _shipped import CACHE
from research.relevance_fit import Candidates, cross_validated
from retrieval import HEADER, ours
from skillhouse.retrieval import SearchIndex
from skillhouse.retrieval.evidence import FEATURE_WEIGHTS, FEATURES
from skillhouse.retrieval.query import MIX, TranslationWeights

MIXES = [
    TranslationWeights(0.9, 0.1),
    TranslationWeights(0.9, 0.15),
    TranslationWeights(1.0, 0.15),
    TranslationWeights(1.0, 0.25),
]
"""What the fit chooses from."""


def main() -> int:
    """Print the report, or why there is none."""
    parser = argparse.ArgumentParser(description="fits of search, by folds")
    parser.add_argument("--semantic", action="store_true", help="with the encoders too")
    parser.add_argument("--write", action="store_true", help="write the trees that are shipped")
    options = parsed(parser)
    collection = load(options.folder)
    index = SearchIndex.from_documents(collection.documents)
    print(fitted(index, collection.queries), flush=True)
    if options.semantic:
        # It needs numpy, which search by words does not.
        from research.meaning_by_folds import by_meaning  # noqa: PLC0415

        words, _ = ours(index, collection.queries)
        print("\n" + by_meaning(collection, words, options.folder, CACHE, write=options.write))
    return 0


def fitted(index: SearchIndex, queries: Sequence[Query]) -> str:
    """Return the quality under weights and a mix that were fitted on other folds."""
    english = {q.qid: _candidates(index, q, MIX) for q in queries if q.lang == "en"}
    candidates = {
        mix: [english.get(query.qid) or _candidates(index, query, mix) for query in queries]
        for mix in MIXES
    }
    found = cross_validated(queries, candidates, FEATURE_WEIGHTS)
    rows = [
        (name, *(f"{of_fold[at]:.2f}" for of_fold in found.weights), f"{FEATURE_WEIGHTS[at]:.2f}")
        for at, name in enumerate(FEATURES)
    ]
    rows += [
        (name, *(f"{mix[at]:.2f}" for mix in found.mixes), f"{MIX[at]:.2f}")
        for at, name in enumerate(TranslationWeights._fields)
    ]
    folds = range(len(found.weights) - 1)
    header = ("feature", *(f"without fold {fold}" for fold in folds), "on all", "shipped")
    return "\n\n".join(
        (
            "weights and mix fitted without the scored fold",
            markdown_table(HEADER, quality_rows(queries, found.judged)),
            markdown_table(header, rows),
        )
    )


def _candidates(index: SearchIndex, query: Query, mix: TranslationWeights) -> Candidates:
    judged = index.judged(query.text, mix)
    return Candidates([found for found, _ in judged], [each.features for _, each in judged])


if __name__ == "__main__":
    sys.exit(main())
