"""The logs of all servers of a state, as one list: each server answers for its own."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from skillhouse.audit import Query
from skillhouse.audit.answer_keys import is_signed
from skillhouse.audit.log_files import LogKeys, read_keys
from skillhouse.audit.peer_pages import (
    NAME_MAX,
    LogCheck,
    LogChecker,
    LogPage,
    LogQuestion,
    SeenEntry,
    decoded_page,
    encoded,
    entries_for,
    merged,
    seen_entries,
)
from skillhouse.audit.peer_rows import (
    AT_ONCE,
    CLAIM_MS,
    LogAnswerRow,
    LogKeyRow,
    LogPins,
    PeerRows,
)
from skillhouse.floor import ConfigError, SkillhouseError
from skillhouse.floor.structs import replace
from skillhouse.store import STATE_FILE, commit_stamp

if TYPE_CHECKING:
    from skillhouse.approval import LiveServers, ServerRow
    from skillhouse.audit import AuditLog
    from skillhouse.house.config import Config

WAIT_SECONDS = 3.0
"""How long the servers of a state are waited for."""
UNNAMED_SECONDS = 1.0
LOOK_SECONDS = 0.05
ANSWER_SECONDS = 0.2
"""How often a server looks for questions, when the state has changed."""
_REMEMBERED = 200
_NAMED_MAX = 20
"""Names that an error has."""
logger = logging.getLogger(__name__)


class UnknownServerError(SkillhouseError):
    """No server of the state, and no log that it knows, has a name."""

    code = "unknown-server"

    def __init__(self, name: str, known: Collection[str]) -> None:
        self.nearest = tuple(sorted(known))[:_NAMED_MAX]
        named = ", ".join(f"`{one}`" for one in self.nearest)
        super().__init__(f"no server `{name[:NAME_MAX]}`; known are {named}")


class SeenServer(Struct, frozen=True, kw_only=True):
    """One server, and what became of asking it."""

    name: str
    log: str
    state: Literal["answered", "empty", "silent", "lost", "refused"]
    """answered, empty, silent, lost, or refused: the answer was not that of this log's server."""
    said: str = ""
    """Why it did not answer, or what is wrong with its log."""
    version: str = ""
    check: LogCheck | None = None
    """What it found of its own log; None where it did not answer."""
    is_this: bool = False


class ReplacedServer(Struct, frozen=True, kw_only=True):
    """A server that has another log than it had, as one whose disk was new."""

    server: str
    log: str
    """The log that answers now."""
    given_up: tuple[str, ...]
    """Those that had the name before, and do not answer."""


class AllLogsPage(Struct, frozen=True, kw_only=True):
    """The newest calls of all servers that fit a question."""

    entries: tuple[SeenEntry, ...]
    servers: tuple[SeenServer, ...]
    following: str
    """Id before which the next page begins; empty for the last one."""
    is_cut: bool
    """Whether a server has older records that it did not look at."""

    @property
    def is_whole(self) -> bool:
        """Whether every server answered, and nothing is known to be wrong with a log."""
        return all(
            one.state in ("answered", "empty") and (one.check is None or one.check.state == "whole")
            for one in self.servers
        ) and all(one.standing in ("verified", "new") for one in self.entries)


