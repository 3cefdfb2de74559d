"""What calls have used, kept in the state database; each function works in one transaction.

INVARIANT: looking and reserving happen under one write lock, so that of two calls at once the
second sees the first.
"""

from __future__ import annotations

import contextlib
import enum
import os
import secrets
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

from skillhouse.floor import Clock, ClockReading, StateError
from skillhouse.store import (
    STATE,
    StateConnection,
    StateStore,
    close_pooled,
    commit_stamp,
    pooled,
    state_server,
)
from skillhouse.tiers.emergency_stop import IDS_MAX, StopMark
from skillhouse.tiers.tier_policy import DAY_MS, DENIALS_MAX
from skillhouse.tiers.tier_values import TierCall, TierState

HALT_MS = 900_000
"""How long a tool waits after the last of too many denials: 15 minutes, so that no model can lock
its owner out."""
SIGN_FAILURES_MAX, SIGN_FAILURES_MS = 5, 600_000
"""Failed signatures in that time stop everything (published)."""
SPENT_MAX_USD = Decimal(500)
"""What all users together may spend in 24 hours before everything stops (published)."""
COMPANION_LOST_MS = 1_800_000
"""How long the companion app may be away before only reads go on (published: 30 minutes)."""

STOPS_MAX = 1_000
"""Stops that hold, and lifted ones, whose identities are kept; the file of an older one is lifted
on its machine."""
STOP_QUERY = "SELECT reason, by FROM tier_stop WHERE id = 1"
_GIVEN_QUERY = "SELECT id FROM stop_given WHERE lifted_ms <= 0 ORDER BY at_ms, id LIMIT ?"
HELD, BEGUN, DONE, FAILED = "held", "begun", "done", "failed"
_COMPANION, _RESUMED = "companion", "resumed"


class TierOutcome(enum.StrEnum):
    SUCCESS = "success"
    FAILED = "failed"
    """It ran and did not do what it was for; what it would spend stays counted."""
    SIGN_FAILED = "sign-failed"
    """The signer refused or failed; nothing was signed."""
    DENIED = "denied"
    """A person denied it."""
    TIMEOUT = "timeout"
    """No answer came in time."""
    WITHDRAWN = "withdrawn"
    """It never ran, for another reason."""
    UNKNOWN = "unknown"
    """Its effect is not known; it counts as done."""


def state_of(connection: StateConnection, call: TierCall, now_ms: int) -> TierState:
    since = now_ms - DAY_MS
    uses = connection.execute(
        "SELECT at_ms FROM tier_use WHERE tool = ? AND at_ms > ? AND state <> ?",
        (call.tool, since, FAILED),
    ).fetchall()
    denials = connection.execute(
        "SELECT count FROM tier_denial WHERE tool = ? AND user_name = ? AND at_ms > ?",
        (call.tool, call.user, now_ms - HALT_MS),
    ).fetchone()
    return TierState(
        stopped=stopped_reason(connection),
        is_companion_lost=companion_left_ms(connection, now_ms) == 0,
        denials=denials[0] if denials else 0,
        uses_ms=tuple(now_ms - at for (at,) in uses),
        spent_usd=_spent(connection, since, call.user),
    )


def stopped_reason(connection: StateConnection) -> str:
    return stop_text(connection.execute(STOP_QUERY).fetchall())


def stop_text(rows: Sequence[tuple[str, str]]) -> str:
    return f"{rows[0][0]} (by {rows[0][1]})" if rows else ""


def reserve(connection: StateConnection, call: TierCall, usd: Decimal, now_ms: int) -> str:
    """Take a place in the cooldowns, and the amount from the allowance; return the place's id.

    Until it is settled it counts as used: after a crash the effect of the call is not known.
    """
    token = secrets.token_hex(16)
    connection.execute(
        "INSERT INTO tier_use VALUES (?, ?, ?, ?, ?, ?)",
        (token, call.tool, call.user, now_ms, str(usd), HELD),
    )
    connection.execute("DELETE FROM tier_use WHERE at_ms <= ?", (now_ms - DAY_MS,))
    return token


