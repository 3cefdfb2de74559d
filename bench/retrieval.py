"""Measures how well and how fast search finds skills, on the development set.

`./x bench retrieval [--folder FOLDER] [--semantic]`. FOLDER holds corpus.jsonl, queries.jsonl and
qrels.jsonl; without it the measurement is skipped. What does not depend on our sources is cached.
`--semantic` adds search by meaning as it is shipped, in the environment that
`SKILLHOUSE_ENCODERS=1 ./x test tests/extensions/meaning` makes; the first run takes minutes more.
What was fitted on other folds is `./x bench research/fit`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from _languages import languages
from _measure import ROOT, markdown_table
from _relevance import (
    DEPTH,
    MEASURES,
    Collection,
    Judged,
    Query,
    bm25s_plain,
    fts5_porter,
    judge,
    judged_all,
    load,
    parsed,
    quality_rows,
)
from _robustness import coverage, misspelt, nothing_fits
from _shipped import CACHE, encoders_python
from skillhouse.retrieval import SearchIndex

HEADER = ("requests", "number", *MEASURES)


def main() -> int:
    """Print the report, or why there is none."""
    parser = argparse.ArgumentParser(description="retrieval quality and speed")
    parser.add_argument("--semantic", action="store_true", help="with the encoders too")
    options = parsed(parser)
    collection = load(options.folder)
    cpu, wall = time.process_time(), time.perf_counter()
    index = SearchIndex.from_documents(collection.documents)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    judged, spent = ours(index, collection.queries)
    tables = {"skillhouse": judged, **others(collection, options.folder)}
    for name, results in tables.items():
        print(f"\n{name}\n")
        print(markdown_table(HEADER, quality_rows(collection.queries, results)))
    p50, p99 = (spent[int(len(spent) * share)] for share in (0.5, 0.99))
    print(
        f"\n{len(index)} documents, built in {cpu:.1f} s CPU ({wall:.1f} s wall); "
        f"{len(spent)} queries, CPU p50 {p50:.1f} ms, p99 {p99:.1f} ms"
    )
    for part in (
        misspelt(index, collection.queries),
        nothing_fits(index, collection.queries),
        coverage(collection.queries),
        languages(),
    ):
        print(f"\n{part}")
    if options.semantic:
        sys.stdout.flush()
        shipped(options.folder)
    return 0


def shipped(folder: Path) -> None:
    """Print the quality and speed of the shipped search by meaning, if there are encoders."""
    python = encoders_python()
    if python is None:
        print("search by meaning: skipped, the extra `semantic` is not installed", file=sys.stderr)
        return
    # One thread for products of matrices, as search has them.
    own = {"PYTHONPATH": str(ROOT / "src"), "OPENBLAS_NUM_THREADS": "1"}
    command = [python, Path(__file__).with_name("_shipped.py"), folder.resolve(), CACHE]
    subprocess.run(command, check=True, env={**os.environ, **own})


def ours(index: SearchIndex, queries: Sequence[Query]) -> tuple[list[Judged], list[float]]:
    """Return the result of each query, and the CPU milliseconds of all in order of size."""
    judged: list[Judged] = []
    spent: list[float] = []
    for query in queries:
        start = time.process_time()
        hits = index.search(query.text, limit=DEPTH)
        spent.append(1_000 * (time.process_time() - start))
        judged.append(judge([hit.id for hit in hits], query.relevance))
    return judged, sorted(spent)


def others(collection: Collection, folder: Path) -> dict[str, list[Judged]]:
    """Return the results of rankers that are not ours, from the cache where it has them."""
    makers = {"FTS5 porter, name and description": fts5_porter, "bm25s": bm25s_plain}
    sources = [folder / name for name in ("corpus.jsonl", "queries.jsonl", "qrels.jsonl")]
    sources.append(Path(__file__).with_name("_relevance.py"))
    sums = b"".join(hashlib.sha256(path.read_bytes()).digest() for path in sources)
    found: dict[str, list[Judged]] = {}
    for name, maker in makers.items():
        key = hashlib.sha256(sums + name.encode()).hexdigest()[:24]
        path = CACHE / f"retrieval-{key}.json"
        if path.is_file():
            found[name] = [tuple(result) for result in json.loads(path.read_text("utf-8"))]
            continue
        search = maker(collection.documents)
        if search is None:
            print(f"{name}: not installed, left out", file=sys.stderr)
            continue
        found[name] = judged_all(search, collection.queries)
        CACHE.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found[name]), "utf-8")
    return found


if __name__ == "__main__":
    sys.exit(main())
