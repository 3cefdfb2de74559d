"""Hits of a search: which rows come first, which are one hit, and the result that holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct, field

from skillhouse.floor import SkillhouseError
from skillhouse.floor.errors import first_of
from skillhouse.retrieval.confidence import Fit, confidence, fit_of
from skillhouse.retrieval.evidence import Evidence, Judge
from skillhouse.retrieval.tokens import name_keys
from skillhouse.retrieval.votes import Meanings, MeaningState
from skillhouse.skill import Skill, SkillIndex

WORDS_SHOWN = 8
"""Words of a query that a reason names for one field."""


class Hit(Struct, frozen=True, kw_only=True):
    """A skill that matches a query."""

    id: str
    name: str
    score: float
    """Higher is better; comparable within one result only."""
    fields: tuple[str, ...] = ()
    """Which of name, description and body contain a word of the query."""
    exact: bool = False
    """Whether the query is this skill's name or id; such hits come first."""
    confidence: float = 0.0
    """How likely a skill that is judged like this fits in a library of this size, from 0 to 1;
    below `CONFIDENT` it is a weak match, and below `UNFIT` none."""
    matches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The words of the query that each field answers; where it has another word, translated or
    corrected, that word and the query's in brackets."""
    alike: tuple[str, ...] = ()
    """Ids of skills of the same name or with the same texts, which are no hits of their own."""
    similarity: float = 0.0
    """Cosine of the query's and the skill's vectors, from -1 to 1; 0 where no encoder voted."""
    learned: float = 0.0
    """How often it was chosen for similar requests, 0 to 1, which is part of the score."""


class Head(NamedTuple):
    """A document without its body."""

    id: str
    name: str
    description: str


class Ranked(NamedTuple):
    evidence: Evidence
    score: float
    is_exact: bool


def best_first(
    judged: Sequence[Evidence], named: Sequence[Evidence], begun: Sequence[Evidence]
) -> list[Ranked]:
    """Return judged rows with final scores, after those that the query names or begins to name."""
    pinned = {each.row for each in (*named, *begun)}
    last = highest = max((each.score for each in (*named, *begun, *judged)), default=0.0)
    ranked = [Ranked(each, highest, is_exact=True) for each in named]
    ranked += [Ranked(each, highest, is_exact=False) for each in begun]
    for each in judged:
        if each.row not in pinned:
            # What was not among the candidates is never better than what was.
            last = min(each.score, last)
            ranked.append(Ranked(each, last, is_exact=False))
    return ranked


def hit_of(heads: Sequence[Head], group: Sequence[Ranked], skills: int, judge: Judge) -> Hit:
    """Return the hit of the first of a group, with the ids of the rest, in a library of so many
    skills."""
    (evidence, score, is_exact), *others = group
    head = heads[evidence.row]
    matches = evidence.matched(judge.words(evidence))
    return Hit(
        id=head.id,
        name=head.name,
        score=score,
        fields=tuple(matches),
        exact=is_exact,
        confidence=1.0 if is_exact else confidence(evidence, skills),
        matches=matches,
        similarity=0.0 if evidence.fused is None else evidence.fused.similarity,
        alike=tuple(heads[each.evidence.row].id for each in others),
    )


CLONE_CHARS = 60
"""Characters from which skills with one description are copies."""


def collapsed(heads: Sequence[Head], ranked: Sequence[Ranked]) -> list[list[Ranked]]:
    """Return those of one name or of one long description together, the best one first."""
    groups: list[list[Ranked]] = []
    of_key: dict[tuple[str, str], list[Ranked]] = {}
    found = [heads[each.evidence.row] for each in ranked]
    for each, head, name in zip(
        ranked, found, name_keys([head.name for head in found]), strict=True
    ):
        keys = [("name", name or head.id)]
        if len(head.description) >= CLONE_CHARS:
            keys.append(("text", head.description))
        group = next((of_key[key] for key in keys if key in of_key), None)
        if group is None:
            group = []
            groups.append(group)
        for key in keys:
            of_key.setdefault(key, group)
        group.append(each)
    return groups


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


class SearchResult(Struct, frozen=True, kw_only=True):
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
    return first_of(found, WORDS_SHOWN)


def skills_of(index: SkillIndex, hits: Sequence[Hit]) -> list[Skill]:
    """Return the skill of each hit, best first; `index` has the skills that were searched.

    Several skills of one id are as many hits, equally good ones in the order of the index.
    """
    left = {hit.id: [*index.of_id(hit.id)] for hit in hits}
    return [left[hit.id].pop(0) if len(left[hit.id]) > 1 else left[hit.id][0] for hit in hits]
