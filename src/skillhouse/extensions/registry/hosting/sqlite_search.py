"""Lists and searches the skills of the SQLite engine."""

from __future__ import annotations

import base64
import binascii
import json
import re
import sqlite3
import unicodedata
from typing import Any

from skillhouse.extensions.registry.hosting.release_store import (
    PAGE_MAX,
    HostedSkill,
    HostedSkills,
    ListQuery,
)
from skillhouse.floor.regex import regex
from skillhouse.registry import HostingError, address_name, name_key
from skillhouse.store import Store

TERMS_MAX = 16
"""Words of a query that are searched."""
FOUND_MAX = 1_000
"""Skills down to which a search can be paged."""
RANKED_MAX = 2_000
"""Skills that one query ranks; with 50,000 skills a common word has more."""
_COLUMNS = "namespace, name, description, latest, license, publisher, updated_at"
# Written without blanks: a word is any two characters beside each other. Han, kana and Hangul, then
# Thai, Lao, Burmese, Khmer and Tai (class SA of UAX #14), between whose words some write U+200B.
_CJK = "\u3005\u3007\u3041-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
_SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aad\ua9e0-\ua9fe\uaa60-\uaadf"
)
_RUN = regex(f"[{_CJK}]+|[{_SPACELESS}]+")
_WORD_BREAK = regex(f"(?<=[{_SPACELESS}])\u200b+(?=[{_SPACELESS}])")
_WORD = regex(r"[^\W_]+")


def search_words(text: str) -> list[str]:
    """Return the words of a text as they are indexed, without a letter that is syntax.

    >>> search_words("Merge PDF-files"), search_words("合并文件")
    (['Merge', 'PDF', 'files'], ['合并', '并文', '文件'])
    """
    plain = unicodedata.normalize("NFKC", text)
    if not plain.isascii():
        # Vowel signs and points would end a word.
        plain = "".join(one for one in plain if unicodedata.category(one) not in ("Mn", "Mc"))
        plain = _WORD_BREAK.sub("", plain)
    return _WORD.findall(_RUN.sub(_pairs, plain))


def _pairs(found: re.Match[str]) -> str:
    run = found[0]
    pairs = [run[at : at + 2] for at in range(max(1, len(run) - 1))]
    return f" {' '.join(pairs)} "


def index_missing(store: Store) -> None:
    """Index all skills where none is, as after a step of the schema."""
    if store.rows("SELECT 1 FROM skill_text LIMIT 1"):
        return
    numbers = store.rows("SELECT id FROM skill WHERE standing = 2")
    if numbers:
        with store.transaction() as connection:
            for (number,) in numbers:
                index_text(connection, number)


def index_text(connection: sqlite3.Connection, number: int) -> None:
    """Index the texts of a skill as its row has them: one with a published version is found."""
    query = "SELECT name, description, standing = 2 FROM skill WHERE id = ?"
    name, description, is_found = connection.execute(query, (number,)).fetchone()
    texts = (" ".join(search_words(name)), " ".join(search_words(description)))
    known = connection.execute(
        "SELECT name, about FROM skill_text WHERE rowid = ?", (number,)
    ).fetchone()
    if known == (texts if is_found else None):
        return
    if known is not None:
        connection.execute("DELETE FROM skill_text WHERE rowid = ?", (number,))
    if is_found:
        connection.execute(
            "INSERT INTO skill_text (rowid, name, about) VALUES (?, ?, ?)", (number, *texts)
        )


def find_skills(reader: Store, query: ListQuery) -> HostedSkills:
    """Return one page; HostingError `bad-request` for a cursor that is not ours."""
    limit = max(1, min(query.limit, PAGE_MAX))
    words = list(dict.fromkeys(search_words(query.text)))[:TERMS_MAX]
    if query.text and not words:
        return HostedSkills(skills=())
    if words and query.sort in (None, "relevance"):
        return _ranked(reader, query, words, limit)
    return _sorted(reader, query, words, limit)


def _ranked(reader: Store, query: ListQuery, words: list[str], limit: int) -> HostedSkills:
    start = _cursor(query.cursor, int) if query.cursor else 0
    if not 0 <= start <= FOUND_MAX:
        raise HostingError("bad-request", f"a search shows at most {FOUND_MAX} skills")
    most = min(start + limit + 1, FOUND_MAX)
    numbers = [number for (number,) in _exact(reader, query)]
    also = list(dict.fromkeys(word for text in query.also for word in search_words(text)))
    for match, wanted in ((_all_words, words), (_any_word, words), (_any_word, also[:TERMS_MAX])):
        if wanted and len(numbers) < most:
            numbers = list(dict.fromkeys([*numbers, *match(reader, query, wanted, most)]))
    page = numbers[start : start + limit]
    is_more = len(numbers) > start + limit and start + limit < FOUND_MAX
    return HostedSkills(
        skills=_skills(reader, page), next_cursor=_text(start + limit) if is_more else None
    )


def _exact(reader: Store, query: ListQuery) -> list[tuple[Any, ...]]:
    """Return the skills that are called as the query: they come first."""
    key = name_key("-".join(search_words(query.text)))
    return reader.rows(
        "SELECT id FROM skill WHERE namespace = 'default' AND key = ? AND standing = 2 "
        "AND (? = '' OR publisher = ?) LIMIT 5",
        (key, query.publisher, query.publisher),
    )


