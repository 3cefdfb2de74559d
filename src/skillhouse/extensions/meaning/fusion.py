"""Weighs what vectors say beside what words say; plain numbers, without numpy."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import chain
from typing import NamedTuple

from skillhouse.retrieval.evidence import SCALE, Evidence, VectorEvidence

WEIGHTS: Mapping[tuple[str, ...], Mapping[str, float]] = {
    ("use",): {"use": 6.0},
    ("granite",): {"granite": 10.0},
    ("granite", "use"): {"granite": 10.0, "use": 3.0},
}
"""Weight of each encoder's cosine beside the sum of the words' features, by who votes; for English,
and for the other languages, which `use` alone reads (decision record 0320)."""
_OURS = frozenset(chain.from_iterable(WEIGHTS))
OWN_WEIGHT = 6.0
"""Weight of an encoder that is none of ours."""


class ConfidenceWeights(NamedTuple):
    """How the logit of a confidence is made, where some encoders vote."""

    of_words: float
    """Weight of the words' own logit."""
    of_cosines: Mapping[str, float]
    bias: float
    """Moves the threshold to one half."""


CONFIDENCE: Mapping[tuple[str, ...], ConfidenceWeights] = {
    ("use",): ConfidenceWeights(1.01, {"use": 13.0}, -3.62),
    ("granite",): ConfidenceWeights(0.89, {"granite": 13.4}, -5.18),
    ("granite", "use"): ConfidenceWeights(0.8, {"granite": 7.0, "use": 10.6}, -5.67),
}
"""By logistic regression, by which of our encoders vote (decision records 0335 and 0340)."""


def fused(evidence: Evidence, cosines: Mapping[str, float]) -> Evidence:
    """Return evidence with the cosines of the encoders that vote; none changes nothing."""
    if not cosines:
        return evidence
    weights, total, sure = _weights_of(tuple(cosines))
    near = sum(weights[name] * cosine for name, cosine in cosines.items() if cosine > 0.0)
    # As without encoders, 100 is about the best that there is.
    score = 100.0 * (evidence.words + near) / total
    found = VectorEvidence(cosines)
    if sure is not None:
        added = sum(weight * cosines[name] for name, weight in sure.of_cosines.items())
        # Only hits that are shown need their confidence: it costs more than all of this.
        found = VectorEvidence(cosines, sure.of_words, added + sure.bias)
    return evidence._replace(score=score, fused=found)


@cache
def _weights_of(
    names: tuple[str, ...],
) -> tuple[Mapping[str, float], float, ConfidenceWeights | None]:
    """Return the weights of encoders that vote, the best score of all, and those of confidence."""
    of_voters = WEIGHTS.get(tuple(sorted(names)), {})
    weights = {name: of_voters.get(name, OWN_WEIGHT) for name in names}
    sure = CONFIDENCE.get(tuple(sorted(_OURS.intersection(names))))
    return weights, 100.0 / SCALE + sum(weights.values()), sure
