"""A file of postings: which documents have a word, of which a query reads only its own words.

A header, the postings of each word in turn, the head of each document, the table of documents, the
table of words, their spellings. Both tables are read and checked when a segment is opened;
postings, heads and spellings when a query needs them. A posting holds the word's value by BM25F in
one byte.

A word that many documents have is there twice: with all postings by document, and, as the word
that follows, with its best ones by impact (decision record 0303).
"""

from __future__ import annotations

import math
import struct
import sys
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from operator import or_
from typing import BinaryIO, NamedTuple

from skillhouse.floor import SkillhouseError
from skillhouse.retrieval.spelling import Spellings, is_correctable, write_spellings

WEIGHTS = (6.0, 4.0, 1.0)
"""Weight of a match in name, description and body."""
B = (0.3, 0.5, 0.6)
"""How much a field's length beyond the average lessens a match in it."""
K1 = 2.5
"""How fast repeated matches level off. All three: decision record 0300."""

FIELD_BITS = ((13, 0x7), (9, 0xF), (0, 0x1FF))
"""Shift and largest value of the times that a word occurs in name, description and body: what is
beyond counts no more, and hardly would (BM25 levels off)."""
LENGTH_BITS = ((23, 0x1FF), (12, 0x7FF), (0, 0xFFF))
"""Shift and largest value of the number of stems in name, description and body."""

USUAL_LENGTHS = (3.0, 39.0, 460.0)
"""Stems in the fields of a published skill, on average. Impacts are computed with them, so that
they are the same in every segment, whatever else it has."""
IMPACT_MAX = 255
_NAME_BITS, _DESCRIPTION_BITS, _BODY_BITS = 3, 4, 4
_STEP = math.log(1.35)
MAGIC = b"skillwords 5 " + sys.byteorder[:3].encode("ascii")
KEY_BYTES = 16
TIE_BYTES = 8

HEAD_STEMS_MAX = 512
"""Stems of name and description whose order is kept, with a gap between the two."""
BEST_POSTINGS = 512
"""Documents from which a word has a list of its best postings, and the length of that list."""
POSTINGS_KEPT = 1 << 19
"""Postings that an open segment keeps in memory, 7 bytes each, with room for one more list."""
_COMMON_FROM = 1_000
"""Documents from which a word of a single one is no correction of another."""

# Magic; id of this segment, and of the one that it adds to; documents, words, bytes of the words,
# postings, bytes of the heads and of the spellings; CRC-32 of both tables, and of the spellings.
_HEADER = struct.Struct("<16s 16s 16s 6Q 2L")
_CRC = struct.Struct("<L")
_HEADER_BYTES = _HEADER.size + _CRC.size
_POSTING_BYTES = 4 + 2 + 1
_SEGMENT_READ_WORDS = 4_096
_BLOCK_WORDS = 32
"""Words of which the first is at hand, to find the others."""
_NO_ID = bytes(16)
_BEST = b"\0"
"""Ends the word of a list of best postings; no stem has it, and none comes between."""
_STEM_HASH = struct.Struct("<H")
HEAD_GAP = b"\0\0"
"""Between name and description."""


def field_norm(field: int, length: float, average: float) -> float:
    """Return by what the matches of a field are divided."""
    return 1.0 - B[field] + B[field] * length / average


class Impacts(dict[int, int]):
    """The impact of a match, from 1 to `IMPACT_MAX`, by its packed counts and `length_class`."""

    def __missing__(self, key: int) -> int:
        often = 0.0
        lengths = _class_lengths(key >> 16)
        for field, (shift, most) in enumerate(FIELD_BITS):
            if count := key >> shift & most:
                norm = field_norm(field, lengths[field], USUAL_LENGTHS[field])
                often += WEIGHTS[field] * count / norm
        value = self[key] = max(1, round(IMPACT_MAX * often / (often + K1)))
        return value


