"""Indexes skills and searches them."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, field
from pathlib import Path
from typing import NamedTuple

from skillhouse.floor import SkillError, dataclass, encode
from skillhouse.retrieval.confidence import confidence
from skillhouse.retrieval.evidence import Evidence, Judge
from skillhouse.retrieval.query import read_query
from skillhouse.retrieval.rank import Part, Ranking
from skillhouse.retrieval.segment import KEY_BYTES, DamagedError, Segment
from skillhouse.retrieval.segment_store import Keyed, forget, in_memory, kept_segments
from skillhouse.retrieval.tokens import name_key, name_keys
from skillhouse.retrieval.votes import MeaningMaker, Meanings, MeaningState, Votes, encoded
from skillhouse.skill import Skill, SkillIndex, load_body

Document = tuple[str, str, str, str]
"""Id, name, description and body."""

Progress = Callable[[int, int], None]
"""Called before each body with the number of bodies read and their total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
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
    """How likely a skill that is judged like this fits, from 0 to 1; below `CONFIDENT` it is a weak
    match."""
    matches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The words of the query that each field answers, translated or corrected where needed."""
    alike: tuple[str, ...] = ()
    """Ids of skills of the same name or with the same texts, which are no hits of their own."""
    similarity: float = 0.0
    """Cosine of the query's and the skill's vectors, from -1 to 1; 0 where no encoder voted."""
    learned: float = 0.0
    """How often it was chosen for similar requests, 0 to 1, which is part of the score."""


class _Head(NamedTuple):
    """A document without its body."""

    id: str
    name: str
    description: str


class _IndexRows:
    """Documents of several segments, in the order of equal scores."""

    def __init__(self, segments: Sequence[tuple[Segment, Sequence[_Head | None]]]) -> None:
        """Take the segments, each with the heads of its documents; None for one that is hidden."""
        # Equal scores keep the order of the rows, so the rows are sorted by id.
        order = sorted(
            (head, segment.ties[number], part, number)
            for part, (segment, heads) in enumerate(segments)
            for number, head in enumerate(heads)
            if head is not None
        )
        self.heads = [head for head, *_ in order]
        rows = [array("i", [-1]) * len(heads) for _, heads in segments]
        for row, (_, _, part, number) in enumerate(order):
            rows[part][number] = row
        parts = [Part(segment, rows[part]) for part, (segment, _) in enumerate(segments)]
        self.ranking = Ranking(parts, len(order))
        self.of_key: dict[str, list[int]] = {}
        ids = name_keys([head.id for head in self.heads])
        names = name_keys([head.name for head in self.heads])
        for row, keys in enumerate(zip(ids, names, strict=True)):
            for key in {*keys} - {""}:
                self.of_key.setdefault(key, []).append(row)

    def head(self, row: int) -> tuple[str, str]:
        """Return name and description."""
        return self.heads[row].name, self.heads[row].description


class SearchIndex:
    """An immutable index of documents, for any thread."""

    def __init__(self, documents: Iterable[Document] = ()) -> None:
        """Index documents; ids may repeat."""
        kept = list(documents)
        self._lock = threading.Lock()
        self._rows = _IndexRows([_loose(kept)])
        self._renewed: Callable[[], _IndexRows] = lambda: self._rows
        self.meanings: Meanings | None = None
        """The vectors of the documents, where there are encoders."""

    @classmethod
    def from_documents(
        cls, documents: Iterable[Document], *, encoders: MeaningMaker | None = None
    ) -> SearchIndex:
        """Return an index of documents.

        >>> index = SearchIndex.from_documents([("user:pdf", "pdf", "Merges PDF files", "")])
        >>> [hit.id for hit in index.search("merging two files")]
        ['user:pdf']
        """
        made = cls(documents)
        made._begin_meanings(encoders, None)
        return made

    def _begin_meanings(self, encoders: MeaningMaker | None, cache: Path | None) -> None:
        if encoders is not None:
            heads = self._rows.heads
            self.meanings = encoders.over(len(heads), lambda row: encoded(*heads[row][1:]), cache)

    @classmethod
    def from_skills(
        cls,
        index: SkillIndex,
        *,
        bodies: bool = True,
        cache: Path | None = None,
        progress: Progress = lambda _, __: None,
        encoders: MeaningMaker | None = None,
    ) -> SearchIndex:
        """Return an index of the skills that are not shadowed.

        A skill with an unreadable body is found by its name and description. An exception from
        `progress` ends the reading.

        Args:
            bodies: Whether bodies are searched too.
            cache: Directory of the persistent index, for skills that did not change since; None
                reads every body.
            encoders: Find skills by meaning too, as soon as they are ready.
        """
        made = cls()
        source = _Source(index, progress, bodies=bodies)
        made._rows = source.rows(cache)
        made._renewed = lambda: source.rows_again(cache)
        made._begin_meanings(encoders, cache)
        return made

    def search(self, query: str, *, limit: int = 5, collapse: bool = False) -> list[Hit]:
        """Return the skills that contain any word of `query`, best first, equal ones by id.

        A skill whose name or id is the query comes first, with the best score. `query` is any
        text, without syntax; without a letter or digit nothing matches, nor if `limit` is not
        positive.

        Args:
            collapse: Whether skills of one name or with one description are one hit, the best one.
        """
        if limit <= 0 or not len(self):
            return []
        votes = self._votes(query)
        with self._lock:
            try:
                return self._hits(query, limit, votes, collapse=collapse)
            except (DamagedError, OSError):
                self._rows = self._renewed()
                return self._hits(query, limit, votes, collapse=collapse)

    def _votes(self, query: str) -> Votes | None:
        return None if self.meanings is None else self.meanings.votes(query)

    def close(self) -> None:
        """Make no more vectors in the background; the index can still be searched."""
        if self.meanings is not None:
            self.meanings.close()

    @property
    def meaning_state(self) -> MeaningState | None:
        """How far search by meaning is; None where there are no encoders."""
        return None if self.meanings is None else self.meanings.state

    def judged(self, query: str) -> list[tuple[str, Evidence]]:
        """Return the ids of the candidates of a query with the evidence, for measurements."""
        rows = self._rows
        return [
            (rows.heads[each.row].id, each)
            for each in _judged(rows, query, CANDIDATES, self._votes(query))[0]
        ]

    def _hits(self, query: str, limit: int, votes: Votes | None, *, collapse: bool) -> list[Hit]:
        rows = self._rows
        judged, judge = _judged(rows, query, limit, votes)
        named = judge.evidence(rows.of_key.get(name_key(query), ()))
        if votes is not None:
            named = votes.fused(named)
        hits = _best_first(rows, judged, named)
        return (_collapsed(hits) if collapse else [hit for _, hit in hits])[:limit]

    def __len__(self) -> int:
        return len(self._rows.heads)


def _judged(
    rows: _IndexRows, query: str, limit: int, votes: Votes | None
) -> tuple[list[Evidence], Judge]:
    """Return the judged rows, best first, and the judge of the query."""
    ranking = rows.ranking
    request = read_query(query, ranking)
    depth = min(max(CANDIDATES, limit), len(rows.heads))
    found = ranking.candidates(request.concepts, request.found, limit=depth)
    judge = Judge(ranking, request.concepts, request.found, rows.head)
    first, others = found[:CANDIDATES], found[CANDIDATES:]
    if votes is None:
        return judge.evidence(first) + judge.evidence(others), judge
    known = set(found)
    first += [row for row in votes.nearest() if row not in known]
    return votes.fused(judge.evidence(first)) + votes.fused(judge.evidence(others)), judge


def _best_first(
    rows: _IndexRows, judged: Sequence[Evidence], named: Sequence[Evidence]
) -> list[tuple[_Head, Hit]]:
    """Return the hits of judged rows, after the `named` ones."""
    exact = {each.row for each in named}
    last = highest = max((each.score for each in (*named, *judged)), default=0.0)
    hits: list[tuple[_Head, Hit]] = []
    for each in (*named, *(one for one in judged if one.row not in exact)):
        is_exact = each.row in exact
        # What was not among the candidates is never better than what was.
        last = highest if is_exact else min(each.score, last)
        head = rows.heads[each.row]
        matches = each.matched()
        hit = Hit(
            id=head.id,
            name=head.name,
            score=last,
            fields=tuple(matches),
            exact=is_exact,
            confidence=1.0 if is_exact else confidence(each),
            matches=matches,
            similarity=0.0 if each.fused is None else each.fused.similarity,
        )
        hits.append((head, hit))
    return hits


CLONE_CHARS = 60
"""Characters from which skills with one description are copies."""


def _collapsed(hits: Sequence[tuple[_Head, Hit]]) -> list[Hit]:
    """Return the first hit of each name and of each long description, with the ids of the rest."""
    groups: list[list[Hit]] = []
    of_key: dict[tuple[str, str], list[Hit]] = {}
    for head, hit in hits:
        keys = [("name", name_key(head.name) or head.id)]
        if len(head.description) >= CLONE_CHARS:
            keys.append(("text", head.description))
        group = next((of_key[key] for key in keys if key in of_key), None)
        if group is None:
            group = []
            groups.append(group)
        for key in keys:
            of_key.setdefault(key, group)
        group.append(hit)
    return [
        dataclasses.replace(first, alike=tuple(hit.id for hit in others)) if others else first
        for first, *others in groups
    ]


def _loose(documents: Sequence[Document]) -> tuple[Segment, list[_Head]]:
    key = bytes(KEY_BYTES)
    segment = in_memory(Keyed(key, name, about, body) for _, name, about, body in documents)
    return segment, [_Head(*document[:3]) for document in documents]


class _Source:
    """Skills as documents, which are read when the cache does not have them."""

    def __init__(self, index: SkillIndex, progress: Progress, *, bodies: bool) -> None:
        self._bodies = bodies
        self._progress = progress
        self._skills: dict[bytes, Skill] = {}
        self._unkept: list[Skill] = []
        policies: dict[int, bytes] = {}
        for skill in index.skills:
            key = self._key(skill, policies)
            if skill.signature is None or key in self._skills:
                self._unkept.append(skill)
            else:
                self._skills[key] = skill

    def rows(self, cache: Path | None) -> _IndexRows:
        missing = dict(self._skills)
        segments: list[tuple[Segment, Sequence[_Head | None]]] = []
        for segment in [] if cache is None else kept_segments(cache, self._roots(), self._read):
            skills = (missing.pop(key, None) for key in segment.keys)
            segments.append(
                (segment, [None if skill is None else _head(skill) for skill in skills])
            )
        unkept = [*missing.values(), *self._unkept]
        if unkept:
            documents = (
                Keyed(bytes(KEY_BYTES), skill.name, skill.description, body)
                for skill, body in self._with_bodies(unkept)
            )
            segments.append((in_memory(documents), [_head(skill) for skill in unkept]))
        return _IndexRows(segments)

    def rows_again(self, cache: Path | None) -> _IndexRows:
        """Return all skills as rows, after the cache was found to be damaged."""
        if cache is not None:
            forget(cache, list(self._roots()))
        return self.rows(None)

    def _roots(self) -> dict[str, list[bytes]]:
        roots: dict[str, list[bytes]] = {}
        for key, skill in self._skills.items():
            roots.setdefault(skill.root, []).append(key)
        return roots

    def _key(self, skill: Skill, policies: dict[int, bytes]) -> bytes:
        """Return a digest of all sources of a document; the file's signature covers the body."""
        policy = policies.get(id(skill.policy))
        if policy is None:
            policy = policies[id(skill.policy)] = encode(astuple(skill.policy))
        parts = (
            skill.id,
            skill.name,
            skill.description,
            skill.file,
            skill.signature,
            self._bodies,
            policy,
        )
        return hashlib.blake2b(encode(parts), digest_size=KEY_BYTES).digest()

    def _read(self, keys: Sequence[bytes]) -> Iterator[Keyed]:
        skills = [self._skills[key] for key in keys]
        for key, (skill, body) in zip(keys, self._with_bodies(skills), strict=True):
            yield Keyed(key, skill.name, skill.description, body)

    def _with_bodies(self, skills: Sequence[Skill]) -> Iterator[tuple[Skill, str]]:
        for number, skill in enumerate(skills):
            self._progress(number, len(skills))
            yield skill, _body(skill) if self._bodies else ""


