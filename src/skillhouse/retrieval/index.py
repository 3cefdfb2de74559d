"""Indexes skills and searches them.

The documents of several segments are numbered in one order. While there is no index, names and
descriptions alone are searched.
"""

from __future__ import annotations

import hashlib
import heapq
import threading
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from skillhouse.floor import SkillError, as_error, encode
from skillhouse.floor.structs import astuple
from skillhouse.retrieval.evidence import Evidence, Judge, lessened, order
from skillhouse.retrieval.hits import Head, Hit, best_first, collapsed, hit_of
from skillhouse.retrieval.query import MIX, TranslationWeights, looked_for, read_query
from skillhouse.retrieval.rank import Part, Ranking
from skillhouse.retrieval.segment import KEY_BYTES, DamagedError, Segment
from skillhouse.retrieval.segment_store import KeyedDocument, forget, in_memory, kept_segments
from skillhouse.retrieval.stubs import STUB_FACTOR, is_stub
from skillhouse.retrieval.tokens import name_key, name_keys, stems_of
from skillhouse.retrieval.votes import EncoderVotes, MeaningMaker, Meanings, MeaningState, encoded
from skillhouse.skill import Skill, SkillIndex, load_body

PIN_LEAST = 3
"""Letters of a query from which skills whose name begins with it come first."""
PINS_MAX = 20
"""Skills that come first so; the beginning of more names is a common word."""
Document = tuple[str, str, str, str]
"""Id, name, description and body."""

Progress = Callable[[int, int], None]
"""Called before each body with the number of bodies read and their total."""
CANDIDATES_MAX = 500
"""Skills that a `HeadIndex` ranks: those with the most words of the query."""


class _Keys:
    """Keys of rows in alphabetical order: made sooner than a dictionary, and half as large."""

    def __init__(self, ids: Sequence[str], names: Sequence[str], *, are_ids: bool) -> None:
        """Take, of the keys of the id and of the name of each row, those that are like ids."""
        keys = [*ids, *names]
        chosen = [at for at, key in enumerate(keys) if (":" in key) == are_ids]
        # Rows are in the order of ids, so there is little to sort.
        chosen.sort(key=keys.__getitem__)
        self._keys = [keys[at] for at in chosen]
        self._rows = array("I", [at % len(ids) for at in chosen])

    def named(self, key: str) -> set[int]:
        """Return the rows with a key."""
        first = bisect_left(self._keys, key)
        return set(self._rows[first : bisect_right(self._keys, key, first)])

    def begun(self, beginning: str, key: str) -> set[int]:
        """Return rows with a name that begins so, or an id, not many more than `PINS_MAX`."""
        rows: set[int] = set()
        for at in range(bisect_left(self._keys, beginning), len(self._keys)):
            if not self._keys[at].startswith(beginning) or len(rows) > PINS_MAX:
                break
            # The beginning of every id, such as `user:`, is none of a name.
            if ":" not in self._keys[at][len(key) :]:
                rows.add(self._rows[at])
        return rows


