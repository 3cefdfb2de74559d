"""Words of requests in eight languages, from the table that this project wrote."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path

LANGS = ("zh", "ja", "ko", "de", "fr", "es", "ru")
"""The languages of the table after English, in the order of its columns."""
CJK = frozenset(LANGS[:3])
_FILE = Path(__file__).with_name("terms.tsv")
LINKS = frozenset("d de del der des die du el l la las le les los".split())
"""Words within phrases that do not count."""
_BASE_LEAST = 4
_BASES_KEPT = 1 << 14
"""Words that are kept in their base form: each word of a query is tried in several languages."""
_MARK = re.compile("[\u0300-\u036f]")
_ENDINGS = {
    lang: tuple(sorted(endings.split(), key=len, reverse=True))
    for lang, endings in {
        "de": "e en em er ern es n s t",
        "fr": "e ee ees er ers es ez s x",
        "es": "a ada ado ando ar as e er es iendo ir o os s",
        "ru": "а ам ами ах ая е его ей ем ему ет и ие ией ий ии им ими их ию ия ов ого ой ом ому "
        "ою у ую ы ые ый ым ыми ых ь ью ю я ями ях",
    }.items()
}
"""Endings of nouns, adjectives and common forms of verbs, without marks."""
_PART_LEAST = 4
"""Letters of each part of a compound."""
_LATIN_LEAST = 5
"""Letters from which a word in Latin script is looked for in skills for an English one."""


@cache
def english(lang: str) -> Mapping[str, Sequence[str]]:
    """Return the English words and phrases of each word of a language, by its base form."""
    column = LANGS.index(lang) + 1
    found: dict[str, dict[str, None]] = {}
    for row in _rows():
        for word in row[column]:
            key = word if lang in CJK else base(word, lang)
            found.setdefault(key, {}).update(dict.fromkeys(row[0]))
    return {key: tuple(words) for key, words in found.items()}


@cache
def others() -> Mapping[str, Sequence[str]]:
    """Return the words of other languages for each English one."""
    found: dict[str, dict[str, None]] = {}
    own = {word for row in _rows() for word in row[0]}
    for mine, *columns in _rows():
        words = [
            word
            for column in columns
            for word in column
            if not word.isascii() or (len(word) >= _LATIN_LEAST and word not in own)
        ]
        for each in mine:
            found.setdefault(each, {}).update(dict.fromkeys(words))
    return {key: tuple(words) for key, words in found.items()}


@cache
def _rows() -> Sequence[Sequence[Sequence[str]]]:
    lines = _FILE.read_text("utf-8").splitlines()
    return [[cell.split("|") for cell in line.split("\t")] for line in lines if line[0] != "#"]


def base(text: str, lang: str) -> str:
    """Return a word or phrase without marks, each word without one ending, as it is searched.

    >>> base("Prévisions", "fr"), base("Dateien", "de"), base("погоду", "ru")
    ('prevision', 'datei', 'погод')
    >>> base("bases de données", "fr") == base("base donnée", "fr")
    True
    """
    return " ".join(filter(None, (_base(word, lang) for word in text.casefold().split())))


@lru_cache(maxsize=_BASES_KEPT)
def _base(word: str, lang: str) -> str:
    if not word.isascii():
        word = _MARK.sub("", unicodedata.normalize("NFKD", word))
    return "" if word in LINKS else _shortened(word, lang)


def _shortened(word: str, lang: str) -> str:
    endings = _ENDINGS[lang]
    if not word.endswith(endings):
        return word
    for ending in endings:
        if word.endswith(ending) and len(word) - len(ending) >= _BASE_LEAST:
            return word[: -len(ending)]
    return word


@lru_cache(maxsize=_BASES_KEPT)
def compound(word: str) -> tuple[str, str] | None:
    """Return the two words of the table that a German compound is made of, or None.

    >>> compound("datenbankabfrage"), compound("wetter")
    (('datenbank', 'abfrage'), None)
    """
    table = english("de")
    for at in range(len(word) - _PART_LEAST, _PART_LEAST - 1, -1):
        parts = word[:at], word[at:]
        if all(base(part, "de") in table for part in parts):
            return parts
    return None