def begin(connection: StateConnection, token: str) -> bool:
    """Mark a reservation as running; False when it is not held, which is so after a stop."""
    changed = connection.execute(
        "UPDATE tier_use SET state = ? WHERE id = ? AND state = ?", (BEGUN, token, HELD)
    )
    return changed.rowcount == 1


def settle(
    connection: StateConnection,
    token: str,
    outcome: TierOutcome,
    *,
    usd: Decimal | None,
    now_ms: int,
) -> bool:
    """Replace a reservation by the outcome of the call, once; False when it is gone."""
    row = connection.execute(
        "SELECT tool, user_name, usd, state FROM tier_use WHERE id = ? AND state IN (?, ?)",
        (token, HELD, BEGUN),
    ).fetchone()
    if row is None:
        return False
    tool, user, reserved, was = row
    spent = reserved if usd is None else str(usd)
    if outcome in (TierOutcome.SUCCESS, TierOutcome.UNKNOWN):
        _change(connection, token, DONE, spent, now_ms)
    elif outcome is TierOutcome.FAILED and was == BEGUN and Decimal(spent):
        _change(connection, token, FAILED, spent, now_ms)
    else:
        connection.execute("DELETE FROM tier_use WHERE id = ?", (token,))
    if outcome is TierOutcome.SUCCESS:
        connection.execute("DELETE FROM tier_denial WHERE tool = ? AND user_name = ?", (tool, user))
    elif outcome is TierOutcome.DENIED:
        _deny(connection, tool, user, now_ms)
    elif outcome is TierOutcome.SIGN_FAILED:
        connection.execute("INSERT INTO tier_sign_failure (at_ms) VALUES (?)", (now_ms,))
    return True


def trigger(connection: StateConnection, now_ms: int) -> str:
    """Return why everything must stop by itself, or ""; each resume resets the counts."""
    resumed = _mark(connection, _RESUMED) or 0
    (failures,) = connection.execute(
        "SELECT count(*) FROM tier_sign_failure WHERE at_ms > ?",
        (max(now_ms - SIGN_FAILURES_MS, resumed),),
    ).fetchone()
    if failures >= SIGN_FAILURES_MAX:
        return f"{failures} signatures failed within 10 minutes"
    spent = _spent(connection, max(now_ms - DAY_MS, resumed))
    if spent >= SPENT_MAX_USD:
        return f"{spent} USD were spent within 24 hours"
    return ""


def stop(connection: StateConnection, by: str, reason: str, now_ms: int, stop_id: str = "") -> bool:
    """Stop everything and withdraw waiting calls; False when it was stopped already."""
    connection.execute("DELETE FROM tier_use WHERE state = ?", (HELD,))
    changed = connection.execute(
        "INSERT INTO tier_stop VALUES (1, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
        (now_ms, by[:200], reason[:500]),
    )
    if stop_id:
        connection.execute(
            "INSERT INTO stop_given (id, at_ms, by, reason) SELECT ?, ?, ?, ? WHERE "
            "(SELECT count(*) FROM stop_given WHERE lifted_ms <= 0) < ?",
            (stop_id, now_ms, by[:200], reason[:500], STOPS_MAX),
        )
    return changed.rowcount == 1


def resume(connection: StateConnection, now_ms: int, stop_ids: Sequence[str] = ()) -> bool:
    """Lift these stops, and the halts of tools; False when there was neither.

    INVARIANT: a stop that was given since these were read stays, whoever gave it.
    """
    stopped = len(connection.execute("SELECT 1 FROM tier_stop").fetchall())
    for one in stop_ids:
        # One that no row has was given without the state; others may have a file of it all the
        # same. A row that says that it is lifted is never taken back.
        connection.execute(
            "INSERT INTO stop_given VALUES (?, ?, '', '', ?) ON CONFLICT (id) DO UPDATE "
            "SET lifted_ms = excluded.lifted_ms WHERE stop_given.lifted_ms <= 0",
            (one, now_ms, max(now_ms, 1)),
        )
    newer = connection.execute(
        "SELECT at_ms, by, reason FROM stop_given WHERE lifted_ms <= 0 ORDER BY at_ms, id LIMIT 1"
    ).fetchone()
    connection.execute("DELETE FROM tier_stop")
    if newer is not None:
        connection.execute("INSERT INTO tier_stop VALUES (1, ?, ?, ?)", tuple(newer))
    connection.execute(
        "DELETE FROM stop_given WHERE lifted_ms > 0 AND id NOT IN (SELECT id FROM stop_given "
        "WHERE lifted_ms > 0 ORDER BY lifted_ms DESC, id LIMIT ?)",
        (STOPS_MAX,),
    )
    halted = connection.execute("DELETE FROM tier_denial WHERE count >= ?", (DENIALS_MAX,)).rowcount
    connection.execute("DELETE FROM tier_sign_failure WHERE at_ms <= ?", (now_ms,))
    if stopped or stop_ids:
        _set_mark(connection, _RESUMED, now_ms)
    return bool(stopped or halted)


