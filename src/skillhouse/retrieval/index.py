"""Indexes skills and searches them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, field
from pathlib import Path
from typing import NamedTuple

from skillhouse.floor import SkillError, dataclass, encode
from skillhouse.retrieval.confidence import confidence
from skillhouse.retrieval.evidence import Evidence, Judge, lessened, order
from skillhouse.retrieval.query import MIX, Mix, read_query
from skillhouse.retrieval.rows import Head, IndexRows
from skillhouse.retrieval.segment import KEY_BYTES, DamagedError, Segment
from skillhouse.retrieval.segment_store import Keyed, forget, in_memory, kept_segments
from skillhouse.retrieval.stubs import STUB_FACTOR
from skillhouse.retrieval.tokens import name_key
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
    learned: float = 0.0
    """How often it was chosen for similar requests, 0 to 1, which is part of the score."""


class SearchIndex:
    """An immutable index of documents, for any thread."""

    def __init__(self, documents: Iterable[Document] = ()) -> None:
        """Index documents; ids may repeat."""
        kept = list(documents)
        self._lock = threading.Lock()
        self._rows = IndexRows([_loose(kept)])
        self._renewed: Callable[[], IndexRows] = lambda: self._rows

    @classmethod
    def from_documents(cls, documents: Iterable[Document]) -> SearchIndex:
        """Return an index of documents.

        >>> index = SearchIndex.from_documents([("user:pdf", "pdf", "Merges PDF files", "")])
        >>> [hit.id for hit in index.search("merging two files")]
        ['user:pdf']
        """
        return cls(documents)

    @classmethod
    def from_skills(
        cls,
        index: SkillIndex,
        *,
        bodies: bool = True,
        cache: Path | None = None,
        progress: Progress = lambda _, __: None,
    ) -> SearchIndex:
        """Return an index of the skills that are not shadowed.

        A skill with an unreadable body is found by its name and description. An exception from
        `progress` ends the reading.

        Args:
            bodies: Whether bodies are searched too.
            cache: Directory of the persistent index, for skills that did not change since; None
                reads every body.
        """
        made = cls()
        source = _Source(index, progress, bodies=bodies)
        made._rows = source.rows(cache)
        # Whoever it is from may hold the index, and reading again is no part of what it hears of.
        source.progress = _quiet
        made._renewed = lambda: source.rows_again(cache)
        return made

    def search(self, query: str, *, limit: int = 5, collapse: bool = False) -> list[Hit]:
        """Return the skills that contain any word of `query`, best first, equal ones by id.

        A skill whose name or id is the query comes first, with the best score, and if there is
        none, those whose name begins with it. `query` is any text, without syntax; without a letter
        or digit nothing matches, nor if `limit` is not positive.

        Args:
            collapse: Whether skills of one name or with one description are one hit, the best one.
        """
        if limit <= 0 or not len(self):
            return []
        with self._lock:
            try:
                return self._hits(query, limit, collapse=collapse)
            except (DamagedError, OSError):
                self._rows = self._renewed()
                return self._hits(query, limit, collapse=collapse)

    def judged(self, query: str, mix: Mix = MIX) -> list[tuple[str, Evidence]]:
        """Return the ids of the candidates of a query with the evidence, for measurements."""
        rows = self._rows
        judged, _ = _judged(rows, query, CANDIDATES, mix)
        return [(rows.heads[each.row].id, each) for each in judged]

    def _hits(self, query: str, limit: int, *, collapse: bool) -> list[Hit]:
        rows = self._rows
        judged, judge = _judged(rows, query, limit)
        key = name_key(query)
        named = judge.evidence(rows.of_key.get(key, ()))
        # A word that skills have is a word first, and what a name begins with second.
        is_word = bool(judged) and all(concept.is_written for concept in judged[0].concepts)
        begun = [] if named or " " in query else rows.begun(key, parts=is_word and "-" not in key)
        ranked = _best_first(judged, named, judge.evidence(begun))
        groups = _collapsed(rows.heads, ranked) if collapse else [[each] for each in ranked]
        return [_hit(rows.heads, group) for group in groups[:limit]]

    def __len__(self) -> int:
        return len(self._rows.heads)


def _judged(
    rows: IndexRows, query: str, limit: int, mix: Mix = MIX
) -> tuple[list[Evidence], Judge]:
    """Return the judged rows, best first, and the judge of the query."""
    ranking = rows.ranking
    request = read_query(query, ranking, mix)
    few = min(CANDIDATES, max(CANDIDATES_LEAST, LOOK_UPS_MAX // max(len(request.found), 1)))
    depth = min(max(few, limit), len(rows.heads))
    found = ranking.candidates(request.concepts, request.found, limit=depth)
    judge = Judge(ranking, request.concepts, request.found)
    first = _without_stubs(rows, judge.evidence(found[:few]))
    return first + judge.evidence(found[few:]), judge


def _without_stubs(rows: IndexRows, judged: Sequence[Evidence]) -> list[Evidence]:
    """Return judged rows in their order, after stubs among the first lost part of their score."""
    first = [
        lessened(each, STUB_FACTOR) if rows.is_stub(each.row) else each for each in judged[:STUBS]
    ]
    return sorted([*first, *judged[STUBS:]], key=order)


class _Ranked(NamedTuple):
    evidence: Evidence
    score: float
    is_exact: bool


def _best_first(
    judged: Sequence[Evidence], named: Sequence[Evidence], begun: Sequence[Evidence]
) -> list[_Ranked]:
    """Return judged rows with final scores, after those that the query names or begins to name."""
    pinned = {each.row for each in (*named, *begun)}
    last = highest = max((each.score for each in (*named, *begun, *judged)), default=0.0)
    ranked = [_Ranked(each, highest, is_exact=True) for each in named]
    ranked += [_Ranked(each, highest, is_exact=False) for each in begun]
    for each in judged:
        if each.row not in pinned:
            # What was not among the candidates is never better than what was.
            last = min(each.score, last)
            ranked.append(_Ranked(each, last, is_exact=False))
    return ranked


def _hit(heads: Sequence[Head], group: Sequence[_Ranked]) -> Hit:
    """Return the hit of the first of a group, with the ids of the rest."""
    (evidence, score, is_exact), *others = group
    head = heads[evidence.row]
    matches = evidence.matched()
    return Hit(
        id=head.id,
        name=head.name,
        score=score,
        fields=tuple(matches),
        exact=is_exact,
        confidence=1.0 if is_exact else confidence(evidence),
        matches=matches,
        alike=tuple(heads[each.evidence.row].id for each in others),
    )


CLONE_CHARS = 60
"""Characters from which skills with one description are copies."""


def _collapsed(heads: Sequence[Head], ranked: Sequence[_Ranked]) -> list[list[_Ranked]]:
    """Return those of one name or of one long description together, the best one first."""
    groups: list[list[_Ranked]] = []
    of_key: dict[tuple[str, str], list[_Ranked]] = {}
    for each in ranked:
        head = heads[each.evidence.row]
        keys = [("name", name_key(head.name) or head.id)]
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


def _loose(documents: Sequence[Document]) -> tuple[Segment, list[Head]]:
    key = bytes(KEY_BYTES)
    segment = in_memory(Keyed(key, name, about, body) for _, name, about, body in documents)
    return segment, [Head(*document[:3]) for document in documents]


def _quiet(done: int, total: int) -> None:
    """Hear of nothing."""


class _Source:
    """Skills as documents, which are read when the cache does not have them."""

    def __init__(self, index: SkillIndex, progress: Progress, *, bodies: bool) -> None:
        self._bodies = bodies
        self.progress = progress
        self._skills: dict[bytes, Skill] = {}
        self._unkept: list[Skill] = []
        policies: dict[int, bytes] = {}
        for skill in index.skills:
            key = self._key(skill, policies)
            if skill.signature is None or key in self._skills:
                self._unkept.append(skill)
            else:
                self._skills[key] = skill

    def rows(self, cache: Path | None) -> IndexRows:
        missing = dict(self._skills)
        segments: list[tuple[Segment, Sequence[Head | None]]] = []
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
        return IndexRows(segments)

    def rows_again(self, cache: Path | None) -> IndexRows:
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
            self.progress(number, len(skills))
            yield skill, _body(skill) if self._bodies else ""


def _head(skill: Skill) -> Head:
    return Head(skill.id, skill.name, skill.description)


def _body(skill: Skill) -> str:
    try:
        return load_body(skill)
    except (SkillError, OSError):
        # One bad file never breaks the search; loading the skill reports the error.
        return ""


STUBS = 20
"""Best rows that are looked through for stubs."""
CANDIDATES = 80
"""Rows that are judged by all evidence; others follow them in the order of BM25F."""
CANDIDATES_LEAST = 40
LOOK_UPS_MAX = 1_600
"""Rows times stems that are looked up: of the candidates of a long query, fewer are judged."""


def search(index: SkillIndex | SearchIndex, query: str, *, limit: int = 5) -> list[Hit]:
    """Return the skills of `index` that match `query`, best first, equal ones by id.

    Of a `SkillIndex` with a cache, the search index is kept there and brought up to date; without
    one it is made for this call only. Build a `SearchIndex` for several calls. Shadowed skills are
    not searched. `query` is any text in any language, without syntax. SearchError: this
    Python's SQLite has no full-text module.
    """
    if isinstance(index, SkillIndex):
        if limit <= 0:
            return []
        index = SearchIndex.from_skills(index, cache=index.cache)
    return index.search(query, limit=limit, collapse=True)
