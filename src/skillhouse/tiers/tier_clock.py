"""The time that cooldowns and allowances go by, which setting the clock does not move."""

from __future__ import annotations

import sqlite3

from skillhouse.floor import Moment


def tick(connection: sqlite3.Connection, moment: Moment) -> int:
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
        "INSERT OR REPLACE INTO tier_clock VALUES (1, ?, ?, ?, ?)",
        (moment.boot, anchor_ms, running_ms, now_ms),
    )
    return int(now_ms)
