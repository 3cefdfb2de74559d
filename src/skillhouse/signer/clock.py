"""The time that limits go by: a clock that was set back, or forward, stops signing.

Within one boot of the machine the wall clock is held against the time that has really passed, so
setting it either way refuses. Across a reboot only the wall clock is left: back refuses; forward
is believed, gives at most the allowance of the day that it claims, and refuses from the moment it
is set right again until that day has come, or a person accepts it.
"""

from __future__ import annotations

import sqlite3

from skillhouse.floor import Moment
from skillhouse.signer.errors import SignerError

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
    """Believe the clock from now on, for a new keystore or because a person says so."""
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
