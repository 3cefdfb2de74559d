"""The rows by which servers ask each other for pages of their logs, and the keys that were seen."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from skillhouse.audit.answer_keys import public_key_of, sign
from skillhouse.audit.log_files import LogKeys
from skillhouse.audit.peer_pages import WHOLE_BODY_MAX, LogPage, LogQuestion, encoded
from skillhouse.audit.record import DAY_MILLISECONDS
from skillhouse.floor import StateError
from skillhouse.floor.paths import write_atomically
from skillhouse.floor.structs import replace
from skillhouse.store import STATE, STATE_FILE, pooled, state_clock

T = TypeVar("T")

LOG_NAME = re.compile(r"[0-9a-f]{12}")
"""What `LogKeys` has as its name."""
QUESTION_MAX = 8_000
FRESH_MS = 10_000
"""Age up to which a question is answered."""
KEPT_MS = 60_000
AT_ONCE = 4
"""Questions that are answered at one look."""
OPEN_MAX = 100
"""Questions among which those are looked for."""
ANSWERS_MAX = 16 * 1024 * 1024
"""Characters of all answers to a question that are read; each server may write any number."""
PINS_FILE = "audit-peers.json"
PINS_MAX = 1_000
_EIGHT = 8
CLAIM_MS = 7 * DAY_MILLISECONDS
"""For which the name of a server that is away is that of its log: a log of the same name that comes
meanwhile is doubtful. Afterwards its machine was replaced."""


class LogKeyRow(Struct, frozen=True, kw_only=True):
    """What the state says of the key that signs a log's answers."""

    log: str
    server: str
    public_key: str
    seen_ms: int = 0
    """When this machine last had an answer of it, to a day."""


class LogAnswerRow(Struct, frozen=True, kw_only=True):
    log: str
    body: str
    signature: str


class PeerRows:
    """The rows of one state; each use may raise StateError."""

    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / STATE_FILE
        self._clock = state_clock(self._path, time.time)

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def publish(self, keys: LogKeys, server: str) -> bool:
        """Say by which key this log's answers are signed; False where another one is there.

        INVARIANT: a key is never replaced, so who reads it earlier and later reads the same.
        """
        own = public_key_of(keys)
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "INSERT INTO log_key (log_name, server, public_key, at_ms) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (log_name) DO UPDATE SET server = excluded.server "
                "WHERE log_key.public_key = excluded.public_key",
                (keys.name, server, own, self._now_ms()),
            )
            rows = connection.execute(
                "SELECT public_key FROM log_key WHERE log_name = ?", (keys.name,)
            ).fetchall()
        return [str(one) for (one,) in rows] == [own]

    def keys(self, logs: Collection[str]) -> tuple[LogKeyRow, ...]:
        """Return the keys of these logs, and the newest of others; what has no name of a log, which
        a person is asked about, is none."""
        rows = []
        with pooled(self._path, STATE) as store:
            for some in _chunks(list(logs)[:PINS_MAX]):
                rows += store.rows(
                    "SELECT log_name, server, public_key FROM log_key WHERE log_name IN "
                    "(?, ?, ?, ?, ?, ?, ?, ?)",
                    some,
                )
            rows += store.rows(
                "SELECT log_name, server, public_key FROM log_key "
                "ORDER BY at_ms DESC, log_name LIMIT ?",
                (PINS_MAX,),
            )
        found = (LogKeyRow(log=log, server=name, public_key=key) for log, name, key in rows)
        return tuple(one for one in found if LOG_NAME.fullmatch(one.log))

    def ask(self, question: LogQuestion) -> str:
        """Ask every server; return the id of the question."""
        request = secrets.token_hex(16)
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            now = self._now_ms()
            connection.execute("DELETE FROM log_request WHERE asked_ms < ?", (now - KEPT_MS,))
            connection.execute("DELETE FROM log_answer WHERE at_ms < ?", (now - KEPT_MS,))
            connection.execute(
                "INSERT INTO log_request VALUES (?, ?, ?)",
                (request, encoded(question), now),
            )
        return request

    def questions(self, done: Collection[str] = ()) -> tuple[tuple[str, str, LogQuestion], ...]:
        """Return those that are asked now, but not what is in `done`: the id, the text, and what it
        says, the oldest first; one that cannot be read is none."""
        query = (
            "SELECT id, question FROM log_request WHERE asked_ms > ? AND length(question) <= ? "
            "ORDER BY asked_ms DESC, id LIMIT ?"
        )
        found = []
        with pooled(self._path, STATE) as store:
            # Of a connection that is new, the time is not known.
            fresh = int(self._clock() * 1000) - FRESH_MS
            rows = store.rows(query, (fresh, QUESTION_MAX, OPEN_MAX))
        for request, text in reversed(rows):
            if request not in done:
                try:
                    asked = msgspec.json.decode(str(text), type=LogQuestion)
                except (msgspec.DecodeError, RecursionError):
                    continue
                found.append((str(request), str(text), asked))
        return tuple(found[:AT_ONCE])

    def answer(self, request: str, question: str, page: LogPage, keys: LogKeys) -> None:
        body = encoded(page)
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            # A database that was restored may be of before this server was there.
            connection.execute(
                "INSERT INTO log_key (log_name, server, public_key, at_ms) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (log_name) DO NOTHING",
                (keys.name, page.server, public_key_of(keys), self._now_ms()),
            )
            connection.execute(
                "INSERT INTO log_answer VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (request, log_name) DO UPDATE "
                "SET body = excluded.body, signature = excluded.signature",
                (request, keys.name, body, sign(keys, request, question, body), self._now_ms()),
            )

    def answers(self, request: str, wanted: Collection[str] = ()) -> tuple[LogAnswerRow, ...]:
        """Return the answers to a question, those of the logs that are wanted first, as far as all
        of them are no more than `ANSWERS_MAX`."""
        query = (
            "SELECT body, signature FROM log_answer WHERE request = ? AND log_name = ? "
            "AND length(body) <= ?"
        )
        logs = sorted(self.answered(request), key=lambda log: (log not in wanted, log))
        found, size = [], 0
        with pooled(self._path, STATE) as store:
            for log in logs:
                for body, seal in store.rows(query, (request, log, WHOLE_BODY_MAX)):
                    size += len(body)
                    found.append(LogAnswerRow(log=log, body=body, signature=seal))
                if size > ANSWERS_MAX:
                    break
        return tuple(found)

    def answered(self, request: str) -> frozenset[str]:
        """Return which logs have an answer, without reading it."""
        query = "SELECT log_name FROM log_answer WHERE request = ? LIMIT ?"
        with pooled(self._path, STATE) as store:
            return frozenset(str(log) for (log,) in store.rows(query, (request, PINS_MAX)))

    def forget(self, request: str) -> None:
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute("DELETE FROM log_answer WHERE request = ?", (request,))
            connection.execute("DELETE FROM log_request WHERE id = ?", (request,))

    def last_heads(self) -> Mapping[str, tuple[str, int, int]]:
        """Return of each log the server, place and time of its newest head, by the log's name."""
        query = (
            "SELECT log_name, server, seq, at_ms FROM audit_head AS one WHERE seq = "
            "(SELECT max(seq) FROM audit_head WHERE log_name = one.log_name) ORDER BY log_name "
            "LIMIT ?"
        )
        with pooled(self._path, STATE) as store:
            rows = store.rows(query, (PINS_MAX,))
        return {str(log): (str(server), int(seq), int(at)) for log, server, seq, at in rows}

    def heads_at(self, log: str, places: Sequence[int]) -> Mapping[int, str]:
        """Return the hashes that the state has of a log's records at some places."""
        query = (
            "SELECT seq, record_hash FROM audit_head WHERE log_name = ? AND seq IN "
            "(?, ?, ?, ?, ?, ?, ?, ?)"
        )
        found: dict[int, str] = {}
        with pooled(self._path, STATE) as store:
            for some in _chunks(places):
                found |= {int(seq): str(one) for seq, one in store.rows(query, (log, *some))}
        return found


