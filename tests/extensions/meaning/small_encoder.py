"""An encoder that tests train themselves: words that occur together get similar vectors."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from skillhouse.extensions.meaning import Encoders

Floats = npt.NDArray[np.float32]
SENTENCES = (
    "a car drives on the road",
    "an automobile drives on the road",
    "rain and sun make the weather",
    "the forecast says rain and sun",
    "a doctor treats the sick patient",
    "the physician treats the sick patient",
)
_WORD = re.compile(r"[a-z]+")


class SmallEncoder:
    """Latent semantic analysis of a few sentences."""

    dimensions = 4
    version = "1"

    def __init__(self, name: str = "small", sentences: Sequence[str] = SENTENCES) -> None:
        self.name = name
        self.encoded: list[str] = []
        """Every text that was encoded."""
        counted = [_WORD.findall(sentence) for sentence in sentences]
        self._words = {word: at for at, word in enumerate(sorted({w for c in counted for w in c}))}
        counts = np.zeros((len(self._words), len(counted)), np.float32)
        for column, words in enumerate(counted):
            for word in words:
                counts[self._words[word], column] += 1
        left, strengths, _ = np.linalg.svd(counts - counts.mean(axis=1, keepdims=True))
        self._vectors = left[:, : self.dimensions] * strengths[: self.dimensions]

    def reads(self, text: str) -> bool:
        return any(word in self._words for word in _WORD.findall(text.lower()))

    def encode(self, texts: Sequence[str]) -> Floats:
        self.encoded += texts
        found = np.stack([self._sum(_WORD.findall(text.lower())) for text in texts])
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        rows: Floats = (found / np.maximum(lengths, 1e-9)).astype(np.float32)
        return rows

    def _sum(self, words: Sequence[str]) -> Floats:
        known = [self._vectors[self._words[word]] for word in words if word in self._words]
        total: Floats = np.sum(known, axis=0) if known else np.zeros(self.dimensions, np.float32)
        return total


class Held(SmallEncoder):
    """One that begins to encode skills when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def encode(self, texts: Sequence[str]) -> Floats:
        assert self.go.wait(30)
        return super().encode(texts)


def encoders(*made: SmallEncoder) -> Encoders:
    """Return encoders as a search takes them."""
    return Encoders({one.name: lambda one=one: one for one in made})  # type: ignore[misc] # the default binds it.
