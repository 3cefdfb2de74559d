"""Skills made searchable: what is indexed, which hits a query has, and why."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from skillhouse.floor import SkillError
from skillhouse.retrieval.table import WordTable
from skillhouse.retrieval.tokens import body_tokens, name_key, query_terms, tokens
from skillhouse.skill import Skill, SkillIndex, load

BODY_CHARS_MAX = 4_096
"""Characters of a body that are indexed: a skill says at its start what it is for."""

Document = tuple[str, str, str, str]
"""Id, name, description and body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One skill that a query found, and why."""

    id: str
    name: str
    score: float
    """Higher is better; comparable within one answer only."""
    fields: tuple[str, ...] = ()
    """Which of name, description and body have a word of the query."""
    exact: bool = False
    """Whether the query is this skill's name or id, which puts it first."""


class SearchIndex:
    """Documents in memory, ready to be searched; it does not change, and any thread may ask."""

    def __init__(self, documents: Iterable[Document] = ()) -> None:
        """Index (id, name, description, body) each; several may have one id.

        Raises:
            SearchError: this Python's SQLite has no full-text module.
        """
        # Sorted by id, so that the order of equal scores, which is that of the rows, is too.
        kept = sorted((i, name, about, body[:BODY_CHARS_MAX]) for i, name, about, body in documents)
        self._heads = [(i, name) for i, name, _, _ in kept]
        self._rows_of_key = _rows_of_keys(self._heads)
        self._lock = threading.Lock()
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, connection.close)
        self._table = WordTable(
            connection,
            ((tokens(name), tokens(about), body_tokens(body)) for _, name, about, body in kept),
        )

    @classmethod
    def from_documents(cls, documents: Iterable[Document]) -> SearchIndex:
        """Return an index of (id, name, description, body) each.

        >>> index = SearchIndex.from_documents([("user:pdf", "pdf", "Merges PDF files", "")])
        >>> [hit.id for hit in index.search("merging two files")]
        ['user:pdf']

        Raises:
            SearchError: this Python's SQLite has no full-text module.
        """
        return cls(documents)

    @classmethod
    def from_skills(cls, index: SkillIndex) -> SearchIndex:
        """Return an index of the skills in force, their bodies read now.

        A skill whose body cannot be read is found by its name and description.

        Raises:
            SearchError: this Python's SQLite has no full-text module.
        """
        return cls(_documents(index))

    def search(self, query: str, *, limit: int = 5) -> list[Hit]:
        """Return the skills that have any word of `query`, best first, equal ones by id.

        A skill whose name or id is the query comes first, with the best score there is.

        Args:
            query: Any text; it has no syntax. Without a letter or digit it finds nothing.
            limit: Most hits to return; none when it is not positive.
        """
        if limit <= 0:
            return []
        terms = query_terms(query)
        exact = self._rows_of_key.get(name_key(query), ())
        with self._lock:
            ranked = self._table.ranked(terms, limit=min(limit, len(self)))
            best = ranked[0][1] if ranked else 0.0
            scores = dict.fromkeys(exact, best)
            for row, score in ranked:
                scores.setdefault(row, score)
            rows = list(scores)[:limit]
            fields = self._table.fields(terms, rows)
        return [
            Hit(
                id=self._heads[row - 1][0],
                name=self._heads[row - 1][1],
                score=scores[row],
                fields=fields[row],
                exact=row in exact,
            )
            for row in rows
        ]

    def __len__(self) -> int:
        return len(self._heads)


def _documents(index: SkillIndex) -> Iterator[Document]:
    for skill in index.skills:
        yield skill.id, skill.name, skill.description, _body(skill)


def _body(skill: Skill) -> str:
    try:
        return load(skill).body
    except (SkillError, OSError):
        # One bad file never costs the search; whoever loads the skill is told what is wrong.
        return ""


def _rows_of_keys(heads: list[tuple[str, str]]) -> dict[str, tuple[int, ...]]:
    """Return which rows each name and id, as `name_key` spells it, belongs to."""
    rows: dict[str, tuple[int, ...]] = {}
    for row, head in enumerate(heads, start=1):
        for key in {name_key(text) for text in head} - {""}:
            rows[key] = (*rows.get(key, ()), row)
    return rows
