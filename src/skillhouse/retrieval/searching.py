"""The one question that others ask of this room."""

from __future__ import annotations

from skillhouse.retrieval.index import Hit, SearchIndex
from skillhouse.skill import SkillIndex


def search(index: SkillIndex | SearchIndex, query: str, *, limit: int = 5) -> list[Hit]:
    """Return the skills of `index` that fit `query`, best first, equal ones by id.

    Args:
        index: A `SkillIndex` is read and indexed for this one call; whoever asks often builds a
            `SearchIndex` once. Shadowed skills are not found.
        query: Any text, in any language; it has no syntax.
        limit: Most hits to return; none when it is not positive.

    Raises:
        SearchError: this Python's SQLite has no full-text module.
    """
    if isinstance(index, SkillIndex):
        if limit <= 0:
            return []
        index = SearchIndex.from_skills(index)
    return index.search(query, limit=limit)
