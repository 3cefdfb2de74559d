"""Searches names and descriptions without an index."""

from __future__ import annotations

import heapq
import unicodedata

from skillhouse.retrieval.hits import Hit
from skillhouse.retrieval.index import SearchIndex
from skillhouse.retrieval.query import looked_for
from skillhouse.retrieval.tokens import stems_of
from skillhouse.skill import SkillIndex

CANDIDATES_MAX = 500
"""Skills that a `HeadIndex` ranks: those with the most words of the query."""


class HeadIndex:
    """Searches names and descriptions without an index, while one is being built.

    It scans thousands of skills in a few hundredths of a second, and ranks almost like a
    `SearchIndex` of the same texts.
    """

    def __init__(self, index: SkillIndex) -> None:
        self._skills = index.skills
        self.meanings = self.meaning_state = None
        """No encoder votes here."""

    def close(self) -> None:
        """Nothing is in the background."""

    def search(self, query: str, *, limit: int = 5, collapse: bool = False) -> list[Hit]:
        """Return skills with a word of `query` in name or description, best first."""
        stems = {stem for parts in stems_of(looked_for(query)).values() for stem in parts}
        # The stem of `happy` is `happi`; every other stem is the beginning of its word.
        beginnings = {_folded(stem if len(stem) < 4 else stem[:-1]) for stem in stems}
        counted = (
            (sum(beginning in text for beginning in beginnings), -number)
            for number, text in enumerate(
                _folded(f"{skill.name} {skill.description}") for skill in self._skills
            )
        )
        best = heapq.nlargest(CANDIDATES_MAX, (pair for pair in counted if pair[0]))
        skills = [self._skills[-number] for _, number in best]
        return SearchIndex.from_documents(
            (skill.id, skill.name, skill.description, "") for skill in skills
        ).search(query, limit=limit, collapse=collapse, of=len(self._skills))


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    letters = unicodedata.normalize("NFKD", text).casefold()
    return "".join(letter for letter in letters if not unicodedata.combining(letter))
