"""Finds words of an index that differ from a misspelt one by one or two edits."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence

LETTERS_LEAST = 4
"""Shorter words are not corrected: too many others are as near."""
TWO_EDITS_LEAST = 5
"""Letters from which two edits are allowed."""
LETTERS_MAX = 24
_CANDIDATES = 60
"""Words with the most shared trigrams, whose distance is computed."""
_PAD = " "


def is_correctable(word: str) -> bool:
    """Return whether a word is one that people misspell, and not a number or an identifier.

    >>> is_correctable("analysi"), is_correctable("pdf"), is_correctable("s3bucket")
    (True, False, False)
    """
    return LETTERS_LEAST <= len(word) <= LETTERS_MAX and word.isascii() and word.isalpha()


def edits_max(word: str) -> int:
    """Return by how many edits a correction of `word` may differ."""
    return 2 if len(word) >= TWO_EDITS_LEAST else 1


def write_trigrams(words: Iterable[tuple[int, str]]) -> bytes:
    """Return the table of the trigrams of words, each word with its number."""
    numbers: dict[int, array[int]] = {}
    for number, word in words:
        for gram in _trigrams(word):
            of_gram = numbers.get(gram)
            if of_gram is None:
                of_gram = numbers[gram] = array("I")
            of_gram.append(number)
    grams = array("I", sorted(numbers))
    starts = array("I", [0])
    for gram in grams:
        starts.append(starts[-1] + len(numbers[gram]))
    lists = b"".join(numbers[gram].tobytes() for gram in grams)
    return array("I", [len(grams)]).tobytes() + grams.tobytes() + starts.tobytes() + lists


class Trigrams:
    """A table of `write_trigrams`."""

    def __init__(self, data: bytes) -> None:
        table = array("I")
        table.frombytes(data)
        count = table[0] if table else 0
        self._grams = table[1 : count + 1]
        self._starts = table[count + 1 : 2 * count + 2]
        self._numbers = table[2 * count + 2 :]

    def alike(self, word: str) -> list[int]:
        """Return the numbers of the words that share the most trigrams with `word`."""
        shared: Counter[int] = Counter()
        for gram in _trigrams(word):
            at = bisect_left(self._grams, gram)
            if at < len(self._grams) and self._grams[at] == gram:
                shared.update(self._numbers[self._starts[at] : self._starts[at + 1]])
        return [number for number, _ in shared.most_common(_CANDIDATES)]


def distance(one: str, other: str, most: int) -> int:
    """Return how many insertions, deletions, changes and swaps of neighbours lie between two words.

    Above `most` it is some number above `most`.

    >>> distance("forcast", "forecast", 2), distance("chrat", "chart", 2), distance("a", "xyz", 2)
    (1, 1, 3)
    """
    if abs(len(one) - len(other)) > most:
        return most + 1
    before: Sequence[int] = ()
    row: Sequence[int] = range(len(other) + 1)
    for i, letter in enumerate(one, 1):
        now = [i]
        for j, theirs in enumerate(other, 1):
            if letter == theirs:
                least = row[j - 1]
            else:
                least = 1 + min(row[j], now[j - 1], row[j - 1])
                if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == theirs:
                    least = min(least, before[j - 2] + 1)
            now.append(least)
        if min(now) > most:
            return most + 1
        before, row = row, now
    return row[-1]


def _trigrams(word: str) -> set[int]:
    """Return the trigrams of an ASCII word between blanks, three bytes each."""
    data = f"{_PAD}{word}{_PAD}".encode("ascii")
    return {data[at] << 16 | data[at + 1] << 8 | data[at + 2] for at in range(len(data) - 2)}