class AllLogs:
    """Asks the servers of a state for their logs, and answers for its own."""

    def __init__(
        self,
        config: Config,
        log: AuditLog,
        servers: LiveServers,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`log` is that of this server, if it is one, or of this machine; `servers` are those of
        the state; `clock` gives seconds since 1970."""
        self.state_path = config.state_directory / STATE_FILE
        self._name = config.shown_server
        self._log = log
        self._servers = servers
        self._rows = PeerRows(config.state_directory)
        self._pins = LogPins(config.state_directory)
        self._checker = LogChecker(log)
        self._clock = clock
        self._published = ""
        self._asking: set[str] = set()
        """Questions of this process, which reads its own log by itself."""

    @property
    def is_shared(self) -> bool:
        """Whether the state is on a server, so that there may be other logs than this one."""
        return self._servers.is_remote

    def page(self, question: LogQuestion, *, wait_seconds: float = WAIT_SECONDS) -> AllLogsPage:
        """Return a page of all logs; AuditError or StateError if this server's own, or the state,
        cannot be read. It waits for the slowest server, and not longer than so many seconds.

        `server` of its query is a server, or a log, as this list names them: of one without a
        `server_name` no record has a name.

        Raises:
            UnknownServerError: there is none of that name.
        """
        wanted = question.query.server
        question = replace(question, query=replace(question.query, server=None))
        own = self._own_page(question)
        self._check_name(wanted, own.log)
        if not self.is_shared:
            return _paged([own], [seen_entries(own, {}, is_doubtful=False)], [_seen(own)], question)
        asked = [
            one
            for one in self._servers.all()
            # A process that serves nothing answers nothing.
            if one.address
            and one.id != own.server_id
            and (not one.log_name or one.log_name != own.log)
        ]
        request, now_ms = self._rows.ask(question), int(self._clock() * 1000)
        self._asking.add(request)
        try:
            answers = self._awaited(request, asked, own.log, wait_seconds)
            answered = [one.log for one in answers]
            pins = self._pins.take(self._rows.keys(answered), answered, now_ms)
        finally:
            self._asking.discard(request)
            self._rows.forget(request)
        pages, servers = _received(own, answers, request, question, pins)
        servers += self._silent(asked, servers)
        there = {one.log for one in pages}
        self._pins.note(there, now_ms)
        claimed = Counter(one.server for one in pages)
        claimed.update(_claims(pins, there, now_ms))
        if wanted is not None:
            pages = [one for one in pages if wanted in (one.server, one.log)]
            servers = [one for one in servers if wanted in (one.name, one.log)]
        seen = [
            seen_entries(one, self._heads_of(one), is_doubtful=claimed[one.server] > 1)
            for one in pages
        ]
        return _paged(pages, seen, _named(servers, claimed), question)

    def replaced(self, name: str) -> ReplacedServer:
        """Ask which log a server of a name has now, and which had the name before.

        Raises:
            UnknownServerError: there is no server of that name.
            ConfigError: none answers, or several do, or none had the name before, or one that had
                it is there.
        """
        found = self.page(LogQuestion(query=Query(server=name), limit=1)).servers
        # This server's own log has no name before its first record.
        now = [one.log for one in found if one.state == "answered" and one.name == name and one.log]
        if len(now) != 1:
            how = "several logs answer" if now else "no server answers"
            raise ConfigError(f"{how} as `{name}`: one has to", key="server_name")
        oldest = int(self._clock() * 1000) - CLAIM_MS
        before = sorted(
            one.log
            for one in self._pins.all().values()
            if one.server == name and one.log != now[0] and one.seen_ms > oldest
        )
        if not before:
            raise ConfigError(f"no other log had the name `{name}`", key="server_name")
        there = [one.log for one in found if one.state in ("silent", "refused")]
        if kept := sorted({*there} & {*before}):
            how = f"the server of the log {kept[0]}, which has the name `{name}`, is there"
            raise ConfigError(f"{how}: end it, or wait until it is lost", key="server_name")
        return ReplacedServer(server=name, log=now[0], given_up=tuple(before))

    def accept(self, replaced: ReplacedServer) -> None:
        """Have the name of a server be that of its new log alone, at this machine."""
        self._pins.release(replaced.given_up)

    def _check_name(self, wanted: str | None, own_log: str) -> None:
        if wanted is None:
            return
        known = self.server_names()
        logs = {own_log, *self.last_heads(), *(one.log_name for one in self._servers.all())}
        if not wanted or wanted not in known | logs:
            raise UnknownServerError(wanted, known)

    def server_names(self) -> frozenset[str]:
        """Return the names of the servers of the state, and of those whose logs it knows."""
        alive = {one.name for one in self._servers.all() if one.address}
        return frozenset({self._name, *alive, *(one for one, _, _ in self.last_heads().values())})

    def last_heads(self) -> Mapping[str, tuple[str, int, int]]:
        """Return of each log the server, place and time of its newest head in the state; StateError
        if it cannot be read."""
        return self._rows.last_heads() if self.is_shared else {}

    def answer(self, done: set[str]) -> int:
        """Answer what is asked now, but not what is in `done`; return how many answers were given.

        SkillhouseError or OSError if that fails.
        """
        keys = self._keys()
        if keys is None:
            return 0
        given = 0
        for request, text, question in self._rows.questions(done | self._asking):
            done.add(request)
            self._rows.answer(request, text, self._own_page(question), keys)
            given += 1
        return given

    def publish(self) -> None:
        """Say in the state which log this server has, and by which key it answers."""
        keys = self._keys()
        if keys is None or self._published == keys.name:
            return
        if not self._rows.publish(keys, self._name):
            logger.error(
                "the state has another key for answers of this server's log, `%s`: another server "
                "may answer in its name",
                keys.name,
            )
        self._servers.log_name = self._published = keys.name
        self._servers.beat()

    def _keys(self) -> LogKeys | None:
        return read_keys(self._log.path, self._log.key)

    def _own_page(self, question: LogQuestion) -> LogPage:
        keys = self._keys()
        entries, horizon, is_cut = entries_for(self._log, question)
        return LogPage(
            log="" if keys is None else keys.name,
            server=self._name,
            server_id=self._servers.own_id,
            version=self._servers.own_version,
            clock_ms=int(self._clock() * 1000),
            # After its records were read: what a head knows of them is checked with it.
            check=self._checker.check(),
            entries=entries,
            horizon=horizon,
            is_cut=is_cut,
        )

    def _awaited(
        self, request: str, asked: list[ServerRow], own_log: str, wait_seconds: float
    ) -> tuple[LogAnswerRow, ...]:
        alive = [one for one in asked if one.state != "lost"]
        wanted = {one.log_name for one in alive if one.log_name}
        # One that has not said which log it has may have no record yet, and never answer.
        unnamed = sum(not one.log_name for one in alive)
        began = time.monotonic()
        while (waited := time.monotonic() - began) < wait_seconds:
            answered = self._rows.answered(request) - {own_log}
            if wanted <= answered and (
                waited >= UNNAMED_SECONDS or len(answered - wanted) >= unnamed
            ):
                break
            time.sleep(LOOK_SECONDS)
        # Another process of this machine may have answered for the log that was read here.
        return tuple(one for one in self._rows.answers(request, wanted) if one.log != own_log)

    def _silent(self, asked: list[ServerRow], servers: list[SeenServer]) -> list[SeenServer]:
        """Return the servers that did not answer, and logs whose server is gone."""
        known = {one.log for one in servers}
        found = []
        for row in asked:
            if row.log_name not in known:
                state: Literal["empty", "silent", "lost"]
                state = "lost" if row.state == "lost" else "silent" if row.log_name else "empty"
                found.append(
                    SeenServer(name=row.name, log=row.log_name, state=state, version=row.version)
                )
        known |= {one.log for one in found}
        for log, (server, _, _) in self._rows.last_heads().items():
            if log not in known:
                said = "no server has this log now"
                found.append(SeenServer(name=server, log=log, state="lost", said=said))
        return found

    def _heads_of(self, page: LogPage) -> Mapping[int, str]:
        places = [
            record.seq
            for one in page.entries
            for record in (one.record, one.outcome)
            if record is not None
        ]
        if not places:
            return {}
        return self._rows.heads_at(page.log, places)


def _received(
    own: LogPage,
    answers: tuple[LogAnswerRow, ...],
    request: str,
    question: LogQuestion,
    pins: Mapping[str, LogKeyRow],
) -> tuple[list[LogPage], list[SeenServer]]:
    """Return the pages that may be shown, and every server that answered."""
    pages, servers = [own], [_seen(own, is_this=True)]
    for answer in answers:
        page, fault = _checked(answer, request, question, pins)
        if page is not None:
            pages.append(page)
            servers.append(_seen(page))
        elif answer.log not in (own.log, ""):
            name = pins[answer.log].server if answer.log in pins else answer.log
            servers.append(SeenServer(name=name, log=answer.log, state="refused", said=fault))
    return pages, servers


def _claims(pins: Mapping[str, LogKeyRow], there: Collection[str], now_ms: int) -> list[str]:
    """Return the names that logs have whose servers are away, or were a while ago."""
    away = (one for one in pins.values() if one.log not in there)
    return [one.server for one in away if now_ms - one.seen_ms < CLAIM_MS]


def _checked(
    answer: LogAnswerRow, request: str, question: LogQuestion, pins: Mapping[str, LogKeyRow]
) -> tuple[LogPage | None, str]:
    """Return what a server answered, or why that is refused."""
    pin = pins.get(answer.log)
    if pin is None:
        return None, "the state has no key for answers of this log"
    if not is_signed(pin.public_key, request, encoded(question), answer.body, answer.signature):
        return None, "the answer is not signed by the key that this log had when it was seen first"
    page = decoded_page(answer.body, question)
    if page is None or page.log != answer.log:
        return None, "the answer is not one to what was asked"
    return page, ""


def _seen(page: LogPage, *, is_this: bool = False) -> SeenServer:
    return SeenServer(
        name=page.server,
        log=page.log,
        state="answered",
        said=page.check.said,
        version=page.version,
        check=page.check,
        is_this=is_this,
    )


def _named(servers: list[SeenServer], claimed: Counter[str]) -> list[SeenServer]:
    """Say of which servers the name is that of several logs."""
    said = "several logs have the name of this server"
    return [
        SeenServer(
            name=one.name,
            log=one.log,
            state=one.state,
            said=said if claimed[one.name] > 1 else one.said,
            version=one.version,
            check=one.check,
            is_this=one.is_this,
        )
        for one in servers
    ]


def _paged(
    pages: list[LogPage],
    seen: list[tuple[SeenEntry, ...]],
    servers: list[SeenServer],
    question: LogQuestion,
) -> AllLogsPage:
    entries, following = merged(pages, seen, question.limit)
    return AllLogsPage(
        entries=entries,
        servers=tuple(sorted(servers, key=lambda one: (one.name, one.log))),
        following=following,
        is_cut=any(one.is_cut for one in pages),
    )


class LogAnswers:
    """Answers, on a thread of its own, what other servers ask of this one's log."""

    def __init__(self, logs: AllLogs) -> None:
        self._logs = logs
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        """Whether it answers, or need not."""
        return self._ended.is_set() or self._thread is None or self._thread.is_alive()

    def begin(self) -> None:
        """Begin, where the state is on a server."""
        if self._logs.is_shared:
            self._thread = threading.Thread(target=self._answer_on, name="log-answers", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _answer_on(self) -> None:
        done: set[str] = set()
        stamp: tuple[int, ...] | None = None
        while not self._ended.wait(ANSWER_SECONDS):
            try:
                now = commit_stamp(self._logs.state_path)
                if now == stamp:
                    continue
                self._logs.publish()
                if self._logs.answer(done) < AT_ONCE:
                    stamp = now
                if len(done) > _REMEMBERED:
                    done.clear()
            except (SkillhouseError, OSError) as error:
                logger.warning("another server was not answered: %s", error)
                # Not at once: what is wrong now is wrong in a moment, too.
                self._ended.wait(1.0)
            except Exception:
                # The edge of a thread: what one question does ends no other answer.
                logger.exception("another server was not answered")
                self._ended.wait(1.0)
