"""Tests of extensions/meaning/granite.py, with a small file of the same form that tests make."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from skillhouse.extensions.meaning import EncoderError
from skillhouse.extensions.meaning.granite import ADAPTED, ADAPTER, Granite, packed_adapter
from skillhouse.extensions.meaning.weights import checked_bytes

TEXTS = ["ab abc", "c", "", "abcabcab cab " * 40]
WIDTH, INNER, GROUP = 384, 64, 64
SHAPES = {
    "qkv": (3 * WIDTH, WIDTH),
    "ao": (WIDTH, WIDTH),
    "f1": (INNER, WIDTH),
    "f2": (WIDTH, INNER),
}


def small_file(layers: int = 2) -> bytes:
    """Return random weights for a vocabulary of three letters."""
    chance = np.random.default_rng(5)
    header, content = [], b""

    def add(name: str, value: np.ndarray, *, is_packed: bool = False) -> None:
        nonlocal content
        data = value.astype(np.float32).tobytes()
        each = {"name": name, "shape": value.shape, "dtype": "f32", "len": len(data)}
        if is_packed:
            bytes_ = np.rint(value * 100).clip(-127, 127).astype(np.int8)
            scales = np.full(value.size // GROUP, 0.01, np.float32)
            data = bytes_.tobytes() + scales.tobytes()
            each |= {"dtype": "i8", "group": GROUP, "len": len(data)}
        header.append(each)
        content += data

    def norm(name: str) -> None:
        add(f"{name}.w", np.ones(WIDTH))
        add(f"{name}.b", np.zeros(WIDTH))

    vocabulary = {"<s>": 0, "<pad>": 1, "</s>": 2, "a": 3, "b": 4, "c": 5, "ab": 6, "\u0120": 7}
    add("word_emb", chance.normal(size=(len(vocabulary), WIDTH)) * 0.3, is_packed=True)
    add("pos_emb", chance.normal(size=(140, WIDTH)) * 0.1)
    add("type_emb", np.zeros((1, WIDTH)))
    norm("emb_ln")
    for layer in range(layers):
        for name, shape in SHAPES.items():
            add(f"l{layer}.{name}.w", chance.normal(size=shape) * 0.2, is_packed=True)
            add(f"l{layer}.{name}.b", np.zeros(shape[0]))
        norm(f"l{layer}.aln")
        norm(f"l{layer}.fln")
    tokenizer = json.dumps({"model": {"vocab": vocabulary, "merges": ["a b"]}}).encode()
    arch = {"heads": 6, "layers": layers, "layer_norm_eps": 1e-12, "position_offset": 2}
    head = json.dumps({"arch": arch, "tokenizer_len": len(tokenizer), "tensors": header}).encode()
    return b"HMSEMB01" + struct.pack("<Q", len(head)) + head + tokenizer + content


def factors(rank: int = 4) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    chance = np.random.default_rng(6)
    return {
        f"l{layer}.{name}": (
            chance.normal(size=(SHAPES[name][1], rank)).astype(np.float32),
            chance.normal(size=(rank, SHAPES[name][0])).astype(np.float32) * 0.1,
        )
        for layer in range(2)
        for name in ADAPTED
    }


def test_an_adapter_adds_the_product_of_its_factors_to_each_matrix() -> None:
    data, added = small_file(), factors()
    plain = Granite(data, "1")
    adapted = Granite(data, "1", packed_adapter(added))
    for name, (left, right) in added.items():
        change = adapted.weights[f"{name}.w"] - plain.weights[f"{name}.w"]
        # A factor has eight bits for a number.
        assert np.abs(change - left @ right).max() < 0.02 * np.abs(left @ right).max()
        assert (adapted.weights[f"{name}.b"] == plain.weights[f"{name}.b"]).all()
    assert np.abs(adapted.encode(TEXTS) - plain.encode(TEXTS)).max() > 0.01


def test_vectors_of_another_adapter_are_of_another_version() -> None:
    data = small_file()
    found = [Granite(data, "1", each) for each in (b"", packed_adapter(factors()))]
    found.append(Granite(data, "1", packed_adapter(factors(rank=2))))
    assert len({one.version for one in found}) == 3


def test_a_row_has_length_one_and_depends_on_no_other_text() -> None:
    granite = Granite(small_file(), "1", packed_adapter(factors()))
    together = granite.encode(TEXTS)
    assert np.abs((together**2).sum(axis=1) - 1).max() < 1e-4
    for text, row in zip(TEXTS, together, strict=True):
        assert np.abs(granite.encode([text])[0] - row).max() < 1e-4


def test_an_adapter_for_other_layers_is_refused() -> None:
    with pytest.raises(KeyError):
        Granite(small_file(layers=3), "1", packed_adapter(factors()))


def test_only_the_adapter_that_was_measured_is_taken(tmp_path: Path) -> None:
    content, _ = checked_bytes(ADAPTER)
    damaged = tmp_path / ADAPTER.name
    damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(EncoderError, match="expected weights with SHA-256"):
        checked_bytes(damaged)
