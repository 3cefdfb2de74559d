"""The languages of the interface: English in the templates, others in tables of texts."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from starlette.requests import Request

TEXTS = Path(__file__).resolve().parents[1] / "texts"
LANGUAGES = {"en": "English", "zh": "中文"}
"""Their codes (BCP 47) and own names; the first one is that of the templates."""
LANGUAGE_COOKIE = "skillhouse_language"


def language_of(request: Request) -> str:
    """Return the language that a person chose, else the one that the browser names first."""
    chosen = request.cookies.get(LANGUAGE_COOKIE, "")
    if chosen in LANGUAGES:
        return chosen
    return accepted(request.headers.get("accept-language", ""))


def accepted(header: str) -> str:
    """Return the language of ours with the highest weight in `Accept-Language` (RFC 9110).

    >>> accepted("fr, zh-CN;q=0.8, en;q=0.5"), accepted("*"), accepted("")
    ('zh', 'en', 'en')
    """
    best, weight = "en", 0.0
    for part in header[:1_000].split(","):
        name, _, rest = part.strip().partition(";")
        code = name.strip().lower().partition("-")[0]
        given = _weight(rest)
        if code in LANGUAGES and given > weight:
            best, weight = code, given
    return best


def _weight(parameter: str) -> float:
    """Return the weight of a language; 1 if it has none, 0 for one that is not a number."""
    name, _, number = parameter.strip().partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return float(number)
    except ValueError:
        return 0.0


@cache
def texts_of(language: str) -> Mapping[str, str]:
    """Return what the English texts are in a language; empty for English."""
    texts: dict[str, str] = {}
    for file in sorted((TEXTS / language).glob("*.toml")):
        texts.update(tomllib.loads(file.read_text(encoding="utf-8")))
    return texts


@cache
def problem_texts(language: str) -> Mapping[str, str]:
    """Return what problems are called in a language, by their codes; empty for English."""
    return _texts_of("problems", language)


@cache
def finding_texts(language: str) -> Mapping[str, str]:
    """Return what findings say in a language, by their codes; empty for English."""
    return _texts_of("findings", language)


def _texts_of(what: str, language: str) -> Mapping[str, str]:
    file = TEXTS / what / f"{language}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def translations(language: str) -> tuple[Callable[[str], str], Callable[[str, str, int], str]]:
    """Return `gettext` and `ngettext` of a language; a text without translation stays English."""
    texts = texts_of(language)

    def gettext(text: str) -> str:
        return texts.get(text, text)

    def ngettext(singular: str, plural: str, number: int) -> str:
        # Chinese has one form; the table has it by the plural.
        return texts.get(plural) or (singular if number == 1 else plural)

    return gettext, ngettext
