"""What an encoder of search by meaning is."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from skillhouse.floor import SkillhouseError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]
    Bytes = npt.NDArray[np.int8]


class EncoderError(SkillhouseError):
    """An encoder cannot be used: its weights are missing, damaged or other ones."""


class Embedder(Protocol):
    """Turns texts into vectors whose dot product says how much they have in common.

    Several threads may call it at once. It loads nothing from a network.
    """

    @property
    def name(self) -> str:
        """What a person calls it, such as `use`; small letters, digits and hyphens."""

    @property
    def version(self) -> str:
        """What changes when the same text gets another vector; vectors are kept under both."""

    @property
    def dimensions(self) -> int:
        """The numbers of a vector."""

    def reads(self, text: str) -> bool:
        """Whether it can read the script of a text; otherwise the text has no vector."""

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return float32 of shape (texts, dimensions), each row of length 1."""


class Nearest(Protocol):
    """Vectors, ready to be compared with a query's, which has length 1; for any thread."""

    def top(self, vector: Floats, limit: int) -> Sequence[int]:
        """Return about `limit` rows that are most similar, in no order; none without likeness."""

    def similarities(self, vector: Floats, rows: Sequence[int]) -> Sequence[float]:
        """Return the cosine of each row with a vector; 0 for one without a vector."""


class VectorPlace(Protocol):
    """Where vectors are kept and compared."""

    def nearest(
        self,
        embedder: Embedder,
        rows: Mapping[bytes, list[int]],
        encode: Callable[[Sequence[int]], Floats],
        done: Callable[[int], None],
    ) -> Nearest:
        """Return the vectors of some rows, after those that are missing were made.

        Args:
            embedder: What makes them; another one's are never taken.
            rows: The rows of each text, by its key.
            encode: Returns the vectors of some rows.
            done: Called with the number of texts that have their vector; what it raises ends this.
        """


FOREIGN_SHARE = 0.2
"""Share of letters in other scripts from which a text cannot be read; a CJK sign is three."""
_CJK = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL")


def is_in_scripts(text: str, scripts: frozenset[str]) -> bool:
    """Return whether a text has letters, and nearly all of them are of `scripts`.

    Args:
        scripts: The first words of the letters' names in Unicode, such as `LATIN`.

    >>> is_in_scripts("用Django写", frozenset({"LATIN"})), is_in_scripts("né", frozenset({"LATIN"}))
    (False, True)
    """
    own = foreign = 0
    for letter in text:
        if letter.isascii():
            script = "LATIN" if letter.isalpha() else ""
        else:
            script = unicodedata.name(letter, "").partition(" ")[0] if letter.isalpha() else ""
        if script:
            size = 3 if script in _CJK else 1
            if script in scripts:
                own += size
            else:
                foreign += size
    return own > 0 and foreign <= FOREIGN_SHARE * (own + foreign)
