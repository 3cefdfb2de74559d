"""Says what words of other languages mean in the words of English skills, and the reverse.

Chinese comes from a dictionary, eight other languages from the table that this project wrote.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from skillhouse.floor.regex import regex
from skillhouse.retrieval.glossary.dictionary import Dictionary, Senses, split

LANGS = ("zh", "ja", "ko", "de", "fr", "es", "ru")
"""The languages of the table after English, in the order of its columns."""
CJK = frozenset(LANGS[:3])
_TERMS_FILE = Path(__file__).with_name("terms.tsv")
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
_STOP_WORDS = {
    "de": "am an auch auf aus bei brauche dem den des einem einer es heute in ins kann meinem "
    "meiner meinen mir morgen nach neue neuen oder sich sind soll was wenn wo zu zum zur zwei",
    "fr": "au aux ce ces cette comment de donne en entre faire il moi nous où par qu que qui sa se "
    "ses son soir sous votre vos à ce",
    "es": "a al como de dos está este esta hace hacer lo me nos o quiero se sin sobre su sus un y",
    "ru": "а бы был в во где для до ее завтра или их к как какая когда ко меня мы на нам о об от "
    "по при с сделай со сделать то у чтобы",
}
_LANGS_OF_WORD = {lang: frozenset(words.split()) for lang, words in _FUNCTION_WORDS.items()}
_IDLE = {lang: words.union(_STOP_WORDS[lang].split()) for lang, words in _LANGS_OF_WORD.items()}


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
    lines = _TERMS_FILE.read_text("utf-8").splitlines()
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


class Meaning(NamedTuple):
    """A word of a query, and what it can mean."""

    text: str
    senses: Senses
    is_sure: bool
    """Whether the word is of another language by its script, or by the words around it."""
    words: tuple[str, ...]
    """The words of the query that it is about; of a part of a compound, the compound."""


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
    return others().get(word, ())


def languages(query: str) -> list[str]:
    """Return which of the languages without CJK signs a query has function words of.

    >>> languages("Wetter für morgen"), languages("weather of tomorrow")
    (['de'], [])
    """
    words = _WORD.findall(query.casefold())
    return [lang for lang, those in _LANGS_OF_WORD.items() if not those.isdisjoint(words)]


def idle_words(query: str) -> frozenset[str]:
    """Return the words of other languages that say nothing in a query of theirs.

    >>> "mit" in idle_words("Kuchen mit Sahne"), idle_words("cake with cream")
    (True, frozenset())
    """
    langs = languages(query)
    return LINKS.union(*(_IDLE[lang] for lang in langs)) if langs else frozenset()


def _of_signs(query: str) -> list[Meaning]:
    runs = _CJK_RUN.findall(query)
    if not runs:
        return []
    dictionary = _dictionary()
    is_japanese = _KANA.search(query) is not None
    is_korean = not is_japanese and _HANGUL.search(query) is not None
    # Without kana, a text of Han signs can be either.
    langs = ("ko",) if is_korean else ("ja", "zh") if is_japanese else ("zh", "ja")
    tables = [english(lang) for lang in langs]
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
            *((each, share) for each in written),
            *((each, rest * weight) for each, weight in known),
        )

    for run in runs:
        text = run if is_japanese else dictionary.simplified(run)
        translated += [
            Meaning(word, meant, is_sure=True, words=(word,)) for word, meant in split(text, senses)
        ]
    return translated


def _of_words(query: str) -> list[Meaning]:
    langs = languages(query)
    idle = idle_words(query) or LINKS
    words = [word for word in _WORD.findall(query.casefold()) if word not in idle]
    tried = langs or _LANGS_OF_WORD
    found: list[Meaning] = []
    at = 0
    while at < len(words):
        phrase = words[at : at + 2]
        meant = _meaning(phrase, tried) if len(phrase) > 1 else None
        if meant is None:
            phrase = words[at : at + 1]
            meant = _meaning(phrase, tried)
        at += len(phrase)
        text = " ".join(phrase)
        is_sure = bool(langs) or not text.isascii()
        if meant is not None:
            found.append(Meaning(text, meant, is_sure, tuple(phrase)))
        elif "de" in tried and (parts := compound(text)):
            found += [
                Meaning(part, senses, is_sure, (text,))
                for part in parts
                if (senses := _meaning([part], ["de"]))
            ]
    return found


def _meaning(words: Sequence[str], langs: Iterable[str]) -> Senses | None:
    """Return what a word or phrase means in the first language that has it."""
    text = " ".join(words)
    for lang in langs:
        if lang == "ru" and text.isascii():
            continue
        meant = english(lang).get(base(text, lang))
        if meant and text not in meant:
            return tuple((each, 1.0 / len(meant)) for each in meant)
    return None


@cache
def _dictionary() -> Dictionary:
    # It never changes while the program runs.
    return Dictionary(_FILE)
