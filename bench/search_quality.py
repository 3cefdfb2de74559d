"""Measures how well and how fast retrieval finds skills, on the development set.

Run it from the project root: `python bench/search_quality.py [FOLDER]`. FOLDER holds corpus.jsonl,
queries.jsonl and qrels.jsonl, and is `../shared/data/retrieval-dev` if not given; without it the
measurement is skipped.
"""

import argparse
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from skillhouse.retrieval import SearchIndex

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data" / "retrieval-dev"
CHINESE_TO_CHINESE = ("bullet_zh", "quoted_zh")
"""The types of Chinese queries whose answers are Chinese skills."""
DEPTH = 10

Judged = tuple[float, float, float]
"""Hit@1, Recall@5 and NDCG@10 of one query, from 0 to 1."""


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSONL file."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def judge(found: Sequence[str], relevance: Mapping[str, int]) -> Judged:
    """Return how good the ids `found` are; anything relevant counts for Hit@1 and Recall@5."""
    grades = [relevance.get(document, 0) for document in found]
    ideal = gain(sorted(relevance.values(), reverse=True)[:DEPTH])
    return float(any(grades[:1])), float(any(grades[:5])), gain(grades[:DEPTH]) / ideal


def gain(grades: Sequence[int]) -> float:
    """Return the discounted cumulative gain, 2^grade - 1 each."""
    return sum((2.0**grade - 1) / math.log2(place + 2) for place, grade in enumerate(grades))


def groups(query: Mapping[str, Any]) -> list[str]:
    """Return the lines of the table that a query counts for."""
    also = ["zh>zh"] if query["type"] in CHINESE_TO_CHINESE else []
    return [query["type"], f"{query['lang']} overall", *also]


def table(judged: Mapping[str, Sequence[Judged]]) -> str:
    """Return the quality of each group as Markdown, in percent."""
    lines = ["| queries | n | Hit@1 | Recall@5 | NDCG@10 |", "|---|---|---|---|---|"]
    for group in sorted(judged, key=lambda name: (" " in name or ">" in name, name)):
        results = judged[group]
        means = (100 * sum(column) / len(results) for column in zip(*results, strict=True))
        lines.append(
            f"| {group} | {len(results)} | " + " | ".join(f"{m:.1f}" for m in means) + " |"
        )
    return "\n".join(lines)


def measure(folder: Path) -> str:
    """Return the whole report on the set in `folder`."""
    documents = [
        (row["id"], row["name"], row["description"], row["body"])
        for row in rows(folder / "corpus.jsonl")
    ]
    relevance: dict[str, dict[str, int]] = defaultdict(dict)
    for row in rows(folder / "qrels.jsonl"):
        relevance[row["qid"]][row["doc_id"]] = row["relevance"]
    cpu, wall = time.process_time(), time.perf_counter()
    index = SearchIndex.from_documents(documents)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    judged: dict[str, list[Judged]] = defaultdict(list)
    spent: list[float] = []
    for query in rows(folder / "queries.jsonl"):
        start = time.process_time()
        hits = index.search(query["text"], limit=DEPTH)
        spent.append(1_000 * (time.process_time() - start))
        for group in groups(query):
            judged[group].append(judge([hit.id for hit in hits], relevance[query["qid"]]))
    spent.sort()
    p50, p99 = (spent[int(len(spent) * share)] for share in (0.5, 0.99))
    return (
        f"{table(judged)}\n\n{len(index)} documents, built in {cpu:.1f} s CPU ({wall:.1f} s wall); "
        f"{len(spent)} queries, CPU p50 {p50:.1f} ms, p99 {p99:.1f} ms"
    )


def main() -> int:
    """Print the report, or why there is none."""
    parser = argparse.ArgumentParser(description="retrieval quality and speed")
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    folder = parser.parse_args().folder
    if not (folder / "corpus.jsonl").is_file():
        print(f"skipped: no development set in `{folder}`", file=sys.stderr)
        return 0
    print(measure(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
