"""Measures search with encoders as it is shipped, beside search by words, in one process.

`./x bench retrieval --semantic` runs it where the extra is installed: FOLDER CACHE. The trees, the
weights and the threshold were fitted on the same requests: none of it is cross-validated.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from _measure import ROOT, markdown_table
from _relevance import (
    DEPTH,
    MEASURES,
    Collection,
    Document,
    Judged,
    Query,
    interval,
    judge,
    load,
    quality_rows,
)
from _robustness import everyday
from skillhouse.extensions.meaning import Encoders, encoders_of
from skillhouse.retrieval import SearchIndex, is_weak, search
from skillhouse.retrieval.votes import Meanings

CACHE = ROOT / ".x" / "bench"
SIZE = 10_000
"""Skills of the index that is timed: those of the set, and again its first."""
_SHOWN = 5
"""Hits that a search shows unless more are wanted."""
HOUR = 3_600.0
_ROUNDS = 3
_FIRST = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from _relevance import load
from _shipped import SIZE, filled, with_encoders
from skillhouse.retrieval import SearchIndex, search
from skillhouse.extensions.meaning import encoders_of
documents = filled(load(Path(sys.argv[2])).documents, SIZE)
built = SearchIndex.from_documents(documents)
encoders = encoders_of("auto")
spent = []
def timed(index):
    cpu, wall = time.thread_time(), time.perf_counter()
    search(index, "merge two PDF files and number the pages", limit=5)
    spent.extend((1_000 * (time.thread_time() - cpu), 1_000 * (time.perf_counter() - wall)))
if sys.argv[4] == "words":
    timed(built)
    spent.append(0.0)
else:
    begin = time.perf_counter()
    built.meanings = with_encoders(encoders, Path(sys.argv[3]), built)
    if sys.argv[4] == "ready":
        built.meanings.wait(3_600)
        spent_ready = time.perf_counter() - begin
        timed(built)
    else:
        timed(built)
        built.meanings.wait(3_600)
        spent_ready = time.perf_counter() - begin
    spent.append(1_000 * spent_ready)
print(spent)
"""


class Kept:
    """Encoders whose vectors are kept, though the documents are no files."""

    def __init__(self, encoders: Encoders, cache: Path) -> None:
        self._encoders, self._cache = encoders, cache

    @property
    def names(self) -> Sequence[str]:
        return self._encoders.names

    def over(self, count: int, text: Callable[[int], str], cache: Path | None) -> Meanings:
        return self._encoders.over(count, text, cache or self._cache)


def encoders_python() -> Path | None:
    """Return a Python that has the encoders: this one, or that of tests/extensions/meaning."""
    here = Path(sys.executable)
    if encoders_of("auto") is not None:
        return here
    python = ROOT / ".x" / "semantic" / here.parent.name / here.name
    return python if python.exists() else None


def with_encoders(encoders: Encoders, cache: Path, index: SearchIndex) -> Meanings:
    """Begin to read the vectors of an index that has none."""
    texts = index.encoded
    return encoders.over(len(texts), texts.__getitem__, cache)


def filled(documents: Sequence[Document], size: int) -> list[Document]:
    """Return documents, and the first of them once more under other ids, up to `size`."""
    more = [(f"again:{each[0]}", *each[1:]) for each in documents[: max(size - len(documents), 0)]]
    return [*documents, *more]


class Found(NamedTuple):
    """What a search gave for a request."""

    result: Judged
    shown: Judged
    """With skills that are alike as one hit, any of which may be the wanted one."""
    is_refused: bool


def main(folder: Path, cache: Path) -> int:
    """Print the report."""
    encoders = encoders_of("auto")
    if encoders is None:
        print("search by meaning: skipped, the extra `semantic` is not installed")
        return 0
    collection = load(folder)
    words = SearchIndex.from_documents(collection.documents)
    start = time.perf_counter()
    meaning = SearchIndex.from_documents(collection.documents, encoders=Kept(encoders, cache))
    assert meaning.meanings is not None
    meaning.meanings.wait(HOUR)
    state = meaning.meaning_state
    assert state is not None
    print(f"\n{'+'.join(state.ready)}: ready after {time.perf_counter() - start:.1f} s wall")
    if state.fault:
        print(state.fault)
        return 1
    print("Shipped weights, trees and threshold, fitted on these requests: no fold was left out.")
    indexes = {"words": words, "with encoders": meaning}
    found = {
        name: [_found(index, q) for q in collection.queries] for name, index in indexes.items()
    }
    print("\n" + _quality(collection, found))
    print("\n" + _refused(indexes, collection.queries, found))
    large = SearchIndex.from_documents(filled(collection.documents, SIZE))
    by_words = _speeds(large, collection.queries)
    large.meanings = with_encoders(encoders, cache, large)
    large.meanings.wait(HOUR)
    speeds = {"words": by_words, "with encoders": _speeds(large, collection.queries)}
    header = (f"CPU ms of a search, {SIZE:,} skills", "requests", "p50", "p99")
    print(
        "\n" + markdown_table(header, [(name, *row) for name, of in speeds.items() for row in of])
    )
    print("\n" + _first_calls(folder, cache), flush=True)
    return 0


