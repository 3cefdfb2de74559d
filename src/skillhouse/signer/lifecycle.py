"""The life cycle of keys: when each was made, ended, replaced, and which may still sign."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from skillhouse.floor import Clock, system_clock
from skillhouse.signer.keys import KeyInfo
from skillhouse.signer.signer_errors import SignerError
from skillhouse.store import STATE, pooled

MISSING, ACTIVE, EXPIRED, REVOKED = "missing", "active", "expired", "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEvent:
    """One line of the life-cycle log."""

    seq: int
    at_ms: int
    key_id: str
    name: str
    event: str
    """created, imported, removed, revoked, rotated, terms, accepted."""
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKey:
    """A session key as the state knows it."""

    key_id: str
    name: str
    created_ms: int
    expires_ms: int
    state: str
    """active, expired or revoked."""
    reason: str = ""


class SessionKeys:
    """The session keys and the life-cycle log, for looking and for stopping; needs no password."""

    def __init__(self, state: Path, *, clock: Clock = system_clock) -> None:
        self._state = state
        self._clock = clock

    def all(self) -> tuple[SessionKey, ...]:
        """Return every session key, oldest first.

        Raises:
            StateError: the state cannot be read.
        """
        if not self._state.exists():
            return ()
        now_ms = self._clock().wall_ms
        with pooled(self._state, STATE) as store:
            rows = store.rows(
                "SELECT key_id, name, created_ms, expires_ms, revoked_ms, reason FROM session_key "
                "ORDER BY created_ms, rowid"
            )
        return tuple(
            SessionKey(
                key_id=key_id,
                name=name,
                created_ms=created,
                expires_ms=expires,
                state=REVOKED if revoked is not None else EXPIRED if now_ms >= expires else ACTIVE,
                reason=reason,
            )
            for key_id, name, created, expires, revoked, reason in rows
        )

    def state(self, name: str) -> str:
        """Return active, expired, revoked, or missing; for the choice of a tier.

        The signer checks again, by a clock that cannot be set.
        """
        named = [session for session in self.all() if session.name == name]
        return named[-1].state if named else MISSING

    def revoke(self, name: str, reason: str) -> int:
        """End the session keys of this name at once; return how many ended."""
        return self._revoke("AND name = ?", (name,), reason)

    def revoke_all(self, reason: str) -> int:
        """End every session key at once, as an emergency stop does; return how many ended."""
        return self._revoke("", (), reason)

    def events(self, *, limit: int = 1_000) -> tuple[KeyEvent, ...]:
        """Return the newest lines of the life-cycle log, oldest first."""
        if not self._state.exists():
            return ()
        with pooled(self._state, STATE) as store:
            rows = store.rows(
                "SELECT seq, at_ms, key_id, name, event, detail FROM key_event "
                "ORDER BY seq DESC LIMIT ?",
                (limit,),
            )
        return tuple(
            KeyEvent(seq=seq, at_ms=at, key_id=key_id, name=name, event=event, detail=detail)
            for seq, at, key_id, name, event, detail in reversed(rows)
        )

    def _revoke(self, which: str, values: tuple[str, ...], reason: str) -> int:
        if not self._state.exists():
            return 0
        at_ms = self._clock().wall_ms
        with pooled(self._state, STATE) as store, store.transaction() as connection:
            rows = connection.execute(
                f"SELECT key_id, name FROM session_key WHERE revoked_ms IS NULL {which}",  # noqa: S608 - our own words.
                values,
            ).fetchall()
            for key_id, name in rows:
                end_session(connection, key_id, at_ms, reason)
                log_event(connection, at_ms, (key_id, name), "revoked", reason)
        return len(rows)


def begin_session(connection: sqlite3.Connection, key: KeyInfo) -> None:
    connection.execute(
        "INSERT INTO session_key VALUES (?, ?, ?, ?, NULL, '')",
        (key.id, key.name, key.created_ms, key.expires_ms),
    )


def end_session(connection: sqlite3.Connection, key_id: str, at_ms: int, reason: str) -> None:
    """Let a session key sign no more, and never again."""
    connection.execute(
        "UPDATE session_key SET revoked_ms = ?, reason = ? WHERE key_id = ? AND revoked_ms IS NULL",
        (at_ms, reason, key_id),
    )


def check_session(connection: sqlite3.Connection, key: KeyInfo, now_ms: int) -> None:
    """Refuse a session key that has ended; other keys pass.

    Raises:
        SignerError: "session-over".
    """
    if not key.is_session:
        return
    row = connection.execute(
        "SELECT revoked_ms, reason FROM session_key WHERE key_id = ?", (key.id,)
    ).fetchone()
    if row is None:
        why = "is not known to this state"
    elif row[0] is not None:
        why = f"was revoked: {row[1]}"
    elif now_ms >= key.expires_ms:
        why = "has expired"
    else:
        return
    raise SignerError(
        "session-over",
        f"session key `{key.name}` {why}; ask the user for a new one, or sign with a key that "
        "a person confirms",
    )


def log_event(
    connection: sqlite3.Connection, at_ms: int, key: tuple[str, str], event: str, detail: str = ""
) -> None:
    """Add a line (id, name) to the life-cycle log."""
    connection.execute(
        "INSERT INTO key_event (at_ms, key_id, name, event, detail) VALUES (?, ?, ?, ?, ?)",
        (at_ms, *key, event, detail[:500]),
    )
