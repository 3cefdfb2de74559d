"""A file of Chinese words and their English senses, of which a look-up reads a few kilobytes.

A header, a preset dictionary of zlib, a table of first signs, and one compressed block for each
first sign. Each line of a block is a word and its senses, each with a digit for its weight. Chinese
text is split into the words that the file has.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
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
SPAN_SIGNS_MAX = 9
"""Signs of the longest word, of those in kana."""
RUN_MAX = 200
"""Signs of one run that are split; the rest is searched by pairs of signs alone."""
_LONG = 1.6
"""Long words are preferred: a word counts as its signs to this power (decision record 0301)."""

IDLE = frozenset(
    "一个 怎么 怎样 如何 什么 为什么 哪些 哪个 这个 那个 这些 那些 我们 你们 他们 可以 能够 需要 "
    "帮我 帮忙 给我 请问 一下 一些 进行 使用 以及 或者 并且 还是 没有 不是 就是 时候 然后 之后 "
    "我 你 他 它 的 了 和 与 或 在 是 有 把 被 对 为 用 从 到 里 中 上 下 请 帮 给 个 吗 呢 吧 想 "
    "要 将 并 等 及 让 以 于 其 这 那 不 能 会 可 就 都 也 还 又 很 着 过 时 后 前 当".split()
)
"""Words that every request has and that dictionaries translate into words of content."""


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


def split(text: str, senses: Callable[[str], Senses]) -> Iterator[tuple[str, Senses]]:
    """Yield the words of a run of CJK signs that have senses, so that they cover most of it."""
    text = text[:RUN_MAX]
    best: list[tuple[float, int]] = [(0.0, 0)]
    for end in range(1, len(text) + 1):
        ways = [(best[end - 1][0], 1)]
        for size in range(1, min(SPAN_SIGNS_MAX, end) + 1):
            word = text[end - size : end]
            if word in IDLE or senses(word):
                gain = float(size**_LONG) if size > 1 else 0.5
                ways.append((best[end - size][0] + gain, size))
        best.append(max(ways))
    words: list[str] = []
    end = len(text)
    while end > 0:
        size = best[end][1]
        words.append(text[end - size : end])
        end -= size
    for word in reversed(words):
        if word not in IDLE and (found := senses(word)):
            yield word, found
