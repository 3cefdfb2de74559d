"""What agents used, which changes what lists hold and the order of lists and searches.

- The skills that were loaded lately change an order and nothing else, so they are kept in the
  cache: a file of one line for each, which several processes add to. What is lost or damaged costs
  the order alone.
- The files that an agent worked on bring skills into a list, where the profile has such skills.
- What agents loaded after a search lifts the same skills when a similar request comes. Off unless
  `[search] learn` is on. It is kept in the state, for each user by itself, and `skillhouse search
  --forget-learned` removes it (decision record 0323).
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from skillhouse import retrieval
from skillhouse.floor import SkillhouseError, make_private, structs
from skillhouse.skill import relative_file
from skillhouse.store import STATE, STATE_FILE, pooled, state_clock, state_exists

if TYPE_CHECKING:
    from skillhouse import tools as toolbox
    from skillhouse.retrieval import Hit
    from skillhouse.tools import Activation, Session


RECENT_FILE = "recent-skills.jsonl"
READ_BYTES = 65_536
"""Bytes of the file's end that are read, some hundred skills."""
FILE_MAX = 262_144
"""Bytes above which the file is rewritten with its readable end."""

logger = logging.getLogger(__name__)


class RecentSkills:
    """The skills that anybody loaded here, newest last."""

    def __init__(self, directory: Path | None) -> None:
        self._path = None if directory is None else directory / RECENT_FILE

    def ranks(self) -> Mapping[str, int]:
        """Return the files of skills with their ranks, the newest has the lowest."""
        if self._path is None:
            return {}
        try:
            newest = dict.fromkeys(reversed(self._files(self._path)))
        except OSError:
            return {}
        return {file: rank for rank, file in enumerate(newest)}

    def note(self, file: str) -> None:
        """Remember that the skill with this SKILL.md was loaded; a load never fails for it."""
        if self._path is None:
            return
        try:
            make_private(self._path.parent)
            if self._append(self._path, file) > FILE_MAX:
                self._tidy(self._path)
        except OSError:
            logger.debug("the order of recent skills is not kept", exc_info=True)

    def _append(self, path: Path, file: str) -> int:
        """Add one line in one write, which other processes' lines do not mix with."""
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NO_LINK, 0o600)
        try:
            os.write(descriptor, f"{json.dumps(file)}\n".encode())
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def _tidy(self, path: Path) -> None:
        """Keep the newest line of each skill; a concurrent line may be lost."""
        newest = [*dict.fromkeys(reversed(self._files(path)))]
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NO_LINK, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(found)}\n" for found in reversed(newest))
        os.replace(beside, path)

    def _files(self, path: Path) -> list[str]:
        """Return the files in the order of their lines; other lines are skipped."""
        descriptor = os.open(path, os.O_RDONLY | _NO_LINK | _NO_WAIT)
        with open(descriptor, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - READ_BYTES))
            lines = file.read(READ_BYTES).split(b"\n")
        found = []
        for line in lines[1:] if size > READ_BYTES else lines:
            with suppress(ValueError, RecursionError):
                value = json.loads(line)
                if isinstance(value, str):
                    found.append(value)
        return found


_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
"""Opening a pipe in the file's place does not block."""


FILES_MAX = 1_000
"""Files of one agent that are remembered, the latest."""

WORKING = frozenset({"read", "write", "edit"})
"""Tools whose calls are work on a file; listing a directory is looking around."""


class TouchedFiles:
    """The files of the project that each agent has read, written or edited by tool calls.

    They are kept as long as the process runs, whatever conversation of the agent it was in: what is
    listed is the same for all of them.
    """

    def __init__(self, start: Path, project: Path) -> None:
        self._start = os.path.realpath(start)
        self._project = Path(os.path.realpath(project))
        self._files: dict[str, dict[str, None]] = {}

    def of(self, agent: str) -> tuple[str, ...]:
        return tuple(self._files.get(agent, ()))

    def add(self, call: toolbox.ToolCall, result: toolbox.ToolResult) -> bool:
        """Note a finished call; whether it touched a new file."""
        path = (result.data or {}).get("path")
        if call.name not in WORKING or result.is_error or not isinstance(path, str):
            return False
        file = relative_file(os.path.join(self._start, path), self._project)
        files = self._files.setdefault(call.agent, {})
        if file is None or file in files:
            return False
        files[file] = None
        if len(files) > FILES_MAX:
            del files[next(iter(files))]
        return True


LIFT_MAX = 0.2
"""Share of its score by which a skill is lifted at most. All four numbers: decision record 0323."""
SIMILAR_LEAST = 0.34
"""Share of the words of two requests in common from which they are similar (Jaccard)."""
CHOICES_LEAST = 1.0
"""Choices that lift nothing: one may be an error."""
HALF_LIFE_DAYS = 30.0
CHOICES_MAX = 500
"""Choices of a user that are kept, the newest."""
CHOICES_A_DAY = 3
"""Choices of one skill that count in a day."""
WORDS_MAX, WORD_CHARS_MAX = 16, 24
_DAY_MS = 86_400_000


class LearnedChoice(Struct, frozen=True, kw_only=True):
    """A skill that an agent loaded after a search."""

    file: str
    """Its SKILL.md."""
    words: tuple[str, ...]
    """Stems of the request, sorted; what may be a secret or a number is left out."""
    at_ms: int


