"""Finds the rows of several segments that may fit a query, by BM25F over postings."""

from __future__ import annotations

import heapq
import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import or_
from typing import NamedTuple

from skillhouse.retrieval.segment import FIELD_BITS, LENGTH_BITS, Postings, Segment

FIELDS = ("name", "description", "body")
"""The searched fields of a row, in the order of `FIELD_BITS`."""

WEIGHTS = (6.0, 4.0, 1.0)
"""Weight of a match in each field."""
B = (0.3, 0.5, 0.6)
"""How much a field's length beyond the average lessens a match in it."""
K1 = 2.5
"""How fast repeated matches level off. All three: decision record 0300."""
_LEAST_WEIGHT = 1e-6
"""Weight of a word that most rows contain (FTS5)."""

POSTINGS_MAX = 10_000
"""Postings that a query adds up, rare words first; the other words only order the candidates. More
gain nothing on the development set."""
_NAME_BITS, _DESCRIPTION_BITS, _BODY_BITS = 3, 4, 4
_STEP = math.log(1.35)


class Alternative(NamedTuple):
    """Stems that together can answer a concept."""

    stems: tuple[str, ...]
    weight: float = 1.0


class Concept(NamedTuple):
    """One thing that a query asks for, and the words of skills that can answer it."""

    text: str
    """As the query has it."""
    alternatives: tuple[Alternative, ...]
    weight: float
    """By how rare its words are; of all alternatives alike, so that skills in two languages
    compete."""


class Part(NamedTuple):
    """A segment, and the rows of its documents."""

    segment: Segment
    rows: Sequence[int]
    """Row of each document; -1 for one that is not searched."""


class Found(NamedTuple):
    """The postings of a stem."""

    parts: Sequence[tuple[int, Postings]]
    """By the number of the part."""
    row_count: int
    """Visible rows with the stem."""
    idf: float


