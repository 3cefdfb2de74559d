"""Fits the confidence of search by words, in libraries of four sizes, by owner of the skill.

`./x bench research/confidence_fit [--folder FOLDER]`, ten minutes. It draws libraries of 60, 300,
1,300 and 9,000 skills from the development set, and prints how many requests are said to fit
nothing, and how many to be weak matches or less: as shipped, and with weights and bounds that were
fitted without the owners that are scored (decision record 0403). It needs numpy.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from _measure import markdown_table
from _relevance import FOLDS, Collection, Query, load, parsed
from _robustness import everyday
from skillhouse.retrieval import CONFIDENT, SearchIndex
from skillhouse.retrieval.confidence import BY_SIZE, SIGNS, UNFIT, WEIGHTS, clues

SIZES = {60: 12, 300: 8, 1_300: 4, 9_000: 1}
"""Skills of a library, and how many libraries are drawn."""
WRITTEN = ("evals", "hand_en", "hand_zh")
"""Requests that people wrote; the others are cut out of a skill's own text."""
_HITS = 5
_OTHERS = 100
"""Requests of each other kind, of one library."""
_UNFIT, _SURE = 0.04, 0.15
"""Shares of written requests below the two bounds."""
_ROUNDS, _RIDGE = 30, 3e-3
_GROWING = tuple(number for number, _ in BY_SIZE)


class Example(NamedTuple):
    group: str
    """`written`, `cut`, `everyday` or `trade`: requests of the trade that no skill here fits."""
    kind: str
    size: int
    fold: int
    """Of the owner of the skill that fits, or of the kind of an everyday request."""
    hits: Sequence[Sequence[float]]
    """The clues of the first hits, without those that a name pins."""
    confidence: float
    """The best of all hits as shipped; 1 where a name is the request."""


def examples(collection: Collection) -> Iterator[Example]:
    documents = {document[0]: document for document in collection.documents}
    written = [query for query in collection.queries if query.type in WRITTEN]
    kinds = sorted({kind for _, kind, _ in everyday()})
    for size, libraries in SIZES.items():
        for number in range(libraries):
            chance = random.Random(1_000 * number + size)
            chosen = _library(documents, written, size, chance)
            index = SearchIndex.from_documents(
                document for key, document in documents.items() if key in chosen
            )

            def example(
                group: str,
                kind: str,
                fold: int,
                text: str,
                index: SearchIndex = index,
                size: int = size,
            ) -> Example:
                hits = [clues(evidence) for _, evidence in index.judged(text)[:_HITS]]
                best = max((hit.confidence for hit in index.search(text)), default=0.0)
                return Example(group, kind, size, fold, hits, best)

            fitting = [q for q in collection.queries if any(d in chosen for d in q.relevance)]
            absent = [q for q in collection.queries if not any(d in chosen for d in q.relevance)]
            cut = [query for query in fitting if query.type not in WRITTEN]
            groups: tuple[tuple[str, Sequence[Query]], ...] = (
                ("written", [query for query in fitting if query.type in WRITTEN]),
                ("cut", chance.sample(cut, min(_OTHERS, len(cut)))),
                ("trade", chance.sample(absent, min(_OTHERS, len(absent)))),
            )
            for group, queries in groups:
                for query in queries:
                    yield example(group, query.type, query.fold, query.text)
            for lang, kind, text in everyday():
                yield example("everyday", lang, kinds.index(kind) % FOLDS, text)


def _library(
    documents: dict[str, Any], written: Sequence[Query], size: int, chance: random.Random
) -> set[str]:
    """Return the ids of a library half of whose skills answer written requests, where there are so
    many."""
    if size >= len(documents):
        return set(documents)
    chosen: set[str] = set()
    for query in chance.sample(written, len(written)):
        best = {key for key, grade in query.relevance.items() if grade == 2}
        if len(chosen | best) <= size // 2:
            chosen |= best
    rest = sorted(documents.keys() - chosen)
    return chosen | set(chance.sample(rest, size - len(chosen)))


def _row(found: Sequence[float], size: int) -> list[float]:
    folds = math.log(size / 1_000)
    return [*found, *(found[number] * folds for number in _GROWING), folds, 1.0]


class Fitted(NamedTuple):
    weights: Sequence[float]
    bounds: dict[int, tuple[float, float, float, float]]
    """By size: of English `unfit` and `sure`, then of Chinese."""

    def fit(self, each: Example) -> tuple[bool, bool]:
        """Return whether a request is said to fit nothing, and to be a weak match at most."""
        best = self.best(each)
        signs = each.hits[0][SIGNS] if each.hits else 0.0
        of = self.bounds[each.size]
        unfit, sure = ((1 - signs) * of[at] + signs * of[at + 2] for at in (0, 1))
        return best < unfit, best < sure

    def best(self, each: Example) -> float:
        if each.confidence == 1.0:
            return math.inf
        sums = (
            sum(w * v for w, v in zip(self.weights, _row(found, each.size), strict=True))
            for found in each.hits
        )
        return max(sums, default=-math.inf)


