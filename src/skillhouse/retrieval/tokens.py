"""Splits text into tokens, and stems them with SQLite: Porter's algorithm for English."""

from __future__ import annotations

import sqlite3
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from skillhouse.floor import SkillhouseError
from skillhouse.floor.regex import regex

QUERY_TERMS_MAX = 64
"""Different terms of a query that are searched (reference/retrieval.md, section 5)."""

STOP_WORDS = frozenset(
    "a an and are as at be but by for from if in into is it its no not of on or s such t that the "
    "their then there these they this to was will with".split()
)
"""Lucene's English stop words, `from`, `its`, and what an apostrophe leaves: they
distinguish no skills and are the most expensive to search. Longer lists gained nothing
(bench/retrieval.py)."""

# Han with its iteration mark and zero, kana with its marks, Hangul syllables: scripts without
# blanks between words, or with endings that no blank separates.
_CJK_CHARACTERS = (
    "\u3005\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U000323af"
)
# The letters of scripts of line breaking class SA (UAX #14): Thai, Lao, Burmese, Khmer, Tai Le, New
# Tai Lue, Tai Tham, Tai Viet. No blank separates their words; some people write U+200B there.
_SPACELESS_CHARACTERS = (
    "\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46\u0e81-\u0eb0\u0eb2\u0eb3\u0ebd-\u0ec6\u0edc-\u0edf"
    "\u1000-\u102a\u103f\u1050-\u1055\u105a-\u105d\u1061\u1065\u1066\u106e-\u1070\u1075-\u1081\u108e"
    "\u1780-\u17b3\u17d7\u17dc\u1950-\u1974\u1980-\u19c9\u1a20-\u1a54\u1aa7"
    "\ua9e0-\ua9e4\ua9e6-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa76\uaa7a\uaa7e-\uaaaf\uaab1\uaab5-\uaabd"
    "\uaac0-\uaac2\uaadb-\uaadd"
)
_PAIRED_CHARACTERS = _CJK_CHARACTERS + _SPACELESS_CHARACTERS
_ASCII_WORD = regex("[A-Za-z0-9]+")
_PAIRED = regex(f"[{_PAIRED_CHARACTERS}]")
_RUN = regex(f"[{_CJK_CHARACTERS}]+|[{_SPACELESS_CHARACTERS}]+|[^\\W_{_PAIRED_CHARACTERS}]+")
_WORD_BREAK = regex(f"(?<=[{_SPACELESS_CHARACTERS}])\u200b+(?=[{_SPACELESS_CHARACTERS}])")
# A lone `s` after capitals is a plural (`APIs`), so a word begins with two small letters there.
_CAMEL = regex("(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})|(?<=[0-9])(?=[A-Z][a-z])")
_MAY_BE_MARKED = regex("[\u0300-\u1fff\ua9e0-\uaaff]")
_NAME_BREAK = regex(r"[\s_-]+")


def tokens(text: str) -> list[str]:
    """Return the tokens of `text` in order, repetitions included.

    Words are casefolded (NFKC before); a word in camel case gives itself and its parts. A run of
    Han, kana or Hangul gives its overlapping pairs, or itself when it is one character, and so does
    one of Thai, Lao, Burmese or Khmer letters, whose words may be parted by U+200B or not. A token
    holds letters and digits only.

    >>> tokens("用Python做数据, useEffect")
    ['用', 'python', '做数', '数据', 'useeffect', 'use', 'effect']
    """
    return [token for word in words(text) for token in tokens_of(word)]


def words(text: str) -> list[str]:
    """Return the words of `text` as they are written, and its pairs of characters, in order."""
    if text.isascii():
        return _ASCII_WORD.findall(text)
    parts: list[str] = []
    for run in _RUN.findall(_normalised(text)):
        if not run.isascii() and _PAIRED.match(run):
            parts.extend(run[at : at + 2] for at in range(max(1, len(run) - 1)))
        else:
            parts.append(run)
    return parts


def tokens_of(word: str) -> tuple[str, ...]:
    """Return the tokens of a word of `words`."""
    folded = word.casefold()
    if folded == word:
        return (word,)
    parts = _CAMEL.split(word)
    if len(parts) == 1:
        return (folded,)
    # The whole stays as well, or `github` would not find `GitHub`.
    return (folded, *(part.casefold() for part in parts))


def is_pair(token: str) -> bool:
    """Return whether a token is of a script that gives pairs: a pair, or a single character."""
    return not token.isascii() and _PAIRED.match(token) is not None


