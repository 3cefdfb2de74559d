"""Requests in seven languages for a small library of fictitious skills and the built-in ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from _measure import ROOT, markdown_table
from skillhouse.discovery import discover
from skillhouse.retrieval import SearchIndex, is_weak

_FILE = Path(__file__).with_name("data") / "languages.tsv"


def small_library() -> tuple[SearchIndex, Sequence[tuple[str, str, str]]]:
    """Return the library, and the language, the skill and the text of each request for it."""
    lines = _FILE.read_text("utf-8").splitlines()
    rows = [tuple(line.split("\t")) for line in lines if not line.startswith("#")]
    built_in = discover([ROOT / "src" / "skillhouse" / "builtin"]).skills
    documents = [(name, name, about, "") for kind, name, about in rows if kind == "skill"]
    documents += [(skill.name, skill.name, skill.description, "") for skill in built_in]
    requests = [(lang, name, text) for lang, name, text in rows if lang != "skill"]
    return SearchIndex.from_documents(documents), requests


def languages() -> str:
    """Return how many requests of each language find their skill."""
    index, requests = small_library()
    of_lang: dict[str, list[tuple[bool, bool, bool]]] = defaultdict(list)
    for lang, name, text in requests:
        hits = index.search(text)
        ids = [hit.id for hit in hits]
        of_lang[lang].append((ids[:1] == [name], name in ids, not hits or is_weak(hits)))
    rows = [
        (
            lang,
            str(len(found)),
            *(f"{100 * sum(each) / len(found):.0f}" for each in zip(*found, strict=True)),
        )
        for lang, found in of_lang.items()
    ]
    header = (f"requests for {len(index)} skills", "number", "Hit@1", "Recall@5", "weak %")
    return markdown_table(header, rows)
