"""Documents to postings: tokenised in batches, each different token stemmed once."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import NamedTuple

from skillhouse.retrieval.segment import TIE_BYTES, SegmentBuilder
from skillhouse.retrieval.stems import stems_of
from skillhouse.retrieval.tokens import STOP_WORDS, tokens_of, words

BODY_CHARS_MAX = 4_096
"""Characters of a body that are indexed: a skill says at its start what it is for."""
_BATCH = 256
_WORDS_KNOWN_MAX = 200_000
"""Different words whose stems are known at a time."""


class Keyed(NamedTuple):
    """A document, and the key that finds it in its segment."""

    key: bytes
    name: str
    description: str
    body: str


def add_documents(builder: SegmentBuilder, documents: Iterable[Keyed]) -> None:
    """Add documents to a segment, in their order.

    Raises:
        SearchError: this Python's SQLite has no full-text module.
    """
    # A library has few different words beside all of its words.
    stems: dict[str, tuple[str, ...]] = {}
    telling: dict[str, tuple[str, ...]] = {}
    for batch in _batches(documents):
        if len(stems) > _WORDS_KNOWN_MAX:
            stems, telling = {}, {}
        read = [(each, _tie(each), _texts(each)) for each in batch]
        new = set(chain.from_iterable(text for *_, texts in read for text in texts))
        _learn(new - stems.keys(), stems, telling)
        for each, tie, (name, description, body) in read:
            fields = (_counted(name, stems), _counted(description, stems), _counted(body, telling))
            builder.add(each.key, tie, fields)


def _batches(documents: Iterable[Keyed]) -> Iterator[list[Keyed]]:
    remaining = iter(documents)
    while batch := list(islice(remaining, _BATCH)):
        yield batch


def _tie(document: Keyed) -> bytes:
    # A body of the caller's own can hold half a surrogate pair.
    data = document.body[:BODY_CHARS_MAX].encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=TIE_BYTES).digest()


def _texts(document: Keyed) -> tuple[list[str], ...]:
    texts = (document.name, document.description, document.body[:BODY_CHARS_MAX])
    return tuple(words(text) for text in texts)


def _learn(
    new: Collection[str], stems: dict[str, tuple[str, ...]], telling: dict[str, tuple[str, ...]]
) -> None:
    """Add the stems of words: all of them, and those of no stop word, of which bodies are full."""
    tokens = {word: tokens_of(word) for word in new}
    of_token = stems_of(token for found in tokens.values() for token in found)
    for word, found in tokens.items():
        stems[word] = tuple(stem for token in found for stem in of_token[token])
        telling[word] = tuple(
            stem for token in found if token not in STOP_WORDS for stem in of_token[token]
        )


def _counted(found: Iterable[str], stems: Mapping[str, tuple[str, ...]]) -> Mapping[str, int]:
    """Return how often each stem occurs; no step of it is Python's own, since bodies are long."""
    return Counter(chain.from_iterable(map(stems.__getitem__, found)))
