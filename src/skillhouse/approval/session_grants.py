"""Approvals for the rest of a session: in memory, or in the state that several servers share."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Sequence

from skillhouse.approval.grants import Grant, GrantStore
from skillhouse.approval.ledger import Ledger
from skillhouse.floor import StateError
from skillhouse.floor.structs import replace

SESSION_HOURS = 12
"""For which an approval "for this session" holds where servers share it: a caller over HTTP has no
connection that ends."""

logger = logging.getLogger(__name__)


class SessionGrants:
    """Grants of the sessions of one state, by the caller's `session_key` with its connection."""

    def __init__(self, store: GrantStore, ledger: Ledger) -> None:
        self._store = store
        self._ledger = ledger
        # INVARIANT: held to change what follows; calls and pages come on threads of their own.
        self._lock = threading.Lock()
        self._own: dict[str, tuple[Grant, ...]] = {}
        self._mark: tuple[tuple[int, ...], str | None] = ((), "")
        """Under which those were given, and the stamp of the state when that was read."""
        self._paired: tuple[tuple[int, ...], frozenset[str]] = ((), frozenset())
        self._shared: tuple[tuple[int, ...], tuple[Grant, ...]] = ((), ())

    def of(self, session: str) -> tuple[Grant, ...]:
        """Return those of a session but those of unpaired devices.

        None while the state is away: only reads go on then, and what these allow is asked again.
        """
        try:
            return self._of(session)
        except StateError as error:
            logger.warning("no approval of a session is used: %s", error)
            return ()

    def _of(self, session: str) -> tuple[Grant, ...]:
        grants = self._own.get(session, ())
        if self._store.is_shared:
            grants = self._shared_of(session)
        elif grants:
            self._end_if_marked()
            grants = self._own.get(session, ())
        if not any(grant.device for grant in grants):
            return grants
        # Another process may have unpaired the device.
        stamp = self._ledger.stamp()
        if stamp != self._paired[0]:
            self._paired = (stamp, self._ledger.paired())
        return tuple(g for g in grants if not g.device or g.device in self._paired[1])

    def _shared_of(self, session: str) -> tuple[Grant, ...]:
        """Return those that the state has of a session; read when it has changed."""
        stamp, now = self._ledger.stamp(), self._ledger.now_ms()
        if stamp != self._shared[0] or not stamp:
            self._shared = (stamp, self._store.sessions(now))
        whose = _digest_of(session)
        return tuple(one for one in self._shared[1] if one.session == whose and one.is_current(now))

    def add(self, session: str, grants: Sequence[Grant]) -> None:
        """Add what a person allowed for the rest of a session; nothing while all is stopped."""
        if self._store.is_shared:
            until = self._ledger.now_ms() + SESSION_HOURS * 3_600_000
            self._store.add_session(
                [replace(one, session=_digest_of(session), expires_ms=until) for one in grants]
            )
            return
        if not self._end_if_marked():
            return
        with self._lock:
            before = self._own.get(session, ())
            self._own[session] = (*before, *(g for g in grants if g not in before))

    def _end_if_marked(self) -> bool:
        """End the grants of this process if another one has stopped everything since they were
        given; return whether any may be added."""
        stamp = self._ledger.stamp()
        if stamp != self._mark[0] or not stamp:
            mark = self._store.session_mark()
            with self._lock:
                if mark != self._mark[1]:
                    self._own.clear()
                self._mark = (stamp, mark)
        return self._mark[1] is not None

    def end(self, connection: str) -> None:
        """End those of a connection that has ended. StateError: they end after `SESSION_HOURS`, and
        no other connection has this id."""
        self._store.end_sessions(_digest_of_connection(connection))

    def forget_own(self) -> None:
        """End those that this process alone has; what the state has ends by `GrantStore`."""
        with self._lock:
            self._own.clear()


def _digest_of(session: str) -> str:
    """Return what the state has in the place of a `session_key`: its connection's digest first."""
    try:
        connection = str(json.loads(session)[4])
    except (ValueError, IndexError):
        # One that names no connection.
        connection = ""
    whose = hashlib.sha256(session.encode("utf-8", "replace")).hexdigest()
    return _digest_of_connection(connection) + whose


def _digest_of_connection(connection: str) -> str:
    return hashlib.sha256(connection.encode("utf-8", "replace")).hexdigest()[:32]
