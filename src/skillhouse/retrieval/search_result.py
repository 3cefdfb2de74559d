"""What a search gives, whoever asks and whatever was searched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skillhouse.floor import SkillhouseError, dataclass
from skillhouse.retrieval.confidence import Fit, fit_of
from skillhouse.retrieval.hits import Hit
from skillhouse.retrieval.votes import Meanings, MeaningState
from skillhouse.skill import Skill, SkillIndex

WORDS_SHOWN = 8
"""Words of a query that a reason names for one field."""


class SearchDatabaseError(SkillhouseError):
    """The database of the search index cannot be used."""


class Searcher(Protocol):
    """Ranks the skills of one place: an index in files, in memory or in a database."""

    def search(self, query: str, *, limit: int = 5, collapse: bool = False) -> list[Hit]:
        """Return the skills that contain any word of `query`, as `SearchIndex.search` does."""

    @property
    def meanings(self) -> Meanings | None:
        """The vectors of the skills, where there are encoders."""

    @property
    def meaning_state(self) -> MeaningState | None:
        """How far search by meaning is; None where there are no encoders."""

    def close(self) -> None:
        """Need nothing in the background any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The skills that fit a request, best first."""

    hits: tuple[Hit, ...] = ()
    is_partial: bool = False
    """Whether names and descriptions alone were searched, because the index is being built."""
    fault: str = ""
    """Why the configured database was not asked; empty where all is well."""

    meaning: MeaningState | None = None
    """How far search by meaning was; None without encoders."""

    @property
    def fit(self) -> Fit:
        """How well the best hit fits."""
        return fit_of(self.hits)

    @property
    def is_weak(self) -> bool:
        """Whether there are hits, and none of them fits well."""
        return self.fit is not Fit.GOOD


def reason(hit: Hit) -> str:
    """Return why a skill is a hit: the words of the query that each of its fields answers.

    >>> from skillhouse.retrieval import SearchIndex
    >>> index = SearchIndex.from_documents([("user:pdf", "pdf", "Merges PDF files", "")])
    >>> [reason(hit) for query in ("merging pdf", "pdf") for hit in index.search(query)]
    ['name: pdf; description: merging, pdf', 'exact name']
    """
    if hit.exact:
        return "exact name"
    reasons = [f"{field}: {_words(found)}" for field, found in hit.matches.items()]
    if not reasons and hit.similarity > 0:
        reasons.append("similar in meaning")
    if hit.learned:
        reasons.append("loaded for similar requests")
    if not reasons:
        # All else that has none was found by the letters that a name begins with.
        reasons.append("part of its name")
    return "; ".join(reasons)


def _words(found: tuple[str, ...]) -> str:
    more = f" and {len(found) - WORDS_SHOWN} more" if len(found) > WORDS_SHOWN else ""
    return ", ".join(found[:WORDS_SHOWN]) + more


def skills_of(index: SkillIndex, hits: Sequence[Hit]) -> list[Skill]:
    """Return the skill of each hit, best first; `index` has the skills that were searched.

    Several skills of one id are as many hits, equally good ones in the order of the index.
    """
    left = {hit.id: [*index.of_id(hit.id)] for hit in hits}
    return [left[hit.id].pop(0) if len(left[hit.id]) > 1 else left[hit.id][0] for hit in hits]