def length_classes(packed: Iterable[int]) -> list[int]:
    """Return the class of the lengths of each document, above the sixteen bits of counts."""
    # Lengths in classes of a third, so that few impacts are ever computed.
    return [_length_class(lengths) for lengths in packed]


def _length_class(packed: int) -> int:
    name, description, body = (packed >> shift & most for shift, most in LENGTH_BITS)
    of_name = min(name, (1 << _NAME_BITS) - 1)
    of_description = _step(description / 8, _DESCRIPTION_BITS)
    of_body = _step(body / 16, _BODY_BITS)
    classes = (of_name << _DESCRIPTION_BITS | of_description) << _BODY_BITS | of_body
    return classes << 16


def _step(ratio: float, bits: int) -> int:
    return min(int(math.log(ratio) / _STEP + 1.0), (1 << bits) - 1) if ratio >= 1.0 else 0


def _class_lengths(classes: int) -> tuple[float, float, float]:
    """Return lengths in the middle of their classes."""
    body = classes & (1 << _BODY_BITS) - 1
    description = classes >> _BODY_BITS & (1 << _DESCRIPTION_BITS) - 1
    middle = math.exp(-_STEP / 2)
    return (
        float(classes >> _BODY_BITS + _DESCRIPTION_BITS),
        8 * math.exp(_STEP * description) * middle,
        16 * math.exp(_STEP * body) * middle,
    )


class DamagedError(SkillhouseError):
    """A file of postings that is not as it was written."""


class Postings(NamedTuple):
    documents: Sequence[int]
    """Numbers within the segment: ascending, but of the best postings by impact."""
    counts: Sequence[int]
    """The times in name, description and body, packed as `FIELD_BITS` says."""
    impacts: Sequence[int]
    """How much the word says of the document, from 1 to 255."""


def stem_hash(stem: str) -> bytes:
    """Return the two bytes by which a stem is known in a head; two stems in 65,535 are alike."""
    return _STEM_HASH.pack(zlib.crc32(stem.encode()) % 0xFFFF + 1)


