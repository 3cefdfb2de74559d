"""Weighs what vectors say beside what words say; plain numbers, without numpy."""

from __future__ import annotations

from collections.abc import Mapping

from skillhouse.retrieval.evidence import SCALE, Evidence, Fused

WEIGHTS: Mapping[tuple[str, ...], Mapping[str, float]] = {
    ("use",): {"use": 6.0},
    ("granite",): {"granite": 10.0},
    ("granite", "use"): {"granite": 10.0, "use": 3.0},
}
"""Weight of each encoder's cosine beside the sum of the words' features, by who votes; for English,
and for the other languages, which `use` alone reads (decision record 0320)."""
OWN_WEIGHT = 6.0
"""Weight of an encoder that is none of ours."""
CONFIDENCE: Mapping[str, tuple[float, float, float]] = {
    "use": (1.01, 13.0, -3.62),
    "granite": (0.89, 13.4, -5.18),
}
"""Of the words' own logit, of the cosine, and what moves the threshold to one half: by logistic
regression (decision records 0327, 0335 and 0340). Where both vote, `use` alone counts."""


def fused(evidence: Evidence, cosines: Mapping[str, float]) -> Evidence:
    """Return evidence with the cosines of the encoders that vote; none changes nothing."""
    if not cosines:
        return evidence
    of_voters = WEIGHTS.get(tuple(sorted(cosines)), {})
    weights = {name: of_voters.get(name, OWN_WEIGHT) for name in cosines}
    near = sum(weights[name] * max(cosine, 0.0) for name, cosine in cosines.items())
    # As without encoders, 100 is about the best that there is.
    score = 100.0 * (evidence.words + near) / (100.0 / SCALE + sum(weights.values()))
    found = Fused(cosines)
    for name, (of_words, of_cosine, bias) in CONFIDENCE.items():
        if name in cosines:
            # Only hits that are shown need their confidence: it costs more than all of this.
            found = Fused(cosines, of_words, of_cosine * cosines[name] + bias)
            break
    return evidence._replace(score=score, fused=found)
