"""Searches skills whose words are in PostgreSQL, where several machines share them.

PostgreSQL finds the candidates by full text over our own stems, and by their vectors where there
are encoders; the judge of every other index ranks them (decision records 0324 and 0331). What the
database holds decides an order, and nothing of it is shown: names and descriptions are those that
were read here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.extensions.postgres.database import SearchDatabase
from skillhouse.extensions.postgres.texts import Texts, usable
from skillhouse.extensions.postgres.vectors import PostgresVectors
from skillhouse.retrieval import (
    Document,
    Hit,
    MeaningState,
    Progress,
    SearchIndex,
    name_key,
    query_terms,
    stems_of,
)
from skillhouse.retrieval.query import looked_for
from skillhouse.retrieval.spelling import is_correctable
from skillhouse.retrieval.tokens import name_keys
from skillhouse.retrieval.votes import Meanings, encoded

if TYPE_CHECKING:
    from skillhouse.extensions.meaning import Encoders
    from skillhouse.skill import Skill, SkillIndex

CANDIDATES = 100
"""Skills that PostgreSQL finds by words and the judge ranks."""
OTHER_WEIGHT = 0.5
"""Weight of a translated word beside one that was written, for candidates."""
FILLER = "x"
"""Takes the place of a word in a body that the query does not ask for."""


class PostgresIndex:
    """The skills that one agent sees, searched by a database; any thread may ask."""

    def __init__(
        self,
        index: SkillIndex,
        address: str,
        *,
        bodies: bool = True,
        cache: Path | None = None,
        progress: Progress = lambda _, __: None,
        encoders: Encoders | None = None,
    ) -> None:
        """Add what the database lacks of the skills that are not shadowed.

        Args:
            address: A connection string or URL, as libpq takes it.
            bodies: Whether bodies are searched too.
            cache: Directory of vectors, where the database has no extension `vector`.
            progress, encoders: As of `SearchIndex.from_skills`.

        Raises:
            SearchDatabaseError: the database cannot be reached or used.
            MissingExtraError: the extra `postgres` is not installed.
        """
        self._database = SearchDatabase(address)
        try:
            self._texts = Texts(self._database, index.skills, progress, bodies=bodies)
            keeps_vectors = bool(encoders and self._database.vector_version)
        except BaseException:
            self._database.close()
            raise
        self._skills = [
            (number, skill) for number, skills in self._texts.rows.items() for skill in skills
        ]
        """Of each row, with the number of its texts."""
        self._named: dict[str, list[Skill]] = defaultdict(list)
        for names in ([one.id for one in index.skills], [one.name for one in index.skills]):
            for name, skill in zip(name_keys(names), index.skills, strict=True):
                if name and skill not in self._named[name]:
                    self._named[name].append(skill)
        self.meanings: Meanings | None = None
        """The vectors of the skills, where there are encoders."""
        if encoders is not None:
            self._row_of = {self._encoded(row): row for row in range(len(self._skills))}
            place = PostgresVectors(address) if keeps_vectors else None
            self.meanings = encoders.over(len(self._skills), self._encoded, cache, place)

    def search(self, query: str, *, limit: int = 5, collapse: bool = False) -> list[Hit]:
        """Return hits as `SearchIndex.search` does. Raises SearchDatabaseError."""
        if limit <= 0 or not self._skills:
            return []
        terms = query_terms(query)
        of_token = stems_of([*terms, *looked_for(query)])
        # A word for each stem: the judge stems it again.
        word_of = {
            stem: token
            for token, stems in reversed(list(of_token.items()))
            if len(stems) == 1
            for stem in usable(stems)
        }
        written = [stem for term in terms for stem in usable(of_token[term])]
        weights = dict.fromkeys(word_of, OTHER_WEIGHT) | dict.fromkeys(written, 1.0)
        votes = None if self.meanings is None else self.meanings.votes(query)
        near = [] if votes is None else [self._skills[row] for row in votes.nearest()]
        texts = self._texts
        with self._database.use() as connection:
            known = texts.known(connection, weights)
            for stem in written:
                if stem not in known and is_correctable(stem):
                    weights |= dict.fromkeys(texts.corrections(connection, stem), 1.0)
            numbers = texts.find(connection, weights, max(limit, CANDIDATES))
            found = [(number, skill) for number in numbers for skill in texts.rows[number]] + near
            body_of = texts.bodies(connection, [number for number, _ in found])
        words = {stem: word_of.get(stem, stem) for stem in weights}
        judged = SearchIndex.from_documents(self._documents(query, found, body_of, words))
        if votes is not None:
            votes = votes.of_rows([self._row_of[text] for text in judged.encoded])
        return judged.search(query, limit=limit, collapse=collapse, votes=votes, of=len(self))

    def _documents(
        self,
        query: str,
        found: Iterable[tuple[int, Skill]],
        body_of: Mapping[int, str],
        words: Mapping[str, str],
    ) -> Collection[Document]:
        """Return what is judged: the candidates with the words that count, and what is named."""
        candidates: dict[tuple[str, str], Document] = {}
        for number, skill in found:
            # Other words only make a body longer: stemming them all takes most of the time.
            body = " ".join(words.get(stem, FILLER) for stem in body_of.get(number, "").split())
            candidates[skill.id, skill.file] = (skill.id, skill.name, skill.description, body)
        for skill in self._named.get(name_key(query), []):
            texts_of = (skill.id, skill.name, skill.description, "")
            candidates.setdefault((skill.id, skill.file), texts_of)
        return candidates.values()

    def __len__(self) -> int:
        return len(self._skills)

    @property
    def meaning_state(self) -> MeaningState | None:
        """As of `SearchIndex`."""
        return None if self.meanings is None else self.meanings.state

    def close(self) -> None:
        if self.meanings is not None:
            self.meanings.close()
        self._database.close()

    def _encoded(self, row: int) -> str:
        _, skill = self._skills[row]
        return encoded(skill.name, skill.description)