def _all_words(reader: Store, query: ListQuery, words: list[str], most: int) -> list[int]:
    """Return the skills with every word, best first; of very many, those with it in the name."""
    match = " AND ".join(map(_quoted, words))
    if _count(reader, match) <= RANKED_MAX:
        return _matches(reader, query, match, most)
    named = f"name : ({match})"
    found = _matches(reader, query, named, most) if _count(reader, named) <= RANKED_MAX else []
    return [*found, *_matches(reader, query, match, most, order="skill_text.rowid DESC")]


def _any_word(reader: Store, query: ListQuery, words: list[str], most: int) -> list[int]:
    """Return the skills with some of the words, best first: the rarest ones that are not too many.

    A word that most skills have says little, and to rank all of those takes 50 ms.
    """
    counts = sorted((_count(reader, _quoted(word)), word) for word in words)
    total, rare = 0, []
    for count, word in counts:
        total += count
        if total <= RANKED_MAX:
            rare.append(_quoted(word))
    return _matches(reader, query, " OR ".join(rare), most) if rare else []


def _count(reader: Store, match: str) -> int:
    """Return how many skills match, counted no further than what is ranked."""
    query = "SELECT count(*) FROM (SELECT 1 FROM skill_text WHERE skill_text MATCH ? LIMIT ?)"
    ((count,),) = reader.rows(query, (match, RANKED_MAX + 1))
    return int(count)


def _quoted(word: str) -> str:
    return f'"{word}"'


def _matches(
    reader: Store,
    query: ListQuery,
    match: str,
    most: int,
    *,
    order: str = "bm25(skill_text, 10.0, 5.0)",
) -> list[int]:
    condition, values = "", [match]
    if query.publisher:
        condition = "AND skill_text.rowid IN (SELECT id FROM skill WHERE publisher = ?) "
        values.append(query.publisher)
    rows = reader.rows(
        f"SELECT skill_text.rowid FROM skill_text WHERE skill_text MATCH ? {condition}"  # noqa: S608
        f"ORDER BY {order} LIMIT ?",
        (*values, most),
    )
    return [number for (number,) in rows]


def _sorted(reader: Store, query: ListQuery, words: list[str], limit: int) -> HostedSkills:
    """Return a page by name or time, which goes on where the one before ended."""
    by_time = query.sort == "updated"
    columns, sign = ("updated_at, id", "<") if by_time else ("name, namespace", ">")
    order = "updated_at DESC, id DESC" if by_time else "name, namespace"
    conditions, values = ["standing > 0"], list[Any]()
    if query.publisher:
        conditions.append("publisher = ?")
        values.append(query.publisher)
    if words:
        conditions.append("id IN (SELECT rowid FROM skill_text WHERE skill_text MATCH ?)")
        values.append(" AND ".join(map(_quoted, words)))
    if query.cursor:
        conditions.append(f"({columns}) {sign} (?, ?)")
        values += _pair(query.cursor, int if by_time else str)
    rows = reader.rows(
        f"SELECT id, {columns} FROM skill WHERE {' AND '.join(conditions)} "  # noqa: S608
        f"ORDER BY {order} LIMIT ?",
        (*values, limit + 1),
    )
    page = rows[:limit]
    cursor = _text(list(page[-1][1:])) if len(rows) > limit else None
    return HostedSkills(skills=_skills(reader, [row[0] for row in page]), next_cursor=cursor)


def _skills(reader: Store, numbers: list[int]) -> tuple[HostedSkill, ...]:
    marks = ", ".join("?" * len(numbers))
    rows = reader.rows(
        f"SELECT id, {_COLUMNS} FROM skill WHERE id IN ({marks})",  # noqa: S608
        numbers,
    )
    by_number = {row[0]: row[1:] for row in rows}
    return tuple(_hosted(by_number[number]) for number in numbers)


def _hosted(row: tuple[Any, ...]) -> HostedSkill:
    namespace, skill, description, latest, license_text, publisher, updated_at = row
    return HostedSkill(
        name=address_name(namespace, skill),
        namespace=namespace,
        skill=skill,
        description=description,
        latest=latest,
        license=license_text,
        publisher=publisher,
        updated_at=updated_at,
    )


def _text(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _cursor(text: str, kind: type) -> Any:
    """Return what a cursor of ours says; it comes from outside."""
    try:
        value = json.loads(base64.urlsafe_b64decode(text[:500] + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise HostingError("bad-request", "expected a cursor of an earlier page") from error
    if type(value) is not kind:
        raise HostingError("bad-request", "expected a cursor of an earlier page")
    return value


def _pair(text: str, second: type) -> list[Any]:
    value = _cursor(text, list)
    if len(value) != 2 or type(value[0]) is not str or type(value[1]) is not second:
        raise HostingError("bad-request", "expected a cursor of an earlier page")
    if isinstance(value[1], int) and not 0 <= value[1] < 1 << 63:
        raise HostingError("bad-request", "expected a cursor of an earlier page")
    return list(value)
