"""Fits the confidence of retrieval, and scores each fold with the weights of the others."""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from _languages import small_library
from _measure import markdown_table
from _relevance import FOLDS, Query
from _robustness import everyday
from skillhouse.retrieval import SearchIndex
from skillhouse.retrieval.confidence import BIAS, WEIGHTS, clues

_ROUNDS = 12
_RIDGE = 3e-3
_REFUSED = 0.05
_SIGNS = 7
"""Which of the clues is the share of CJK signs."""


class Example(NamedTuple):
    group: str
    """Language, whether a skill fits, and whether the library is the small one."""
    fits: bool
    fold: int
    """Of the owner of the skill that fits, or of the kind of an everyday request."""
    clues: Sequence[float]
    """Of the first hit, with 1 at the end; empty without a hit."""


def examples(index: SearchIndex, queries: Sequence[Query]) -> list[Example]:
    """Return the requests that a skill fits, and everyday ones, for both libraries."""
    small, requests = small_library()

    def example(library: SearchIndex, group: str, fold: int, text: str) -> Example:
        judged = library.judged(text)
        values = (*clues(judged[0][1]), 1.0) if judged else ()
        return Example(group, group.endswith("fits"), fold, values)

    found = [example(index, f"{q.lang} fits", q.fold, q.text) for q in queries]
    for _, name, text in requests:
        found.append(example(small, "small fits", zlib.crc32(name.encode()) % FOLDS, text))
    kinds = sorted({kind for _, kind, _ in everyday()})
    for lang, kind, text in everyday():
        fold = kinds.index(kind) % FOLDS
        found.append(example(index, f"{lang} everyday", fold, text))
        found.append(example(small, "small everyday", fold, text))
    return found


def refitted(index: SearchIndex, queries: Sequence[Query]) -> str:
    """Return the share of weak matches by group: without its fold, of all, and as shipped."""
    found = examples(index, queries)
    folds = [fit([each for each in found if each.fold != fold]) for fold in range(FOLDS)]
    whole = fit(found)
    shipped = (*WEIGHTS, BIAS)
    columns = (
        _weak(found, lambda each: folds[each.fold]),
        _weak(found, lambda _: whole),
        _weak(found, lambda _: shipped),
    )
    rows = [(group, *(f"{column[group]:.1f}" for column in columns)) for group in columns[0]]
    header = ("weak matches alone, %", "cross-validated", "fitted on all", "shipped")
    weights = ", ".join(f"{weight:.2f}" for weight in whole)
    return f"{markdown_table(header, rows)}\n\nweights and bias fitted on all: {weights}"


def _weak(
    found: Iterable[Example], weights_for: Callable[[Example], Sequence[float]]
) -> dict[str, float]:
    weak: dict[str, list[bool]] = defaultdict(list)
    for each in found:
        weak[each.group].append(not each.clues or _dot(weights_for(each), each.clues) < 0)
    return {group: 100 * sum(each) / len(each) for group, each in weak.items()}


def fit(found: Sequence[Example]) -> list[float]:
    """Return weights by logistic regression, each group with the same weight, by Newton's method.

    The bias and the weight of CJK signs are then moved so that 5 % of the English and of the
    Chinese requests of the large library that a skill fits are below 0.
    """
    kept = [each for each in found if each.clues]
    sizes: dict[str, int] = defaultdict(int)
    for each in kept:
        sizes[each.group] += 1
    size = len(kept[0].clues)
    weights = [0.0] * size
    for _ in range(_ROUNDS):
        slope = [_RIDGE * weight for weight in weights[:-1]] + [0.0]
        curve = [[_RIDGE * (row == column) for column in range(size)] for row in range(size)]
        for each in kept:
            share = 1 / (1 + math.exp(-_dot(weights, each.clues)))
            own = 1 / (sizes[each.group] * len(sizes))
            error, bend = own * (share - each.fits), own * share * (1 - share)
            for row, value in enumerate(each.clues):
                slope[row] += error * value
                of_row, factor = curve[row], bend * value
                for column, other in enumerate(each.clues):
                    of_row[column] += factor * other
        steps = _solved(curve, slope)
        weights = [weight - step for weight, step in zip(weights, steps, strict=True)]
    for _ in range(20):
        for at, group in ((_SIGNS, "zh fits"), (-1, "en fits")):
            scores = sorted(_dot(weights, each.clues) for each in kept if each.group == group)
            weights[at] -= scores[int(_REFUSED * len(scores))]
    return weights


def _dot(weights: Sequence[float], values: Sequence[float]) -> float:
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


def _solved(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Return the solution of linear equations, by Gauss and Jordan."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for at in range(len(rows)):
        best = max(range(at, len(rows)), key=lambda row: abs(rows[row][at]))
        rows[at], rows[best] = rows[best], rows[at]
        lead = rows[at][at]
        rows[at] = [value / lead for value in rows[at]]
        for number, row in enumerate(rows):
            if number != at and row[at]:
                factor = row[at]
                pairs = zip(row, rows[at], strict=True)
                rows[number] = [value - factor * other for value, other in pairs]
    return [row[-1] for row in rows]
