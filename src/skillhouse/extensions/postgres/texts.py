"""The words of skills in the database: what several machines share, and what one of them sees."""

from __future__ import annotations

import hashlib
import socket
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from skillhouse.floor import SkillError, encode
from skillhouse.floor.structs import astuple
from skillhouse.retrieval import Progress, stems_of
from skillhouse.retrieval.segment_store import BODY_CHARS_MAX, READING
from skillhouse.retrieval.spelling import distance, edits_max, is_correctable
from skillhouse.retrieval.tokens import STOP_WORDS, tokens
from skillhouse.skill import load_body

if TYPE_CHECKING:
    from skillhouse.extensions.postgres.database import Rows, SearchDatabase
    from skillhouse.skill import Skill

HEAD_WEIGHT = 4.0
"""Weight of a word in name or description beside one in a body, for candidates."""
CORRECTIONS = 3
"""Words that are looked for in place of a misspelt one."""
_STEM_CHARS_MAX = 100
_BATCH = 500

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


class Texts:
    """The texts of the skills that one agent sees, by the number of their row in the database."""

    def __init__(
        self, database: SearchDatabase, skills: Sequence[Skill], progress: Progress, *, bodies: bool
    ) -> None:
        """Add what the database lacks. Raises SearchDatabaseError."""
        self.rows: dict[int, list[Skill]] = defaultdict(list)
        """The skills of each number; what they share is one text."""
        self._bodies = bodies
        self._stems: set[str] = set()
        """Those that were added here."""
        database.make("skillhouse_search.stem_1_grams", *_TABLES)
        with database.use() as connection:
            self._open(connection, skills, progress)
        database.limit()

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))

    def find(self, connection: Rows, weights: Mapping[str, float], limit: int) -> list[int]:
        """Return the numbers of the visible texts that have the stems that weigh most."""
        stems = (list(weights), list(weights.values()))
        found = connection.execute(_FIND, (*stems, HEAD_WEIGHT, len(self), limit))
        return [number for (number,) in found]

    def known(self, connection: Rows, stems: Iterable[str]) -> set[str]:
        """Return those stems that a visible text has."""
        return {stem for (stem,) in connection.execute(_KNOWN, (list(stems),))}

    def bodies(self, connection: Rows, numbers: Sequence[int]) -> dict[int, str]:
        """Return the stems of bodies, in their order."""
        asked = "SELECT number, body FROM skillhouse_search.text_1 WHERE number = ANY(%s)"
        return dict(connection.execute(asked, (list(numbers),)).fetchall())

    def corrections(self, connection: Rows, stem: str) -> list[str]:
        """Return the stems of visible texts that a misspelt one most likely means."""
        grams = _grams(stem)
        most = edits_max(stem)
        alike = [word for (word,) in connection.execute(_ALIKE, (grams, grams))]
        near = {word: edits for word in alike if (edits := distance(stem, word, most)) <= most}
        known = self.known(connection, near)
        return sorted(known, key=lambda word: (near[word], word[0] != stem[0], word))[:CORRECTIONS]

    def _open(self, connection: Rows, skills: Sequence[Skill], progress: Progress) -> None:
        """Find the number of each skill's texts, and add those that are not there."""
        keys = [_file_key(skill, bodies=self._bodies) for skill in skills]
        asked = "SELECT key, number FROM skillhouse_search.file_1 WHERE key = ANY(%s)"
        wanted = [key for key in keys if key is not None]
        known: dict[bytes, int] = dict(connection.execute(asked, (wanted,)).fetchall())
        missing = []
        for skill, key in zip(skills, keys, strict=True):
            if key is not None and key in known:
                self.rows[known[key]].append(skill)
            else:
                missing.append((skill, key))
        for at in range(0, len(missing), _BATCH):
            texts = []
            for number, (skill, _) in enumerate(missing[at : at + _BATCH], at):
                progress(number, len(missing))
                texts.append(_texts(skill, bodies=self._bodies))
            self._add(connection, missing[at : at + _BATCH], texts)
        connection.execute("CREATE TEMP TABLE seen (number bigint PRIMARY KEY)")
        with connection.cursor() as cursor, cursor.copy("COPY seen FROM STDIN") as copy:
            for number in self.rows:
                copy.write_row((number,))
        connection.execute("ANALYZE seen")
        # How many rows a word has is not known to the planner, who would read all of them.
        connection.execute("SET enable_seqscan = off")

    def _add(
        self,
        connection: Rows,
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
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute(_STAGED)
            with cursor.copy("COPY staged FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
            cursor.execute(_INSERT)
            numbers: dict[bytes, int] = dict(cursor.execute(_NUMBERS, (keys,)).fetchall())
            for (skill, _), key in zip(missing, keys, strict=True):
                self.rows[numbers[key]].append(skill)
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
    return list(usable(stem for token in found for stem in stems[token]))


def usable(stems: Iterable[str]) -> Iterator[str]:
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
