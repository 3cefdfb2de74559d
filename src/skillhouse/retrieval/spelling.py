"""Finds words of an index that differ from a misspelt one by one or two edits."""

from __future__ import annotations

import heapq
import struct
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from string import ascii_lowercase

LETTERS_LEAST = 4
"""Shorter words are not corrected: too many others are as near."""
TWO_EDITS_LEAST = 5
"""Letters from which two edits are allowed."""
LETTERS_MAX = 24
_EDITS_MAX = 2
_CANDIDATES = 60
"""Words with the most shared trigrams, whose distance is computed."""
_PAD = " "
_COUNTS = struct.Struct("=3I")
"""Words, trigrams, and the places of both."""


def is_correctable(word: str) -> bool:
    """Return whether a word is one that people misspell, and not a number or an identifier.

    >>> is_correctable("analysi"), is_correctable("pdf"), is_correctable("s3bucket")
    (True, False, False)
    """
    return LETTERS_LEAST <= len(word) <= LETTERS_MAX and word.isascii() and word.isalpha()


def edits_max(word: str) -> int:
    """Return by how many edits a correction of `word` may differ."""
    return 2 if len(word) >= TWO_EDITS_LEAST else 1


def write_spellings(words: Mapping[str, int]) -> bytes:
    """Return the table of words by their trigrams, each word with the number of its stem."""
    numbers: dict[int, array[int]] = {}
    ordered = sorted(words, key=_length_first)
    for number, word in enumerate(ordered):
        for gram in _trigrams(word):
            of_gram = numbers.get(gram)
            if of_gram is None:
                of_gram = numbers[gram] = array("I")
            of_gram.append(number)
    grams = array("I", sorted(numbers))
    starts = array("I", [0])
    for gram in grams:
        starts.append(starts[-1] + len(numbers[gram]))
    tables = (array("I", map(words.__getitem__, ordered)), grams, starts)
    lists = b"".join(numbers[gram].tobytes() for gram in grams)
    counts = array("I", (len(ordered), len(grams), starts[-1]))
    text = " ".join(ordered).encode("ascii")
    return b"".join((counts.tobytes(), *(table.tobytes() for table in tables), lists, text))


def _length_first(word: str) -> tuple[int, str]:
    return len(word), word


class Spellings:
    """A table of `write_spellings`."""

    def __init__(self, data: bytes) -> None:
        table = array("I")
        words, grams, numbers = _COUNTS.unpack_from(data.ljust(_COUNTS.size, b"\0"))
        grams_at = 3 + words
        starts_at = grams_at + grams
        end = starts_at + grams + 1 + numbers if words else 0
        table.frombytes(data[: 4 * end])
        self._stems = table[3:grams_at]
        self._grams = table[grams_at:starts_at]
        self._starts = table[starts_at : starts_at + grams + 1]
        self._numbers = table[starts_at + grams + 1 :]
        self._words = data[4 * end :].decode("ascii").split() if words else []
        self._numbers_of = {word: number for number, word in enumerate(self._words)}

    def alike(self, word: str) -> list[tuple[str, int]]:
        """Return the words that may be a misspelt one, with their stems' numbers.

        These are all of one edit. If there are none, words of about the same length that share the
        most trigrams with `word`.
        """
        if near := _one_edit(word) & self._numbers_of.keys():
            best = [self._numbers_of[each] for each in sorted(near)]
        else:
            best = self._by_trigrams(word)
        return [(self._words[number], self._stems[number]) for number in best]

    def _by_trigrams(self, word: str) -> list[int]:
        shared: Counter[int] = Counter()
        lengths = len(word) - _EDITS_MAX, len(word) + _EDITS_MAX + 1
        first, end = (bisect_left(self._words, length, key=len) for length in lengths)
        for gram in _trigrams(word):
            at = bisect_left(self._grams, gram)
            if at < len(self._grams) and self._grams[at] == gram:
                place = self._starts[at], self._starts[at + 1]
                low, high = (bisect_left(self._numbers, number, *place) for number in (first, end))
                shared.update(self._numbers[low:high])
        return heapq.nlargest(_CANDIDATES, shared, key=shared.__getitem__)

    def words(self) -> Iterator[tuple[str, int]]:
        """Yield each word with the number of its stem."""
        return zip(self._words, self._stems, strict=True)


def distance(one: str, other: str, most: int) -> int:
    """Return how many insertions, deletions, changes and swaps of neighbours lie between two words.

    Above `most` it is some number above `most`.

    >>> distance("forcast", "forecast", 2), distance("chrat", "chart", 2), distance("a", "xyz", 2)
    (1, 1, 3)
    """
    if not one or abs(len(one) - len(other)) > most:
        return max(len(one), len(other))
    # A column of the table of distances at a time, a bit for each row: Hyyrö, "A bit-vector
    # algorithm for computing Levenshtein and Damerau edit distances" (2003).
    places: dict[str, int] = {}
    for at, letter in enumerate(one):
        places[letter] = places.get(letter, 0) | 1 << at
    edits, last = len(one), 1 << len(one) >> 1
    up, down = (1 << len(one)) - 1, 0
    same = diagonal = before = 0
    for letter in other:
        before, same = same, places.get(letter, 0)
        swapped = (~diagonal & same) << 1 & before
        diagonal = (((same & up) + up) ^ up) | same | down | swapped
        right, left = down | ~(diagonal | up), diagonal & up
        edits += bool(right & last) - bool(left & last)
        right = right << 1 | 1
        up, down = left << 1 | ~(diagonal | right), right & diagonal
    return edits


def _one_edit(word: str) -> set[str]:
    """Return all that one insertion, deletion, change or swap of neighbours makes of a word."""
    parts = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    edited = {before + after[1:] for before, after in parts}
    edited.update(before + after[1] + after[0] + after[2:] for before, after in parts[:-2])
    for letter in ascii_lowercase:
        edited.update(f"{before}{letter}{after}" for before, after in parts)
        edited.update(f"{before}{letter}{after[1:]}" for before, after in parts)
    return edited


def _trigrams(word: str) -> set[int]:
    """Return the trigrams of an ASCII word between blanks, three bytes each."""
    data = f"{_PAD}{word}{_PAD}".encode("ascii")
    return {data[at] << 16 | data[at + 1] << 8 | data[at + 2] for at in range(len(data) - 2)}
