"""Fits the weights of retrieval's features, and scores each fold with those of the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from _relevance import FOLDS, Judged, Query, judge

_STEPS = 80
_RATE = 0.25
_NEGATIVES = 24

Vector = Sequence[float]


class Candidates(NamedTuple):
    """The judged documents of a query, best first."""

    ids: Sequence[str]
    features: Sequence[Vector]


def cross_validated(
    queries: Sequence[Query], candidates: Sequence[Candidates], start: Vector
) -> tuple[list[Judged], list[Vector]]:
    """Return each query's result under weights fitted on other folds, and those weights."""
    weights: list[Vector] = []
    for fold in range(FOLDS):
        fitting = [number for number, query in enumerate(queries) if query.fold != fold]
        weights.append(fit([(queries[n], candidates[n]) for n in fitting], start))
    results = []
    for query, (ids, features) in zip(queries, candidates, strict=True):
        of_fold = weights[query.fold]
        order = sorted(range(len(ids)), key=lambda n: -_dot(of_fold, features[n]))
        results.append(judge([ids[number] for number in order], query.relevance))
    return results, weights


def fit(examples: Sequence[tuple[Query, Candidates]], start: Vector) -> list[float]:
    """Return the weights under which relevant candidates get most of a softmax, by Adam."""
    lists = [_list(query, candidates) for query, candidates in examples]
    kept = [(wanted, features) for wanted, features in lists if any(wanted)]
    weights = list(start)
    mean, square = [0.0] * len(weights), [0.0] * len(weights)
    for step in range(1, _STEPS + 1):
        slope = [1e-3 * weight for weight in weights]
        for wanted, features in kept:
            scores = [_dot(weights, vector) for vector in features]
            highest = max(scores)
            powers = [math.exp(score - highest) for score in scores]
            total = sum(powers)
            for power, want, vector in zip(powers, wanted, features, strict=True):
                error = (power / total - want) / len(kept)
                for at, value in enumerate(vector):
                    slope[at] += error * value
        for at, value in enumerate(slope):
            mean[at] = 0.9 * mean[at] + 0.1 * value
            square[at] = 0.99 * square[at] + 0.01 * value * value
            change = mean[at] / (1 - 0.9**step)
            weights[at] -= _RATE * change / (math.sqrt(square[at] / (1 - 0.99**step)) + 1e-8)
    return weights


def _list(query: Query, candidates: Candidates) -> tuple[list[float], list[Vector]]:
    """Return the share of each candidate that is wanted, and its features."""
    gains = [2.0 ** query.relevance.get(document, 0) - 1 for document in candidates.ids]
    chosen = [n for n, gain in enumerate(gains) if gain or n < _NEGATIVES]
    total = sum(gains) or 1.0
    return [gains[n] / total for n in chosen], [candidates.features[n] for n in chosen]


def _dot(weights: Vector, values: Vector) -> float:
    return sum(weight * value for weight, value in zip(weights, values, strict=True))
