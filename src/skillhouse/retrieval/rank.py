"""Ranks the rows of several segments by BM25."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

from skillhouse.retrieval.segment import FIELD_BITS, Segment

FIELDS = ("name", "description", "body")
"""The searched fields of a row, in the order of `FIELD_BITS`."""

WEIGHTS = (10.0, 5.0, 1.0)
"""Weight of a match in each field (reference/retrieval.md, section 4; flat around these)."""

K1 = 1.2
B = 0.75
"""Of BM25, the values of SQLite's FTS5."""
_LEAST_WEIGHT = 1e-6
"""Weight of a word that most rows contain (FTS5)."""


class Part(NamedTuple):
    """A segment, and the rows of its documents."""

    segment: Segment
    rows: Sequence[int]
    """Row of each document; -1 for one that is not searched."""


class Ranked(NamedTuple):
    row: int
    score: float
    fields: tuple[str, ...]


class Ranking:
    """Rows, each a document of a segment; other documents do not count in any score."""

    def __init__(self, parts: Sequence[Part], count: int) -> None:
        self._parts = parts
        self._lengths = [0] * count
        for segment, rows in parts:
            for row, length in zip(rows, segment.lengths, strict=True):
                if row >= 0:
                    self._lengths[row] = length
        # FTS5 gives almost no weight to a word in half of the rows, which among ten skills is
        # often the word that was searched. One more empty row than full ones keeps each weight
        # well above zero, and improves the ranking of large libraries too.
        self._rows = 2 * count + 1
        self._average = sum(self._lengths) / self._rows

    def best(self, stems: Sequence[str], *, limit: int, pinned: Collection[int]) -> list[Ranked]:
        """Return the `pinned` rows, then those with any of `stems`: best first, then by number.

        A pinned row has the best score. DamagedError or OSError: a segment cannot be read.
        """
        of_stems = [self._postings(stem) for stem in stems]
        scores: dict[int, float] = {}
        for postings in of_stems:
            self._add_scores(postings, scores)
        ranked = heapq.nsmallest(limit, scores.items(), key=lambda item: (-item[1], item[0]))
        highest = ranked[0][1] if ranked else 0.0
        chosen = dict.fromkeys(sorted(pinned), highest)
        for row, score in ranked:
            chosen.setdefault(row, score)
        rows = list(chosen)[:limit]
        masks = dict.fromkeys(rows, 0)
        for postings in of_stems:
            for row, counts in postings:
                if row in masks:
                    masks[row] |= counts
        return [Ranked(row, chosen[row], _fields(masks[row])) for row in rows]

    def _postings(self, stem: str) -> list[tuple[int, int]]:
        """Return the rows that contain a stem, with their packed counts."""
        pairs_found: list[tuple[int, int]] = []
        for segment, rows in self._parts:
            postings = segment.postings(stem)
            if postings is not None:
                numbers = map(rows.__getitem__, postings.documents)
                pairs = zip(numbers, postings.counts, strict=True)
                pairs_found += [pair for pair in pairs if pair[0] >= 0]
        return pairs_found

    def _add_scores(self, postings: list[tuple[int, int]], scores: dict[int, float]) -> None:
        count = len(postings)
        weight = math.log((self._rows - count + 0.5) / (count + 0.5)) if count else 0.0
        weight = weight if weight > 0.0 else _LEAST_WEIGHT
        lengths, average = self._lengths, self._average
        frequencies: dict[int, float] = {}
        for row, counts in postings:
            often = frequencies.get(counts)
            if often is None:
                often = frequencies[counts] = _frequency(counts)
            norm = K1 * (1 - B + B * lengths[row] / average)
            scores[row] = scores.get(row, 0.0) + weight * (often * (K1 + 1.0) / (often + norm))


def _frequency(counts: int) -> float:
    return sum(
        weight * (counts >> shift & most)
        for weight, (shift, most) in zip(WEIGHTS, FIELD_BITS, strict=True)
    )


def _fields(mask: int) -> tuple[str, ...]:
    return tuple(
        field
        for field, (shift, most) in zip(FIELDS, FIELD_BITS, strict=True)
        if mask >> shift & most
    )
