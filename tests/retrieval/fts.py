"""The ranking of SQLite's FTS5, which ours is compared with."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

WEIGHTS = (10.0, 5.0, 1.0)

# `porter` stems what `unicode61` splits, and leaves every token that is not English as it is, so
# that our pairs of CJK characters survive. The table keeps no texts, only where words stand.
_CREATE = (
    "CREATE VIRTUAL TABLE words USING fts5("
    "name, description, body, content='', tokenize='porter unicode61 remove_diacritics 2')"
)
_INSERT = "INSERT INTO words(rowid, name, description, body) VALUES (?, ?, ?, ?)"
_RANK = (
    "SELECT rowid, -bm25(words, ?, ?, ?) AS score FROM words WHERE words MATCH ? "
    "ORDER BY score DESC, rowid LIMIT ?"
)


class WordTable:
    """Rows of tokens, filled once; a row is known by its number, from 1."""

    def __init__(
        self, connection: sqlite3.Connection, rows: Iterable[Sequence[Iterable[str]]]
    ) -> None:
        """Write `rows`, each the tokens of its `FIELDS`, into an empty database."""
        self._connection = connection
        connection.execute(_CREATE)
        count = 0
        with connection:
            for count, row in enumerate(rows, start=1):
                connection.execute(_INSERT, (count, *(" ".join(field) for field in row)))
            # FTS5 gives next to no weight to a word that half of the rows have, which in a house
            # of ten skills is the very word that was asked for. One more empty row than full ones
            # keeps each weight well above zero; it lifts the ranking of large libraries as well.
            empty = range(count + 1, 2 * count + 2)
            connection.executemany(_INSERT, ((number, "", "", "") for number in empty))
            connection.execute("INSERT INTO words(words) VALUES ('optimize')")

    def ranked(self, terms: Sequence[str], *, limit: int) -> list[tuple[int, float]]:
        """Return the rows with any of `terms` and their scores: best first, then by number."""
        if not terms:
            return []
        values = (*WEIGHTS, _expression(terms), limit)
        return self._connection.execute(_RANK, values).fetchall()


def _expression(terms: Sequence[str]) -> str:
    """Return the FTS5 query for any of `terms`."""
    # INVARIANT: each term stands in quotes and has none itself (`tokens` lets only letters and
    # digits through), so that no request is read as FTS5 syntax.
    return " OR ".join(f'"{term}"' for term in terms)
