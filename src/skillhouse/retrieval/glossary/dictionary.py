"""A file of Chinese words and their English senses, of which a look-up reads a few kilobytes.

A header, a preset dictionary of zlib, a table of first signs, and one compressed block for each
first sign. Each line of a block is a word and its senses, each with a digit for its weight.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

SIGNS_MAX = 6
"""Signs of the longest words."""
_MAGIC = b"skillgloss 1\n"
_HEADER = struct.Struct("<13s 3I")
_PRESET_BYTES = 32_768
BLOCKS_MAX = 1_000
"""Blocks that stay in memory, about 20 kB each."""
_LEVELS = 9
"""Weights are kept as ninths."""

Senses = tuple[tuple[str, float], ...]
"""English senses, each with its weight from 0 to 1."""


def pack(entries: Mapping[str, Sequence[tuple[str, float]]], simple: Mapping[str, str]) -> bytes:
    """Return the file of entries, and of signs with their simplified forms."""
    blocks: dict[str, list[str]] = defaultdict(list)
    for word in sorted(entries):
        senses = (f"{max(1, round(weight * _LEVELS))}{text}" for text, weight in entries[word])
        blocks[word[0]].append("\t".join([word[1:], *senses]))
    texts = {sign: "\n".join(lines).encode() for sign, lines in sorted(blocks.items())}
    # What is in many blocks: lines of them, evenly chosen.
    whole = b"\n".join(texts.values()).split(b"\n")
    preset = b"\n".join(whole[:: max(1, len(whole) * 30 // _PRESET_BYTES)])[-_PRESET_BYTES:]
    signs, starts, data = array("I"), array("I", [0]), []
    for sign, text in texts.items():
        packer = zlib.compressobj(9, zdict=preset)
        data.append(packer.compress(text) + packer.flush())
        signs.append(ord(sign))
        starts.append(starts[-1] + len(data[-1]))
    pairs = "".join(old + new for old, new in sorted(simple.items())).encode()
    tables = zlib.compress(preset, 9), zlib.compress(pairs, 9)
    header = _HEADER.pack(_MAGIC, len(tables[0]), len(tables[1]), len(signs))
    return b"".join((header, *tables, signs.tobytes(), starts.tobytes(), *data))


class Dictionary:
    """A file of `pack`, which comes with the package."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            _, preset_bytes, pair_bytes, count = _HEADER.unpack(file.read(_HEADER.size))
            self._preset = zlib.decompress(file.read(preset_bytes))
            pairs = zlib.decompress(file.read(pair_bytes)).decode()
            self._signs, self._starts = array("I"), array("I")
            self._signs.frombytes(file.read(4 * count))
            self._starts.frombytes(file.read(4 * (count + 1)))
            self._data_at = file.tell()
        self._simple = str.maketrans(dict(zip(pairs[::2], pairs[1::2], strict=True)))
        self._blocks: dict[str, list[str]] = {}

    def simplified(self, text: str) -> str:
        """Return a text in simplified signs, each for one of the text."""
        return text.translate(self._simple)

    def senses(self, word: str) -> Senses:
        """Return the English senses of a word in simplified signs, the most usual first."""
        block = self._blocks.get(word[:1])
        if block is None:
            if len(self._blocks) >= BLOCKS_MAX:
                self._blocks = {}
            block = self._blocks[word[:1]] = self._block(word[:1])
        wanted = word[1:] + "\t"
        place = bisect_left(block, wanted)
        if place == len(block) or not block[place].startswith(wanted):
            return ()
        texts = block[place][len(wanted) :].split("\t")
        return tuple((text[1:], int(text[0]) / _LEVELS) for text in texts)

    def _block(self, sign: str) -> list[str]:
        """Return the lines of the words that begin with a sign, in their order."""
        at = bisect_left(self._signs, ord(sign)) if sign else len(self._signs)
        if at == len(self._signs) or self._signs[at] != ord(sign):
            return []
        with self._path.open("rb") as file:
            file.seek(self._data_at + self._starts[at])
            data = file.read(self._starts[at + 1] - self._starts[at])
        reader = zlib.decompressobj(zdict=self._preset)
        # Of hundreds of words a query has one or two.
        return reader.decompress(data).decode().split("\n")