class SegmentBuilder:
    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._ties: list[bytes] = []
        self._lengths = array("I")
        self._heads: list[bytes] = []
        # Document and counts of each posting, one after the other: half the arrays.
        self._postings: dict[str, array[int]] = {}
        self._spellings: dict[str, str] = {}

    def add(self, key: bytes, tie: bytes, fields: Sequence[Mapping[str, int]], head: bytes) -> None:
        """Add a document.

        Args:
            key: What finds it again.
            tie: What orders documents that have everything else in common.
            fields: How often each stem occurs, by field.
            head: The `stem_hash` of each stem of name and description in order, stop words aside,
                with `HEAD_GAP` between them.
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
        self._heads.append(head[: HEAD_STEMS_MAX * _STEM_HASH.size])
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
                self._heads.append(segment.head(number))
        for stem, (documents, counts, _) in segment.everything():
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
        common = 2 if len(self._keys) >= _COMMON_FROM else 1
        classes, impacts = length_classes(self._lengths), Impacts()
        written: list[bytes] = []
        correct: dict[str, int] = {}
        starts, crcs = array("I", [0]), array("I")
        for word, stem in words:
            both = self._postings.pop(stem)
            documents, counts = both[::2], both[1::2]
            if len(documents) >= common:
                correct[stem] = len(written)
            keys = map(or_, map(classes.__getitem__, documents), counts)
            lists = [(word, Postings(documents, counts, bytes(map(impacts.__getitem__, keys))))]
            if len(documents) > BEST_POSTINGS:
                lists.append((word + _BEST, _best(lists[0][1])))
            for name, postings in lists:
                data = _packed_postings(postings)
                file.write(data)
                written.append(name)
                starts.append(starts[-1] + len(postings.documents))
                crcs.append(zlib.crc32(data))
        head_ends = array("I", [0])
        for head in self._heads:
            data = head + _CRC.pack(zlib.crc32(head))
            file.write(data)
            head_ends.append(head_ends[-1] + len(data))
        offsets = array("I", accumulate(map(len, written), initial=0))
        tables = b"".join(
            [
                *self._keys,
                *self._ties,
                self._lengths.tobytes(),
                *(table.tobytes() for table in (head_ends, offsets, starts, crcs)),
                *written,
            ]
        )
        spellings = write_spellings(
            {word: correct[stem] for word, stem in self._spellings.items() if stem in correct}
        )
        file.write(tables)
        file.write(spellings)
        sizes = (offsets[-1], starts[-1], head_ends[-1], len(spellings))
        sums = (zlib.crc32(tables), zlib.crc32(spellings))
        header = _HEADER.pack(MAGIC, own, base, len(self._keys), len(written), *sizes, *sums)
        file.seek(0)
        file.write(header + _CRC.pack(zlib.crc32(header)))


def _best(postings: Postings) -> Postings:
    """Return the postings of the greatest impact, equal ones by document."""
    impacts = postings.impacts
    order = sorted(range(len(impacts)), key=impacts.__getitem__, reverse=True)[:BEST_POSTINGS]
    return Postings(*([values[at] for at in order] for values in postings))


def _packed_postings(postings: Postings) -> bytes:
    documents, counts, impacts = postings
    return array("I", documents).tobytes() + array("H", counts).tobytes() + bytes(impacts)


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
        documents, words, word_bytes, postings, head_bytes, spelling_bytes, crc, spelling_crc = rest
        self._heads_at = _HEADER_BYTES + postings * _POSTING_BYTES
        tables_at = self._heads_at + head_bytes
        per_document = KEY_BYTES + TIE_BYTES + 8
        spellings_at = tables_at + documents * per_document + words * 12 + 12 + word_bytes
        self._spelling_place = spellings_at, spelling_bytes, spelling_crc
        self._spellings: Spellings | None = None
        if magic != MAGIC or size != spellings_at + spelling_bytes:
            raise DamagedError("not a file of postings, or of another version")
        tables = self._read(tables_at, spellings_at - tables_at)
        if zlib.crc32(tables) != crc:
            raise DamagedError("damaged tables")
        at = documents * KEY_BYTES
        self.keys = [tables[n : n + KEY_BYTES] for n in range(0, at, KEY_BYTES)]
        ties_end = at + documents * TIE_BYTES
        self.ties = [tables[n : n + TIE_BYTES] for n in range(at, ties_end, TIE_BYTES)]
        numbers = array("I")
        words_at = len(tables) - word_bytes
        numbers.frombytes(tables[ties_end:words_at])
        ends = accumulate((documents, documents + 1, words + 1, words + 1, words), initial=0)
        self.lengths, self._head_ends, self._offsets, self._starts, self._crcs = (
            numbers[start:end] for start, end in pairwise(ends)
        )
        self._words = tables[words_at:]
        if (self._offsets[-1], self._starts[-1], self._head_ends[-1]) != (
            word_bytes,
            postings,
            head_bytes,
        ):
            raise DamagedError("tables that do not fit each other")
        self._firsts = [self._word(number) for number in range(0, words, _BLOCK_WORDS)]
        self._kept: dict[int, Postings] = {}
        self._kept_count = 0

    def find(self, stem: str) -> int | None:
        """Return the number of a stem, or None when no document has it."""
        wanted = stem.encode()
        block = max(bisect_right(self._firsts, wanted) - 1, 0) * _BLOCK_WORDS
        last = min(block + _BLOCK_WORDS, len(self._crcs))
        at, end = self._offsets[block], self._offsets[last]
        while (at := self._words.find(wanted, at, end)) >= 0:
            number = bisect_left(self._offsets, at, block, last)
            if self._offsets[number] == at and self._offsets[number + 1] == at + len(wanted):
                return number
            at += 1
        return None

    def count(self, number: int) -> int:
        """Return how many documents have a stem, of its number."""
        return self._starts[number + 1] - self._starts[number]

    def postings(self, number: int) -> Postings:
        """Return the postings of a stem, of its number."""
        kept = self._kept.get(number)
        if kept is None:
            start, end = self._starts[number], self._starts[number + 1]
            if self._kept_count > POSTINGS_KEPT:
                self._kept, self._kept_count = {}, 0
            kept = self._kept[number] = self._checked(number, self._read_postings(start, end))
            self._kept_count += end - start
        return kept

    def best(self, number: int) -> Postings:
        """Return the postings of a stem with the greatest impact first, where it has very many."""
        has_best = self.count(number) > BEST_POSTINGS and number + 1 < len(self._crcs)
        return self.postings(number + 1 if has_best else number)

    def head(self, document: int) -> bytes:
        """Return the hashes of the stems of name and description, as `SegmentBuilder.add` says."""
        start, end = self._head_ends[document], self._head_ends[document + 1]
        data = self._read(self._heads_at + start, end - start)
        head = data[: -_CRC.size]
        if data[-_CRC.size :] != _CRC.pack(zlib.crc32(head)):
            raise DamagedError("a damaged head")
        return head

    def alike(self, word: str) -> list[tuple[str, str]]:
        """Return words that a misspelt one may be, the most alike first, each with its stem."""
        return [(other, self._stem(number)) for other, number in self._spelled().alike(word)]

    def spellings(self) -> Iterator[tuple[str, str]]:
        """Yield the words that can be corrections, each with its stem."""
        return ((word, self._stem(number)) for word, number in self._spelled().words())

    def _spelled(self) -> Spellings:
        if self._spellings is None:
            at, size, crc = self._spelling_place
            data = self._read(at, size)
            if zlib.crc32(data) != crc:
                raise DamagedError("damaged spellings")
            self._spellings = Spellings(data)
        return self._spellings

    def _stem(self, number: int) -> str:
        return self._word(number).decode()

    def everything(self) -> Iterator[tuple[str, Postings]]:
        """Yield each stem with all its postings."""
        for first in range(0, len(self._crcs), _SEGMENT_READ_WORDS):
            last = min(first + _SEGMENT_READ_WORDS, len(self._crcs))
            begin = self._starts[first]
            data = self._read_postings(begin, self._starts[last])
            for number in range(first, last):
                low, high = (
                    (self._starts[at] - begin) * _POSTING_BYTES for at in (number, number + 1)
                )
                word = self._word(number)
                if word.endswith(_BEST):
                    continue
                try:
                    stem = word.decode()
                except UnicodeDecodeError as error:
                    raise DamagedError("a damaged word") from error
                yield stem, self._checked(number, data[low:high])

    def _word(self, number: int) -> bytes:
        return self._words[self._offsets[number] : self._offsets[number + 1]]

    def _read_postings(self, start: int, end: int) -> bytes:
        at = _HEADER_BYTES + start * _POSTING_BYTES
        size = (end - start) * _POSTING_BYTES
        if size < 0 or at + size > self._heads_at:
            raise DamagedError("postings outside of their place")
        return self._read(at, size)

    def _checked(self, number: int, data: bytes) -> Postings:
        documents, counts = array("I"), array("H")
        count = len(data) // _POSTING_BYTES
        documents.frombytes(data[: count * 4])
        counts.frombytes(data[count * 4 : count * 6])
        is_best = self._word(number).endswith(_BEST)
        last = max(documents, default=0) if is_best else documents[-1]
        if zlib.crc32(data) != self._crcs[number] or last >= len(self.keys):
            raise DamagedError("damaged postings")
        return Postings(documents, counts, data[count * 6 :])

    def _read(self, at: int, size: int) -> bytes:
        self._file.seek(at)
        data = self._file.read(size)
        if len(data) != size:
            raise DamagedError("a file that ends too early")
        return data