def query_terms(query: str) -> list[str]:
    """Return the terms of a query: each token once, at most `QUERY_TERMS_MAX`.

    Stop words count only when there is nothing else.

    >>> query_terms("merge the PDF, and the other PDF"), query_terms("to be or not")
    (['merge', 'pdf', 'other'], ['to', 'be', 'or', 'not'])
    """
    different = dict.fromkeys(tokens(query))
    terms = [token for token in different if token not in STOP_WORDS]
    return (terms or list(different))[:QUERY_TERMS_MAX]


def name_key(text: str) -> str:
    """Return the form in which names and ids are compared with a query.

    >>> name_key(" PDF tools"), name_key("pdf_tools"), name_key("user:pdf-tools")
    ('pdf-tools', 'pdf-tools', 'user:pdf-tools')
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return _NAME_BREAK.sub("-", folded).strip("-")


def name_keys(texts: Sequence[str]) -> list[str]:
    """Return the `name_key` of each text, fast for thousands."""
    # No step crosses a NUL, which names rarely contain.
    folded = unicodedata.normalize("NFKC", "\0".join(texts)).casefold()
    keys = [key.strip("-") for key in _NAME_BREAK.sub("-", folded).split("\0")]
    return keys if len(keys) == len(texts) else [name_key(text) for text in texts]


def _normalised(text: str) -> str:
    """Return `text` in NFKC, without the marks that would end a word (vowel signs, points)."""
    text = unicodedata.normalize("NFKC", text)
    if _MAY_BE_MARKED.search(text) is None:
        return text
    plain = "".join(
        character for character in text if not unicodedata.category(character).startswith("M")
    )
    return _WORD_BREAK.sub("", plain) if "\u200b" in plain else plain


# `porter` stems what `unicode61` splits, and leaves every token that is not English as it is, so
# that our pairs of CJK characters survive.
_CREATE = (
    "CREATE VIRTUAL TABLE words USING fts5("
    "word, content='', tokenize='porter unicode61 remove_diacritics 2')"
)
_VOCABULARY = "CREATE VIRTUAL TABLE stems USING fts5vocab(words, instance)"
_INSERT = "INSERT INTO words(rowid, word) VALUES (?, ?)"
_SELECT = "SELECT doc, term FROM stems ORDER BY doc, offset"

_IN_MEMORY = partial(sqlite3.connect, ":memory:", check_same_thread=False)


class SearchError(SkillhouseError):
    """This Python's SQLite lacks the full-text module."""

    def __init__(self, sqlite_version: str) -> None:
        super().__init__(
            "search needs SQLite 3.27 or newer with FTS5, got one that has no such module: "
            f"{sqlite_version}"
        )
        self.sqlite_version = sqlite_version


def open_stemmer(connect: Callable[[], sqlite3.Connection] = _IN_MEMORY) -> sqlite3.Connection:
    """Return a database with the tables that stem words.

    SearchError: this SQLite, which `connect` opens in memory, has no FTS5.
    """
    connection = connect()
    try:
        connection.execute(_CREATE)
        connection.execute(_VOCABULARY)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise SearchError(sqlite3.sqlite_version) from error
    return connection


_idle: list[sqlite3.Connection] = []
"""Databases that are not in use: making one takes longer than to stem a query.

They belong to no thread. A connection is in a circle with its cache of statements, so that of a
thread that has ended would stay until the collector looks through everything.
"""
_STEMS_KEPT, _KEPT_CHARS = 20_000, 40
"""Tokens whose stems are kept, and the longest of them: queries repeat most of their words."""
_kept: dict[str, tuple[str, ...]] = {}


def stems_of_query(tokens: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Return the stems of each token as `stems_of`, which is asked for those that are not kept."""
    stems = {token: _kept.get(token) for token in tokens}
    missing = stems_of(token for token, found in stems.items() if found is None)
    if len(_kept) > _STEMS_KEPT:
        _kept.clear()
    _kept.update((token, found) for token, found in missing.items() if len(token) <= _KEPT_CHARS)
    return {token: missing[token] if found is None else found for token, found in stems.items()}


def stems_of(tokens: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Return the stems of each token: usually one, none or several where SQLite splits it.

    SearchError: this SQLite has no FTS5.

    >>> stems_of(["merging", "café", "数据"])
    {'merging': ('merg',), 'café': ('cafe',), '数据': ('数据',)}
    """
    different = list(dict.fromkeys(tokens))
    stems: dict[str, tuple[str, ...]] = dict.fromkeys(different, ())
    if not different:
        return stems
    try:
        connection = _idle.pop()
    except IndexError:
        connection = open_stemmer()
    try:
        connection.executemany(_INSERT, enumerate(different))
        for number, stem in connection.execute(_SELECT):
            stems[different[number]] += (stem,)
    finally:
        # The words were never written: nothing grows, and the next call begins with no words.
        connection.rollback()
        _idle.append(connection)
    return stems
