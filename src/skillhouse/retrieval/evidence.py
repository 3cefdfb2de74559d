"""Judges candidates: how much of a query a row answers, where, and in which words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from skillhouse.retrieval.rank import (
    FIELDS,
    K1,
    WEIGHTS,
    Alternative,
    Concept,
    Found,
    Ranking,
    field_norm,
)
from skillhouse.retrieval.segment import FIELD_BITS, LENGTH_BITS
from skillhouse.retrieval.tokens import STOP_WORDS, words

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
FEATURE_WEIGHTS = (0.89, 0.48, 1.49, 4.45, 2.82, 2.34, 2.32)
"""Fitted on the development set, cross-validated by owner of the skill (decision record 0300)."""
SCALE = 100.0 / sum(
    weight * most
    for weight, most in zip(FEATURE_WEIGHTS, (3.5, 2.5, 3.0, 1.0, 1.0, 1.0, 1.0), strict=True)
)
"""Brings scores to 0 to 100."""
PHRASES = 40
"""Best rows that are searched for pairs of words of the query."""
_K_DESCRIPTION, _K_BODY = 1.5, 2.0
_NAME, _DESCRIPTION, _BODY = FIELD_BITS
_STEM_TAIL = 6
"""Letters by which a word may be longer than its stem."""


class Fused(NamedTuple):
    """What vectors and words together say of a row."""

    score: float
    confidence: float
    cosines: Mapping[str, float]
    """Of its vectors with the query's, from -1 to 1, by the encoder that votes."""

    @property
    def similarity(self) -> float:
        """The highest cosine."""
        return max(self.cosines.values())


class Evidence(NamedTuple):
    """Why a row fits."""

    row: int
    features: tuple[float, ...]
    """In the order of `FEATURES`."""
    answered: Mapping[int, int]
    """The concepts that the row has, by number, with the packed counts of their stems."""
    concepts: Sequence[Concept]
    """What the row was judged for."""
    fused: Fused | None = None
    """With the votes of encoders, where there are any."""

    @property
    def words(self) -> float:
        """The weighed sum of the features."""
        weighed = zip(FEATURE_WEIGHTS, self.features, strict=True)
        return sum(weight * value for weight, value in weighed)

    @property
    def score(self) -> float:
        return SCALE * self.words if self.fused is None else self.fused.score

    def matched(self) -> dict[str, tuple[str, ...]]:
        """Return the words of the query that the row has, by field."""
        words_of: dict[str, tuple[str, ...]] = {}
        for field, (shift, most) in zip(FIELDS, FIELD_BITS, strict=True):
            numbers = (n for n, mask in self.answered.items() if mask >> shift & most)
            if texts := tuple(dict.fromkeys(self.concepts[number].text for number in numbers)):
                words_of[field] = texts
        return words_of


class _Answer(NamedTuple):
    """A stem that a row has."""

    concept: int
    alternative: Alternative
    counts: int


_number = attrgetter("concept")
_alternative = attrgetter("alternative")


