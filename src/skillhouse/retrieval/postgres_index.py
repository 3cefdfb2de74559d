"""Searches skills whose words are in PostgreSQL, where several machines share them.

PostgreSQL finds the candidates by full text over our own stems, and the judge of every other index
ranks them (decision record 0324). What the database holds decides an order, and nothing of it is
shown: names and descriptions are those that were read here.
"""

from __future__ import annotations

import hashlib
import socket
import threading
import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from typing import TYPE_CHECKING

from skillhouse.floor import SkillError, SkillhouseError, encode, needs_extra
from skillhouse.retrieval.index import Document, Hit, Progress, SearchIndex
from skillhouse.retrieval.query import looked_for
from skillhouse.retrieval.segment_store import BODY_CHARS_MAX, READING
from skillhouse.retrieval.spelling import distance, edits_max, is_correctable
from skillhouse.retrieval.tokens import (
    STOP_WORDS,
    name_key,
    name_keys,
    query_terms,
    stems_of,
    tokens,
)
from skillhouse.skill import load_body

if TYPE_CHECKING:
    from skillhouse.skill import Skill, SkillIndex

CANDIDATES = 100
"""Skills that PostgreSQL finds and the judge ranks."""
HEAD_WEIGHT = 4.0
"""Weight of a word in name or description beside one in a body, for candidates."""
OTHER_WEIGHT = 0.5
"""Weight of a translated word beside one that was written, for candidates."""
CORRECTIONS = 3
"""Words that are looked for in place of a misspelt one."""
FILLER = "x"
"""Stands for a word of a body that the query does not ask for."""
CONNECT_SECONDS = 5
STATEMENT_MS = 10_000
_STEM_CHARS_MAX = 100
_BATCH = 500
_LOCK = 0x736B6853
"""Of `pg_advisory_xact_lock`, for who makes the tables."""

_TABLES = (
    "CREATE SCHEMA IF NOT EXISTS skillhouse_search",
    # A skill's words, by the digest of its texts; each machine that has the same ones shares the
    # row. `body` has its stems in their order, without stop words.
    """
    CREATE TABLE IF NOT EXISTS skillhouse_search.text_1 (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        key bytea NOT NULL UNIQUE,
        body text NOT NULL,
        head tsvector NOT NULL,
        words tsvector NOT NULL
    )
    """,
    "CREATE INDEX IF NOT EXISTS text_1_words ON skillhouse_search.text_1 USING gin (words)",
    # Files that were read, so that a later start reads only what changed.
    """
    CREATE TABLE IF NOT EXISTS skillhouse_search.file_1 (
        key bytea NOT NULL PRIMARY KEY,
        number bigint NOT NULL REFERENCES skillhouse_search.text_1 ON DELETE CASCADE
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS skillhouse_search.stem_1 (
        stem text NOT NULL PRIMARY KEY,
        grams text[] NOT NULL
    )
    """,
    "CREATE INDEX IF NOT EXISTS stem_1_grams ON skillhouse_search.stem_1 USING gin (grams)",
)
# Only what this agent sees counts, as in every other index.
_FIND = """
    WITH wanted AS (
        SELECT stem, weight, ('''' || stem || '''')::tsquery AS query
        FROM unnest(%s::text[], %s::float8[]) AS given(stem, weight)
    ), matched AS (
        SELECT text_1.number, wanted.stem, wanted.weight,
            CASE WHEN text_1.head @@ wanted.query THEN %s::float8 ELSE 1.0 END AS place
        FROM wanted
        JOIN skillhouse_search.text_1 ON text_1.words @@ wanted.query
        JOIN seen USING (number)
    ), counted AS (
        SELECT stem, ln((2.0 * %s + 1.5 - count(*)) / (count(*) + 0.5)) AS idf
        FROM matched GROUP BY stem
    )
    SELECT number FROM matched JOIN counted USING (stem)
    GROUP BY number ORDER BY sum(weight * place * idf) DESC, number LIMIT %s
"""
_KNOWN = """
    SELECT given.stem FROM unnest(%s::text[]) AS given(stem)
    WHERE EXISTS (
        SELECT FROM skillhouse_search.text_1 JOIN seen USING (number)
        WHERE text_1.words @@ ('''' || given.stem || '''')::tsquery
    )
"""
_ALIKE = """
    SELECT stem FROM skillhouse_search.stem_1 WHERE grams && %s::text[]
    ORDER BY (SELECT count(*) FROM unnest(grams) AS own(gram) WHERE gram = ANY(%s::text[])) DESC,
        stem LIMIT 60
"""