def _chunks(values: Sequence[T]) -> Iterator[tuple[T, ...]]:
    """Yield eights of some values, the last filled with its last: a statement is a constant."""
    for start in range(0, len(values), _EIGHT):
        some = tuple(values[start : start + _EIGHT])
        yield (*some, *some[-1:] * (_EIGHT - len(some)))


class LogPins:
    """The keys that were seen first of each log, in this machine's own directory.

    Who writes the state can write another key there; here it shows.
    """

    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / PINS_FILE

    def all(self) -> dict[str, LogKeyRow]:
        """Return the pins by the log's name; StateError if they cannot be read."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StateError(f"the keys of other servers' logs: {error}", self._path) from error
        try:
            rows = msgspec.json.decode(data, type=list[LogKeyRow])
        except msgspec.DecodeError as error:
            text = f"the keys of other servers' logs cannot be read: {error}"
            raise StateError(text, self._path) from error
        return {one.log: one for one in rows}

    def take(
        self, rows: Iterable[LogKeyRow], answered: Collection[str], now_ms: int
    ) -> dict[str, LogKeyRow]:
        """Return the pins, with those of logs that were not known before added.

        Those of logs that answered have room that others cannot take; of these, the one that was
        not seen for longest goes, if that is `CLAIM_MS` ago, as servers come and go for years.
        """
        before = self.all()
        known = dict(before)
        for one in rows:
            if one.log in known or (one.log not in answered and len(known) >= PINS_MAX // 2):
                continue
            if len(known) >= PINS_MAX:
                oldest = min(known.values(), key=lambda pin: pin.seen_ms)
                if now_ms - oldest.seen_ms < CLAIM_MS:
                    continue
                del known[oldest.log]
            known[one.log] = replace(one, seen_ms=now_ms)
        if known != before:
            self._write(known)
        return known

    def note(self, logs: Collection[str], now_ms: int) -> None:
        """Note that the servers of these logs answered."""
        known = self.all()
        old = [
            one
            for one in known.values()
            if one.log in logs and now_ms - one.seen_ms > DAY_MILLISECONDS
        ]
        if old:
            self._write(known | {one.log: replace(one, seen_ms=now_ms) for one in old})

    def release(self, logs: Collection[str]) -> None:
        """Have the names of these logs' servers be theirs no more, until they answer again."""
        known = self.all()
        freed = {log: replace(one, seen_ms=0) for log, one in known.items() if log in logs}
        self._write(known | freed)

    def _write(self, pins: Mapping[str, LogKeyRow]) -> None:
        rows = [msgspec.to_builtins(one) for one in pins.values()]
        try:
            with write_atomically(self._path) as file:
                file.write(json.dumps(rows, indent=1).encode())
        except OSError as error:
            text = f"the keys of other servers' logs cannot be written: {error}"
            raise StateError(text, self._path) from error