class IndexRows:
    """Documents of several segments, in the order of equal scores."""

    def __init__(self, segments: Sequence[tuple[Segment, Sequence[Head | None]]]) -> None:
        """Take the segments, each with the heads of its documents; None for one that is hidden."""
        everything = [head for _, heads in segments for head in heads]
        of_document = {at: head for at, head in enumerate(everything) if head is not None}
        # Equal scores keep the order of the rows, so the rows are sorted by id.
        order = sorted(of_document, key=lambda at: of_document[at].id)
        if len({head.id for head in of_document.values()}) < len(order):
            ties = [tie for segment, _ in segments for tie in segment.ties]
            order.sort(key=lambda at: (of_document[at], ties[at], at))
        self.heads = [of_document[at] for at in order]
        rows = array("i", [-1]) * len(everything)
        for row, at in enumerate(order):
            rows[at] = row
        parts: list[Part] = []
        first = 0
        for segment, heads in segments:
            parts.append(Part(segment, rows[first : first + len(heads)]))
            first += len(heads)
        self.ranking = Ranking(parts, len(order))
        self._stubs: dict[int, bool] = {}
        ids = name_keys([head.id for head in self.heads])
        names = name_keys([head.name for head in self.heads])
        self._ids, self._names = (_Keys(ids, names, are_ids=are_ids) for are_ids in (True, False))

    def named(self, key: str) -> list[int]:
        """Return the rows whose name or id has a key."""
        return sorted((self._ids if ":" in key else self._names).named(key)) if key else []

    def begun(self, key: str, *, parts: bool) -> list[int]:
        """Return the rows whose name or id begins with a key, if they are few.

        Args:
            parts: Whether the key has to end where a word of the name does.
        """
        if len(key) < PIN_LEAST:
            return []
        keys = self._ids if ":" in key else self._names
        rows = keys.begun(key + ("-" if parts else ""), key)
        if len(rows) > PINS_MAX:
            return []
        return [row for row in sorted(rows) if not self.is_stub(row)]

    def is_stub(self, row: int) -> bool:
        found = self._stubs.get(row)
        if found is None:
            head = self.heads[row]
            found = self._stubs[row] = is_stub(head.name, head.description)
        return found


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
        votes: EncoderVotes | None = None,
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

    def _votes(self, query: str) -> EncoderVotes | None:
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

    def judged(self, query: str, mix: TranslationWeights = MIX) -> list[tuple[str, Evidence]]:
        """Return the ids of the candidates of a query with the evidence, for measurements."""
        rows = self._rows
        judged, _ = _judged(rows, query, CANDIDATES, self._votes(query), mix)
        return [(rows.heads[each.row].id, each) for each in judged]

    def _hits(
        self, query: str, limit: int, votes: EncoderVotes | None, skills: int, *, collapse: bool
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
    rows: IndexRows,
    query: str,
    limit: int,
    votes: EncoderVotes | None,
    mix: TranslationWeights = MIX,
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
    segment = in_memory(KeyedDocument(key, name, about, body) for _, name, about, body in documents)
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
                KeyedDocument(bytes(KEY_BYTES), skill.name, skill.description, body)
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

    def _read(self, keys: Sequence[bytes]) -> Iterator[KeyedDocument]:
        skills = [self._skills[key] for key in keys]
        for key, (skill, body) in zip(keys, self._with_bodies(skills), strict=True):
            yield KeyedDocument(key, skill.name, skill.description, body)

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


class HeadIndex:
    """Searches names and descriptions without an index, while one is being built.

    It scans thousands of skills in a few hundredths of a second, and ranks almost like a
    `SearchIndex` of the same texts.
    """

    def __init__(self, index: SkillIndex) -> None:
        self._skills = index.skills
        self.meanings = self.meaning_state = None
        """No encoder votes here."""

    def close(self) -> None:
        """Nothing is in the background."""

    def search(self, query: str, *, limit: int = 5, collapse: bool = False) -> list[Hit]:
        """Return skills with a word of `query` in name or description, best first."""
        stems = {stem for parts in stems_of(looked_for(query)).values() for stem in parts}
        # The stem of `happy` is `happi`; every other stem is the beginning of its word.
        beginnings = {_folded(stem if len(stem) < 4 else stem[:-1]) for stem in stems}
        counted = (
            (sum(beginning in text for beginning in beginnings), -number)
            for number, text in enumerate(
                _folded(f"{skill.name} {skill.description}") for skill in self._skills
            )
        )
        best = heapq.nlargest(CANDIDATES_MAX, (pair for pair in counted if pair[0]))
        skills = [self._skills[-number] for _, number in best]
        return SearchIndex.from_documents(
            (skill.id, skill.name, skill.description, "") for skill in skills
        ).search(query, limit=limit, collapse=collapse, of=len(self._skills))


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    letters = unicodedata.normalize("NFKD", text).casefold()
    return "".join(letter for letter in letters if not unicodedata.combining(letter))
