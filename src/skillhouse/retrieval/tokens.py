"""Splits text into the tokens that are indexed and searched, before stemming."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

QUERY_TERMS_MAX = 64
"""Different terms of a query that are searched (reference/retrieval.md, section 5)."""

STOP_WORDS = frozenset(
    "a an and are as at be but by for from if in into is it its no not of on or s such t that the "
    "their then there these they this to was will with".split()
)
"""Lucene's English stop words, `from`, `its`, and what an apostrophe leaves: they
distinguish no skills and are the most expensive to search. Longer lists gained nothing
(bench/search_quality.py)."""

# Han with its iteration mark and zero, kana with its marks, Hangul syllables: scripts without
# blanks between words, or with endings that no blank separates.
_CJK_CHARACTERS = (
    "\u3005\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U000323af"
)
_ASCII_WORD = re.compile("[A-Za-z0-9]+")
_CJK = re.compile(f"[{_CJK_CHARACTERS}]")
_RUN = re.compile(f"[{_CJK_CHARACTERS}]+|[^\\W_{_CJK_CHARACTERS}]+")
# A lone `s` after capitals is a plural (`APIs`), so a word begins with two small letters there.
_CAMEL = re.compile("(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})|(?<=[0-9])(?=[A-Z][a-z])")
_MAY_BE_MARKED = re.compile("[\u0300-\u1fff]")
_NAME_BREAK = re.compile(r"[\s_-]+")


def tokens(text: str) -> list[str]:
    """Return the tokens of `text` in order, repetitions included.

    Words are casefolded (NFKC before); a word in camel case gives itself and its parts. A run of
    Han, kana or Hangul gives its overlapping pairs, or itself when it is one character. A token
    holds letters and digits only.

    >>> tokens("Parse_PDF with useEffect")
    ['parse', 'pdf', 'with', 'useeffect', 'use', 'effect']
    >>> tokens("用Python做数据分析")
    ['用', 'python', '做数', '数据', '据分', '分析']
    """
    return [token for word in words(text) for token in tokens_of(word)]


def words(text: str) -> list[str]:
    """Return the words of `text` as they are written, and its pairs of CJK characters, in order.

    >>> words("Parse_PDF: 数据分析")
    ['Parse', 'PDF', '数据', '据分', '分析']
    """
    if text.isascii():
        return _ASCII_WORD.findall(text)
    parts: list[str] = []
    for run in _RUN.findall(_normalised(text)):
        if not run.isascii() and _CJK.match(run):
            parts.extend(run[at : at + 2] for at in range(max(1, len(run) - 1)))
        else:
            parts.append(run)
    return parts


def tokens_of(word: str) -> tuple[str, ...]:
    """Return the tokens of a word of `words`.

    >>> tokens_of("useEffect")
    ('useeffect', 'use', 'effect')
    """
    folded = word.casefold()
    if folded == word:
        return (word,)
    parts = _CAMEL.split(word)
    if len(parts) == 1:
        return (folded,)
    # The whole stays as well, or `github` would not find `GitHub`.
    return (folded, *(part.casefold() for part in parts))


def query_terms(query: str) -> list[str]:
    """Return the terms of a query: each token once, at most `QUERY_TERMS_MAX`.

    Stop words count only when there is nothing else.

    >>> query_terms("merge the PDF, and the other PDF")
    ['merge', 'pdf', 'other']
    >>> query_terms("to be or not")
    ['to', 'be', 'or', 'not']
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
    """Return the `name_key` of each text, fast for thousands.

    >>> name_keys(["PDF tools", "pdf_tools"])
    ['pdf-tools', 'pdf-tools']
    """
    # No step crosses a NUL, which names rarely contain.
    folded = unicodedata.normalize("NFKC", "\0".join(texts)).casefold()
    keys = [key.strip("-") for key in _NAME_BREAK.sub("-", folded).split("\0")]
    return keys if len(keys) == len(texts) else [name_key(text) for text in texts]


def _normalised(text: str) -> str:
    """Return `text` in NFKC, without the marks that would end a word (vowel signs, points)."""
    text = unicodedata.normalize("NFKC", text)
    if _MAY_BE_MARKED.search(text) is None:
        return text
    return "".join(
        character for character in text if not unicodedata.category(character).startswith("M")
    )
