"""Judges candidates: how much of a query a row answers, where, and in which words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import add, mul
from typing import NamedTuple

from skillhouse.retrieval.rank import FIELDS, Concept, Found, Places, Ranking
from skillhouse.retrieval.segment import FIELD_BITS, K1, WEIGHTS, stem_hash

FEATURES = (
    "bm25f",
    "description",
    "body",
    "coverage",
    "head_coverage",
    "name_share",
    "phrase",
)
"""What a row is judged by, each a share of the query's weight (about 0 to 1, BM25 to 3)."""
FEATURE_WEIGHTS = (0.92, 0.37, 1.4, 3.47, 2.49, 2.03, 2.12)
"""Fitted on the development set, cross-validated by owner of the skill (decision record 0305)."""
SCALE = 100.0 / sum(
    weight * most
    for weight, most in zip(FEATURE_WEIGHTS, (3.5, 2.5, 3.0, 1.0, 1.0, 1.0, 1.0), strict=True)
)
"""Brings scores to 0 to 100."""
PHRASES = 40
"""Best rows that are searched for pairs of words of the query."""
_K_DESCRIPTION, _K_BODY = 1.5, 2.0
_NAME, _DESCRIPTION, _BODY = FIELD_BITS


class VectorEvidence(NamedTuple):
    """What vectors say of a row."""

    cosines: Mapping[str, float]
    """Of its vectors with the query's, from -1 to 1, by the encoder that votes."""
    of_words: float = 1.0
    """What the words' logit of confidence is multiplied by."""
    added: float = 0.0
    """What is then added to it."""

    @property
    def similarity(self) -> float:
        """The highest cosine."""
        return max(self.cosines.values())


class Evidence(NamedTuple):
    """Why a row fits."""

    row: int
    features: tuple[float, ...]
    """In the order of `FEATURES`."""
    score: float
    """From 0 to about 100."""
    answered: Mapping[int, int]
    """The concepts that the row has, by number, with the packed counts of their stems."""
    concepts: Sequence[Concept]
    """What the row was judged for."""
    fused: VectorEvidence | None = None
    """With the votes of encoders, where there are any."""

    @property
    def words(self) -> float:
        """The weighed sum of the features."""
        weighed: float = sum(map(mul, FEATURE_WEIGHTS, self.features))
        return weighed

    def matched(self, words: Mapping[int, str]) -> dict[str, tuple[str, ...]]:
        """Return the words that the row has of the query, by field; `words` as of `Judge.words`."""
        words_of: dict[str, tuple[str, ...]] = {}
        for field, (shift, most) in zip(FIELDS, FIELD_BITS, strict=True):
            numbers = (n for n, mask in self.answered.items() if mask >> shift & most)
            if texts := tuple(dict.fromkeys(words[number] for number in numbers)):
                words_of[field] = texts
        return words_of


def lessened(evidence: Evidence, factor: float) -> Evidence:
    """Return evidence of which each share counts less."""
    features = tuple(factor * value for value in evidence.features)
    return evidence._replace(features=features, score=score(features))


def score(features: Sequence[float]) -> float:
    """Return the weighed sum of features."""
    weighed: float = sum(map(mul, FEATURE_WEIGHTS, features))
    return SCALE * weighed


_Value = tuple[float, float, float, float, float, int]
"""BM25F, description, body, the shares found at all and in the head, and where (`FIELD_BITS`)."""


