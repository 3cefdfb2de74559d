"""What makes the calls of a conversation need more, kept for all servers of a state.

A skill of another server that a model loaded makes commands ask. A caller without a connection may
come to another server of the state with its next call, also to one beside a state in a file: that
one has to know of it, since it must never be laxer.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from skillhouse.floor.structs import replace
from skillhouse.permission import Effect, Permission
from skillhouse.store import STATE, STATE_FILE, commit_stamp, pooled, state_clock, state_exists
from skillhouse.tools.call import PermissionRequest

SKILL_CODE = "skill_code"
MARK_DAYS = 30
"""For which a mark is kept after the skill was loaded last."""
CACHED_MAX = 1_000


class SessionMarks:
    """The marks of all conversations of one state; each use may raise StateError."""

    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / STATE_FILE
        self._clock = state_clock(self._path, time.time)
        self._known: dict[str, tuple[tuple[int, ...], Mapping[str, PermissionRequest]]] = {}
        self._lock = threading.Lock()

    def add(self, session: Sequence[str], requests: Mapping[str, PermissionRequest]) -> None:
        """Keep what commands of a conversation need, by the file of the skill that it is for."""
        until = int(self._clock() * 1000) + MARK_DAYS * 86_400_000
        rows = [(_key(session), file, _text(one), until) for file, one in requests.items()]
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.executemany(
                "INSERT INTO session_mark VALUES (?, ?, ?, ?) ON CONFLICT (session, file) "
                "DO UPDATE SET request = excluded.request, expires_ms = excluded.expires_ms",
                rows,
            )
            connection.execute(
                "DELETE FROM session_mark WHERE expires_ms < ?", (until - MARK_DAYS * 86_400_000,)
            )

    def of(self, session: Sequence[str]) -> Mapping[str, PermissionRequest]:
        """Return what is kept of a conversation; the state is read when it has changed."""
        if not state_exists(self._path):
            return {}
        key, stamp = _key(session), commit_stamp(self._path)
        with self._lock:
            known = self._known.get(key)
        if known is not None and stamp and known[0] == stamp:
            return known[1]
        query = "SELECT file, request FROM session_mark WHERE session = ? ORDER BY file"
        with pooled(self._path, STATE) as store:
            rows = store.rows(query, (key,))
        found = {str(file): _request(str(file), str(text)) for file, text in rows}
        with self._lock:
            if len(self._known) >= CACHED_MAX:
                self._known.clear()
            self._known[key] = (stamp, found)
        return found

    @property
    def unknown(self) -> PermissionRequest:
        """What commands need where the state cannot be read."""
        return _unknown("*")

    def remove(self, session: Sequence[str], file: str) -> None:
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "DELETE FROM session_mark WHERE session = ? AND file = ?", (_key(session), file)
            )


def _key(session: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(session)).encode()).hexdigest()


class _Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a request: the rest is the same for each."""

    skill: str
    why: str
    digest: str


def _text(request: PermissionRequest) -> str:
    mark = _Mark(skill=request.permission.resource, why=request.why, digest=request.skill_digest)
    return msgspec.json.encode(mark).decode()


def _request(file: str, text: str) -> PermissionRequest:
    try:
        mark = msgspec.json.decode(text.encode("utf-8", "replace"), type=_Mark)
    except (msgspec.DecodeError, RecursionError):
        # Who wrote it meant that something is to be asked, and no approval of before answers it.
        return _unknown(file)
    return acting_request(mark.skill, mark.why, mark.digest)


def acting_request(skill: str, why: str, digest: str) -> PermissionRequest:
    """Return what commands need while a skill of another server is in use."""
    return PermissionRequest(
        permission=Permission(action=SKILL_CODE, resource=skill),
        default=Effect.ASK,
        why=why,
        skill_digest=digest,
        level="write",
    )


def _unknown(skill: str) -> PermissionRequest:
    why = "a skill of another server may be loaded, and commands may be its own"
    return replace(acting_request(skill, why, ""), may_last=False)
