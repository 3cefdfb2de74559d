"""Finds the vectors nearest to another: by all dot products, or those of the nearest clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from skillhouse.extensions.meaning.vectors import unpacked

if TYPE_CHECKING:
    import numpy.typing as npt

    from skillhouse.extensions.meaning.embedder import Bytes, Floats

    Numbers = npt.NDArray[np.int64]

EXACT_MAX = 50_000
"""Vectors up to which each is compared: 2 kB of memory and 0.3 µs for one of 512 numbers."""
PROBED_SHARE = 0.1
"""Share of the vectors that are compared beyond, those of the nearest clusters."""
_VECTORS_PER_CLUSTER = 160
_SAMPLE_PER_CLUSTER = 32
_ROUNDS = 8
_BLOCK = 8_192


class NearestRows:
    """Vectors, ready to be compared; for any thread."""

    def __init__(self, vectors: Bytes, *, exact_max: int = EXACT_MAX) -> None:
        """Take int8 of shape (vectors, dimensions); rows of zeros are near to none."""
        self._packed = vectors
        self._floats: Floats | None = None
        if len(vectors) <= exact_max:
            self._floats = unpacked(vectors)
            return
        lengths = np.empty(len(vectors), np.float32)
        for begin in range(0, len(vectors), _BLOCK):
            block = vectors[begin : begin + _BLOCK].astype(np.float32)
            lengths[begin : begin + _BLOCK] = np.sqrt(np.einsum("ij,ij->i", block, block))
        self._lengths = np.maximum(lengths, 1e-9)
        self._centres = _centres(vectors, len(vectors) // _VECTORS_PER_CLUSTER)
        cluster = np.empty(len(vectors), np.int32)
        for begin in range(0, len(vectors), _BLOCK):
            block = vectors[begin : begin + _BLOCK].astype(np.float32)
            cluster[begin : begin + _BLOCK] = (block @ self._centres.T).argmax(axis=1)
        # Vectors of one cluster follow each other, so a query reads long pieces of memory.
        self._order = np.argsort(cluster, kind="stable")
        self._starts = np.searchsorted(cluster[self._order], np.arange(len(self._centres) + 1))
        self._sorted = vectors[self._order]

    def similarities(self, vector: Floats, rows: Sequence[int]) -> list[float]:
        """Return the cosine of each row with a vector of length 1; exact, but for the int8."""
        wanted = np.asarray(rows, np.int64)
        if self._floats is not None:
            found = self._floats[wanted] @ vector
        else:
            found = self._packed[wanted].astype(np.float32) @ vector / self._lengths[wanted]
        cosines: list[float] = found.tolist()
        return cosines

    def top(self, vector: Floats, limit: int) -> list[int]:
        """Return about `limit` rows that are most similar, in no order; none without likeness."""
        if self._floats is not None:
            rows = np.arange(len(self._floats))
            scores = self._floats @ vector
        else:
            rows, scores = self._probed(vector)
        if len(rows) > limit:
            best = np.argpartition(-scores, limit)[:limit]
            rows, scores = rows[best], scores[best]
        found: list[int] = rows[scores > 0].tolist()
        return found

    def _probed(self, vector: Floats) -> tuple[Numbers, Floats]:
        clusters = np.argsort(-(self._centres @ vector))
        left = int(len(self._packed) * PROBED_SHARE)
        rows, scores = [], []
        for cluster in clusters:
            begin, end = self._starts[cluster], self._starts[cluster + 1]
            of_cluster = self._order[begin:end]
            rows.append(of_cluster)
            dots = self._sorted[begin:end].astype(np.float32) @ vector
            scores.append(dots / self._lengths[of_cluster])
            left -= end - begin
            if left <= 0:
                break
        return np.concatenate(rows), np.concatenate(scores)


def _centres(vectors: Bytes, count: int) -> Floats:
    """Return the centres of `count` clusters by k-means on a sample; always the same."""
    chance = np.random.default_rng(20)
    size = min(len(vectors), count * _SAMPLE_PER_CLUSTER)
    sample = unpacked(vectors[np.sort(chance.choice(len(vectors), size, replace=False))])
    centres = sample[chance.choice(size, count, replace=False)]
    for _ in range(_ROUNDS):
        cluster = np.concatenate(
            [
                (sample[begin : begin + _BLOCK] @ centres.T).argmax(axis=1)
                for begin in range(0, size, _BLOCK)
            ]
        )
        order = np.argsort(cluster, kind="stable")
        found, starts = np.unique(cluster[order], return_index=True)
        sums = np.add.reduceat(sample[order], starts, axis=0)
        # A cluster that became empty keeps its centre.
        centres[found] = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)
    return centres
