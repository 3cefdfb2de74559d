"""The rows by which servers ask each other for pages of their logs, and the keys that were seen."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from skillhouse.audit.answer_keys import public_key_of, sign
from skillhouse.audit.log_files import LogKeys
from skillhouse.audit.peer_pages import WHOLE_BODY_MAX, LogPage, LogQuestion, encoded
from skillhouse.audit.record import DAY_MILLISECONDS
from skillhouse.floor import StateError
from skillhouse.floor.paths import write_atomically
from skillhouse.floor.structs import replace
from skillhouse.store import STATE, STATE_FILE, StateStore, pooled

QUESTION_MAX = 8_000
FRESH_MS = 10_000
"""Age up to which a question is answered."""
KEPT_MS = 60_000
AT_ONCE = 4
"""Questions that are answered at one look."""
PINS_FILE = "audit-peers.json"
PINS_MAX = 1_000


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
                (keys.name, server, own, _now_ms(store)),
            )
            rows = connection.execute(
                "SELECT public_key FROM log_key WHERE log_name = ?", (keys.name,)
            ).fetchall()
        return [str(one) for (one,) in rows] == [own]

    def keys(self) -> tuple[LogKeyRow, ...]:
        query = "SELECT log_name, server, public_key FROM log_key ORDER BY at_ms, log_name LIMIT ?"
        with pooled(self._path, STATE) as store:
            rows = store.rows(query, (PINS_MAX,))
        return tuple(LogKeyRow(log=log, server=name, public_key=key) for log, name, key in rows)

    def ask(self, question: LogQuestion) -> str:
        """Ask every server; return the id of the question."""
        request = secrets.token_hex(16)
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            now = _now_ms(store)
            connection.execute("DELETE FROM log_request WHERE asked_ms < ?", (now - KEPT_MS,))
            connection.execute("DELETE FROM log_answer WHERE at_ms < ?", (now - KEPT_MS,))
            connection.execute(
                "INSERT INTO log_request VALUES (?, ?, ?)",
                (request, msgspec.json.encode(question).decode(), now),
            )
        return request

    def questions(self) -> tuple[tuple[str, LogQuestion], ...]:
        """Return those that are asked now, the oldest first; one that cannot be read is none."""
        query = (
            "SELECT id, question FROM log_request WHERE asked_ms > ? AND length(question) <= ? "
            "ORDER BY asked_ms DESC, id LIMIT ?"
        )
        found = []
        with pooled(self._path, STATE) as store:
            rows = store.rows(query, (_now_ms(store) - FRESH_MS, QUESTION_MAX, AT_ONCE))
        for request, text in rows:
            try:
                found.append((str(request), msgspec.json.decode(str(text), type=LogQuestion)))
            except (msgspec.DecodeError, RecursionError):
                continue
        return tuple(reversed(found))

    def answer(self, request: str, page: LogPage, keys: LogKeys) -> None:
        body = encoded(page)
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "INSERT INTO log_answer VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (request, log_name) DO UPDATE "
                "SET body = excluded.body, signature = excluded.signature",
                (request, keys.name, body, sign(keys, request, body), _now_ms(store)),
            )

    def answers(self, request: str) -> tuple[LogAnswerRow, ...]:
        query = (
            "SELECT log_name, body, signature FROM log_answer WHERE request = ? "
            "AND length(body) <= ? ORDER BY log_name LIMIT ?"
        )
        with pooled(self._path, STATE) as store:
            rows = store.rows(query, (request, WHOLE_BODY_MAX, PINS_MAX))
        return tuple(LogAnswerRow(log=log, body=body, signature=seal) for log, body, seal in rows)

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

    def heads_between(self, log: str, first: int, last: int) -> Mapping[int, str]:
        """Return the hashes that the state has of a log's records between two places."""
        query = (
            "SELECT seq, record_hash FROM audit_head WHERE log_name = ? AND seq >= ? AND seq <= ? "
            "ORDER BY seq DESC LIMIT 1000"
        )
        with pooled(self._path, STATE) as store:
            return {int(seq): str(one) for seq, one in store.rows(query, (log, first, last))}


def _now_ms(store: StateStore) -> int:
    now = store.server_ms()
    if now is None:
        raise StateError("the logs of several servers need a state on a server", Path(STATE_FILE))
    return now


class LogPins:
    """The keys that were seen first of each log, in this machine's own directory.

    Who writes the state can write another key there; here it shows.
    """

    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / PINS_FILE

    def all(self) -> dict[str, LogKeyRow]:
        """Return the pins by the log's name; OSError or StateError if they cannot be read."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        try:
            rows = msgspec.json.decode(data, type=list[LogKeyRow])
        except msgspec.DecodeError as error:
            text = f"the keys of other servers' logs cannot be read: {error}"
            raise StateError(text, self._path) from error
        return {one.log: one for one in rows}

    def take(self, rows: Sequence[LogKeyRow], now_ms: int) -> dict[str, LogKeyRow]:
        """Return the pins, with those of logs that were not known before added."""
        known = self.all()
        new = {one.log: replace(one, seen_ms=now_ms) for one in rows if one.log not in known}
        if new and len(known) + len(new) <= PINS_MAX:
            known |= new
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

    def _write(self, pins: Mapping[str, LogKeyRow]) -> None:
        rows = [msgspec.to_builtins(one) for one in pins.values()]
        with write_atomically(self._path) as file:
            file.write(json.dumps(rows, indent=1).encode())
