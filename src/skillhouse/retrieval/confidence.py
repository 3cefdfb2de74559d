"""Says how likely a skill fits, from what it answers of a query."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Protocol

from skillhouse.retrieval.evidence import Evidence
from skillhouse.retrieval.tokens import is_pair

CONFIDENT = 0.5
"""Below it a hit is a weak match. Of the answerable requests of the development set 5 in 100 have
no better one; most of those are cut out of a skill's text, and of requests that people write it is
more (docs/benchmarks.md, "Search")."""
WEIGHTS = (2.36, 0.89, -1.26, 2.19, 0.94, 2.16, 0.42, 0.23, 1.96, 0.53, -1.74)
"""Of `clues`, by logistic regression on the development set against everyday requests
(bench/data/everyday.tsv, `./x bench research/fit`; decision record 0306)."""
BIAS = -3.39
"""With the weight of CJK signs, moves the threshold of that regression to one half in English and
in Chinese."""


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


def confidence(evidence: Evidence) -> float:
    """Return the confidence in a row, from 0 to 1; no length of a query counts."""
    value = words_logit(evidence)
    if evidence.fused is not None:
        value = evidence.fused.of_words * value + evidence.fused.added
    return 1.0 / (1.0 + math.exp(-max(-60.0, min(60.0, value))))


def words_logit(evidence: Evidence) -> float:
    """Return what the words of a row say of it, before it is a confidence."""
    return BIAS + sum(weight * clue for weight, clue in zip(WEIGHTS, clues(evidence), strict=True))


class Rated(Protocol):
    """A hit."""

    @property
    def confidence(self) -> float: ...


def is_weak(hits: Iterable[Rated]) -> bool:
    """Return whether there are hits, and none of them fits well."""
    best = max((hit.confidence for hit in hits), default=CONFIDENT)
    return best < CONFIDENT
