"""Copies a state's file while it is in use."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from skillhouse.floor import StateError
from skillhouse.store.state_schema import STATE
from skillhouse.store.store import Store

PAGES = 256
"""Pages of one step, between which others may write."""


def table_counts(path: Path) -> dict[str, int]:
    """Return how many rows each table of a state's file has (StateError)."""
    with Store(path, STATE) as kept:
        return _counts(kept.rows)


def _counts(rows: Callable[[str], list[tuple[Any, ...]]]) -> dict[str, int]:
    tables = rows(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' "
        "ORDER BY name"
    )
    return {
        name: rows(f"SELECT count(*) FROM {name}")[0][0]  # noqa: S608 - our tables.
        for (name,) in tables
    }


def copy_file(path: Path, target: Path, progress: Callable[[int, int], None]) -> dict[str, int]:
    """Write a state as it is at one moment into a new file; return the rows of each table.

    StateError: it cannot be read, or `target` is there or cannot be written; nothing is left.
    """
    # Says what is wrong with it, and brings it to this version.
    Store(path, STATE).close()
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise StateError(f"the copy cannot be made: {error.strerror}", target) from error
    try:
        address = f"{path.absolute().as_uri()}?mode=ro"
        with (
            closing(sqlite3.connect(address, uri=True, timeout=10)) as source,
            closing(sqlite3.connect(target)) as copy,
        ):
            source.backup(
                copy, pages=PAGES, progress=lambda _, left, total: progress(total - left, total)
            )
            problem = copy.execute("PRAGMA integrity_check").fetchone()[0]
            if problem != "ok":
                raise StateError(f"the copy is damaged: {problem}", target)
            # Not as a store, which wants a directory of its own.
            return _counts(lambda query: copy.execute(query).fetchall())
    except BaseException as error:
        target.unlink(missing_ok=True)
        if isinstance(error, sqlite3.Error):
            raise StateError(f"the state cannot be copied: {error}", path) from error
        raise
