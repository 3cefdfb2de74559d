"""Names and descriptions searched without an index, for as long as one is being made."""

from __future__ import annotations

import heapq
import unicodedata

from skillhouse.retrieval.index import Hit, SearchIndex
from skillhouse.retrieval.stems import stems_of
from skillhouse.retrieval.tokens import query_terms
from skillhouse.skill import SkillIndex

CANDIDATES_MAX = 500
"""Skills that are ranked: those that have the most words of the query."""


class HeadIndex:
    """Skills that each search looks through: thousands in a few hundredths of a second.

    The ranking is nearly that of a `SearchIndex` of the same texts.
    """

    def __init__(self, index: SkillIndex) -> None:
        self._skills = index.skills

    def search(self, query: str, *, limit: int = 5) -> list[Hit]:
        """Return skills that have a word of `query` in name or description, best first.

        Raises:
            SearchError: this Python's SQLite has no full-text module.
        """
        stems = {stem for found in stems_of(query_terms(query)).values() for stem in found}
        # The stem of `happy` is `happi`; all else that a stemmer does is to cut off.
        beginnings = {_folded(stem if len(stem) < 4 else stem[:-1]) for stem in stems}
        counted = (
            (sum(beginning in text for beginning in beginnings), -number)
            for number, text in enumerate(
                _folded(f"{skill.name} {skill.description}") for skill in self._skills
            )
        )
        best = heapq.nlargest(CANDIDATES_MAX, (found for found in counted if found[0]))
        skills = [self._skills[-number] for _, number in best]
        return SearchIndex.from_documents(
            (skill.id, skill.name, skill.description, "") for skill in skills
        ).search(query, limit=limit)


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    letters = unicodedata.normalize("NFKD", text).casefold()
    return "".join(letter for letter in letters if not unicodedata.combining(letter))