def see_companion(connection: StateConnection, now_ms: int) -> None:
    _set_mark(connection, _COMPANION, now_ms)


def forget_companion(connection: StateConnection) -> None:
    connection.execute("DELETE FROM tier_mark WHERE name = ?", (_COMPANION,))


def _change(connection: StateConnection, token: str, state: str, usd: str, now_ms: int) -> None:
    connection.execute(
        "UPDATE tier_use SET state = ?, usd = ?, at_ms = ? WHERE id = ?",
        (state, usd, now_ms, token),
    )


def _deny(connection: StateConnection, tool: str, user: str, now_ms: int) -> None:
    """Count a denial; the count restarts when the last one is older than `HALT_MS`."""
    connection.execute(
        "DELETE FROM tier_denial WHERE at_ms <= ?",
        (now_ms - HALT_MS,),
    )
    connection.execute(
        "INSERT INTO tier_denial VALUES (?, ?, 1, ?) ON CONFLICT (tool, user_name) "
        "DO UPDATE SET count = tier_denial.count + 1, at_ms = excluded.at_ms",
        (tool, user, now_ms),
    )


def _spent(connection: StateConnection, since_ms: int, user: str | None = None) -> Decimal:
    # Added here and not by SQLite, which would make floating-point numbers of them.
    if user is None:
        query = "SELECT usd FROM tier_use WHERE at_ms > ? AND usd <> '0'"
        rows = connection.execute(query, (since_ms,))
    else:
        query = "SELECT usd FROM tier_use WHERE at_ms > ? AND usd <> '0' AND user_name = ?"
        rows = connection.execute(query, (since_ms, user))
    return sum((Decimal(usd) for (usd,) in rows), Decimal(0))


def companion_left_ms(connection: StateConnection, now_ms: int) -> int | None:
    """Return how long until the companion app counts as lost, 0 once it does; None without one."""
    seen = _mark(connection, _COMPANION)
    return None if seen is None else max(0, seen + COMPANION_LOST_MS - now_ms)


def _mark(connection: StateConnection, name: str) -> int | None:
    row = connection.execute("SELECT at_ms FROM tier_mark WHERE name = ?", (name,)).fetchone()
    return None if row is None else int(row[0])


def _set_mark(connection: StateConnection, name: str, now_ms: int) -> None:
    connection.execute(
        "INSERT INTO tier_mark VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET at_ms = excluded.at_ms",
        (name, now_ms),
    )


def tick(connection: StateConnection, moment: ClockReading) -> int:
    """Return the time in milliseconds, never less than before, and keep it.

    Within one boot only the running clock counts, so setting the wall clock moves nothing. Across
    a reboot the wall clock is believed as long as it does not go back; where it does, time goes
    on from where it was. All windows here are lengths of time, so a day that is named wrongly does
    not matter.
    """
    row = connection.execute(
        "SELECT boot, anchor_ms, running_ms, now_ms FROM tier_clock WHERE id = 1"
    ).fetchone()
    if row is None:
        anchor_ms, running_ms, now_ms = moment.wall_ms, moment.running_ms, moment.wall_ms
    elif row[0] == moment.boot:
        anchor_ms, running_ms = row[1], row[2]
        now_ms = max(row[3], anchor_ms + moment.running_ms - running_ms)
    else:
        now_ms = max(row[3], moment.wall_ms)
        anchor_ms, running_ms = now_ms, moment.running_ms
    connection.execute(
        "INSERT INTO tier_clock VALUES (1, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE "
        "SET boot = excluded.boot, anchor_ms = excluded.anchor_ms, "
        "running_ms = excluded.running_ms, now_ms = excluded.now_ms",
        (moment.boot, anchor_ms, running_ms, now_ms),
    )
    return int(now_ms)


