"""Stems tokens with SQLite: Porter's algorithm for English, without diacritics."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial

from skillhouse.floor import SkillhouseError

# `porter` stems what `unicode61` splits, and leaves every token that is not English as it is, so
# that our pairs of CJK characters survive.
_CREATE = (
    "CREATE VIRTUAL TABLE words USING fts5("
    "word, content='', tokenize='porter unicode61 remove_diacritics 2')"
)
_VOCABULARY = "CREATE VIRTUAL TABLE stems USING fts5vocab(words, instance)"
_INSERT = "INSERT INTO words(rowid, word) VALUES (?, ?)"
_SELECT = "SELECT doc, term FROM stems ORDER BY doc, offset"

_IN_MEMORY = partial(sqlite3.connect, ":memory:")


class SearchError(SkillhouseError):
    """This Python's SQLite lacks the full-text module."""

    def __init__(self, sqlite_version: str) -> None:
        super().__init__(
            "search needs SQLite 3.27 or newer with FTS5, got one that has no such module: "
            f"{sqlite_version}"
        )
        self.sqlite_version = sqlite_version


def stems_of(
    tokens: Iterable[str], *, connect: Callable[[], sqlite3.Connection] = _IN_MEMORY
) -> Mapping[str, tuple[str, ...]]:
    """Return the stems of each token: usually one, none or several where SQLite splits it.

    >>> stems_of(["merging", "café", "数据"])
    {'merging': ('merg',), 'café': ('cafe',), '数据': ('数据',)}

    Args:
        tokens: From `tokens`.
        connect: Opens an empty database.

    Raises:
        SearchError: this SQLite has no FTS5.
    """
    different = list(dict.fromkeys(tokens))
    stems: dict[str, tuple[str, ...]] = dict.fromkeys(different, ())
    if not different:
        return stems
    with closing(connect()) as connection:
        try:
            connection.execute(_CREATE)
            connection.execute(_VOCABULARY)
        except sqlite3.DatabaseError as error:
            raise SearchError(sqlite3.sqlite_version) from error
        connection.executemany(_INSERT, enumerate(different))
        for number, stem in connection.execute(_SELECT):
            stems[different[number]] += (stem,)
    return stems
