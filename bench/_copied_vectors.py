"""Encoders for many skills that are copies: their vectors are made from those of the originals.

Encoding 100,000 texts takes an hour; how long a search takes depends on how vectors are
spread, not on what they say.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from skillhouse.extensions.meaning import Embedder, Encoders
from skillhouse.extensions.meaning.vectors import VectorFile, key_of, packed, unpacked, zeros

_NOISE = 0.3
"""Length of what is added to a vector of length 1."""


class Copies:
    """An encoder that encodes requests, and gives skills the vectors of others with noise."""

    def __init__(self, real: Embedder, texts: Sequence[str], cache: Path) -> None:
        """`texts` are those of the originals, whose vectors are kept in `cache`."""
        self._real = real
        self.name, self.dimensions = real.name, real.dimensions
        self.version = f"{real.version}+copies"
        rows: dict[bytes, list[int]] = {}
        for row, text in enumerate(texts):
            rows.setdefault(key_of(text), []).append(row)
        found = zeros(len(texts), real.dimensions)
        VectorFile(cache, real).fill(
            found, rows, lambda some: packed(real.encode([texts[row] for row in some])), _quiet
        )
        self._originals = unpacked(found)

    def reads(self, text: str) -> bool:
        return self._real.reads(text)

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        if len(texts) == 1:
            return self._real.encode(texts)
        seeds = [zlib.crc32(text.encode()) for text in texts]
        noise = [np.random.default_rng(seed).normal(size=self.dimensions) for seed in seeds]
        found = self._originals[[seed % len(self._originals) for seed in seeds]]
        found = found + _NOISE / np.sqrt(self.dimensions) * np.asarray(noise, np.float32)
        rows: npt.NDArray[np.float32] = found / np.linalg.norm(found, axis=1, keepdims=True)
        return rows


def copying(encoders: Encoders, texts: Sequence[str], cache: Path) -> Encoders:
    """Return encoders that give copies of some texts their vectors."""

    def maker(name: str) -> Callable[[], Embedder]:
        return lambda: Copies(encoders.get(name), texts, cache)

    return Encoders({name: maker(name) for name in encoders.names})


def _quiet(_: int) -> None:
    """Hear of nothing."""
