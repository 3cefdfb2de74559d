"""Finds the rows of several segments that may fit a query, by BM25F over postings."""

from __future__ import annotations

import heapq
import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from operator import add, mul
from typing import NamedTuple

from skillhouse.retrieval.segment import BEST_POSTINGS, LENGTH_BITS, Postings, Segment, field_norm

FIELDS = ("name", "description", "body")
"""The searched fields of a row, in the order of `FIELD_BITS`."""

_LEAST_WEIGHT = 1e-6
"""Weight of a word that most rows contain (FTS5)."""
_BISECT_TIMES = 8
"""A look-up by bisection costs as much as so many steps through a list."""

POSTINGS_MAX = 10_000
"""Postings that a query adds up: of each word its best ones, the more the more it weighs. More gain
nothing on the development set."""
_POSTINGS_LEAST = 64
"""Postings that each word may add up, while any are left."""


class Alternative(NamedTuple):
    """Stems that together can answer a concept."""

    stems: tuple[str, ...]
    weight: float = 1.0
    text: str = ""
    """What skills have, where that is another word than the one in the query."""


class Concept(NamedTuple):
    """One thing that a query asks for, and the words of skills that can answer it."""

    text: str
    """As the query has it."""
    alternatives: tuple[Alternative, ...]
    weight: float
    """By how rare its words are; of all alternatives alike, so that skills in two languages
    compete."""
    is_known: bool = True
    """Whether any row can answer it."""

    @property
    def is_corrected(self) -> bool:
        """Whether another word was meant than the one in the query."""
        return self.alternatives[0].weight != 1.0

    @property
    def is_written(self) -> bool:
        """Whether any row has it, as it is written or translated."""
        return self.is_known and not self.is_corrected


class Part(NamedTuple):
    """A segment, and the rows of its documents."""

    segment: Segment
    rows: Sequence[int]
    """Row of each document; -1 for one that is not searched."""


class Found(NamedTuple):
    """Where the postings of a stem are."""

    parts: Sequence[tuple[int, int]]
    """The numbers of the parts, each with the number of the stem in its segment."""
    row_count: int
    """Visible rows with the stem."""
    idf: float


Places = dict[int, int]
"""The place of each row in a list of rows, by its document in one part."""


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
        sums = [
            sum(length >> shift & most for length in self.lengths) for shift, most in LENGTH_BITS
        ]
        self.has_bodies = sums[2] > 0
        self.averages = tuple(max(total / max(count, 1), 1.0) for total in sums)
        self._hidden = [
            {document: -1 for document, row in enumerate(rows) if row < 0} for _, rows in parts
        ]

    def norms(self, row: int) -> tuple[float, float, float]:
        """Return by what the matches of each field of a row are divided."""
        packed = self.lengths[row]
        (of_name, name), (of_about, about), (of_body, body) = LENGTH_BITS
        averages = self.averages
        return (
            field_norm(0, packed >> of_name & name, averages[0]),
            field_norm(1, packed >> of_about & about, averages[1]),
            field_norm(2, packed >> of_body & body, averages[2]),
        )

    def name_length(self, row: int) -> int:
        """Return the number of stems in the name of a row."""
        shift, most = LENGTH_BITS[0]
        return self.lengths[row] >> shift & most

    def idf(self, count: int) -> float:
        """Return the weight of a word that `count` rows contain."""
        return max(math.log((self._rows - count + 0.5) / (count + 0.5)), _LEAST_WEIGHT)

    def found(self, stem: str) -> Found:
        """Return the place of a stem's postings. DamagedError or OSError: they cannot be read."""
        parts: list[tuple[int, int]] = []
        count = 0
        for part, (segment, _) in enumerate(self._parts):
            number = segment.find(stem)
            if number is not None:
                parts.append((part, number))
                count += segment.count(number)
                if self._hidden[part]:
                    count -= len(_counts(segment.postings(number), self._hidden[part]))
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
        scores: list[dict[int, float]] = [{} for _ in self._parts]
        weights: dict[str, float] = {}
        for concept in concepts:
            for stems, share, _ in concept.alternatives:
                for stem in stems:
                    weight = concept.weight * share / len(stems)
                    weights[stem] = weights.get(stem, 0.0) + weight
        left, weight_left = POSTINGS_MAX, sum(weights.values())
        for stem in sorted(weights, key=weights.__getitem__, reverse=True):
            if left <= 0 and sum(map(len, scores)) >= limit:
                break
            weight = weights[stem]
            most = max(int(left * weight / weight_left), _POSTINGS_LEAST)
            weight_left -= weight
            for part, number in found[stem].parts:
                documents, _, impacts = self._parts[part].segment.best(number)
                if len(documents) >= BEST_POSTINGS:
                    documents = documents[:most]
                left -= len(documents)
                own = scores[part]
                before = map(own.get, documents, repeat(0.0))
                # None of these loops is one of Python; a list that was cut ends them.
                now = map(add, before, map(mul, impacts, repeat(weight)))
                own.update(zip(documents, now, strict=False))
        return self._first(scores, limit)

    def _first(self, scores: Sequence[dict[int, float]], limit: int) -> list[int]:
        """Return `limit` visible rows with the best scores, equal ones by number."""
        for of_part, hidden in zip(scores, self._hidden, strict=True):
            for document in of_part.keys() & hidden.keys():
                del of_part[document]
        values = chain.from_iterable(of_part.values() for of_part in scores)
        least = min(heapq.nlargest(limit, values), default=0.0)
        best = [
            (-score, rows[document])
            for (_, rows), of_part in zip(self._parts, scores, strict=True)
            for document, score in of_part.items()
            if score >= least
        ]
        return [row for _, row in sorted(best)[:limit]]

    def places(self, rows: Sequence[int]) -> list[Places]:
        """Return where the documents of rows are, for `counts`, by part."""
        of_part: list[Places] = [{} for _ in self._parts]
        for at, row in enumerate(rows):
            place = self._places[row]
            of_part[place >> 32][place & 0xFFFFFFFF] = at
        return of_part

    def counts(self, found: Found, places: Sequence[Places]) -> list[tuple[int, int]]:
        """Return the places of rows that have a stem, with their packed counts."""
        lists = [
            _counts(self._parts[part].segment.postings(number), places[part])
            for part, number in found.parts
            if places[part]
        ]
        return lists[0] if len(lists) == 1 else list(chain.from_iterable(lists))

    def head(self, row: int) -> bytes:
        """Return the stems of name and description in order, as `Segment.head`."""
        place = self._places[row]
        return self._parts[place >> 32].segment.head(place & 0xFFFFFFFF)


def _counts(postings: Postings, places: Places) -> list[tuple[int, int]]:
    """Return the places of documents that are in postings, with their packed counts."""
    documents, counts, _ = postings
    if len(documents) < len(places) * _BISECT_TIMES:
        # The loop over few postings is not one of Python.
        return [
            (places[document], counts[bisect_left(documents, document)])
            for document in places.keys() & documents
        ]
    found = []
    last = documents[-1]
    for document, at in places.items():
        if document <= last:
            place = bisect_left(documents, document)
            if documents[place] == document:
                found.append((at, counts[place]))
    return found