class Judge:
    """Judges rows for one query."""

    def __init__(
        self,
        ranking: Ranking,
        concepts: Sequence[Concept],
        found: Mapping[str, Found],
        head: Callable[[int], tuple[str, str]],
    ) -> None:
        """`head` gives name and description of a row."""
        self._ranking = ranking
        self._concepts = concepts
        self._found = found
        self._head = head
        self._total = sum(concept.weight for concept in concepts) or 1.0
        self._pairs = _Pairs(concepts)

    def evidence(self, rows: Sequence[int]) -> list[Evidence]:
        """Return the evidence of rows, best first, then by number."""
        judged = [self._of(row, answers) for row, answers in self._answers(rows)]
        judged.sort(key=order)
        # A phrase rarely lifts what is far behind.
        first = [self._with_phrase(each) for each in judged[:PHRASES]]
        first.sort(key=order)
        return first + judged[PHRASES:]

    def _answers(self, rows: Sequence[int]) -> Iterator[tuple[int, list[_Answer]]]:
        """Yield each row with what it has of each concept."""
        answers: list[list[_Answer]] = [[] for _ in rows]
        for number, concept in enumerate(self._concepts):
            for alternative in concept.alternatives:
                for stem in alternative.stems:
                    for at, counts in self._ranking.counts(self._found[stem], rows):
                        answers[at].append(_Answer(number, alternative, counts))
        return zip(rows, answers, strict=True)

    def _of(self, row: int, answers: Sequence[_Answer]) -> Evidence:
        packed = self._ranking.lengths[row]
        lengths = [packed >> shift & most for shift, most in LENGTH_BITS]
        norms = [
            field_norm(field, length, average)
            for field, (length, average) in enumerate(
                zip(lengths, self._ranking.averages, strict=True)
            )
        ]
        sums = [0.0] * 5
        in_name = 0.0
        matched: dict[int, int] = {}
        for number, of_concept in groupby(answers, key=_number):
            weight = self._concepts[number].weight
            best = max(
                self._value(alternative, list(found), norms)
                for alternative, found in groupby(of_concept, key=_alternative)
            )
            whole, description, body, anywhere, head, mask = best
            sums[0] += whole * weight
            sums[1] += description * weight
            sums[2] += body * weight
            sums[3] += anywhere * weight
            sums[4] += head * weight
            matched[number] = mask
            if mask >> _NAME[0]:
                in_name += anywhere
        shares = [value / self._total for value in sums]
        features = (*shares, min(in_name / max(lengths[0], 1), 1.0), 0.0)
        return Evidence(row, features, matched, self._concepts)

    def _value(
        self, alternative: Alternative, answers: Sequence[_Answer], norms: Sequence[float]
    ) -> tuple[float, float, float, float, float, int]:
        """Return BM25F, description, body, the shares found at all and in the head, and where."""
        whole = description = body = anywhere = head = 0.0
        mask = 0
        for _, _, counts in answers:
            mask |= counts
            name = (counts >> _NAME[0] & _NAME[1]) / norms[0]
            about = (counts >> _DESCRIPTION[0] & _DESCRIPTION[1]) / norms[1]
            text = (counts >> _BODY[0] & _BODY[1]) / norms[2]
            often = WEIGHTS[0] * name + WEIGHTS[1] * about + WEIGHTS[2] * text
            whole += often * (K1 + 1.0) / (often + K1)
            description += about * (_K_DESCRIPTION + 1.0) / (about + _K_DESCRIPTION)
            body += text * (_K_BODY + 1.0) / (text + _K_BODY)
            anywhere += 1.0
            head += 1.0 if name or about else 0.0
        share = alternative.weight / len(alternative.stems)
        return (
            whole * share,
            description * share,
            body * share,
            anywhere * share,
            head * share,
            mask,
        )

    def _with_phrase(self, evidence: Evidence) -> Evidence:
        if len(evidence.answered) < 2:
            return evidence
        phrase = self._pairs.share(*self._head(evidence.row)) / self._total
        return evidence._replace(features=(*evidence.features[:-1], phrase))


def order(evidence: Evidence) -> tuple[float, int]:
    return -evidence.score, evidence.row


class _Pairs:
    """Pairs of words that follow each other in a query, looked for in other texts."""

    def __init__(self, concepts: Sequence[Concept]) -> None:
        self._stems = [
            concept.alternatives[0].stems[0]
            if concept.text.isascii() and len(concept.alternatives[0].stems) == 1
            else ""
            for concept in concepts
        ]
        self._weights = {
            (at, at + 1): min(concepts[at].weight, concepts[at + 1].weight)
            for at in range(len(concepts) - 1)
            if self._stems[at] and self._stems[at + 1]
        }
        self._known: dict[str, tuple[int, ...]] = {}
        self._by_letter: dict[str, list[tuple[int, str]]] = {}
        for at, stem in enumerate(self._stems):
            if stem:
                # The stem of `sky` is `ski`: two letters can be what a word begins with.
                self._by_letter.setdefault(stem[:2], []).append((at, stem))

    def share(self, *texts: str) -> float:
        """Return the summed weight of the pairs that any of `texts` has."""
        if not self._weights:
            return 0.0
        pairs: set[tuple[int, int]] = set()
        for text in texts:
            before: Collection[int] = ()
            for word in words(text.lower()):
                if word in STOP_WORDS:
                    continue
                numbers = self._known.get(word)
                if numbers is None:
                    numbers = self._known[word] = self._numbers(word)
                if before and numbers:
                    pairs.update((a, b) for a in before for b in numbers)
                before = numbers
        return sum(self._weights.get(pair, 0.0) for pair in pairs)

    def _numbers(self, word: str) -> tuple[int, ...]:
        stems = self._by_letter.get(word[:2], ())
        return tuple(at for at, stem in stems if is_form(word, stem))


def is_form(word: str, stem: str) -> bool:
    """Return whether a word probably has this stem; the stem of `happy` is `happi`.

    >>> is_form("merging", "merg"), is_form("happy", "happi"), is_form("pdfreader", "pdf")
    (True, True, False)
    """
    beginning = stem[:-1] if len(stem) >= 4 and stem.endswith("i") else stem
    return word.startswith(beginning) and len(word) - len(stem) <= _STEM_TAIL - (len(stem) < 4) * 3
