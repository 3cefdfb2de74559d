"""Keeps the vectors of texts in a cache directory, one file for each encoder.

A header, then records of one size: the key of a text, its vector as int8, a CRC-32 of both. Records
are appended under a lock, a batch at a time, so several processes share the work; what is torn or
damaged is made again.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from skillhouse.extensions.meaning.embedder import EncoderError
from skillhouse.floor import encode, make_private, write_atomically
from skillhouse.floor.lock import locked_file

if TYPE_CHECKING:
    from skillhouse.extensions.meaning.embedder import Bytes, Embedder, Floats

DIRECTORY = "vectors"
SCALE = 127.0
"""A vector's largest number becomes this; its length is lost and was 1."""
BATCH = 32
"""Texts that are encoded between two looks at the file."""
UNUSED_MAX = 20_000
"""Vectors in a file that its next user does not need, beside as many as it does; then it is written
with those alone."""
_KEY_BYTES = 16
_READ_RECORDS = 4_096
_MAGIC = b"skillvectors 1\n\0"
_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW if os.name != "nt" else getattr(os, "O_BINARY", 0)

Rows = Mapping[bytes, list[int]]
"""The rows of each text, by its key."""
Make = Callable[[Sequence[int]], "Bytes"]
"""Returns the int8 vectors of some rows."""


def key_of(text: str) -> bytes:
    """Return the key of a text, whoever encodes it."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=_KEY_BYTES).digest()


def zeros(count: int, dimensions: int) -> Bytes:
    """Return rows that no vector is near to."""
    return np.zeros((count, dimensions), np.int8)


def packed(vectors: Floats) -> Bytes:
    """Return vectors as int8, each in its own scale; EncoderError for numbers that are none."""
    if not np.isfinite(vectors).all():
        raise EncoderError("an encoder gave numbers that are not finite")
    most = np.maximum(np.abs(vectors).max(axis=1, keepdims=True), 1e-9)
    found: Bytes = np.rint(vectors * (SCALE / most)).astype(np.int8)
    return found


def unpacked(vectors: Bytes) -> Floats:
    """Return int8 vectors as float32 of length 1; one of zeros stays as it is."""
    floats = vectors.astype(np.float32)
    floats /= np.maximum(np.sqrt(np.einsum("ij,ij->i", floats, floats)), 1e-9)[:, None]
    return floats


def fill(vectors: Bytes, rows: Rows, make: Make, done: Callable[[int], None]) -> None:
    """Fill `vectors` without a file; see `VectorFile.fill`."""
    of_keys = list(rows.values())
    for begin in range(0, len(of_keys), BATCH):
        done(begin)
        batch = of_keys[begin : begin + BATCH]
        for each, vector in zip(batch, make([each[0] for each in batch]), strict=True):
            vectors[each] = vector
    done(len(rows))


class VectorFile:
    """The vectors of one encoder, shared by all processes of a user."""

    def __init__(self, cache: Path, embedder: Embedder) -> None:
        made_by = (embedder.name, embedder.version, embedder.dimensions)
        self._own = hashlib.blake2b(encode(made_by), digest_size=_KEY_BYTES).digest()
        self._directory = cache / DIRECTORY
        self._path = self._directory / f"{self._own.hex()}.vectors"
        self._header = _MAGIC + self._own
        self._dimensions = embedder.dimensions
        self._size = _KEY_BYTES + self._dimensions + 4

    def fill(
        self,
        vectors: Bytes,
        rows: Rows,
        make: Make,
        done: Callable[[int], None],
    ) -> None:
        """Fill `vectors`, from the file where it has them; others are made and appended.

        OSError: the file cannot be read or written.

        Args:
            vectors: int8 of shape (rows, dimensions).
            rows: The rows of each key, all of one text.
            make: Returns the vectors of some rows.
            done: Called with the number of keys that have their vector; what it raises ends this,
                and the file keeps what was made.
        """
        make_private(self._directory)
        missing = dict(rows)
        at = 0
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | _OPEN, 0o600)
        with os.fdopen(handle, "r+b", buffering=0) as file:
            info = os.fstat(handle)
            if not stat.S_ISREG(info.st_mode) or (
                hasattr(os, "geteuid") and info.st_uid != os.geteuid()
            ):
                raise PermissionError("the file of vectors is not of this user")
            at, records = self._take(file, 0, missing, vectors)
            while missing:
                done(len(rows) - len(missing))
                with locked_file(self._directory / f"{self._own.hex()}.lock"):
                    # Another process may have made some meanwhile.
                    at, _ = self._take(file, at, missing, vectors)
                    batch = list(missing)[:BATCH]
                    if not batch:
                        break
                    made = make([missing[key][0] for key in batch])
                    for key, vector in zip(batch, made, strict=True):
                        vectors[missing.pop(key)] = vector
                    self._append(file, at, batch, made)
            done(len(rows))
        if records > 2 * len(rows) + UNUSED_MAX:
            self._rewrite(vectors, rows)

    def _take(
        self, file: BinaryIO, at: int, missing: dict[bytes, list[int]], vectors: Bytes
    ) -> tuple[int, int]:
        """Take wanted vectors from records after `at`; return where they end, and their number."""
        if not at:
            file.seek(0)
            if file.read(len(self._header)) != self._header:
                return 0, 0
            at = len(self._header)
        records = 0
        file.seek(at)
        while data := file.read(self._size * _READ_RECORDS):
            whole = len(data) // self._size
            at += whole * self._size
            records += whole
            for begin in range(0, whole * self._size, self._size):
                found = missing.get(data[begin : begin + _KEY_BYTES])
                if found is None:
                    continue
                record = data[begin : begin + self._size]
                if zlib.crc32(record[:-4]).to_bytes(4, "little") != record[-4:]:
                    continue
                vectors[found] = np.frombuffer(record, np.int8, self._dimensions, _KEY_BYTES)
                del missing[record[:_KEY_BYTES]]
            if len(data) % self._size:
                break
        return at, records

    def _append(self, file: BinaryIO, at: int, keys: Sequence[bytes], vectors: Bytes) -> None:
        """Write records after the last whole one, over what a killed process left."""
        file.seek(at)
        file.write((b"" if at else self._header) + b"".join(self._records(keys, vectors)))
        file.truncate()

    def _records(self, keys: Sequence[bytes], vectors: Bytes) -> Iterator[bytes]:
        for key, vector in zip(keys, vectors, strict=True):
            record = key + vector.tobytes()
            yield record + zlib.crc32(record).to_bytes(4, "little")

    def _rewrite(self, vectors: Bytes, rows: Rows) -> None:
        found = vectors[[of_key[0] for of_key in rows.values()]]
        with (
            locked_file(self._directory / f"{self._own.hex()}.lock"),
            write_atomically(self._path) as file,
        ):
            file.write(self._header)
            file.writelines(self._records(list(rows), found))