class LearnedChoices:
    """The choices of each user in the state database; any thread may use it."""

    def __init__(self, state_directory: Path, *, clock: Callable[[], float] = time.time) -> None:
        """`clock` returns seconds since 1970."""
        self._path = state_directory / STATE_FILE
        self._clock = state_clock(self._path, clock)

    def note_load(self, activation: Activation, session: Session) -> None:
        """Remember a skill that the model of a session loaded, if its search found it."""
        query = session.searches.choose(activation.file) if activation.by == "model" else ""
        if query:
            self.note(session.user, query, activation.file)

    def note(self, user: str, query: str, file: str) -> None:
        """Remember that a skill was loaded after a search; a load never fails for it."""
        words = request_words(query)
        if not words:
            return
        now = int(self._clock() * 1000)
        try:
            with pooled(self._path, STATE) as store, store.transaction() as connection:
                count = (
                    "SELECT count(*) FROM search_choice "
                    "WHERE user_name = ? AND file = ? AND at_ms > ?"
                )
                (today,) = connection.execute(count, (user, file, now - _DAY_MS)).fetchone()
                if today >= CHOICES_A_DAY:
                    return
                connection.execute(
                    "INSERT INTO search_choice (user_name, file, words, at_ms) VALUES (?, ?, ?, ?)",
                    (user, file, json.dumps(words), now),
                )
                connection.execute(
                    "DELETE FROM search_choice WHERE user_name = ? AND seq NOT IN (SELECT seq "
                    "FROM search_choice WHERE user_name = ? ORDER BY seq DESC LIMIT ?)",
                    (user, user, CHOICES_MAX),
                )
        except SkillhouseError:
            logger.debug("what was loaded after a search is not kept", exc_info=True)

    def choices(self, user: str) -> tuple[LearnedChoice, ...]:
        """Return the choices of a user, newest first. Raises StateError."""
        if not state_exists(self._path):
            return ()
        query = "SELECT file, words, at_ms FROM search_choice WHERE user_name = ? ORDER BY seq DESC"
        with pooled(self._path, STATE) as store:
            rows = store.rows(query, (user,))
        return tuple(
            LearnedChoice(file=file, words=tuple(json.loads(words)), at_ms=at_ms)
            for file, words, at_ms in rows
        )

    def forget(self, user: str) -> int:
        """Remove the choices of a user and return how many there were. Raises StateError."""
        if not state_exists(self._path):
            return 0
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            query = "DELETE FROM search_choice WHERE user_name = ?"
            return connection.execute(query, (user,)).rowcount

    def shares(self, user: str, query: str, among: Iterable[str]) -> Mapping[str, float]:
        """Return how often each skill was chosen for similar requests, 0 to 1, by its file.

        What is not `among` these files counts for nothing: it may be hidden from who searches.
        """
        try:
            choices = self.choices(user)
            files = frozenset(among if choices else ())
            choices = tuple(choice for choice in choices if choice.file in files)
        except (SkillhouseError, ValueError, TypeError):
            logger.debug("what was loaded after searches cannot be read", exc_info=True)
            return {}
        return shares(choices, request_words(query), now_ms=self._clock() * 1000)


def request_words(query: str) -> tuple[str, ...]:
    """Return the words by which requests are compared: stems without numbers and long tokens.

    >>> request_words("Merging the PDFs of AKIA77EXAMPLE, 2024")
    ('merg', 'pdf')
    """
    stems = retrieval.stems_of(retrieval.query_terms(query))
    words = {
        stem
        for parts in stems.values()
        for stem in parts
        if stem.isalpha() and len(stem) <= WORD_CHARS_MAX
    }
    return tuple(sorted(words)[:WORDS_MAX])


def shares(
    choices: Sequence[LearnedChoice], words: Sequence[str], *, now_ms: float
) -> Mapping[str, float]:
    """Return how much of what was chosen for similar requests each skill is, by its file.

    An older choice counts less, and the first one nothing.

    >>> one = LearnedChoice(file="a", words=("merg", "pdf"), at_ms=0)
    >>> shares([one], ["merg", "pdf"], now_ms=0), shares([one] * 3, ["merg", "pdf"], now_ms=0)
    ({}, {'a': 0.5})
    """
    wanted = frozenset(words)
    counts: dict[str, float] = defaultdict(float)
    for choice in choices:
        known = frozenset(choice.words)
        similar = len(wanted & known) / max(len(wanted | known), 1)
        if similar >= SIMILAR_LEAST:
            # A clock that was set back makes no choice count more.
            age_days = max(now_ms - choice.at_ms, 0.0) / _DAY_MS
            counts[choice.file] += similar * 0.5 ** (age_days / HALF_LIFE_DAYS)
    total = sum(counts.values())
    return {
        file: (count - CHOICES_LEAST) / (total + 1.0)
        for file, count in counts.items()
        if count > CHOICES_LEAST
    }


def lifted(hits: Sequence[Hit], shares_of: Sequence[float]) -> list[Hit]:
    """Return hits in the order of their lifted scores; exact ones stay first.

    INVARIANT: only hits are lifted, each by `LIFT_MAX` of its own score at most, and its confidence
    stays: what does not match is not found, and a weak match is still called one.
    """
    pairs = zip(hits, shares_of, strict=True)
    found = [
        structs.replace(hit, score=hit.score * (1.0 + LIFT_MAX * share), learned=share)
        if share > 0.0 and not hit.exact
        else hit
        for hit, share in pairs
    ]
    return sorted(found, key=lambda hit: (not hit.exact, -hit.score))