SERVER_BOOT = "server"
"""The boot of a clock that several machines share."""
STOP_DIRECTORY = "stop"
"""Beside the database: the file of the stop, and which processes run calls."""


class _TakenBackError(Exception):
    """Ends a transaction whose changes are not to stay."""


class TierStore:
    """Opens the state when it is first used."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self.mark = StopMark(path.parent / STOP_DIRECTORY)
        """The stop beside the database, which may be lost or have no space."""

    def stopped(self) -> str:
        """Return why everything is stopped, or ""; makes no file. `StateError` if unknown."""
        return self.stopped_here() or self.stopped_by_row()

    def stopped_here(self) -> str:
        """Return why the file on this machine says so, or "".

        A file whose stops were lifted at another server, by their rows, is lifted here. Rows that
        are gone lift nothing, nor does a state that is away.
        """
        reason = self.mark.reason()
        if not reason or state_server(self._path) is None:
            return reason
        ids = self.mark.ids()
        try:
            return "" if ids and self._are_lifted(ids) and self.mark.lift(ids) else reason
        except StateError:
            return reason

    def _are_lifted(self, ids: Sequence[str]) -> bool:
        query = "SELECT 1 FROM stop_given WHERE id = ? AND lifted_ms > 0"
        with pooled(self._path, STATE) as store:
            return all(store.rows(query, (one,)) for one in ids)

    def stopped_by_row(self) -> str:
        """Return what the database alone says of it: that is the same on every machine.

        A machine that saw a stop of another one has a file of it, which outlasts rows that are
        deleted, and a database that is lost.
        """
        if not self._is_there():
            return ""
        with pooled(self._path, STATE) as store:
            rows = store.rows(STOP_QUERY)
            given = store.rows(_GIVEN_QUERY, (IDS_MAX,)) if rows else []
        if given and state_server(self._path) is not None:
            reason, by = rows[0]
            # Without the file the row stops still.
            with contextlib.suppress(StateError):
                self.mark.give(by, reason, [one for (one,) in given])
        return stop_text(rows)

    def given(self) -> tuple[str, ...]:
        """Return the identities of the stops that hold by their rows; `StateError` if unknown."""
        if not self._is_there():
            return ()
        with pooled(self._path, STATE) as store:
            return tuple(one for (one,) in store.rows(_GIVEN_QUERY, (STOPS_MAX,)))

    def stamp(self) -> tuple[int, ...]:
        """Return numbers that change with each write of any process."""
        return commit_stamp(self._path)

    @contextlib.contextmanager
    def turn(self) -> Iterator[tuple[StateConnection, int]]:
        """Hold the write lock for a block, with the time; after `StateError` nothing happened."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            # Under the lock: else a turn that waited would bring the time of before.
            yield connection, tick(connection, self._reading(store))

    @contextlib.contextmanager
    def glance(self) -> Iterator[tuple[StateConnection, int] | None]:
        """Give what `turn` gives, and take back whatever the block writes; makes no file.

        None where there is no state yet.
        """
        if not self._is_there():
            yield None
            return
        undone = contextlib.suppress(_TakenBackError)
        with pooled(self._path, STATE) as store, undone, store.transaction() as connection:
            yield connection, tick(connection, self._reading(store))
            raise _TakenBackError

    def _reading(self, store: StateStore) -> ClockReading:
        """Return both clocks; a boot of one machine says nothing to others, so that of a server
        is its database's."""
        at_ms = store.server_ms()
        if at_ms is None:
            return self._clock()
        return ClockReading(wall_ms=at_ms, running_ms=at_ms, boot=SERVER_BOOT)

    def close(self) -> None:
        close_pooled(self._path)

    def _is_there(self) -> bool:
        if state_server(self._path) is not None:
            return True
        try:
            os.stat(self._path)
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            raise StateError(f"the state cannot be looked at: {error}", self._path) from error
        return True
