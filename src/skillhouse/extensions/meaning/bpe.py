"""Splits text into the byte pairs of a RoBERTa vocabulary (`tokenizer.json`, type BPE)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

_WORDS_KNOWN_MAX = 50_000
# GPT-2's pattern; without a library that knows \p{N}, a digit is what `re` calls one.
_WORD = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?\d+| ?(?:_|[^\s\w])+|\s+(?!\S)|\s+")


class BytePairs:
    """A vocabulary of byte pairs; for any thread."""

    def __init__(self, vocabulary: Mapping[str, int], merges: Sequence[Any]) -> None:
        """Take the parts of a tokenizer.json; a merge is `"a b"` or a pair."""
        self._numbers = vocabulary
        pairs = (tuple(each.split(" ")) if isinstance(each, str) else each for each in merges)
        self._ranks = {(first, second): rank for rank, (first, second) in enumerate(pairs)}
        self._letters = _letters()
        self._of_word = lru_cache(maxsize=_WORDS_KNOWN_MAX)(self._merged)

    def numbers(self, text: str) -> list[int]:
        """Return the numbers of a text's pieces, without marks of its start and end."""
        return [number for word in _WORD.findall(text) for number in self._of_word(word)]

    def _merged(self, word: str) -> tuple[int, ...]:
        pieces = [self._letters[byte] for byte in word.encode("utf-8", "replace")]
        while len(pieces) > 1:
            ranks = [self._ranks.get(pair, -1) for pair in pairwise(pieces)]
            known = [rank for rank in ranks if rank >= 0]
            if not known:
                break
            at = ranks.index(min(known))
            pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
        return tuple(self._numbers[piece] for piece in pieces if piece in self._numbers)


def _letters() -> list[str]:
    """Return the visible letter by which GPT-2's vocabulary writes each byte."""
    shown = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(256))
    return [chr(byte if byte in shown else 256 + next(hidden)) for byte in range(256)]
