"""The search index of what one agent sees: opened, brought up to date or made when it is needed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from skillhouse import extension, retrieval
from skillhouse.approval import OWNER
from skillhouse.floor import SkillhouseError, structs
from skillhouse.house.usage import lifted
from skillhouse.retrieval import Hit
from skillhouse.skill import SKILL_FILE, SkillIndex

if TYPE_CHECKING:
    from skillhouse.house.usage import LearnedChoices
    from skillhouse.retrieval import (
        MeaningMaker,
        MeaningState,
        Progress,
        Searcher,
        SearchResult,
    )
    from skillhouse.skill import Skill
    from skillhouse.tools import SkillCodeTool, Tool

PATIENCE_SECONDS = 0.5
"""A model's search waits so long for a complete index; one that is kept is open by then."""
RANKED_MAX = 500
"""Skills of an agent that are ranked for a list: more than fit into any usual budget."""
MEANING_PAUSE_SECONDS = 0.1
"""Between two looks at vectors that are being made."""
LIFTED_FROM = 20
"""Hits among which a skill that was chosen before is lifted."""
BODIES_SOON = 100
"""Where more bodies are to be read, it does not wait."""

Signature = tuple[int, int, int, int] | None


class CodeMatch(Struct, frozen=True, kw_only=True):
    """A skill of code alone that fits a request, with those of its tools that an agent has."""

    hit: Hit
    description: str
    tools: tuple[SkillCodeTool, ...]


logger = logging.getLogger(__name__)


class AgentSearch:
    """One agent's skills, ready to be searched; any thread may ask."""

    def __init__(
        self,
        visible: SkillIndex,
        *,
        bodies: bool,
        cache: Path | None,
        encoders: Callable[[], MeaningMaker | None] = lambda: None,
        learned: LearnedChoices | None = None,
        address: Callable[[], str] = str,
    ) -> None:
        """Take the skills; `learned` has what was loaded after searches, None where that changes
        nothing, and `address` gives the database that has the index, empty for files."""
        self._visible = visible
        self._address = address
        self._fault = ""
        self._learned = learned
        self._bodies = bodies
        self._cache = cache
        self._encoders = encoders
        self._lock = threading.Lock()
        self._made: Future[Searcher] | None = None
        self._is_closed = False
        self._is_known = threading.Event()
        """Set once the index is complete, or known to take long."""

    def index(self, progress: Progress = lambda _, __: None) -> Searcher:
        """Return the complete index, once it is made; `progress` hears of this call's work only.

        Raises:
            SearchError: this Python's SQLite has no full-text module.
            ConfigError, MissingExtraError: the configured database has no address, or what talks
                to it is not installed.
        """
        with self._lock:
            made, is_ours = self._claim()
        if is_ours:
            self._make(made, progress)
        return made.result()

    def database(self) -> Any:
        """Return a connection to the database that has the index; None where files have it.

        Raises:
            SearchDatabaseError, ConfigError, MissingExtraError: it cannot be used, has no address,
                or what talks to it is not installed.
        """
        address = self._address()
        return (
            extension.own_module("postgres", "database").SearchDatabase(address)
            if address
            else None
        )

    def wait_for_meaning(self, seconds: float, progress: Progress) -> MeaningState | None:
        """Return how far search by meaning is, after waiting for it so long; None without it.

        `progress` hears how many vectors there are.
        """
        index = self.at_hand()[0]
        end = time.monotonic() + seconds
        while (meanings := index.meanings) is not None:
            state = meanings.state
            progress(state.done, state.total)
            left = end - time.monotonic()
            if left <= 0 or meanings.wait(min(MEANING_PAUSE_SECONDS, left)):
                break
        return index.meaning_state

    def prepare(self, progress: Progress) -> None:
        """Have the complete index made, in files where the database cannot be used."""
        try:
            self.index(progress)
        except retrieval.SearchDatabaseError as error:
            self._give_up(error)
            self.index(progress)

    def start(self) -> None:
        """Make the index in a thread before the first search, where it is kept for later."""
        if self._cache is not None:
            self._make_in_thread()

    def _make_in_thread(self) -> Future[Searcher]:
        """Make the index in a thread, if it is not made yet, and return at once."""
        with self._lock:
            made, is_ours = self._claim()
            if is_ours:
                # A daemon, so that a program that ends need not wait for what it can do without.
                threading.Thread(
                    target=self._make, args=(made, self._give_way), name="search-index", daemon=True
                ).start()
        return made

    def at_hand(self) -> tuple[Searcher, bool]:
        """Return an index at once, and whether it is complete.

        Where many bodies have to be read, a thread does that, and until it has, names and
        descriptions are searched alone.

        Raises:
            SearchError: this Python's SQLite has no full-text module.
        """
        made = self._make_in_thread()
        self._is_known.wait(PATIENCE_SECONDS)
        if made.done():
            return made.result(), True
        return retrieval.HeadIndex(self._visible), False

    def find(
        self,
        query: str,
        *,
        limit: int = 5,
        collapse: bool = True,
        waits: bool = True,
        user: str = OWNER,
    ) -> SearchResult:
        """Return the skills that fit a query; every frontend's search is this one.

        Args:
            query: Any text.
            limit: Most hits; none where it is not positive.
            collapse: Whether skills of one name or with one description are one hit.
            waits: Whether it waits for the complete index, as `index` does; else `at_hand`.
            user: Whose earlier choices count.

        A database that cannot be used costs its index alone: files are searched in its place, and
        `fault` says so.

        Raises:
            SearchError, ConfigError, MissingExtraError: as of `index`.
        """
        try:
            return self._search(query, limit, collapse=collapse, waits=waits, user=user)
        except retrieval.SearchDatabaseError as error:
            self._give_up(error)
        return self._search(query, limit, collapse=collapse, waits=waits, user=user)

    def _search(
        self, query: str, limit: int, *, collapse: bool, waits: bool, user: str
    ) -> SearchResult:
        index, is_complete = (self.index(), True) if waits else self.at_hand()
        shares: Mapping[str, float] = {}
        if self._learned is not None and limit > 0:
            files = (skill.file for skill in self._visible.skills)
            shares = self._learned.shares(user, query, files)
        hits = index.search(
            query, limit=max(limit, LIFTED_FROM) if shares else limit, collapse=collapse
        )
        if shares:
            skills = retrieval.skills_of(self._visible, hits)
            hits = lifted(hits, [shares.get(skill.file, 0.0) for skill in skills])[:limit]
        return retrieval.SearchResult(
            hits=tuple(hits),
            is_partial=not is_complete,
            fault=self._fault,
            meaning=index.meaning_state,
        )

    def _give_up(self, error: SkillhouseError) -> None:
        """Search in files from now on, until the skills are looked at again."""
        logger.warning("%s; this machine's own index is used", error)
        with self._lock:
            self._fault = str(error)
            self._made = None
            self._is_known.clear()

    def ranked(self, request: str) -> list[Skill]:
        """Return up to `RANKED_MAX` skills that contain a word of a request, best first.

        Copies follow all others. It waits for the complete index, so that the same skills give the
        same order.

        Raises:
            SearchError: this Python's SQLite has no full-text module.
        """
        visible = self._visible
        hits = self.find(request, limit=RANKED_MAX).hits
        copies = {id_ for hit in hits for id_ in hit.alike}
        first = retrieval.skills_of(visible, hits)
        files = {skill.file for skill in first}
        more = [one for one in visible.skills if one.id in copies and one.file not in files]
        return [*first, *more]

    def renew(self, signatures: Mapping[str, Signature]) -> None:
        """Use new file signatures; changed files are read again."""
        with self._lock:
            self._visible = SkillIndex(
                (_with_signature(skill, signatures) for skill in self._visible.skills),
                name_match=self._visible.name_match,
            )
            self._stop_encoding()
            self._made = None
            self._fault = ""
            self._is_known.clear()

    def close(self) -> None:
        """Stop reading and encoding in the background."""
        self._is_closed = True
        self._stop_encoding()

    def _stop_encoding(self) -> None:
        made = self._made
        if made is not None and made.done() and made.exception() is None:
            made.result().close()

    def _claim(self) -> tuple[Future[Searcher], bool]:
        """Return the index that is or will be made, and whether the caller has to make it."""
        if self._made is not None:
            return self._made, False
        self._made = Future()
        # Without `self`, which holds the future: a circle would keep the index of every scan.
        is_known = self._is_known
        self._made.add_done_callback(lambda _: is_known.set())
        return self._made, True

    def _make(self, made: Future[Searcher], progress: Progress) -> None:
        try:
            index = self._open_or_build(progress)
        except BaseException as error:  # noqa: BLE001 - whoever waits hears it, Ctrl-C included.
            with self._lock:
                if self._made is made:
                    self._made = None
            made.set_exception(error)
        else:
            made.set_result(index)

    def _open_or_build(self, progress: Progress) -> Searcher:
        address = "" if self._fault else self._address()
        if address:
            made: Searcher = extension.own_module("postgres", "index").PostgresIndex(
                self._visible,
                address,
                bodies=self._bodies,
                cache=self._cache,
                progress=progress,
                encoders=self._encoders(),
            )
            return made
        return retrieval.SearchIndex.from_skills(
            self._visible,
            bodies=self._bodies,
            cache=self._cache,
            progress=progress,
            encoders=self._encoders(),
        )

    def _give_way(self, done: int, total: int) -> None:
        """Let other threads run before each body that is read."""
        if total - done > BODIES_SOON:
            self._is_known.set()
        if self._is_closed:
            raise SkillhouseError("the search index is no longer needed")
        # It lets go of the interpreter, which a thread that computes keeps for 5 ms at a time.
        time.sleep(0)


