"""Tests of extensions/meaning/nearest.py."""

from __future__ import annotations

import numpy as np
import pytest

from skillhouse.extensions.meaning.nearest import NearestRows
from skillhouse.extensions.meaning.vectors import packed, unpacked


def clustered(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors around a few hundred centres, as those of skills are, and queries."""
    chance = np.random.default_rng(5)
    centres = chance.normal(size=(300, 32))
    vectors = centres[chance.integers(0, 300, count)] + chance.normal(size=(count, 32)) * 0.6
    queries = centres[:100] + chance.normal(size=(100, 32)) * 0.3
    both = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (vectors, queries)]
    return packed(both[0].astype(np.float32)), both[1].astype(np.float32)


def test_clusters_find_nearly_what_all_products_find() -> None:
    vectors, queries = clustered(20_000)
    exact, some = NearestRows(vectors), NearestRows(vectors, exact_max=1_000)
    found = 0
    for query in queries:
        best = exact.top(query, 10)
        assert sorted(best) == sorted(np.argsort(-(unpacked(vectors) @ query))[:10])
        found += len({*best} & {*some.top(query, 10)})
        rows = best
        assert some.similarities(query, rows) == pytest.approx(
            exact.similarities(query, rows), abs=1e-5
        )
    assert found / (10 * len(queries)) > 0.9


def test_rows_without_a_vector_are_near_to_none() -> None:
    vectors, queries = clustered(3_000)
    vectors[::2] = 0
    for each in (NearestRows(vectors), NearestRows(vectors, exact_max=10)):
        assert not any(each.similarities(queries[0], range(0, 3_000, 2)))
        assert np.isfinite(each.similarities(queries[0], range(3_000))).all()
        assert all(row % 2 for row in each.top(queries[1], 5))


def test_fewer_vectors_than_are_asked_for() -> None:
    vectors, queries = clustered(3)
    assert sorted(NearestRows(np.abs(vectors)).top(np.abs(queries[0]), 50)) == [0, 1, 2]
    assert NearestRows(vectors[:0]).top(queries[0], 50) == []
