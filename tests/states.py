"""Rows of a state, changed past the functions that keep them: in its file or on a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skillhouse.store import STATE, StateConnection, pooled


@contextmanager
def state_at(path: Path) -> Iterator[StateConnection]:
    """Hold the write lock of the state whose file is, or would be, `path` for a block."""
    with pooled(path, STATE) as kept, kept.transaction() as connection:
        yield connection
