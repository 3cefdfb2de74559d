"""The development set of retrieval, measures of a ranking, and rankers to compare with."""

from __future__ import annotations

import argparse
import importlib
import json
import math
import random
import re
import sqlite3
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data" / "retrieval-dev"
CHINESE_TO_CHINESE = ("bullet_zh", "quoted_zh")
"""The types of Chinese queries whose answers are Chinese skills."""
DEPTH = 10
FOLDS = 5
RESAMPLES = 1_000

Document = tuple[str, str, str, str]
Judged = tuple[float, float, float, float]
"""Hit@1, Recall@5, NDCG@10 and the reciprocal rank of one query, from 0 to 1."""
MEASURES = ("Hit@1", "Recall@5", "NDCG@10", "MRR")
Search = Callable[[str], Sequence[str]]
"""Returns the ids of the best documents for a query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    qid: str
    type: str
    lang: str
    text: str
    relevance: Mapping[str, int]
    fold: int
    """Queries about skills of one owner are in one fold."""


def groups(query_type: str, lang: str) -> list[str]:
    """Return the lines of a table that a query counts for."""
    to_english = [] if query_type in CHINESE_TO_CHINESE else ["zh to en"]
    chinese = to_english or ["zh to zh"]
    return [query_type, f"all {lang}", *(chinese if lang == "zh" else [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    documents: Sequence[Document]
    queries: Sequence[Query]


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Return the options, the folder of the set among them; end here where there is none."""
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args()
    if not (options.folder / "corpus.jsonl").is_file():
        parser.exit(message=f"skipped: no development set in `{options.folder}`\n")
    return options


def load(folder: Path) -> Collection:
    """Read a collection: corpus.jsonl, queries.jsonl and qrels.jsonl."""
    corpus = list(rows(folder / "corpus.jsonl"))
    owners = {row["id"]: owner(row["source"]) for row in corpus}
    relevance: dict[str, dict[str, int]] = defaultdict(dict)
    for row in rows(folder / "qrels.jsonl"):
        relevance[row["qid"]][row["doc_id"]] = row["relevance"]
    queries = []
    for row in rows(folder / "queries.jsonl"):
        grades = relevance[row["qid"]]
        target = max(grades, key=lambda document: grades[document])
        queries.append(Query(**row, relevance=grades, fold=fold_of(owners[target])))
    documents = [(row["id"], row["name"], row["description"], row["body"]) for row in corpus]
    return Collection(documents=documents, queries=queries)


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSONL file."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def owner(source: str) -> str:
    """Return who wrote a skill: in a collection of collections its second folder.

    >>> owner("a/b:skills/c--d/skills/e/SKILL.md"), owner("a/b:e/SKILL.md")
    ('a/b:c--d', 'a/b:e')
    """
    repository, _, path = source.partition(":")
    parts = path.split("/")
    return f"{repository}:{parts[1] if len(parts) > 3 else parts[0]}"


def fold_of(owner: str) -> int:
    return zlib.crc32(owner.encode()) % FOLDS


def judge(found: Sequence[str], relevance: Mapping[str, int]) -> Judged:
    """Return how good the ids `found` are; anything relevant counts but for NDCG."""
    grades = [relevance.get(document, 0) for document in found[:DEPTH]]
    ideal = _gain(sorted(relevance.values(), reverse=True)[:DEPTH])
    first = next((1 / place for place, grade in enumerate(grades, 1) if grade), 0.0)
    return float(any(grades[:1])), float(any(grades[:5])), _gain(grades) / ideal, first


def _gain(grades: Sequence[int]) -> float:
    """Return the discounted cumulative gain, 2^grade - 1 each."""
    return sum((2.0**grade - 1) / math.log2(place + 2) for place, grade in enumerate(grades))


def judged_all(search: Search, queries: Sequence[Query]) -> list[Judged]:
    return [judge(search(query.text), query.relevance) for query in queries]


def quality_rows(queries: Sequence[Query], judged: Sequence[Judged]) -> list[list[str]]:
    """Return a row of percentages for each group, NDCG@10 with its 95 % interval."""
    of_group: dict[str, list[Judged]] = defaultdict(list)
    for query, result in zip(queries, judged, strict=True):
        for group in ("all", *groups(query.type, query.lang)):
            of_group[group].append(result)
    lines = []
    for group in sorted(of_group, key=lambda name: (" " in name, name)):
        results = of_group[group]
        means = [100 * sum(column) / len(results) for column in zip(*results, strict=True)]
        low, high = interval([result[2] for result in results])
        shown = [f"{mean:.1f}" for mean in means]
        shown[2] += f" ({100 * low:.1f} to {100 * high:.1f})"
        lines.append([group, str(len(results)), *shown])
    return lines


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a mean; the same for the same values."""
    chance = random.Random(7)
    means = sorted(
        sum(chance.choices(values, k=len(values))) / len(values) for _ in range(RESAMPLES)
    )
    return means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES)]


_WORD = re.compile(r"\w+")


def fts5_porter(documents: Sequence[Document]) -> Search:
    """Return the search that most programs have: FTS5 over names and descriptions."""
    connection = sqlite3.connect(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE skills USING fts5(name, description, tokenize='porter unicode61')"
    )
    connection.executemany(
        "INSERT INTO skills(rowid, name, description) VALUES (?, ?, ?)",
        ((number, name, about) for number, (_, name, about, _) in enumerate(documents)),
    )

    def search(query: str) -> list[str]:
        terms = list(dict.fromkeys(_WORD.findall(query.lower())))[:64]
        if not terms:
            return []
        found = connection.execute(
            "SELECT rowid FROM skills WHERE skills MATCH ? ORDER BY bm25(skills, 5, 2) LIMIT ?",
            (" OR ".join(f'"{term}"' for term in terms), DEPTH),
        )
        return [documents[number][0] for (number,) in found]

    return search


def bm25s_plain(documents: Sequence[Document]) -> Search | None:
    """Return a search of the library bm25s, with its own tokens; None if it is not installed."""
    try:
        bm25s = importlib.import_module("bm25s")
    except ImportError:
        return None
    texts = [" ".join([name] * 3 + [about] * 2 + [body]) for _, name, about, body in documents]
    ranker = bm25s.BM25()
    ranker.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)

    def search(query: str) -> list[str]:
        tokens = bm25s.tokenize([query], show_progress=False)
        numbers, scores = ranker.retrieve(tokens, k=DEPTH, show_progress=False)
        pairs = zip(numbers[0], scores[0], strict=True)
        return [documents[number][0] for number, score in pairs if score > 0]

    return search