class Judge:
    """Judges rows for one query."""

    def __init__(
        self, ranking: Ranking, concepts: Sequence[Concept], found: Mapping[str, Found]
    ) -> None:
        self._ranking = ranking
        self._concepts = concepts
        self._found = found
        self._total = sum(concept.weight for concept in concepts) or 1.0
        self._pairs = _pairs(concepts)

    def evidence(self, rows: Sequence[int]) -> list[Evidence]:
        """Return the evidence of rows, best first, then by number."""
        if not rows:
            return []
        ranking = self._ranking
        places = ranking.places(rows)
        norms = list(map(ranking.norms, rows))
        sums = [[0.0] * 5 for _ in rows]
        in_name = [0.0] * len(rows)
        answered: list[dict[int, int]] = [{} for _ in rows]
        for number, concept in enumerate(self._concepts):
            weight = concept.weight
            for at, value in self._values(concept, places, norms).items():
                whole, description, body, anywhere, head, mask = value
                of_row = sums[at]
                of_row[0] += whole * weight
                of_row[2] += body * weight
                of_row[3] += anywhere * weight
                answered[at][number] = mask
                if mask > _BODY[1]:
                    of_row[1] += description * weight
                    of_row[4] += head * weight
                    if mask >> _NAME[0]:
                        in_name[at] += anywhere
        judged = []
        for at, row in enumerate(rows):
            shares = [value / self._total for value in sums[at]]
            of_name = in_name[at] and min(in_name[at] / max(ranking.name_length(row), 1), 1.0)
            features = (*shares, of_name, 0.0)
            judged.append(Evidence(row, features, score(features), answered[at], self._concepts))
        judged.sort(key=order)
        # A phrase rarely lifts what is far behind.
        first = [self._with_phrase(each) for each in judged[:PHRASES]]
        first.sort(key=order)
        return first + judged[PHRASES:]

    def words(self, evidence: Evidence) -> dict[int, str]:
        """Return what a row has of each concept that it answers, as the query or the row has it."""
        places = self._ranking.places([evidence.row])
        return {
            number: self._word(self._concepts[number], mask, places)
            for number, mask in evidence.answered.items()
        }

    def _word(self, concept: Concept, mask: int, places: Sequence[Places]) -> str:
        if any(alternative.text for alternative in concept.alternatives):
            for alternative in concept.alternatives:
                counts = 0
                for stem in alternative.stems:
                    for _, own in self._ranking.counts(self._found[stem], places):
                        counts |= own
                if counts == mask:
                    found = alternative.text
                    return f"{found} ({concept.text})" if found else concept.text
        return concept.text

    def _values(
        self, concept: Concept, places: Sequence[Places], norms: Sequence[Sequence[float]]
    ) -> Mapping[int, _Value]:
        """Return what the best alternative is worth, by the place of the row."""
        best: dict[int, _Value] = {}
        for alternative in concept.alternatives:
            share = alternative.weight / len(alternative.stems)
            first, *others = alternative.stems
            own = {
                at: _value(counts, norms[at], share)
                for at, counts in self._ranking.counts(self._found[first], places)
            }
            for stem in others:
                for at, counts in self._ranking.counts(self._found[stem], places):
                    value = _value(counts, norms[at], share)
                    own[at] = _sum(own[at], value) if at in own else value
            if best:
                for at, value in own.items():
                    if at not in best or value > best[at]:
                        best[at] = value
            else:
                best = own
        return best

    def _with_phrase(self, evidence: Evidence) -> Evidence:
        if len(evidence.answered) < 2 or not self._pairs:
            return evidence
        head = self._ranking.head(evidence.row)
        weight = sum(weight for pair, weight in self._pairs if pair in head)
        features = (*evidence.features[:-1], weight / self._total)
        return evidence._replace(features=features, score=score(features))


def order(evidence: Evidence) -> tuple[float, int]:
    return -evidence.score, evidence.row


def _value(counts: int, norms: Sequence[float], share: float) -> _Value:
    """Return what one stem of an alternative is worth."""
    if counts <= _BODY[1]:  # Most matches are of the body alone.
        text = counts / norms[2]
        often = share * text * (K1 + 1.0) / (text + K1)
        return often, 0.0, share * text * (_K_BODY + 1.0) / (text + _K_BODY), share, 0.0, counts
    name = (counts >> _NAME[0] & _NAME[1]) / norms[0]
    about = (counts >> _DESCRIPTION[0] & _DESCRIPTION[1]) / norms[1]
    text = (counts >> _BODY[0] & _BODY[1]) / norms[2]
    often = WEIGHTS[0] * name + WEIGHTS[1] * about + WEIGHTS[2] * text
    return (
        share * often * (K1 + 1.0) / (often + K1),
        share * about * (_K_DESCRIPTION + 1.0) / (about + _K_DESCRIPTION),
        share * text * (_K_BODY + 1.0) / (text + _K_BODY),
        share,
        share if name or about else 0.0,
        counts,
    )


def _sum(one: _Value, other: _Value) -> _Value:
    """Return what two stems of an alternative are worth."""
    *values, _ = map(add, one, other)
    return *values, one[5] | other[5]


def _pairs(concepts: Sequence[Concept]) -> list[tuple[bytes, float]]:
    """Return what a head has where two words of a query follow each other, with its weight."""
    stems = [
        concept.alternatives[0].stems[0]
        if concept.text.isascii() and len(concept.alternatives[0].stems) == 1
        else ""
        for concept in concepts
    ]
    return [
        (stem_hash(stems[at]) + stem_hash(stems[at + 1]), min(one.weight, next_one.weight))
        for at, (one, next_one) in enumerate(pairwise(concepts))
        if stems[at] and stems[at + 1]
    ]
