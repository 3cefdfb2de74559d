"""Says how likely a skill fits, from what it answers of a query."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple, Protocol

from skillhouse.retrieval.evidence import Evidence
from skillhouse.retrieval.tokens import is_pair

CONFIDENT = 0.5
"""Below it a hit is a weak match."""
UNFIT = 0.25
"""Below it a hit does not fit: of requests that people wrote for a skill of the library 4 or 5 in
100 have no better one (docs/benchmarks.md, "Nothing fits")."""

WEIGHTS = (1.34, 0.77, 0.78, 1.08, 0.68, 3.01, 0.49, -0.21, 0.79, 0.5, -2.84)
"""Of `clues`, by logistic regression on requests that people wrote, and others, against everyday
ones in libraries of 60 to 9,000 skills (`./x bench research/confidence_fit`, decision record
0403)."""
BY_SIZE = ((0, -0.3), (3, 0.36), (4, 0.08), (5, -0.28), (7, 0.16))
"""Clues by number, and how much their weight grows with each e-fold of skills above a thousand: in
a large library some skill has most words of any request."""


class _Bounds(NamedTuple):
    """The sums of weighed clues between which a match is weak, in a library of so many skills."""

    skills: int
    unfit: tuple[float, float]
    """Without CJK signs in the query, and with nothing else."""
    sure: tuple[float, float]


BOUNDS = (
    _Bounds(60, (1.95, 0.82), (2.68, 1.70)),
    _Bounds(300, (2.46, 1.20), (3.26, 2.06)),
    _Bounds(1_300, (2.55, 1.72), (3.26, 2.52)),
    _Bounds(9_000, (2.89, 2.16), (3.40, 2.67)),
)
"""Where about 4 and 15 of 100 requests that people wrote for a skill of the library have no better
hit."""

BESIDE_VECTORS = (2.36, 0.89, -1.26, 2.19, 0.94, 2.16, 0.42, 0.23, 1.96, 0.53, -1.74)
BIAS_BESIDE_VECTORS = -3.39
"""Of `clues`, where encoders vote: their share was fitted beside these (decision records 0306 and
0340)."""


def clues(evidence: Evidence) -> tuple[float, ...]:
    """Return what decides whether a row fits; the length of a query is no clue.

    `Evidence.features`; the share of the query in CJK signs, that share of the coverage and of the
    coverage in name and description; the share of words that were corrected.
    """
    features, concepts = evidence.features, evidence.concepts
    total = sum(concept.weight for concept in concepts) or 1.0
    signs = sum(concept.weight for concept in concepts if is_pair(concept.text)) / total
    corrected = sum(concept.weight for concept in concepts if concept.is_corrected) / total
    return *features, signs, signs * features[3], signs * features[4], corrected


SIGNS = 7
"""The number of the clue that is the share of CJK signs."""


def confidence(evidence: Evidence, skills: int) -> float:
    """Return the confidence in a row of so many, from 0 to 1; no length of a query counts."""
    found = clues(evidence)
    if evidence.fused is not None:
        value = BIAS_BESIDE_VECTORS + _sum(BESIDE_VECTORS, found)
        return _share(evidence.fused.of_words * value + evidence.fused.added)
    unfit, sure = bounds(skills, found[SIGNS])
    # `UNFIT` at the lower bound and one half at the upper one, whatever the size.
    scale = math.log(1.0 / UNFIT - 1.0) / (sure - unfit)
    return _share(scale * (weighed(found, skills) - sure))


def weighed(found: tuple[float, ...], skills: int) -> float:
    """Return the weighed sum of clues in a library of so many skills."""
    folds = math.log(_within(skills) / 1_000)
    return _sum(WEIGHTS, found) + folds * sum(weight * found[number] for number, weight in BY_SIZE)


def bounds(skills: int, signs: float) -> tuple[float, float]:
    """Return the sums below which a row does not fit, and from which it is no weak match.

    `signs` is the share of CJK signs. Between the sizes that were measured the bounds change with
    the logarithm of the size.
    """
    size = _within(skills)
    below, above = next(
        (pair for pair in pairwise(BOUNDS) if size <= pair[1].skills), (BOUNDS[-2], BOUNDS[-1])
    )
    part = math.log(size / below.skills) / math.log(above.skills / below.skills)

    def between(low: tuple[float, float], high: tuple[float, float]) -> float:
        of_low, of_high = ((1.0 - signs) * one[0] + signs * one[1] for one in (low, high))
        return of_low + part * (of_high - of_low)

    return between(below.unfit, above.unfit), between(below.sure, above.sure)


def _within(skills: int) -> int:
    return min(max(skills, BOUNDS[0].skills), BOUNDS[-1].skills)


def _sum(weights: Iterable[float], found: Iterable[float]) -> float:
    return sum(weight * clue for weight, clue in zip(weights, found, strict=True))


def _share(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-max(-60.0, min(60.0, value))))


class Rated(Protocol):
    """A hit."""

    @property
    def confidence(self) -> float: ...


class Fit(StrEnum):
    """How well the best of some hits fits."""

    GOOD = "good"
    WEAK = "weak"
    NONE = "none"
    """There are hits, and probably none of them fits."""


def fit_of(hits: Iterable[Rated]) -> Fit:
    """Return how well the best hit fits; good where there is none, which says it all."""
    best = max((hit.confidence for hit in hits), default=CONFIDENT)
    return Fit.NONE if best < UNFIT else Fit.WEAK if best < CONFIDENT else Fit.GOOD


def is_weak(hits: Iterable[Rated]) -> bool:
    """Return whether there are hits, and none of them fits well."""
    return fit_of(hits) is not Fit.GOOD
