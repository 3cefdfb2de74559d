"""Says how likely a skill fits, from what it answers of a query."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Protocol

from skillhouse.retrieval.evidence import Evidence

CONFIDENT = 0.5
"""Below it a hit is a weak match: of requests that some skill fits, 5 in 100 have no better."""
WEIGHTS = (1.36, 1.27, -2.07, 8.84, 3.27, 3.46, 3.06)
"""Of `FEATURES`, by logistic regression on the development set against everyday requests
(bench/data/everyday.tsv; decision record 0302)."""
BIAS = -4.97
"""Moves the threshold of that regression to one half."""


def confidence(evidence: Evidence) -> float:
    """Return the confidence in a row, from 0 to 1; no length of a query counts."""
    if evidence.fused is not None:
        return evidence.fused.confidence
    return confidence_of(logit(evidence))


def logit(evidence: Evidence) -> float:
    """Return what the words of a row say of it, before it is a confidence."""
    return BIAS + sum(
        weight * feature for weight, feature in zip(WEIGHTS, evidence.features, strict=True)
    )


def confidence_of(logit: float) -> float:
    return 1.0 / (1.0 + math.exp(-max(-60.0, min(60.0, logit))))


class Rated(Protocol):
    """A hit."""

    @property
    def confidence(self) -> float: ...


def is_weak(hits: Iterable[Rated]) -> bool:
    """Return whether there are hits, and none of them fits well."""
    best = max((hit.confidence for hit in hits), default=CONFIDENT)
    return best < CONFIDENT
