"""Tests of extensions/meaning/vectors.py."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tests.extensions.meaning.small_encoder import SmallEncoder

from skillhouse.extensions.meaning import vectors as kept

Bytes = npt.NDArray[np.int8]
TEXTS = [f"a car on road {number}" for number in range(100)]


class Filled:
    """One process that fills its vectors from a file."""

    def __init__(self, cache: Path, texts: Sequence[str] = TEXTS, *, version: str = "1") -> None:
        self.encoder = SmallEncoder()
        self.encoder.version = version
        self.made: list[str] = []
        self.vectors = kept.zeros(len(texts), self.encoder.dimensions)
        rows: dict[bytes, list[int]] = {}
        for row, text in enumerate(texts):
            rows.setdefault(kept.key_of(text), []).append(row)

        def make(some: Sequence[int]) -> Bytes:
            self.made += [texts[row] for row in some]
            return kept.packed(self.encoder.encode([texts[row] for row in some]))

        kept.VectorFile(cache, self.encoder).fill(self.vectors, rows, make, lambda _: None)


def file_of(cache: Path) -> Path:
    [path] = (cache / kept.DIRECTORY).glob("*.vectors")
    return path


def test_each_text_is_encoded_once(tmp_path: Path) -> None:
    first = Filled(tmp_path)
    assert sorted(first.made) == sorted(TEXTS)
    second = Filled(tmp_path, [*TEXTS[:50], "a new car", TEXTS[0]])
    assert second.made == ["a new car"]
    assert (second.vectors[:50] == first.vectors[:50]).all()
    assert (second.vectors[51] == first.vectors[0]).all()


def test_another_version_of_an_encoder_has_vectors_of_its_own(tmp_path: Path) -> None:
    Filled(tmp_path)
    assert len(Filled(tmp_path, version="2").made) == len(TEXTS)
    assert len(list((tmp_path / kept.DIRECTORY).glob("*.vectors"))) == 2


@pytest.mark.parametrize("cut", [1, 7, 20, 30, 500])
def test_what_a_killed_process_left_is_made_again(tmp_path: Path, cut: int) -> None:
    whole = Filled(tmp_path).vectors
    path = file_of(tmp_path)
    path.write_bytes(path.read_bytes()[:-cut])
    again = Filled(tmp_path)
    assert 0 < len(again.made) < len(TEXTS)
    assert (again.vectors == whole).all()
    assert Filled(tmp_path).made == []


@pytest.mark.parametrize("at", [0, 20, 40, 60, 1_000])
def test_a_damaged_byte_costs_the_vectors_that_have_it(tmp_path: Path, at: int) -> None:
    whole = Filled(tmp_path).vectors
    path = file_of(tmp_path)
    content = bytearray(path.read_bytes())
    content[at] ^= 0x55
    path.write_bytes(content)
    assert (Filled(tmp_path).vectors == whole).all()
    assert Filled(tmp_path).made == []


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    Filled(tmp_path)
    path, other = file_of(tmp_path), tmp_path / "other"
    other.write_bytes(b"precious")
    path.unlink()
    path.symlink_to(other)
    with pytest.raises(OSError, match="symbolic links"):
        Filled(tmp_path)
    assert other.read_bytes() == b"precious"


def test_several_writers_lose_nothing(tmp_path: Path) -> None:
    parts = [TEXTS[:70], TEXTS[30:], TEXTS[10:90], TEXTS]
    threads = [threading.Thread(target=Filled, args=(tmp_path, part)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Filled(tmp_path).made == []
    record = 16 + SmallEncoder.dimensions + 4
    assert (file_of(tmp_path).stat().st_size - 32) // record == len(TEXTS)


def test_vectors_that_nothing_needs_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Filled(tmp_path)
    size = file_of(tmp_path).stat().st_size
    monkeypatch.setattr(kept, "UNUSED_MAX", 10)
    assert Filled(tmp_path, TEXTS[:5]).made == []
    assert file_of(tmp_path).stat().st_size < size
    assert Filled(tmp_path, TEXTS[:5]).made == []


def test_eight_bits_keep_the_direction() -> None:
    vectors = np.random.default_rng(3).normal(size=(50, 64)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = np.einsum("ij,ij->i", vectors, kept.unpacked(kept.packed(vectors)))
    assert cosines.min() > 0.9995
    assert not kept.unpacked(kept.zeros(2, 4)).any()
