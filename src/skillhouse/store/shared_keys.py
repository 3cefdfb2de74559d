"""Keys of this program that every server of a state has to have the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from skillhouse.store.state_schema import STATE
from skillhouse.store.store import pooled


def shared_key(state: Path, name: str, make: Callable[[], str]) -> str:
    """Return the key of a name in a state; the first call keeps what `make` returns. StateError."""
    query = "SELECT secret FROM page_key WHERE name = ?"
    with pooled(state, STATE) as store:
        rows = store.rows(query, (name,))
        if not rows:
            made = make()
            # Of two processes that do so at once, the first one wins.
            with store.transaction() as connection:
                connection.execute(
                    "INSERT INTO page_key (name, secret) VALUES (?, ?) "
                    "ON CONFLICT (name) DO NOTHING",
                    (name, made),
                )
            rows = store.rows(query, (name,))
    return str(rows[0][0])
