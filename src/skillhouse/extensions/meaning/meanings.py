"""The vectors of the rows of one index: made in the background, and weighed beside its words."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from skillhouse.floor import SkillhouseError
from skillhouse.retrieval import MeaningState
from skillhouse.retrieval.evidence import SCALE, Evidence, VectorEvidence, order

if TYPE_CHECKING:
    from skillhouse.extensions.meaning.embedder import Bytes, Embedder, Floats, Nearest, VectorPlace
    from skillhouse.extensions.meaning.trees import Trees

WEIGHTS: Mapping[tuple[str, ...], Mapping[str, float]] = {
    ("use",): {"use": 6.0},
    ("granite",): {"granite": 10.0},
    ("granite", "use"): {"granite": 10.0, "use": 3.0},
}
"""Weight of each encoder's cosine beside the sum of the words' features, by who votes; for English,
and for the other languages, which `use` alone reads (decision record 0320)."""
_OURS = frozenset(chain.from_iterable(WEIGHTS))
OWN_WEIGHT = 6.0
"""Weight of an encoder that is none of ours."""


class ConfidenceWeights(NamedTuple):
    """How the logit of a confidence is made, where some encoders vote."""

    of_words: float
    """Weight of the words' own logit."""
    of_cosines: Mapping[str, float]
    bias: float
    """Moves the threshold to one half."""


CONFIDENCE: Mapping[tuple[str, ...], ConfidenceWeights] = {
    ("use",): ConfidenceWeights(1.01, {"use": 13.0}, -3.62),
    ("granite",): ConfidenceWeights(0.89, {"granite": 13.4}, -5.18),
    ("granite", "use"): ConfidenceWeights(0.8, {"granite": 7.0, "use": 10.6}, -5.67),
}
"""By logistic regression, by which of our encoders vote (decision records 0335 and 0340)."""


def fused(evidence: Evidence, cosines: Mapping[str, float]) -> Evidence:
    """Return evidence with the cosines of the encoders that vote; none changes nothing."""
    if not cosines:
        return evidence
    weights, total, sure = _weights_of(tuple(cosines))
    near = sum(weights[name] * cosine for name, cosine in cosines.items() if cosine > 0.0)
    # As without encoders, 100 is about the best that there is.
    score = 100.0 * (evidence.words + near) / total
    found = VectorEvidence(cosines)
    if sure is not None:
        added = sum(weight * cosines[name] for name, weight in sure.of_cosines.items())
        # Only hits that are shown need their confidence: it costs more than all of this.
        found = VectorEvidence(cosines, sure.of_words, added + sure.bias)
    return evidence._replace(score=score, fused=found)


@cache
def _weights_of(
    names: tuple[str, ...],
) -> tuple[Mapping[str, float], float, ConfidenceWeights | None]:
    """Return the weights of encoders that vote, the best score of all, and those of confidence."""
    of_voters = WEIGHTS.get(tuple(sorted(names)), {})
    weights = {name: of_voters.get(name, OWN_WEIGHT) for name in names}
    sure = CONFIDENCE.get(tuple(sorted(_OURS.intersection(names))))
    return weights, 100.0 / SCALE + sum(weights.values()), sure


QUERY_CHARS_MAX = 160
"""Characters of a request that encoders read; words read it all. 200 gain 0.1 NDCG@10 and cost a
long request 4 ms (decision record 0340)."""
NEAREST = 30
"""Rows of each encoder that are judged besides those that words find; 50 gain nothing."""

logger = logging.getLogger(__name__)


class Loaded(Protocol):
    """Encoders by name."""

    @property
    def names(self) -> Sequence[str]: ...

    def get(self, name: str) -> Embedder: ...


