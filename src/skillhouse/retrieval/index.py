"""Indexes skills and searches them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from skillhouse.floor import SkillError, as_error, encode
from skillhouse.floor.structs import astuple
from skillhouse.retrieval.evidence import Evidence, Judge, lessened, order
from skillhouse.retrieval.hits import Head, Hit, best_first, collapsed, hit_of
from skillhouse.retrieval.query import MIX, Mix, read_query
from skillhouse.retrieval.rows import IndexRows
from skillhouse.retrieval.segment import KEY_BYTES, DamagedError, Segment
from skillhouse.retrieval.segment_store import Keyed, forget, in_memory, kept_segments
from skillhouse.retrieval.stubs import STUB_FACTOR
from skillhouse.retrieval.tokens import name_key
from skillhouse.retrieval.votes import MeaningMaker, Meanings, MeaningState, Votes, encoded
from skillhouse.skill import Skill, SkillIndex, load_body

Document = tuple[str, str, str, str]
"""Id, name, description and body."""

Progress = Callable[[int, int], None]
"""Called before each body with the number of bodies read and their total."""


class SearchIndex:
    """An immutable index of documents, for any thread."""

    def __init__(self, documents: Iterable[Document] = ()) -> None:
        """Index documents; ids may repeat."""
        kept = list(documents)
        self._lock = threading.Lock()
        self._rows = IndexRows([_loose(kept)])
        self._renewed: Callable[[], IndexRows] = lambda: self._rows
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
        # Whoever it is from may hold the index, and reading again is no part of what it hears of.
        source.progress = _quiet
        made._renewed = lambda: source.rows_again(cache)
        made._begin_meanings(encoders, cache)
        return made

    def search(
        self,
        query: str,
        *,
        limit: int = 5,
        collapse: bool = False,
        votes: Votes | None = None,
        of: int | None = None,
    ) -> list[Hit]:
        """Return the skills that contain any word of `query`, best first, equal ones by id.

        A skill whose name or id is the query comes first, with the best score, and if there is
        none, those whose name begins with it. `query` is any text, without syntax; without a letter
        or digit nothing matches, nor if `limit` is not positive.

        Args:
            collapse: Whether skills of one name or with one description are one hit, the best one.
            votes: Those of encoders on these rows, where the index has none of its own.
            of: How many skills are searched, where these are those of them that may fit.
        """
        if limit <= 0 or not len(self):
            return []
        votes = votes or self._votes(query)
        with self._lock:
            try:
                return self._hits(query, limit, votes, of or len(self), collapse=collapse)
            except (DamagedError, OSError):
                self._rows = self._renewed()
                return self._hits(query, limit, votes, of or len(self), collapse=collapse)

    def _votes(self, query: str) -> Votes | None:
        return None if self.meanings is None else self.meanings.votes(query)

    def close(self) -> None:
        """Make no more vectors in the background; the index can still be searched."""
        if self.meanings is not None:
            self.meanings.close()

    @property
    def encoded(self) -> list[str]:
        """The text of each row by which it is encoded."""
        return [encoded(*head[1:]) for head in self._rows.heads]

    @property
    def meaning_state(self) -> MeaningState | None:
        """How far search by meaning is; None where there are no encoders."""
        return None if self.meanings is None else self.meanings.state

    def judged(self, query: str, mix: Mix = MIX) -> list[tuple[str, Evidence]]:
        """Return the ids of the candidates of a query with the evidence, for measurements."""
        rows = self._rows
        judged, _ = _judged(rows, query, CANDIDATES, self._votes(query), mix)
        return [(rows.heads[each.row].id, each) for each in judged]

    def _hits(
        self, query: str, limit: int, votes: Votes | None, skills: int, *, collapse: bool
    ) -> list[Hit]:
        rows = self._rows
        judged, judge = _judged(rows, query, limit, votes)
        key = name_key(query)
        named = judge.evidence(rows.named(key))
        # A word that skills have is a word first, and what a name begins with second.
        is_word = bool(judged) and all(concept.is_written for concept in judged[0].concepts)
        begun = [] if named or " " in query else rows.begun(key, parts=is_word and "-" not in key)
        pinned = judge.evidence(begun)
        if votes is not None:
            named, pinned = votes.fused(named), votes.fused(pinned)
        ranked = best_first(judged, named, pinned)
        groups = collapsed(rows.heads, ranked) if collapse else [[each] for each in ranked]
        return [hit_of(rows.heads, group, skills, judge) for group in groups[:limit]]

    def __len__(self) -> int:
        return len(self._rows.heads)


def _judged(
    rows: IndexRows, query: str, limit: int, votes: Votes | None, mix: Mix = MIX
) -> tuple[list[Evidence], Judge]:
    """Return the judged rows, best first, and the judge of the query."""
    ranking = rows.ranking
    request = read_query(query, ranking, mix)
    few = min(CANDIDATES, max(CANDIDATES_LEAST, LOOK_UPS_MAX // max(len(request.found), 1)))
    depth = min(max(few, limit), len(rows.heads))
    found = ranking.candidates(request.concepts, request.found, limit=depth)
    judge = Judge(ranking, request.concepts, request.found)
    first, others = found[:few], found[few:]
    if votes is None:
        return _without_stubs(rows, judge.evidence(first)) + judge.evidence(others), judge
    known = set(found)
    first += [row for row in votes.nearest() if row not in known]
    judged = _without_stubs(rows, judge.evidence(first))
    return votes.fused(judged) + votes.fused(judge.evidence(others)), judge


def _without_stubs(rows: IndexRows, judged: Sequence[Evidence]) -> list[Evidence]:
    """Return judged rows in their order, after stubs among the first lost part of their score."""
    first = [
        lessened(each, STUB_FACTOR) if rows.is_stub(each.row) else each for each in judged[:STUBS]
    ]
    return sorted([*first, *judged[STUBS:]], key=order)


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
    # One bad file never breaks the search; loading the skill reports the error.
    try:
        return load_body(skill)
    except (SkillError, OSError):
        return ""
    except Exception as error:  # noqa: BLE001 - the edge of one skill of many.
        as_error(error)
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