_STAGED = (
    "CREATE TEMP TABLE staged (key bytea, body text, head tsvector, words tsvector) ON COMMIT DROP"
)
_INSERT = """
    INSERT INTO skillhouse_search.text_1 (key, body, head, words)
    SELECT DISTINCT ON (key) key, body, head, words FROM staged ORDER BY key
    ON CONFLICT (key) DO NOTHING
"""
_NUMBERS = "SELECT key, number FROM skillhouse_search.text_1 WHERE key = ANY(%s)"
_INSERT_FILES = """
    INSERT INTO skillhouse_search.file_1 SELECT * FROM unnest(%s::bytea[], %s::bigint[])
    ON CONFLICT (key) DO NOTHING
"""
_INSERT_STEMS = """
    INSERT INTO skillhouse_search.stem_1
    SELECT stem, string_to_array(grams, ' ')
    FROM unnest(%s::text[], %s::text[]) AS given(stem, grams)
    ON CONFLICT (stem) DO NOTHING
"""


class SearchDatabaseError(SkillhouseError):
    """The database of the search index cannot be used."""


class PostgresIndex:
    """The skills that one agent sees, searched by a database; any thread may ask."""

    def __init__(
        self,
        index: SkillIndex,
        address: str,
        *,
        bodies: bool = True,
        progress: Progress = lambda _, __: None,
    ) -> None:
        """Add what the database lacks of the skills that are not shadowed.

        Args:
            address: A connection string or URL, as libpq takes it.
            bodies: Whether bodies are searched too.
            progress: As of `SearchIndex.from_skills`.

        Raises:
            SearchDatabaseError: the database cannot be reached or used.
            MissingExtraError: the extra `postgres` is not installed.
        """
        with needs_extra("postgres"):
            import psycopg  # noqa: PLC0415 - an optional dependency.
        self._error = psycopg.Error
        self._bodies = bodies
        self._lock = threading.Lock()
        self._rows: dict[int, list[Skill]] = defaultdict(list)
        self._named: dict[str, list[Skill]] = defaultdict(list)
        self._stems: set[str] = set()
        """Those that were added here."""
        with self._faults():
            self._connection = psycopg.connect(
                address,
                autocommit=True,
                connect_timeout=CONNECT_SECONDS,
                application_name="skillhouse search",
            )
            try:
                self._make_tables()
                self._open(index.skills, progress)
                self._connection.execute(f"SET statement_timeout = {STATEMENT_MS}")
                # How many rows a word has is not known to the planner, who would read all of them.
                self._connection.execute("SET enable_seqscan = off")
            except BaseException:
                self._connection.close()
                raise
        # A view that is replaced has no moment at which it closes its index.
        weakref.finalize(self, self._connection.close)

    def search(self, query: str, *, limit: int = 5, collapse: bool = False) -> list[Hit]:
        """Return hits as `SearchIndex.search` does. Raises SearchDatabaseError."""
        if limit <= 0 or not self._rows:
            return []
        terms = query_terms(query)
        of_token = stems_of([*terms, *looked_for(query)])
        # A word for each stem: the judge stems it again.
        word_of = {
            stem: token
            for token, stems in reversed(list(of_token.items()))
            if len(stems) == 1
            for stem in _usable(stems)
        }
        written = [stem for term in terms for stem in _usable(of_token[term])]
        weights = dict.fromkeys(word_of, OTHER_WEIGHT) | dict.fromkeys(written, 1.0)
        named = self._named.get(name_key(query), [])
        with self._lock, self._faults():
            known = {stem for (stem,) in self._connection.execute(_KNOWN, (list(weights),))}
            for stem in written:
                if stem not in known and is_correctable(stem):
                    weights |= dict.fromkeys(self._corrections(stem), 1.0)
            found = self._connection.execute(
                _FIND,
                (
                    list(weights),
                    list(weights.values()),
                    HEAD_WEIGHT,
                    sum(map(len, self._rows.values())),
                    max(limit, CANDIDATES),
                ),
            )
            numbers = [number for (number,) in found]
            texts = "SELECT number, body FROM skillhouse_search.text_1 WHERE number = ANY(%s)"
            body_of: dict[int, str] = dict(self._connection.execute(texts, (numbers,)).fetchall())
        words = {stem: word_of.get(stem, stem) for stem in weights}
        candidates: dict[tuple[str, str], Document] = {}
        for at in numbers:
            # Other words only make a body longer: stemming them all takes most of the time.
            body = " ".join(words.get(stem, FILLER) for stem in body_of.get(at, "").split())
            for skill in self._rows[at]:
                key = (skill.id, skill.file)
                candidates[key] = (skill.id, skill.name, skill.description, body)
        for skill in named:
            texts_of = (skill.id, skill.name, skill.description, "")
            candidates.setdefault((skill.id, skill.file), texts_of)
        judged = SearchIndex.from_documents(candidates.values())
        return judged.search(query, limit=limit, collapse=collapse)

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except self._error as error:
            # The first line: the others may repeat what was asked.
            said = str(error).strip().splitlines()[:1]
            raise SearchDatabaseError(
                f"the search database cannot be used: {said[0] if said else type(error).__name__}"
            ) from error

    def _make_tables(self) -> None:
        exists = "SELECT to_regclass('skillhouse_search.stem_1_grams') IS NOT NULL"
        if self._value(exists):
            return
        with self._connection.transaction():
            self._connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            for statement in _TABLES:
                self._connection.execute(statement)

    def _value(self, query: str) -> object:
        row = self._connection.execute(query).fetchone()
        return None if row is None else row[0]

    def _open(self, skills: Sequence[Skill], progress: Progress) -> None:
        """Find the number of each skill's texts, and add those that are not there."""
        keys = [_file_key(skill, bodies=self._bodies) for skill in skills]
        asked = "SELECT key, number FROM skillhouse_search.file_1 WHERE key = ANY(%s)"
        wanted = [key for key in keys if key is not None]
        known: dict[bytes, int] = dict(self._connection.execute(asked, (wanted,)).fetchall())
        missing = []
        for skill, key in zip(skills, keys, strict=True):
            if key is not None and key in known:
                self._rows[known[key]].append(skill)
            else:
                missing.append((skill, key))
        for at in range(0, len(missing), _BATCH):
            texts = []
            for number, (skill, _) in enumerate(missing[at : at + _BATCH], at):
                progress(number, len(missing))
                texts.append(_texts(skill, bodies=self._bodies))
            self._add(missing[at : at + _BATCH], texts)
        self._connection.execute("CREATE TEMP TABLE seen (number bigint PRIMARY KEY)")
        with self._connection.cursor() as cursor, cursor.copy("COPY seen FROM STDIN") as copy:
            for number in self._rows:
                copy.write_row((number,))
        self._connection.execute("ANALYZE seen")
        for names in ([one.id for one in skills], [one.name for one in skills]):
            for name, skill in zip(name_keys(names), skills, strict=True):
                if name and skill not in self._named[name]:
                    self._named[name].append(skill)

    def _add(
        self,
        missing: Sequence[tuple[Skill, bytes | None]],
        texts: Sequence[tuple[str, str, str]],
    ) -> None:
        every = (token for three in texts for text in three for token in tokens(text))
        stems = stems_of(every)
        keys = [_digest((READING, BODY_CHARS_MAX, *three)) for three in texts]
        new: set[str] = set()
        rows = []
        for key, three in zip(keys, texts, strict=True):
            name, description, body = (_words(text, stems) for text in three)
            head = {*name, *description}
            words = head.union(body)
            new.update(stem for stem in words if is_correctable(stem))
            rows.append((key, " ".join(body), _vector(head), _vector(words)))
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute(_STAGED)
            with cursor.copy("COPY staged FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
            cursor.execute(_INSERT)
            numbers: dict[bytes, int] = dict(cursor.execute(_NUMBERS, (keys,)).fetchall())
            for (skill, _), key in zip(missing, keys, strict=True):
                self._rows[numbers[key]].append(skill)
            files = {
                file_key: numbers[key]
                for (_, file_key), key in zip(missing, keys, strict=True)
                if file_key is not None
            }
            # Sorted, as all that is written here: two writers take locks in the same order.
            cursor.execute(_INSERT_FILES, _columns(sorted(files.items())))
            new -= self._stems
            self._stems |= new
            grams = [(stem, " ".join(_grams(stem))) for stem in sorted(new)]
            cursor.execute(_INSERT_STEMS, _columns(grams))

    def _corrections(self, stem: str) -> list[str]:
        """Return the stems of visible skills that a misspelt one most likely means."""
        grams = _grams(stem)
        most = edits_max(stem)
        alike = [word for (word,) in self._connection.execute(_ALIKE, (grams, grams))]
        near = {word: edits for word in alike if (edits := distance(stem, word, most)) <= most}
        known = {word for (word,) in self._connection.execute(_KNOWN, (list(near),))}
        return sorted(known, key=lambda word: (near[word], word[0] != stem[0], word))[:CORRECTIONS]


def _columns(rows: Sequence[tuple[object, object]]) -> tuple[list[object], list[object]]:
    return [one for one, _ in rows], [other for _, other in rows]


def _file_key(skill: Skill, *, bodies: bool) -> bytes | None:
    """Return a digest of what a skill's texts follow from on this machine; None for a file that
    may be changing."""
    if skill.signature is None:
        return None
    parts = (socket.gethostname(), skill.id, skill.name, skill.description, skill.file)
    return _digest((*parts, skill.signature, bodies, READING, astuple(skill.policy)))


def _digest(parts: tuple[object, ...]) -> bytes:
    return hashlib.blake2b(encode(parts), digest_size=32).digest()


def _texts(skill: Skill, *, bodies: bool) -> tuple[str, str, str]:
    """Return name, description and body; one that cannot be read is empty, as in every index."""
    body = ""
    if bodies:
        try:
            body = load_body(skill)[:BODY_CHARS_MAX]
        except (SkillError, OSError):
            body = ""
    return _plain(skill.name), _plain(skill.description), _plain(body)


def _plain(text: str) -> str:
    """Return a text without what PostgreSQL cannot keep: NUL, halves of surrogate pairs."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


def _words(text: str, stems: Mapping[str, tuple[str, ...]]) -> list[str]:
    found = (token for token in tokens(text) if token not in STOP_WORDS)
    return list(_usable(stem for token in found for stem in stems[token]))


def _usable(stems: Iterable[str]) -> Iterator[str]:
    """Yield the stems that a `tsvector` can hold, which are letters and digits."""
    return (stem for stem in stems if stem.isalnum() and len(stem) <= _STEM_CHARS_MAX)


def _vector(stems: Iterable[str]) -> str:
    """Return stems as the text of a `tsvector`.

    >>> _vector({"pdf"})
    "'pdf'"
    """
    return " ".join(f"'{stem}'" for stem in stems)


def _grams(stem: str) -> list[str]:
    """Return the trigrams of a stem between two signs that no stem has.

    >>> _grams("pdf")
    ['_pd', 'df_', 'pdf']
    """
    padded = f"_{stem}_"
    return sorted({padded[at : at + 3] for at in range(len(padded) - 2)})