def code_matches(
    tools: Iterable[Tool], request: str, *, limit: int, among: int
) -> tuple[CodeMatch, ...]:
    """Return the skills of code alone of which an agent has tools and that fit, best first.

    The models' own search does not name them: every request has their tools. `among` is how many
    other skills there are, by which it is judged how sure a match is.

    Raises:
        SearchError: this Python's SQLite has no full-text module.
    """
    from skillhouse.tools import SkillCodeTool  # noqa: PLC0415 - most searches have no such tool.

    found: dict[str, list[SkillCodeTool]] = {}
    for tool in tools:
        if isinstance(tool, SkillCodeTool) and not (tool.skill.directory / SKILL_FILE).exists():
            its_id = f"{tool.skill.scope}:{tool.skill.manifest.name}"
            found.setdefault(its_id, []).append(tool)
    if not found or limit < 1:
        return ()
    index = retrieval.SearchIndex.from_documents(
        (
            its_id,
            (manifest := own[0].skill.manifest).name,
            manifest.description,
            "\n".join(f"{one.name} {one.description}" for one in own),
        )
        for its_id, own in found.items()
    )
    return tuple(
        CodeMatch(
            hit=hit,
            description=found[hit.id][0].skill.manifest.description,
            tools=tuple(found[hit.id]),
        )
        for hit in index.search(request, limit=limit, of=among + len(found))
    )


def _with_signature(skill: Skill, signatures: Mapping[str, Signature]) -> Skill:
    now = signatures.get(skill.file)
    return skill if now == skill.signature else structs.replace(skill, signature=now)
