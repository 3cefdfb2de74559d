"""The languages of the interface: English in the templates, others in tables of texts.

What the core says are English sentences with values in them. Such a text is looked up by its fixed
parts, in one pass from its beginning to its end: what an agent sent is in some of them, and must
cost no more than its length.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

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


TEXT_MAX = 2_000
"""Characters of a text that is looked up; a longer one stays English."""
DEPTH_MAX = 4
"""Sentences within each other, as in `denied: …`."""
_VALUE = re.compile(r"\{(\+?)\}")


class Sentence(NamedTuple):
    """A sentence with its values: the texts between them, and which of these are sentences."""

    parts: tuple[str, ...]
    nested: tuple[bool, ...]
    translated: str

    def values_in(self, text: str) -> list[str] | None:
        """Return its values in a text that it is the whole of, the shortest that fit."""
        first, last = self.parts[0], self.parts[-1]
        if len(self.parts) == 1:
            return [] if text == first else None
        end = len(text) - len(last)
        if not text.startswith(first) or not text.endswith(last) or end < len(first):
            return None
        values, at = [], len(first)
        for part in self.parts[1:-1]:
            found = text.find(part, at + 1, end)
            if found < 0:
                return None
            values.append(text[at:found])
            at = found + len(part)
        values.append(text[at:end])
        return values if all(values) else None


@cache
def sentences(language: str) -> Mapping[str, tuple[Sentence, ...]]:
    """Return the sentences of a language by how they begin; those with most fixed text first."""
    file = TEXTS / "sentences" / f"{language}.toml"
    found: dict[str, list[Sentence]] = {}
    texts = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    for english in sorted(texts, key=lambda one: -len(_VALUE.sub("", one))):
        pieces = _VALUE.split(english)
        nested = tuple(mark == "+" for mark in pieces[1::2])
        one = Sentence(tuple(pieces[::2]), nested, texts[english])
        found.setdefault(one.parts[0][:1], []).append(one)
    return {start: tuple(several) for start, several in found.items()}


@lru_cache(maxsize=4_096)
def translated(language: str, text: str, depth: int = 0) -> str:
    """Return a text of the core in a language; what is not known of it stays English.

    >>> translated("zh", "no rule matches; hosts ask by default; something new")
    '没有匹配的规则；主机默认询问；something new'
    """
    known = sentences(language)
    if not known or len(text) > TEXT_MAX or depth > DEPTH_MAX:
        return text
    clauses = _clauses(text)
    if len(clauses) > 1:
        return "；".join(translated(language, one, depth + 1) for one in clauses)
    for start in (text[:1], ""):
        for one in known.get(start, ()):
            values = one.values_in(text)
            if values is not None:
                inner = [
                    translated(language, value, depth + 1) if is_sentence else value
                    for value, is_sentence in zip(values, one.nested, strict=True)
                ]
                return one.translated.format(*inner)
    return text


def _clauses(text: str) -> list[str]:
    """Return the parts of a text between `; `; what is in backticks is whole."""
    clauses, is_code = [""], False
    for piece in re.split(r"(`|; )", text):
        if piece == "; " and not is_code:
            clauses.append("")
            continue
        is_code ^= piece == "`"
        clauses[-1] += piece
    return clauses