def _head(skill: Skill) -> _Head:
    return _Head(skill.id, skill.name, skill.description)


def _body(skill: Skill) -> str:
    try:
        return load_body(skill)
    except (SkillError, OSError):
        # One bad file never breaks the search; loading the skill reports the error.
        return ""


CANDIDATES = 80
"""Rows that are judged by all evidence; others follow them in the order of BM25F."""


def skills_of(index: SkillIndex, hits: Sequence[Hit]) -> list[Skill]:
    """Return the skill of each hit, best first; `index` has the skills that were searched.

    Several skills of one id are as many hits, equally good ones in the order of the index.
    """
    by_id: dict[str, list[Skill]] = {hit.id: [] for hit in hits}
    for skill in index.skills:
        if (of_id := by_id.get(skill.id)) is not None:
            of_id.append(skill)
    return [by_id[hit.id].pop(0) if len(by_id[hit.id]) > 1 else by_id[hit.id][0] for hit in hits]


def search(index: SkillIndex | SearchIndex, query: str, *, limit: int = 5) -> list[Hit]:
    """Return the skills of `index` that match `query`, best first, equal ones by id.

    A `SkillIndex` is indexed for this call only; build a `SearchIndex` for several. Shadowed skills
    are not searched. `query` is any text in any language, without syntax. SearchError: this
    Python's SQLite has no full-text module.
    """
    if isinstance(index, SkillIndex):
        if limit <= 0:
            return []
        index = SearchIndex.from_skills(index)
    return index.search(query, limit=limit, collapse=True)
