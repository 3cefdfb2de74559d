"""Measures what `[search] learn` does to the ranking, on the development set.

`./x bench learned [--folder FOLDER] [--rounds N]`: a model searches for half of the requests, some
words left out each time, and loads the right skill where it is among the first five, or any of the
five. Then the same requests are asked again with other words left out, and the other half, which
teach what unrelated requests lose. Without the development set the measurement is skipped.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import defaultdict
from collections.abc import Sequence

from _measure import markdown_table
from _relevance import Query, judge, load, parsed
from skillhouse.house.usage import LearnedChoice, lifted, request_words, shares
from skillhouse.retrieval import Hit, SearchIndex, query_terms

FIRST, DEPTH = 5, 20
SPLITS = 4


def main() -> int:
    """Print the table, or why there is none."""
    parser = argparse.ArgumentParser(description="what search learns from loads")
    parser.add_argument("--rounds", type=int, nargs="+", default=[1, 3, 6])
    options = parsed(parser)
    collection = load(options.folder)
    index = SearchIndex.from_documents(collection.documents)
    hits = {query.qid: index.search(query.text, limit=DEPTH) for query in collection.queries}
    rows = []
    for is_true in (True, False):
        for rounds in options.rounds:
            found: dict[str, list[float]] = defaultdict(list)
            for split in range(SPLITS):
                learned = _Split(collection.queries, hits, random.Random(split))
                choices = learned.choices(rounds, is_true=is_true)
                found["same"].append(learned.gain(learned.taught, choices))
                found["other"].append(learned.gain(learned.others, choices))
            kind = "the right one" if is_true else "any of the first five"
            shown = [f"{sum(gains) / SPLITS:+.2f} ({min(gains):+.2f})" for gains in found.values()]
            rows.append((kind, str(rounds), *shown))
    header = ("loaded", "times", "NDCG@10 of the same requests (worst split)", "of others")
    print(markdown_table(header, rows))
    return 0


class _Split:
    """Half of the requests to learn from, and the others."""

    def __init__(
        self, queries: Sequence[Query], hits: dict[str, list[Hit]], chance: random.Random
    ) -> None:
        order = chance.sample(queries, len(queries))
        half = len(order) // 2
        self.taught, self.others = order[:half], order[half:]
        self._hits = hits
        self._chance = chance

    def choices(self, rounds: int, *, is_true: bool) -> list[LearnedChoice]:
        found = []
        for query in self.taught:
            first = self._hits[query.qid][:FIRST]
            right = [hit for hit in first if hit.id in query.relevance][:1]
            for _ in range(rounds):
                for hit in right if is_true else self._chance.sample(first, min(1, len(first))):
                    words = self._words(query)
                    found.append(LearnedChoice(file=hit.id, words=words, at_ms=0))
        return found

    def gain(self, queries: Sequence[Query], choices: Sequence[LearnedChoice]) -> float:
        """Return by how much NDCG@10 rises, in points."""
        with_word: dict[str, set[int]] = defaultdict(set)
        for at, choice in enumerate(choices):
            for word in choice.words:
                with_word[word].add(at)
        total = 0.0
        for query in queries:
            words = self._words(query)
            near = sorted({at for word in words for at in with_word[word]})
            share = shares([choices[at] for at in near], words, now_ms=0.0)
            hits = self._hits[query.qid]
            after = lifted(hits, [share.get(hit.id, 0.0) for hit in hits])
            judged = [judge([hit.id for hit in each], query.relevance)[2] for each in (hits, after)]
            total += judged[1] - judged[0]
        return 100 * total / len(queries)

    def _words(self, query: Query) -> tuple[str, ...]:
        """Return the words of a request, one of its terms left out."""
        terms = query_terms(query.text)
        if len(terms) > 2:
            terms.remove(self._chance.choice(terms))
        return request_words(" ".join(terms))


if __name__ == "__main__":
    sys.exit(main())
