"""Fits the weights of retrieval's features, and scores each fold with those of the others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from _relevance import CHINESE_TO_CHINESE, FOLDS, Judged, Query, judge
from skillhouse.retrieval.query import TranslationWeights

_STEPS = 80
_RATE = 0.25
_NEGATIVES = 24

Vector = Sequence[float]


class Candidates(NamedTuple):
    """The judged documents of a query, best first."""

    ids: Sequence[str]
    features: Sequence[Vector]


class Fit(NamedTuple):
    weights: Sequence[Vector]
    """Fitted on the English requests of the other folds, for each fold, and last on all."""
    mixes: Sequence[TranslationWeights]
    """Chosen on the Chinese requests of the other folds, for each fold, and last on all."""
    judged: Sequence[Judged]
    """The result of each request under what was fitted without it."""


def cross_validated(
    queries: Sequence[Query],
    candidates: Mapping[TranslationWeights, Sequence[Candidates]],
    start: Vector,
) -> Fit:
    """Fit weights and choose the mix without each fold, and on all.

    Args:
        candidates: The judged documents of each request, by the mix that they were judged with.
    """
    weights: list[Vector] = []
    mixes: list[TranslationWeights] = []
    judged: dict[int, Judged] = {}
    some = next(iter(candidates.values()))
    for fold in (*range(FOLDS), None):
        fitting = [number for number, query in enumerate(queries) if query.fold != fold]
        english = [number for number in fitting if queries[number].lang == "en"]
        weights.append(fit([(queries[n], some[n]) for n in english], start))
        results = {
            mix: [
                _judged(query, each, weights[-1])
                for query, each in zip(queries, of_mix, strict=True)
            ]
            for mix, of_mix in candidates.items()
        }
        mixes.append(max(results, key=lambda mix: _of_chinese(queries, results[mix], fitting)))
        own = results[mixes[-1]]
        judged |= {n: own[n] for n, query in enumerate(queries) if query.fold == fold}
    return Fit(weights, mixes, [judged[number] for number in range(len(queries))])


def _judged(query: Query, candidates: Candidates, weights: Vector) -> Judged:
    ids, features = candidates
    order = sorted(range(len(ids)), key=lambda n: -_dot(weights, features[n]))
    return judge([ids[number] for number in order], query.relevance)


def _of_chinese(
    queries: Sequence[Query], results: Sequence[Judged], numbers: Iterable[int]
) -> float:
    """Return the NDCG of Chinese requests, Chinese and English skills with the same weight."""
    of_group: dict[bool, list[float]] = {True: [], False: []}
    for number in numbers:
        if queries[number].lang == "zh":
            of_group[queries[number].type in CHINESE_TO_CHINESE].append(results[number][2])
    return sum(sum(values) / max(len(values), 1) for values in of_group.values())


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
