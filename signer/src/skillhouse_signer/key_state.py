"""What the state keeps of keys: their life cycle, what each has spent in 24 hours, and the clock.

A clock that was set back, or forward, stops signing. Within one boot of the machine the wall clock
is compared with the time that has really passed, so setting it either way refuses. Across a reboot
only the wall clock is left: back refuses; forward is accepted, gives at most the allowance of the
day that it claims, and refuses from the moment it is set right again until that day has come, or a
person accepts it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from skillhouse.floor import Clock, ClockReading, system_clock
from skillhouse.registry.passwords import SignerError
from skillhouse.store import STATE, StateConnection, pooled, state_exists
from skillhouse_signer.keys import KeyInfo, Limit, TransactionEffect, amount_text

MISSING, ACTIVE, EXPIRED, REVOKED = "missing", "active", "expired", "revoked"


class KeyEvent(Struct, frozen=True, kw_only=True):
    """One line of the life-cycle log."""

    seq: int
    at_ms: int
    key_id: str
    name: str
    event: str
    """created, imported, removed, revoked, rotated, terms, accepted."""
    detail: str


class SessionKey(Struct, frozen=True, kw_only=True):
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
        """Return every session key, oldest first; StateError when the state cannot be read."""
        if not state_exists(self._state):
            return ()
        now_ms = self._clock().wall_ms
        with pooled(self._state, STATE) as store:
            rows = store.rows(
                "SELECT key_id, name, created_ms, expires_ms, revoked_ms, reason FROM session_key "
                "ORDER BY created_ms, seq"
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
        """Return active, expired, revoked or missing, for the choice of a tier.

        The signer checks again, by a clock that cannot be set.
        """
        named = [session for session in self.all() if session.name == name]
        return named[-1].state if named else MISSING

    def revoke(self, name: str, reason: str) -> int:
        """Revoke the session keys of this name; return how many."""
        return self._revoke("AND name = ?", (name,), reason)

    def revoke_all(self, reason: str) -> int:
        """Revoke every session key, as an emergency stop does; return how many."""
        return self._revoke("", (), reason)

    def events(self, *, limit: int = 1_000) -> tuple[KeyEvent, ...]:
        """Return the newest lines of the life-cycle log, oldest first."""
        if not state_exists(self._state):
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
        if not state_exists(self._state):
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


def begin_session(connection: StateConnection, key: KeyInfo) -> None:
    connection.execute(
        "INSERT INTO session_key (key_id, name, created_ms, expires_ms, reason) "
        "VALUES (?, ?, ?, ?, '')",
        (key.id, key.name, key.created_ms, key.expires_ms),
    )


def end_session(connection: StateConnection, key_id: str, at_ms: int, reason: str) -> None:
    """Let a session key sign no more, and never again."""
    connection.execute(
        "UPDATE session_key SET revoked_ms = ?, reason = ? WHERE key_id = ? AND revoked_ms IS NULL",
        (at_ms, reason, key_id),
    )


def check_session(connection: StateConnection, key: KeyInfo, now_ms: int) -> None:
    """Refuse, with "session-over", a session key that has ended; other keys pass."""
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
    connection: StateConnection, at_ms: int, key: tuple[str, str], event: str, detail: str = ""
) -> None:
    """Add a line (id, name) to the life-cycle log."""
    connection.execute(
        "INSERT INTO key_event (at_ms, key_id, name, event, detail) VALUES (?, ?, ?, ?, ?)",
        (at_ms, *key, event, detail[:500]),
    )


HOUR_MS = 3_600_000
WINDOW_HOURS = 24
"""Not a calendar day, at whose end twice the allowance could go within minutes."""
KEPT_HOURS = 24 * 7
"""How long counts are kept for people to look at."""


def check_terms(key: KeyInfo, movement: TransactionEffect) -> None:
    """Refuse what a key's terms do not let it sign, whatever it has spent.

    The codes are "uncountable", "recipient" and "limit".
    """
    terms = key.terms
    if (
        terms.limits or terms.recipients or terms.contracts or key.is_session
    ) and not movement.is_countable:
        raise SignerError(
            "uncountable",
            f"`{key.name}` has limits, and what this call of the contract moves is not known: "
            "sign it with a key without limits, on a transaction page",
        )
    for recipient in movement.recipients:
        if terms.recipients and recipient not in terms.recipients:
            raise SignerError("recipient", f"`{key.name}` may not pay `{recipient}`")
    if movement.contract and terms.contracts and movement.contract not in terms.contracts:
        raise SignerError("recipient", f"`{key.name}` may not call `{movement.contract}`")
    if not terms.limits and not key.is_session:
        return
    limits = {limit.currency: limit for limit in terms.limits}
    for currency, amount in movement.totals().items():
        if currency not in limits:
            raise SignerError("limit", f"`{key.name}` has no limit for `{currency}`, so none of it")
        each = limits[currency].per_transaction
        if amount > each:
            raise SignerError(
                "limit",
                f"expected at most {amount_text(currency, each)} at once with `{key.name}`, fee "
                f"included, got {amount_text(currency, amount)}",
            )


def count(
    connection: StateConnection, key: KeyInfo, totals: Mapping[str, int], now_ms: int
) -> None:
    """Add to what a key has spent; the caller rolls back on "limit", which is a limit exceeded.

    INVARIANT: look and add happen under one write lock, so two requests cannot both take the rest.
    """
    hour = now_ms // HOUR_MS
    limits = {limit.currency: limit for limit in key.terms.limits}
    for currency, amount in totals.items():
        spent = spent_in_window(connection, key.account, currency, now_ms)
        _check_day(key, limits.get(currency), spent, amount)
        row = connection.execute(
            "SELECT spent FROM sign_counter WHERE account = ? AND currency = ? AND hour = ?",
            (key.account, currency, hour),
        ).fetchone()
        before = int(row[0]) if row else 0
        # As text: amounts have 256 bits, integers of SQLite 64.
        connection.execute(
            "INSERT INTO sign_counter VALUES (?, ?, ?, ?) "
            "ON CONFLICT (account, currency, hour) DO UPDATE SET spent = excluded.spent",
            (key.account, currency, hour, str(before + amount)),
        )
    connection.execute("DELETE FROM sign_counter WHERE hour < ?", (hour - KEPT_HOURS,))


def spent_in_window(connection: StateConnection, account: str, currency: str, now_ms: int) -> int:
    """Return what an account spent in the last 24 hours, up to an hour more, and in any later."""
    first = now_ms // HOUR_MS - WINDOW_HOURS
    rows = connection.execute(
        "SELECT spent FROM sign_counter WHERE account = ? AND currency = ? AND hour >= ?",
        (account, currency, first),
    )
    return sum(int(spent) for (spent,) in rows)


def gather_future(connection: StateConnection, now_ms: int) -> None:
    """Count what was spent in hours that have not come yet as spent now: nothing is forgotten."""
    hour = now_ms // HOUR_MS
    rows = connection.execute(
        "SELECT account, currency, spent FROM sign_counter WHERE hour >= ?", (hour,)
    ).fetchall()
    sums: dict[tuple[str, str], int] = {}
    for account, currency, spent in rows:
        sums[account, currency] = sums.get((account, currency), 0) + int(spent)
    connection.execute("DELETE FROM sign_counter WHERE hour >= ?", (hour,))
    connection.executemany(
        "INSERT INTO sign_counter VALUES (?, ?, ?, ?)",
        [(account, currency, hour, str(spent)) for (account, currency), spent in sums.items()],
    )


def _check_day(key: KeyInfo, limit: Limit | None, spent: int, amount: int) -> None:
    if limit is None or spent + amount <= limit.per_day:
        return
    left = max(limit.per_day - spent, 0)
    raise SignerError(
        "limit",
        f"`{key.name}` may spend {amount_text(limit.currency, limit.per_day)} in 24 hours and has "
        f"{amount_text(limit.currency, left)} left, fee included, "
        f"got {amount_text(limit.currency, amount)}",
    )


TOLERANCE_MS = 300_000
"""How far a clock may be set while the machine runs, in all."""


def trusted_now(connection: StateConnection, store_id: str, moment: ClockReading) -> int:
    """Return the time in milliseconds, never less than what it returned before, and keep it.

    Refuses with "clock" when the clock was set, with "counters" when this keystore has none.
    """
    row = connection.execute(
        "SELECT boot, anchor_wall_ms, anchor_running_ms, high_water_ms FROM sign_clock "
        "WHERE store_id = ?",
        (store_id,),
    ).fetchone()
    if row is None:
        raise SignerError(
            "counters",
            "the state has no counters for this keystore: it was removed, or belongs to another; "
            "ask the user to look at what was signed and to accept the counters as they are",
        )
    boot, (anchor_wall_ms, anchor_running_ms, high_water_ms) = row[0], map(int, row[1:])
    behind = high_water_ms - moment.wall_ms
    ahead = 0
    if boot == moment.boot:
        expected = anchor_wall_ms + moment.running_ms - anchor_running_ms
        ahead = moment.wall_ms - expected
        behind = max(behind, -ahead)
    if behind > TOLERANCE_MS:
        raise _set(f"back by {behind // 1000} s")
    if ahead > TOLERANCE_MS:
        raise _set(f"forward by {ahead // 1000} s while the machine ran")
    now_ms = max(moment.wall_ms, high_water_ms)
    if boot != moment.boot:
        # INVARIANT: one anchor for each boot: moved with every signature, it could be led away
        # in steps that are each within the tolerance.
        anchor_wall_ms, anchor_running_ms = moment.wall_ms, moment.running_ms
    connection.execute(
        "UPDATE sign_clock SET boot = ?, anchor_wall_ms = ?, anchor_running_ms = ?, "
        "high_water_ms = ? WHERE store_id = ?",
        (moment.boot, anchor_wall_ms, anchor_running_ms, now_ms, store_id),
    )
    return now_ms


def accept_clock(connection: StateConnection, store_id: str, moment: ClockReading) -> None:
    """Accept the clock from now on, for a new keystore or because a person says so."""
    connection.execute(
        "INSERT INTO sign_clock VALUES (?, ?, ?, ?, ?) ON CONFLICT (store_id) DO UPDATE "
        "SET boot = excluded.boot, anchor_wall_ms = excluded.anchor_wall_ms, "
        "anchor_running_ms = excluded.anchor_running_ms, high_water_ms = excluded.high_water_ms",
        (store_id, moment.boot, moment.wall_ms, moment.running_ms, moment.wall_ms),
    )


def _set(how: str) -> SignerError:
    return SignerError(
        "clock",
        f"the clock was set {how}, so nothing is signed: ask the user to set it right, "
        "or to accept it as it is",
    )
