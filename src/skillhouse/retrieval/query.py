"""Turns a query into concepts: its words, and for misspelt ones the words that were meant."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from skillhouse.retrieval.rank import Alternative, Concept, Found, Ranking
from skillhouse.retrieval.spelling import distance, edits_max, is_correctable
from skillhouse.retrieval.tokens import query_terms, stems_of

CORRECTION_WEIGHT = 0.9
"""Weight of a word that was meant, beside one that was written."""
_SAME_START = 0.3
_FREQUENCY = 0.06
"""What a first letter in common, and each e-fold of frequency, count against one edit
(reference/retrieval-resources.md, section 3)."""


class Request(NamedTuple):
    """A query, ready to be ranked."""

    concepts: Sequence[Concept]
    found: dict[str, Found]
    """The postings of all stems of the concepts."""
    corrected: dict[str, str]
    """Misspelt words of the query, and the stems that were looked for instead."""


def read_query(query: str, ranking: Ranking) -> Request:
    """Return the concepts of a query. DamagedError or OSError: a segment cannot be read."""
    terms = query_terms(query)
    of_term = stems_of(terms)
    found: dict[str, Found] = {}
    concepts: list[Concept] = []
    corrected: dict[str, str] = {}
    for term in terms:
        for stem in of_term[term]:
            if stem in found:
                continue
            found[stem] = ranking.found(stem)
            meant = stem
            if not found[stem].row_count and is_correctable(stem):
                meant = _correction(stem, ranking, found)
            if meant == stem:
                concepts.append(Concept(term, (Alternative((stem,)),)))
            else:
                corrected[term] = meant
                concepts.append(Concept(term, (Alternative((meant,), CORRECTION_WEIGHT),)))
    return Request(concepts, found, corrected)


def _correction(stem: str, ranking: Ranking, found: dict[str, Found]) -> str:
    """Return the stem that was most likely meant, or `stem`."""
    most = edits_max(stem)
    best, least = stem, math.inf
    for other in _near(stem, ranking.alike(stem), most):
        edits = distance(stem, other, most)
        postings = found.get(other) or ranking.found(other)
        # Words of hidden documents are no corrections.
        if not postings.row_count:
            continue
        cost = (
            edits
            - _SAME_START * (other[0] == stem[0])
            - _FREQUENCY * math.log1p(postings.row_count)
        )
        if cost < least:
            best, least = other, cost
            found[other] = postings
    return best


def _near(stem: str, others: Iterable[str], most: int) -> list[str]:
    return [other for other in others if distance(stem, other, most) <= most]
