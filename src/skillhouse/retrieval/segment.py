"""A file of postings: which documents have a word, of which a query reads only its own words.

A header, the postings of each word in turn, the table of documents, the table of words, their
spellings. Both tables are read and checked when a segment is opened; postings and spellings when a
query needs them.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import BinaryIO, NamedTuple

from skillhouse.floor import SkillhouseError
from skillhouse.retrieval.spelling import Spellings, is_correctable, write_spellings

MAGIC = b"skillwords 3 " + sys.byteorder[:3].encode("ascii")
KEY_BYTES = 16
TIE_BYTES = 8

FIELD_BITS = ((13, 0x7), (9, 0xF), (0, 0x1FF))
"""Shift and largest value of the times that a word occurs in name, description and body: what is
beyond counts no more, and hardly would (BM25 levels off)."""

LENGTH_BITS = ((23, 0x1FF), (12, 0x7FF), (0, 0xFFF))
"""Shift and largest value of the number of stems in name, description and body."""
_COMMON_FROM = 1_000
"""Documents from which a word of a single one is no correction of another."""

# Magic; id of this segment, and of the one that it adds to; documents, words, bytes of the words,
# postings, bytes of the spellings; CRC-32 of both tables, and of the spellings.
_HEADER = struct.Struct("<16s 16s 16s 5Q 2L")
_CRC = struct.Struct("<L")
_HEADER_BYTES = _HEADER.size + _CRC.size
_POSTING_BYTES = 4 + 2
_SEGMENT_READ_WORDS = 4_096
_NO_ID = bytes(16)


class DamagedError(SkillhouseError):
    """A file of postings that is not as it was written."""


class Postings(NamedTuple):
    documents: Sequence[int]
    """Ascending numbers within the segment."""
    counts: Sequence[int]
    """The times in name, description and body, packed as `FIELD_BITS` says."""


class SegmentBuilder:
    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._ties: list[bytes] = []
        self._lengths = array("I")
        # Document and counts of each posting, one after the other: half the arrays.
        self._postings: dict[str, array[int]] = {}
        self._spellings: dict[str, str] = {}

    def add(self, key: bytes, tie: bytes, fields: Sequence[Mapping[str, int]]) -> None:
        """Add a document.

        Args:
            key: What finds it again.
            tie: What orders documents that have everything else in common.
            fields: How often each stem occurs, by field.
        """
        number = len(self._keys)
        postings = self._postings
        for stem, value in _packed(fields).items():
            of_stem = postings.get(stem)
            if of_stem is None:
                of_stem = postings[stem] = array("I")
            of_stem.append(number)
            of_stem.append(value)
        self._keys.append(key)
        self._ties.append(tie)
        self._lengths.append(
            sum(
                min(sum(counts.values()), most) << shift
                for (shift, most), counts in zip(LENGTH_BITS, fields, strict=True)
            )
        )

    def spell(self, spellings: Mapping[str, str]) -> None:
        """Add words as they are written, each with its stem; others can be corrected to them."""
        self._spellings.update(
            (word, stem) for word, stem in spellings.items() if is_correctable(word)
        )

    def take(self, segment: Segment, keep: Callable[[bytes], bool]) -> None:
        """Add those documents of another segment whose keys are to be kept."""
        numbers: list[int] = []
        for number, key in enumerate(segment.keys):
            numbers.append(len(self._keys) if keep(key) else -1)
            if numbers[-1] >= 0:
                self._keys.append(key)
                self._ties.append(segment.ties[number])
                self._lengths.append(segment.lengths[number])
        for stem, (documents, counts) in segment.everything():
            kept = [
                item
                for document, count in zip(documents, counts, strict=True)
                if numbers[document] >= 0
                for item in (numbers[document], count)
            ]
            if kept:
                self._postings.setdefault(stem, array("I")).extend(kept)
        self.spell(dict(segment.spellings()))

    def write(self, file: BinaryIO, *, own: bytes = _NO_ID, base: bytes = _NO_ID) -> None:
        """Write the segment to an empty file; the builder is used up.

        `own` is the id of this segment, 16 bytes, and `base` that of the one that it adds to.
        """
        file.write(bytes(_HEADER_BYTES))
        words = sorted((stem.encode(), stem) for stem in self._postings)
        offsets, starts, crcs = array("I", [0]), array("I", [0]), array("I")
        common = 4 if len(self._keys) >= _COMMON_FROM else 2
        correct = {
            stem: number
            for number, (_, stem) in enumerate(words)
            if len(self._postings[stem]) >= common
        }
        for word, stem in words:
            both = self._postings.pop(stem)
            data = both[::2].tobytes() + array("H", both[1::2]).tobytes()
            file.write(data)
            offsets.append(offsets[-1] + len(word))
            starts.append(starts[-1] + len(both) // 2)
            crcs.append(zlib.crc32(data))
        tables = b"".join(
            [
                *self._keys,
                *self._ties,
                self._lengths.tobytes(),
                *(table.tobytes() for table in (offsets, starts, crcs)),
                *(word for word, _ in words),
            ]
        )
        spellings = write_spellings(
            {word: correct[stem] for word, stem in self._spellings.items() if stem in correct}
        )
        file.write(tables)
        file.write(spellings)
        counts = (len(self._keys), len(words), offsets[-1], starts[-1], len(spellings))
        sums = (zlib.crc32(tables), zlib.crc32(spellings))
        header = _HEADER.pack(MAGIC, own, base, *counts, *sums)
        file.seek(0)
        file.write(header + _CRC.pack(zlib.crc32(header)))


def _packed(fields: Sequence[Mapping[str, int]]) -> Mapping[str, int]:
    """Return the counts of each stem as one number."""
    *heads, body = fields
    *places, (_, most) = FIELD_BITS
    # The body has nearly all of the stems, and its counts are the low bits.
    packed = dict(body)
    if max(packed.values(), default=0) > most:
        packed = {stem: min(count, most) for stem, count in packed.items()}
    for (shift, most), counts in zip(places, heads, strict=True):
        for stem, count in counts.items():
            packed[stem] = packed.get(stem, 0) | min(count, most) << shift
    return packed


class Segment:
    """A segment that was written, read as far as it is needed; one thread at a time.

    What is not as it was written raises DamagedError, and what cannot be read OSError.
    """

    def __init__(self, file: BinaryIO, size: int) -> None:
        """Read the tables of a file of `size` bytes, which stays open."""
        self._file = file
        header = self._read(0, _HEADER_BYTES)
        if header[-_CRC.size :] != _CRC.pack(zlib.crc32(header[: -_CRC.size])):
            raise DamagedError("not a file of postings")
        magic, self.own, self.base, *rest = _HEADER.unpack(header[: -_CRC.size])
        documents, words, word_bytes, postings, spelling_bytes, crc, self._spelling_crc = rest
        self._tables_at = _HEADER_BYTES + postings * _POSTING_BYTES
        table_bytes = documents * (KEY_BYTES + TIE_BYTES + 4) + words * 12 + 8 + word_bytes
        self._spellings_at = self._tables_at + table_bytes
        self._spelling_bytes = spelling_bytes
        self._spellings: Spellings | None = None
        expected = self._spellings_at + spelling_bytes
        if magic != MAGIC or size != expected:
            raise DamagedError("not a file of postings, or of another version")
        tables = self._read(self._tables_at, self._spellings_at - self._tables_at)
        if zlib.crc32(tables) != crc:
            raise DamagedError("damaged tables")
        at = documents * KEY_BYTES
        self.keys = [tables[n : n + KEY_BYTES] for n in range(0, at, KEY_BYTES)]
        ties_end = at + documents * TIE_BYTES
        self.ties = [tables[n : n + TIE_BYTES] for n in range(at, ties_end, TIE_BYTES)]
        at = ties_end
        numbers = array("I")
        words_at = len(tables) - word_bytes
        numbers.frombytes(tables[at:words_at])
        self.lengths = numbers[:documents]
        self._offsets = numbers[documents : documents + words + 1]
        self._starts = numbers[documents + words + 1 : documents + 2 * words + 2]
        self._crcs = numbers[documents + 2 * words + 2 :]
        self._words = tables[words_at:]
        if self._offsets[-1] != word_bytes or self._starts[-1] != postings:
            raise DamagedError("tables that do not fit each other")

    def postings(self, stem: str) -> Postings | None:
        """Return the postings of a stem, or None when no document has it."""
        wanted = stem.encode()
        low, high = 0, len(self._crcs)
        while low < high:
            middle = (low + high) // 2
            if self._word(middle) < wanted:
                low = middle + 1
            else:
                high = middle
        if low == len(self._crcs) or self._word(low) != wanted:
            return None
        start, end = self._starts[low], self._starts[low + 1]
        return self._checked(low, self._read_postings(start, end))

    def alike(self, word: str) -> list[tuple[str, str]]:
        """Return words that share trigrams with a misspelt one, the most alike first, and stems."""
        return [(other, self._stem(number)) for other, number in self._spelled().alike(word)]

    def spellings(self) -> Iterator[tuple[str, str]]:
        """Yield the words that can be corrections, each with its stem."""
        return ((word, self._stem(number)) for word, number in self._spelled().words())

    def _spelled(self) -> Spellings:
        if self._spellings is None:
            data = self._read(self._spellings_at, self._spelling_bytes)
            if zlib.crc32(data) != self._spelling_crc:
                raise DamagedError("damaged spellings")
            self._spellings = Spellings(data)
        return self._spellings

    def _stem(self, number: int) -> str:
        return self._word(number).decode()

    def everything(self) -> Iterator[tuple[str, Postings]]:
        """Yield each stem with its postings."""
        for first in range(0, len(self._crcs), _SEGMENT_READ_WORDS):
            last = min(first + _SEGMENT_READ_WORDS, len(self._crcs))
            begin = self._starts[first]
            data = self._read_postings(begin, self._starts[last])
            for number in range(first, last):
                low, high = (
                    (self._starts[at] - begin) * _POSTING_BYTES for at in (number, number + 1)
                )
                try:
                    stem = self._word(number).decode()
                except UnicodeDecodeError as error:
                    raise DamagedError("a damaged word") from error
                yield stem, self._checked(number, data[low:high])

    def _word(self, number: int) -> bytes:
        return self._words[self._offsets[number] : self._offsets[number + 1]]

    def _read_postings(self, start: int, end: int) -> bytes:
        at = _HEADER_BYTES + start * _POSTING_BYTES
        size = (end - start) * _POSTING_BYTES
        if size < 0 or at + size > self._tables_at:
            raise DamagedError("postings outside of their place")
        return self._read(at, size)

    def _checked(self, number: int, data: bytes) -> Postings:
        documents, counts = array("I"), array("H")
        count = len(data) // _POSTING_BYTES
        documents.frombytes(data[: count * 4])
        counts.frombytes(data[count * 4 :])
        if zlib.crc32(data) != self._crcs[number] or (count and documents[-1] >= len(self.keys)):
            raise DamagedError("damaged postings")
        return Postings(documents, counts)

    def _read(self, at: int, size: int) -> bytes:
        self._file.seek(at)
        data = self._file.read(size)
        if len(data) != size:
            raise DamagedError("a file that ends too early")
        return data