class SkillMeanings:
    """Vectors of rows by several encoders; each encoder votes as soon as it has all of its own."""

    def __init__(
        self,
        encoders: Loaded,
        count: int,
        text: Callable[[int], str],
        cache: Path | None,
        place: VectorPlace | None = None,
    ) -> None:
        self._encoders = encoders
        self._count = count
        self._text = text
        self._cache = cache
        self._place = place
        self._voters: tuple[Voter, ...] = ()
        self._trees: Trees | None = None
        self._done: dict[str, int] = {}
        self._faults: list[str] = []
        self._is_closed = False
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin the work, in a thread that no program waits for when it ends."""
        threading.Thread(target=self._run, name="search-vectors", daemon=True).start()

    @property
    def state(self) -> MeaningState:
        return MeaningState(
            encoders=tuple(self._encoders.names),
            ready=tuple(voter.embedder.name for voter in self._voters),
            done=sum(self._done.values()),
            total=self._count * len(self._encoders.names),
            fault="; ".join(self._faults),
        )

    def wait(self, seconds: float) -> bool:
        """Return whether all encoders are ready, or cannot be, within some seconds."""
        return self._ended.wait(seconds)

    def close(self) -> None:
        """Make no more vectors; those that were made stay."""
        self._is_closed = True

    def votes(self, query: str) -> QueryVotes | None:
        """Return what the encoders say that are ready and read the query's script, if any."""
        text = query[:QUERY_CHARS_MAX]
        voters = [voter for voter in self._voters if voter.embedder.reads(text)]
        if not voters:
            return None
        voting = [(voter, voter.embedder.encode([text])[0]) for voter in voters]
        return QueryVotes(voting, self._trees)

    def _run(self) -> None:
        try:
            load_numpy()
            for name in self._encoders.names:
                self._prepare(name)
        except _ClosedError:
            return
        finally:
            self._ended.set()

    def _prepare(self, name: str) -> None:
        """Let one encoder vote, or keep why it cannot."""
        try:
            embedder = self._encoders.get(name)
            nearest = self._nearest(embedder)
            # What only encoders need is loaded on this thread.
            from skillhouse.extensions.meaning.trees import load_trees  # noqa: PLC0415

            self._trees = self._trees or load_trees()
            self._voters = (*self._voters, Voter(embedder, nearest))
        except (SkillhouseError, OSError, ValueError, LookupError, MemoryError) as error:
            if isinstance(error, _ClosedError):
                raise
            # Words still find skills; a person hears why meaning does not.
            logger.warning("the encoder `%s` cannot be used: %s", name, error)
            self._faults.append(f"{name}: {error}")

    def _nearest(self, embedder: Embedder) -> Nearest:
        from skillhouse.extensions.meaning import vectors as kept  # noqa: PLC0415 - likewise.
        from skillhouse.extensions.meaning.nearest import NearestRows  # noqa: PLC0415

        rows: dict[bytes, list[int]] = {}
        for row in range(self._count):
            text = self._text(row)
            if embedder.reads(text):
                rows.setdefault(kept.key_of(text), []).append(row)

        def encode(some: Sequence[int]) -> Floats:
            return embedder.encode([self._text(row) for row in some])

        def make(some: Sequence[int]) -> Bytes:
            return kept.packed(encode(some))

        def done(count: int) -> None:
            self._done[embedder.name] = self._count * count // max(len(rows), 1)
            if self._is_closed:
                raise _ClosedError("the vectors are no longer needed")

        if self._place is not None:
            return self._place.nearest(embedder, rows, encode, done)
        found = kept.zeros(self._count, embedder.dimensions)
        try:
            if self._cache is not None:
                kept.VectorFile(self._cache, embedder).fill(found, rows, make, done)
                return NearestRows(found)
        except OSError as error:
            # A full disk or a directory of another's costs the cache and never the search.
            logger.warning("vectors of skills cannot be kept: %s", error)
        kept.fill(found, rows, make, done)
        return NearestRows(found)


class _ClosedError(SkillhouseError):
    """The index is no longer needed."""


class Voter(NamedTuple):
    """An encoder with the vectors of all rows."""

    embedder: Embedder
    nearest: Nearest


class QueryVotes:
    """What encoders say of one query."""

    def __init__(
        self,
        voters: Sequence[tuple[Voter, Floats]],
        trees: Trees | None,
        rows: Sequence[int] | None = None,
    ) -> None:
        """Take the encoders that vote, each with its vector of the query.

        `trees` order rows where the encoders are those that they were fitted to. `rows` has the
        encoders' number of each row; None where both are the same.
        """
        self._voters = voters
        self._trees = trees
        self._rows = rows

    def nearest(self) -> list[int]:
        """Return the rows whose vectors are nearest."""
        near = self._near
        if self._rows is None:
            return near
        wanted = frozenset(near)
        return [row for row, number in enumerate(self._rows) if number in wanted]

    @cached_property
    def _near(self) -> list[int]:
        rows = [voter.nearest.top(vector, NEAREST) for voter, vector in self._voters]
        return list(dict.fromkeys(chain.from_iterable(rows)))

    def fused(self, judged: Sequence[Evidence]) -> list[Evidence]:
        """Return rows that were judged by words with the encoders' votes, best first."""
        rows = [each.row for each in judged]
        if self._rows is not None:
            rows = [self._rows[row] for row in rows]
        cosines = {
            voter.embedder.name: voter.nearest.similarities(vector, rows)
            for voter, vector in self._voters
        }
        found = [
            fused(each, {name: values[at] for name, values in cosines.items()})
            for at, each in enumerate(judged)
        ]
        if judged and self._trees is not None:
            found = self._trees.ordered(found)
        return sorted(found, key=order)

    def of_rows(self, rows: Sequence[int]) -> QueryVotes:
        """Return the votes on some rows, which are numbered by their place in it."""
        votes = QueryVotes(self._voters, self._trees, rows)
        votes._near = self._near
        return votes


VARIABLE = "OPENBLAS_NUM_THREADS"


def load_numpy() -> None:
    """Import numpy so that its products of matrices use one thread.

    One that is loaded already, or is configured, keeps its threads.

    Its other threads wait for work without sleeping: on busy processors, a request to `use` cost
    twelve times the CPU time.
    """
    if "numpy" in sys.modules or VARIABLE in os.environ:
        return
    # OpenBLAS reads it once, when it is loaded.
    os.environ[VARIABLE] = "1"
    try:
        importlib.import_module("numpy")
    finally:
        del os.environ[VARIABLE]
