"""Words of requests in eight languages, from the table that this project wrote."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

LANGS = ("zh", "ja", "ko", "de", "fr", "es", "ru")
"""The languages of the table after English, in the order of its columns."""
CJK = frozenset(LANGS[:3])
_FILE = Path(__file__).with_name("terms.tsv")
_BASE_LEAST = 4
_ENDINGS = tuple(
    sorted(
        "en er es em ern e n s t ung x a o as os ar ando iendo ée és er ez "
        "а у ы и е о й я ю ов ам ами ах ой ую ая ый ые ть".split(),
        key=len,
        reverse=True,
    )
)
_LATIN_LEAST = 5
"""Letters from which a word in Latin script is looked for in skills for an English one."""


class Terms(NamedTuple):
    """The table by its words."""

    english: Mapping[str, Mapping[str, Sequence[str]]]
    """English words and phrases of each word of another language, by language and base form."""
    others: Mapping[str, Sequence[str]]
    """Words of other languages for each English one."""


@cache
def terms() -> Terms:
    """Return the table, which is read once."""
    english: dict[str, dict[str, list[str]]] = {lang: {} for lang in LANGS}
    others: dict[str, list[str]] = {}
    rows = list(_rows())
    own = {word for row in rows for word in row[0]}
    for mine, *columns in rows:
        for lang, words in zip(LANGS, columns, strict=True):
            for word in words:
                key = word if lang in CJK else base(word)
                english[lang].setdefault(key, []).extend(mine)
                if not word.isascii() or (len(word) >= _LATIN_LEAST and word not in own):
                    for each in mine:
                        others.setdefault(each, []).append(word)
    return Terms(english, others)


def _rows() -> Iterator[list[list[str]]]:
    for line in _FILE.read_text("utf-8").splitlines():
        if not line.startswith("#"):
            yield [cell.split("|") for cell in line.split("\t")]


def base(word: str) -> str:
    """Return a word without marks and without one ending, as the table is searched.

    >>> base("Prévisions"), base("dateien"), base("погоду")
    ('prevision', 'datei', 'погод')
    """
    plain = word.casefold()
    if not plain.isascii():
        letters = unicodedata.normalize("NFKD", plain)
        plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
    for ending in _ENDINGS:
        if plain.endswith(ending) and len(plain) - len(ending) >= _BASE_LEAST:
            return plain[: -len(ending)]
    return plain
