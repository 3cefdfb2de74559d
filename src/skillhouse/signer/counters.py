"""What each key has spent in the last 24 hours, and the clock that this is counted by.

A clock that was set back, or forward, stops signing. Within one boot of the machine the wall clock
is compared with the time that has really passed, so setting it either way refuses. Across a reboot
only the wall clock is left: back refuses; forward is accepted, gives at most the allowance of the
day that it claims, and refuses from the moment it is set right again until that day has come, or a
person accepts it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from skillhouse.floor import Moment
from skillhouse.signer.keys import KeyInfo, Limit
from skillhouse.signer.movement import Movement, amount_text
from skillhouse.signer.signer_errors import SignerError

HOUR_MS = 3_600_000
WINDOW_HOURS = 24
"""Not a calendar day, at whose end twice the allowance could go within minutes."""
KEPT_HOURS = 24 * 7
"""How long counts are kept for people to look at."""


def check_terms(key: KeyInfo, movement: Movement) -> None:
    """Refuse what a key's terms do not let it sign, whatever it has spent.

    Raises:
        SignerError: "uncountable", "recipient" or "limit".
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
    connection: sqlite3.Connection, key: KeyInfo, totals: Mapping[str, int], now_ms: int
) -> None:
    """Add to what a key has spent, inside the caller's transaction.

    INVARIANT: look and add happen under one write lock, so two requests cannot both take the rest.

    Raises:
        SignerError: "limit": it would be more than a limit; the caller rolls back.
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
            "INSERT OR REPLACE INTO sign_counter VALUES (?, ?, ?, ?)",
            (key.account, currency, hour, str(before + amount)),
        )
    connection.execute("DELETE FROM sign_counter WHERE hour < ?", (hour - KEPT_HOURS,))


def spent_in_window(
    connection: sqlite3.Connection, account: str, currency: str, now_ms: int
) -> int:
    """Return what an account spent in the last 24 hours, up to an hour more, and in any later."""
    first = now_ms // HOUR_MS - WINDOW_HOURS
    rows = connection.execute(
        "SELECT spent FROM sign_counter WHERE account = ? AND currency = ? AND hour >= ?",
        (account, currency, first),
    )
    return sum(int(spent) for (spent,) in rows)


def gather_future(connection: sqlite3.Connection, now_ms: int) -> None:
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
"""How far a clock may be set while the machine runs, in all (reference/security.md, 4.3: 5 min)."""


def trusted_now(connection: sqlite3.Connection, store_id: str, moment: Moment) -> int:
    """Return the time in milliseconds, never less than what it returned before, and keep it.

    Raises:
        SignerError: "clock": the clock was set; "counters": there is no memory of this keystore.
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


def accept_clock(connection: sqlite3.Connection, store_id: str, moment: Moment) -> None:
    """Accept the clock from now on, for a new keystore or because a person says so."""
    connection.execute(
        "INSERT OR REPLACE INTO sign_clock VALUES (?, ?, ?, ?, ?)",
        (store_id, moment.boot, moment.wall_ms, moment.running_ms, moment.wall_ms),
    )


def _set(how: str) -> SignerError:
    return SignerError(
        "clock",
        f"the clock was set {how}, so nothing is signed: ask the user to set it right, "
        "or to accept it as it is",
    )
