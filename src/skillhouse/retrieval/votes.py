"""What a search index asks of encoders; it imports none of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from skillhouse.retrieval.evidence import Evidence

ENCODED_CHARS = 600
"""Characters of a description that are encoded with the name."""


def encoded(name: str, description: str) -> str:
    """Return the text by which a skill is encoded."""
    return f"{name.replace('-', ' ')}. {description[:ENCODED_CHARS]}"


class MeaningState(Struct, frozen=True, kw_only=True):
    """How far search by meaning is."""

    encoders: tuple[str, ...]
    """Names of the encoders in use."""
    ready: tuple[str, ...]
    """Those of them that vote now; until all do, words count for the others."""
    done: int
    """Vectors that are there, of all encoders."""
    total: int
    fault: str = ""
    """Why an encoder cannot be used."""


class EncoderVotes(Protocol):
    """What encoders say of one query."""

    def nearest(self) -> Sequence[int]:
        """Return the rows whose vectors are nearest."""

    def fused(self, judged: Sequence[Evidence]) -> list[Evidence]:
        """Return rows that were judged by words with the encoders' votes, best first."""

    def of_rows(self, rows: Sequence[int]) -> EncoderVotes:
        """Return the votes on some rows, which are numbered by their place in it."""


class Meanings(Protocol):
    """The vectors of the rows of an index."""

    @property
    def state(self) -> MeaningState: ...

    def votes(self, query: str) -> EncoderVotes | None:
        """Return at once what the encoders say that are ready and read the query's script."""

    def wait(self, seconds: float) -> bool:
        """Return whether all encoders are ready, or cannot be, within some seconds."""

    def close(self) -> None:
        """Make no more vectors; those that were made stay."""


class MeaningMaker(Protocol):
    """Encoders that are shared by indexes."""

    @property
    def names(self) -> Sequence[str]: ...

    def over(self, count: int, text: Callable[[int], str], cache: Path | None) -> Meanings:
        """Return the vectors of `count` rows, which are read or made in the background.

        Args:
            text: Returns what a row is encoded by.
            cache: Directory in which vectors are kept; None keeps none.
        """
