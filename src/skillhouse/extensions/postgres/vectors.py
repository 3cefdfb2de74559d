"""Vectors of skills in the database, where it has the extension `vector` (pgvector)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from skillhouse.extensions.postgres.database import SearchDatabase
from skillhouse.floor import encode as encode_value

if TYPE_CHECKING:
    from skillhouse.extensions.meaning.embedder import Embedder, Floats

EXACT_MAX = 50_000
"""Visible texts up to which each vector is compared; from there on an index (HNSW) is asked."""
_PROBED = 200
_ITERATES_FROM = (0, 8)
"""Version of the extension whose index goes on until enough of what it finds is visible."""
_BATCH = 32

_INSERT = "INSERT INTO own_vector VALUES (%s, %s::vector) ON CONFLICT DO NOTHING"
_TOP = """
    SELECT key, vector <=> %s::vector AS distance FROM own_vector JOIN seen_vector USING (key)
    ORDER BY distance LIMIT %s
"""
# An index of the extension answers an order by the distance alone.
_TOP_EXACT = """
    SELECT key, (vector <=> %s::vector) + 0 AS distance FROM own_vector JOIN seen_vector USING (key)
    ORDER BY distance LIMIT %s
"""
_COSINES = "SELECT key, 1 - (vector <=> %s::vector) FROM own_vector WHERE key = ANY(%s)"


class PostgresVectors:
    """A place for vectors, with a connection of its own: they are made while others search."""

    def __init__(self, address: str, *, exact_max: int = EXACT_MAX) -> None:
        self._address = address
        self._exact_max = exact_max

    def nearest(
        self,
        embedder: Embedder,
        rows: Mapping[bytes, list[int]],
        encode: Callable[[Sequence[int]], Floats],
        done: Callable[[int], None],
    ) -> NearestTexts:
        """Return the vectors of some rows; see `VectorPlace`. Raises SearchDatabaseError."""
        database = SearchDatabase(self._address)
        made_by = (embedder.name, embedder.version, embedder.dimensions)
        own = f"vector_1_{hashlib.blake2b(encode_value(made_by), digest_size=8).hexdigest()}"
        table = f"skillhouse_search.{own}"
        database.make(
            table,
            "CREATE SCHEMA IF NOT EXISTS skillhouse_search",
            f"CREATE TABLE IF NOT EXISTS {table} ("
            f"key bytea NOT NULL PRIMARY KEY, vector vector({embedder.dimensions}) NOT NULL)",
        )
        with database.use() as connection:
            connection.execute(f"CREATE TEMP VIEW own_vector AS TABLE {table}")
        missing = sorted(rows.keys() - _known(database, list(rows)))
        for at in range(0, len(missing), _BATCH):
            done(len(rows) - len(missing) + at)
            batch = missing[at : at + _BATCH]
            # Another machine may have made some meanwhile.
            of_others = _known(database, batch)
            new = [key for key in batch if key not in of_others]
            if new:
                vectors = encode([rows[key][0] for key in new])
                with database.use() as connection, connection.cursor() as cursor:
                    cursor.executemany(_INSERT, list(zip(new, map(_text, vectors), strict=True)))
        is_exact = len(rows) <= self._exact_max or database.vector_version < _ITERATES_FROM
        with database.use() as connection:
            if not is_exact:
                index = f"{table} USING hnsw (vector vector_cosine_ops)"
                connection.execute(f"CREATE INDEX IF NOT EXISTS {own}_near ON {index}")
                connection.execute("SET hnsw.iterative_scan = relaxed_order")
                connection.execute(f"SET hnsw.ef_search = {_PROBED}")
            connection.execute("CREATE TEMP TABLE seen_vector (key bytea PRIMARY KEY)")
            with connection.cursor() as cursor, cursor.copy("COPY seen_vector FROM STDIN") as copy:
                for key in rows:
                    copy.write_row((key,))
            connection.execute("ANALYZE seen_vector")
        database.limit()
        done(len(rows))
        return NearestTexts(database, rows, is_exact=is_exact)


def _known(database: SearchDatabase, keys: Sequence[bytes]) -> set[bytes]:
    with database.use() as connection:
        found = connection.execute("SELECT key FROM own_vector WHERE key = ANY(%s)", (keys,))
        return {key for (key,) in found}


class NearestTexts:
    """The vectors of the rows that one agent sees, compared by the database."""

    def __init__(
        self,
        database: SearchDatabase,
        rows: Mapping[bytes, list[int]],
        *,
        is_exact: bool,
    ) -> None:
        self._database = database
        self._rows = rows
        self._key_of = {row: key for key, of_key in rows.items() for row in of_key}
        self._top = _TOP_EXACT if is_exact else _TOP

    def top(self, vector: Floats, limit: int) -> list[int]:
        """Return about `limit` rows that are most similar; none without likeness.

        Raises SearchDatabaseError.
        """
        with self._database.use() as connection:
            found = connection.execute(self._top, (_text(vector), limit)).fetchall()
        return [row for key, distance in found if distance < 1 for row in self._rows[key]]

    def similarities(self, vector: Floats, rows: Sequence[int]) -> list[float]:
        """Return the cosine of each row with a vector; 0 for one without a vector."""
        keys = [self._key_of.get(row, b"") for row in rows]
        with self._database.use() as connection:
            asked = (_text(vector), list(dict.fromkeys(keys)))
            cosines: dict[bytes, float] = dict(connection.execute(_COSINES, asked).fetchall())
        # A vector of zeros, which only another program writes, has no cosine.
        found = (cosines.get(key, 0.0) for key in keys)
        return [0.0 if math.isnan(cosine) else cosine for cosine in found]


def _text(vector: Floats) -> str:
    """Return a vector as the extension reads it."""
    return f"[{','.join(f'{number:.7g}' for number in vector.tolist())}]"
