"""Misspelt requests, requests that nothing fits, and how much of other languages is known."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

from _measure import markdown_table
from _relevance import DEPTH, Judged, Query, judge
from skillhouse.retrieval import SearchIndex, is_weak
from skillhouse.retrieval.glossary.translate import LANGS, english, meanings

EVERYDAY = Path(__file__).with_name("data") / "everyday.tsv"
_LONG_WORD = re.compile(r"\b[a-z]{5,}\b")


def misspelt(index: SearchIndex, queries: Sequence[Query]) -> str:
    """Return the quality of English requests with edits in one word of five or more letters."""
    chance = random.Random(11)
    english = [query for query in queries if query.lang == "en" and _LONG_WORD.search(query.text)]
    rows = []
    for edits in (0, 1, 2):
        judged: list[Judged] = []
        for query in english:
            text = _edited(query.text, edits, chance)
            judged.append(judge([h.id for h in index.search(text, limit=DEPTH)], query.relevance))
        means = [100 * sum(column) / len(judged) for column in zip(*judged, strict=True)]
        rows.append((f"{edits} edits", *(f"{mean:.1f}" for mean in means[:3])))
    header = (f"{len(english)} English requests", "Hit@1", "Recall@5", "NDCG@10")
    return markdown_table(header, rows)


def _edited(text: str, edits: int, chance: random.Random) -> str:
    match = chance.choice(list(_LONG_WORD.finditer(text)))
    letters = list(match.group())
    for _ in range(edits):
        at = chance.randrange(len(letters) - 1)
        way = chance.randrange(4)
        letter = chance.choice("abcdefghijklmnopqrstuvwxyz")
        if way == 0:
            letters.insert(at, letter)
        elif way == 1:
            del letters[at]
        elif way == 2:
            letters[at] = letter
        else:
            letters[at], letters[at + 1] = letters[at + 1], letters[at]
    return text[: match.start()] + "".join(letters) + text[match.end() :]


def nothing_fits(index: SearchIndex, queries: Sequence[Query]) -> str:
    """Return how many requests have weak hits alone: everyday ones, and those that are answered."""
    rows = []
    for lang in ("en", "zh"):
        unanswered = [text for of_text, _, text in everyday() if of_text == lang]
        answered = [query.text for query in queries if query.lang == lang]
        shares = [
            100 * sum(_is_refused(index, text) for text in texts) / len(texts)
            for texts in (unanswered, answered)
        ]
        rows.append((lang, str(len(unanswered)), *(f"{share:.1f}" for share in shares)))
    header = ("weak matches alone", "everyday", "of everyday %", "of answerable %")
    return markdown_table(header, rows)


def everyday() -> list[tuple[str, str, str]]:
    """Return language, kind and text of each everyday request."""
    found: list[tuple[str, str, str]] = []
    kind = ""
    for line in EVERYDAY.read_text("utf-8").splitlines():
        if line.startswith("# kind: "):
            kind = line.removeprefix("# kind: ")
        elif not line.startswith("#"):
            lang, text = line.split("\t")
            found.append((lang, kind, text))
    return found


def _is_refused(index: SearchIndex, query: str) -> bool:
    hits = index.search(query)
    return not hits or is_weak(hits)


def coverage(queries: Sequence[Query]) -> str:
    """Return how many words of each language are known, and the share of Han signs covered."""
    rows = [(lang, f"{len(english(lang)):,}") for lang in LANGS]
    signs = covered = 0
    for query in queries:
        if query.lang == "zh":
            signs += sum("\u4e00" <= sign <= "\u9fff" for sign in query.text)
            # A word that occurs twice is one meaning.
            known = (each.text for each in meanings(query.text) if not each.text.isascii())
            covered += sum(map(len, known))
    share = f"{100 * covered / max(signs, 1):.0f} % of the Han signs of the Chinese requests"
    return f"{markdown_table(('language', 'words of the own table'), rows)}\n\nwords cover {share}"