def _found(index: SearchIndex, query: Query) -> Found:
    result = judge([hit.id for hit in index.search(query.text, limit=DEPTH)], query.relevance)
    hits = search(index, query.text, limit=DEPTH)
    grade = query.relevance.get
    best = [max((hit.id, *hit.alike), key=lambda each: grade(each, 0)) for hit in hits]
    is_refused = not hits or is_weak(hits[:_SHOWN])
    return Found(result, judge(best, query.relevance), is_refused)


def _quality(collection: Collection, found: dict[str, list[Found]]) -> str:
    parts = []
    for name, results in found.items():
        parts.append(f"{name}, each skill a hit of its own")
        rows = quality_rows(collection.queries, [each.result for each in results])
        parts.append(markdown_table(("requests", "number", *MEASURES), rows))
    collapsed: list[tuple[str, ...]] = []
    for lang in ("en", "zh"):
        own = [at for at, query in enumerate(collection.queries) if query.lang == lang]
        for name, results in found.items():
            shown = [results[at].shown for at in own]
            means = [100 * sum(column) / len(own) for column in zip(*shown, strict=True)]
            collapsed.append((f"{lang}, {name}", *(f"{mean:.1f}" for mean in means)))
        words, meaning = found.values()
        gains = [meaning[at].result[2] - words[at].result[2] for at in own]
        low, high = interval(gains)
        gain = 100 * sum(gains) / len(gains)
        said = f"NDCG@10 {gain:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}), not cross-validated"
        parts.append(f"{lang}: {said}")
    parts.append(markdown_table(("`search()`, alike skills as one hit", *MEASURES), collapsed))
    return "\n\n".join(parts)


def _refused(
    indexes: dict[str, SearchIndex], queries: Sequence[Query], found: dict[str, list[Found]]
) -> str:
    rows = []
    for lang in ("en", "zh"):
        texts = [text for of_text, _, text in everyday() if of_text == lang]
        for name, index in indexes.items():
            right = [_is_refused(index, text) for text in texts]
            false = [
                each.is_refused
                for query, each in zip(queries, found[name], strict=True)
                if query.lang == lang
            ]
            shares = (100 * sum(each) / len(each) for each in (right, false))
            rows.append((f"{lang}, {name}", str(len(texts)), *(f"{each:.1f}" for each in shares)))
    header = ("weak matches alone", "everyday", "of everyday %", "of answerable %")
    return markdown_table(header, rows)


def _is_refused(index: SearchIndex, text: str) -> bool:
    hits = search(index, text, limit=_SHOWN)
    return not hits or is_weak(hits)


def _speeds(index: SearchIndex, queries: Sequence[Query]) -> list[tuple[str, ...]]:
    """Return the CPU time of the process for each request, by language."""
    spent: dict[str, list[float]] = {"all": [], "en": [], "zh": []}
    for query in queries:
        before = time.process_time()
        search(index, query.text, limit=_SHOWN)
        took = 1_000 * (time.process_time() - before)
        spent["all"].append(took)
        spent[query.lang].append(took)
    return [
        (name, *(f"{_share(times, at):.1f}" for at in (0.5, 0.99))) for name, times in spent.items()
    ]


def _share(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(math.floor(share * len(values)), len(values) - 1)]


def _first_calls(folder: Path, cache: Path) -> str:
    """Return the first search of fresh processes, whose words' index is there."""
    rows = []
    for case in ("words", "at once", "ready"):
        runs = []
        for _ in range(_ROUNDS):
            places = map(str, (ROOT / "bench", folder, cache))
            command = [sys.executable, "-c", _FIRST, *places, case]
            said = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
            runs.append(json.loads(said))
        rows.append((case, *(f"{_share(column, 0.5):.0f}" for column in zip(*runs, strict=True))))
    header = ("first search of a process", "CPU of its thread, ms", "wall ms", "encoders ready ms")
    return markdown_table(header, rows)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