def fitted(found: Sequence[Example]) -> Fitted:
    """Return weights by logistic regression, and the bounds of each size and language."""
    import numpy as np  # noqa: PLC0415 - search by words does not need it.

    kept = [e for e in found if e.group != "trade" and e.hits and e.confidence != 1.0]
    rows = np.array([_row(e.hits[0], e.size) for e in kept])
    fits = np.array([e.group != "everyday" for e in kept], float)
    shares = np.array(_shares(kept))
    weights = np.zeros(rows.shape[1])
    ridge = _RIDGE * np.eye(len(weights))
    ridge[-1, -1] = 1e-9
    for _ in range(_ROUNDS):
        said = 1 / (1 + np.exp(-np.clip(rows @ weights, -30, 30)))
        slope = rows.T @ (shares * (said - fits)) + ridge @ weights
        curve = (rows * (shares * said * (1 - said))[:, None]).T @ rows + ridge
        weights = weights - np.linalg.solve(curve, slope)
    made = Fitted([float(weight) for weight in weights], {})
    for size in SIZES:
        values: list[float] = []
        for zh in (False, True):
            of = [e for e in found if e.group == "written" and e.size == size]
            best = sorted(made.best(e) for e in of if (e.kind == "hand_zh") is zh)
            values += [best[int(share * len(best))] for share in (_UNFIT, _SURE)]
        made.bounds[size] = (values[0], values[1], values[2], values[3])
    return made


def _shares(kept: Sequence[Example]) -> list[float]:
    """Return the weight of each example: all sizes alike, and fitting ones as much as others."""
    of_kind = {"evals": 0.5, "hand_en": 0.25, "hand_zh": 0.25}

    def key(each: Example) -> tuple[int, str, str]:
        return each.size, each.group, each.kind if each.group != "cut" else ""

    counts: dict[tuple[int, str, str], int] = {}
    for each in kept:
        counts[key(each)] = counts.get(key(each), 0) + 1
    whole = {"written": 1.0, "cut": 0.5, "everyday": 0.75}
    found = [
        whole[e.group] * (of_kind[e.kind] if e.group == "written" else 1.0) / counts[key(e)]
        for e in kept
    ]
    total = sum(found)
    return [share / total for share in found]


def table(found: Sequence[Example], fit: Callable[[Example], tuple[bool, bool]]) -> str:
    """Return the shares that are said to fit nothing, and to be weak or less, by size and kind."""
    judged = [(each, fit(each)) for each in found]
    groups: tuple[tuple[str, Callable[[Example], bool]], ...] = (
        ("written", lambda e: e.group == "written"),
        *((kind, lambda e, kind=kind: e.kind == kind and e.group == "written") for kind in WRITTEN),
        ("cut out of a skill", lambda e: e.group == "cut"),
        ("everyday en", lambda e: e.group == "everyday" and e.kind == "en"),
        ("everyday zh", lambda e: e.group == "everyday" and e.kind == "zh"),
        ("of the trade, not here", lambda e: e.group == "trade"),
    )
    lines = []
    for name, takes in groups:
        line = [name]
        for size in SIZES:
            of = [both for each, both in judged if each.size == size and takes(each)]
            shares = [100 * sum(column) / len(of) for column in zip(*of, strict=True)] if of else []
            line.append(" / ".join(f"{share:.1f}" for share in shares) or "-")
        lines.append(line)
    return markdown_table(("fits nothing / weak or less, %", *(f"{n:,}" for n in SIZES)), lines)


def main() -> int:
    """Print the report, or why there is none."""
    parser = argparse.ArgumentParser(description="fit of the confidence of search, by folds")
    options = parsed(parser)
    found = list(examples(load(options.folder)))
    shipped = table(found, lambda e: (e.confidence < UNFIT, e.confidence < CONFIDENT))
    print(f"as shipped\n\n{shipped}\n", flush=True)
    others = [fitted([each for each in found if each.fold != fold]) for fold in range(FOLDS)]
    print(f"by owner\n\n{table(found, lambda each: others[each.fold].fit(each))}\n", flush=True)
    whole = fitted(found)
    print("fitted on all:", ", ".join(f"{weight:.2f}" for weight in whole.weights))
    print("shipped:", WEIGHTS, BY_SIZE)
    for size, of in whole.bounds.items():
        # As `BOUNDS` has them, without the weights of the size and of one.
        added = whole.weights[-2] * math.log(size / 1_000) + whole.weights[-1]
        print(f"{size:,}:", ", ".join(f"{bound - added:.2f}" for bound in of))
    return 0


if __name__ == "__main__":
    sys.exit(main())