class Ranking:
    """Rows, each a document of a segment; other documents do not count in any score."""

    def __init__(self, parts: Sequence[Part], count: int) -> None:
        self._parts = parts
        self.lengths = array("I", bytes(4 * count))
        """Packed lengths of the fields of each row (`LENGTH_BITS`)."""
        self._places = array("Q", bytes(8 * count))
        for number, (segment, rows) in enumerate(parts):
            for document, (row, length) in enumerate(zip(rows, segment.lengths, strict=True)):
                if row >= 0:
                    self.lengths[row] = length
                    self._places[row] = number << 32 | document
        self.count = count
        # FTS5 gives almost no weight to a word in half of the rows, which among ten skills is
        # often the word that was searched. One more empty row than full ones keeps each weight
        # well above zero, and improves the ranking of large libraries too.
        self._rows = 2 * count + 1
        sums = [0, 0, 0]
        for length in self.lengths:
            for field, (shift, most) in enumerate(LENGTH_BITS):
                sums[field] += length >> shift & most
        self.averages = tuple(max(total / max(count, 1), 1.0) for total in sums)
        # Lengths in classes of a third: a match is computed once for each class and count.
        self._classes = [
            array("I", (_length_class(length) for length in segment.lengths))
            for segment, _ in parts
        ]
        self._has_hidden = [-1 in rows for _, rows in parts]
        self._matches = _Matches(self.averages)

    def idf(self, count: int) -> float:
        """Return the weight of a word that `count` rows contain."""
        return max(math.log((self._rows - count + 0.5) / (count + 0.5)), _LEAST_WEIGHT)

    def found(self, stem: str) -> Found:
        """Return the postings of a stem. DamagedError or OSError: a segment cannot be read."""
        parts: list[tuple[int, Postings]] = []
        count = 0
        for number, (segment, rows) in enumerate(self._parts):
            postings = segment.postings(stem)
            if postings is not None:
                parts.append((number, postings))
                count += len(postings.documents)
                if self._has_hidden[number]:
                    count -= list(map(rows.__getitem__, postings.documents)).count(-1)
        return Found(parts, count, self.idf(count))

    def alike(self, word: str) -> list[tuple[str, str]]:
        """Return words that look like one, with their stems, hidden documents' included."""
        alike = (segment.alike(word) for segment, _ in self._parts)
        return list(dict.fromkeys(other for others in alike for other in others))

    def candidates(
        self, concepts: Iterable[Concept], found: Mapping[str, Found], *, limit: int
    ) -> list[int]:
        """Return about `limit` rows that answer concepts best, then by number.

        Args:
            found: The postings of each stem of the concepts.
        """
        scores = array("d", bytes(8 * (self.count + 1)))
        touched: set[int] = set()
        left = POSTINGS_MAX
        rare_first = sorted(concepts, key=lambda concept: _postings_of(concept, found))
        for concept in rare_first:
            if left <= 0 and len(touched) >= limit:
                limit *= 2
                break
            left -= _postings_of(concept, found)
            self._add(concept, found, scores, touched)
        touched.discard(-1)
        rows = list(touched)
        if len(rows) > limit:
            least = heapq.nlargest(limit, map(scores.__getitem__, rows))[-1]
            rows = [row for row in rows if scores[row] >= least]
        rows.sort(key=lambda row: (-scores[row], row))
        return rows[:limit]

    def counts(self, found: Found, rows: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield the places in `rows` of those that have a stem, with their packed counts."""
        places = self._places
        for part, (documents, counts) in found.parts:
            base, end = part << 32, len(documents)
            for at, row in enumerate(rows):
                document = places[row] - base
                if 0 <= document <= 0xFFFFFFFF:
                    number = bisect_left(documents, document)
                    if number < end and documents[number] == document:
                        yield at, counts[number]

    def _add(
        self,
        concept: Concept,
        found: Mapping[str, Found],
        scores: array[float],
        touched: set[int],
    ) -> None:
        """Add the best alternative of a concept to the scores of its rows."""
        [first, *others] = concept.alternatives
        if not others and len(first.stems) == 1:
            [stem] = first.stems
            for rows, values in self._values(found[stem]):
                weight = concept.weight * first.weight
                touched.update(rows)
                for row, value in zip(rows, values, strict=True):
                    scores[row] += weight * value
            return
        best: dict[int, float] = {}
        for stems, share in concept.alternatives:
            own: dict[int, float] = {}
            for stem in stems:
                weight = concept.weight * share / len(stems)
                for rows, values in self._values(found[stem]):
                    for row, value in zip(rows, values, strict=True):
                        own[row] = own.get(row, 0.0) + weight * value
            for row, score in own.items():
                if score > best.get(row, 0.0):
                    best[row] = score
        touched.update(best)
        for row, score in best.items():
            scores[row] += score

    def _values(self, found: Found) -> Iterator[tuple[list[int], Iterable[float]]]:
        """Yield the rows with a stem and the value of each match.

        Hidden documents gather in row -1, the last place of an array with one more than all rows.
        """
        match = self._matches.__getitem__
        for number, (documents, counts) in found.parts:
            classes = map(self._classes[number].__getitem__, documents)
            rows = list(map(self._parts[number].rows.__getitem__, documents))
            yield rows, map(match, map(or_, classes, counts))


def field_norm(field: int, length: float, average: float) -> float:
    """Return by what the matches of a field are divided."""
    return 1.0 - B[field] + B[field] * length / average


class _Matches(dict[int, float]):
    """The value of a match by its counts and the class of the lengths, computed when needed."""

    def __init__(self, averages: Sequence[float]) -> None:
        super().__init__()
        self._averages = averages

    def __missing__(self, key: int) -> float:
        often = 0.0
        lengths = _class_lengths(key >> 16)
        for field, (shift, most) in enumerate(FIELD_BITS):
            if count := key >> shift & most:
                norm = field_norm(field, lengths[field], self._averages[field])
                often += WEIGHTS[field] * count / norm
        value = self[key] = often * (K1 + 1.0) / (often + K1)
        return value


def _length_class(packed: int) -> int:
    """Return the classes of three lengths, above the sixteen bits of counts."""
    name, description, body = (packed >> shift & most for shift, most in LENGTH_BITS)
    of_name = min(name, (1 << _NAME_BITS) - 1)
    of_description = _step(description / 8, _DESCRIPTION_BITS)
    of_body = _step(body / 16, _BODY_BITS)
    classes = (of_name << _DESCRIPTION_BITS | of_description) << _BODY_BITS | of_body
    return classes << 16


def _step(ratio: float, bits: int) -> int:
    return min(int(math.log(ratio) / _STEP + 1.0), (1 << bits) - 1) if ratio >= 1.0 else 0


def _class_lengths(classes: int) -> tuple[float, float, float]:
    """Return lengths in the middle of their classes."""
    body = classes & (1 << _BODY_BITS) - 1
    description = classes >> _BODY_BITS & (1 << _DESCRIPTION_BITS) - 1
    middle = math.exp(-_STEP / 2)
    return (
        float(classes >> _BODY_BITS + _DESCRIPTION_BITS),
        8 * math.exp(_STEP * description) * middle,
        16 * math.exp(_STEP * body) * middle,
    )


def _postings_of(concept: Concept, found: Mapping[str, Found]) -> int:
    return sum(found[stem].row_count for stems, _ in concept.alternatives for stem in stems)
