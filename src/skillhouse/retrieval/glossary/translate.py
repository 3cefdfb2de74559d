"""Says what words of other languages mean in the words of English skills, and the reverse."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from skillhouse.floor.regex import regex
from skillhouse.retrieval.glossary.chinese import split
from skillhouse.retrieval.glossary.dictionary import Dictionary, Senses
from skillhouse.retrieval.glossary.terms import CJK, LANGS, base, terms

_FILE = Path(__file__).with_name("zh.glossary")
_OWN_SHARE = 0.5
"""Weight of the table's senses of a word that the dictionary has too."""
_CJK_RUN = regex("[\u3005\u3041-\u3096\u30a1-\u30fa\u30fc\u4e00-\u9fff\uac00-\ud7a3]+")
_KANA = regex("[\u3041-\u3096\u30a1-\u30fa]")
_HANGUL = regex("[\uac00-\ud7a3]")
_WORD = re.compile(r"[^\W\d_]+")
_FUNCTION_WORDS = {
    "de": "der die das ein eine einen für mit und ist wie ich mir mein meine wird bitte von im",
    "fr": "le la les un une des pour avec est et mon ma mes quel quelle moi dans du sur je",
    "es": "el la los las una para con que mi mis del en y por cómo qué quiero hazme un",
    "ru": "и в на с для как мне мой что по из это",
}
_LANGS_OF_WORD = {lang: frozenset(words.split()) for lang, words in _FUNCTION_WORDS.items()}


class Meaning(NamedTuple):
    """A word of a query, and what it can mean."""

    text: str
    senses: Senses
    is_sure: bool
    """Whether the word is of another language by its script, or by the words around it."""


def meanings(query: str) -> list[Meaning]:
    """Return the words of a query that a glossary has, with their senses in English."""
    found: dict[str, Meaning] = {}
    if not query.isascii():
        for meaning in _of_signs(query):
            found.setdefault(meaning.text, meaning)
    for meaning in _of_words(query):
        found.setdefault(meaning.text, meaning)
    return list(found.values())


def translations(word: str) -> Sequence[str]:
    """Return words of other languages for an English one."""
    return terms().others.get(word, ())


def languages(query: str) -> list[str]:
    """Return which of the languages without CJK signs a query has function words of.

    >>> languages("Wetter für morgen"), languages("weather of tomorrow")
    (['de'], [])
    """
    words = _WORD.findall(query.casefold())
    return [lang for lang, those in _LANGS_OF_WORD.items() if not those.isdisjoint(words)]


def _of_signs(query: str) -> list[Meaning]:
    runs = _CJK_RUN.findall(query)
    if not runs:
        return []
    dictionary = _dictionary()
    is_japanese = _KANA.search(query) is not None
    is_korean = not is_japanese and _HANGUL.search(query) is not None
    # Without kana, a text of Han signs can be either.
    langs = ("ko",) if is_korean else ("ja", "zh") if is_japanese else ("zh", "ja")
    tables = [terms().english[lang] for lang in langs]
    translated: list[Meaning] = []

    def senses(word: str) -> Senses:
        written = next((table[word] for table in tables if word in table), ())
        simplified = dictionary.simplified(word)
        known = dictionary.senses(simplified)
        if not written:
            return known
        rest = 1.0 - _OWN_SHARE if known else 0.0
        share = (1.0 - rest) / len(written)
        return (
            *((english, share) for english in written),
            *((english, rest * weight) for english, weight in known),
        )

    for run in runs:
        text = run if is_japanese else dictionary.simplified(run)
        translated += [Meaning(word, meant, is_sure=True) for word, meant in split(text, senses)]
    return translated


def _of_words(query: str) -> list[Meaning]:
    words = _WORD.findall(query.casefold())
    langs = languages(query)
    table = terms().english
    found: list[Meaning] = []
    for word in words:
        if any(word in _LANGS_OF_WORD[lang] for lang in langs):
            continue
        key = base(word)
        for lang in langs or [lang for lang in LANGS if lang not in CJK]:
            english = table[lang].get(key)
            if english and word not in english:
                share = 1.0 / len(english)
                is_sure = bool(langs) or not word.isascii()
                found.append(Meaning(word, tuple((each, share) for each in english), is_sure))
                break
    return found


@cache
def _dictionary() -> Dictionary:
    # It never changes while the program runs.
    return Dictionary(_FILE)
