"""Where the state is: in a file of its own, or on a server that the configuration names.

The first use of a state in a process settles it: a configuration that changes later does not take
a state away from calls that run. What talks to a server is an extension, which registers here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from skillhouse.floor import StateError


class StateConflictError(StateError):
    """A row with this key is there already; nothing was changed."""


class StateCursor(Protocol):
    """What a statement gave."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class StateConnection(Protocol):
    """What runs statements inside of one transaction."""

    def execute(self, statement: str, values: Any = ..., /) -> StateCursor:
        """Run one statement, with `?` for each of a sequence or `:name` for those of a mapping."""

    def executemany(self, statement: str, values: Any, /) -> StateCursor:
        """Run one statement for each of several values."""


class StateStore(Protocol):
    """One use of a state, by one thread."""

    def rows(self, query: str, values: Any = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query (StateError)."""

    def transaction(self) -> AbstractContextManager[StateConnection]:
        """Hold the state's write lock for a block: all of it happens, or nothing (StateError)."""

    def server_ms(self) -> int | None:
        """Return the server's time as this use last knew it; None where this machine's counts."""


class StateServer(Protocol):
    """A state that is not a file."""

    def use(self) -> AbstractContextManager[StateStore]:
        """Give a connection for a block (StateError)."""

    def stamp(self) -> tuple[int, ...]:
        """Return numbers that change with each commit of any process (StateError)."""

    def seconds(self, clock: Callable[[], float]) -> float:
        """Return the server's time since 1970 (StateError); `clock` gives this machine's."""

    def close(self) -> None:
        """Close what is open; a later use connects again."""


_PLACES: dict[Path, StateServer | None] = {}
"""Each state that this process uses; None where it is its file."""
_LOCK = threading.Lock()
_EVERY: list[Callable[[Path], StateServer]] = []
"""What serves a state that nothing else was said about; at most one."""


def serve_state(path: Path, connect: Callable[[], StateServer]) -> bool:
    """Have a server keep the state whose file would be `path`; False where it is settled already.

    `connect` makes the value without connecting.
    """
    with _LOCK:
        if path in _PLACES:
            return False
        _PLACES[path] = connect()
        return True


def serve_every_state(connect: Callable[[Path], StateServer] | None) -> None:
    """Have each state that this process uses from now on be on a server, or none of them (None).

    For a program that has many states, each at another address.
    """
    with _LOCK:
        _EVERY[:] = [] if connect is None else [connect]


def state_server(path: Path) -> StateServer | None:
    """Return what serves a state; None where it is a file."""
    if _EVERY and path not in _PLACES:
        with _LOCK:
            if path not in _PLACES:
                _PLACES[path] = _EVERY[0](path)
    return _PLACES.get(path)


def settle_as_file(path: Path) -> None:
    """Note that this process uses the file, so that no server takes its place."""
    _PLACES.setdefault(path, None)


def forget_state(path: Path) -> None:
    """Have the next use settle where a state is: after it was moved."""
    with _LOCK:
        server = _PLACES.pop(path, None)
    if server is not None:
        server.close()


def state_exists(path: Path) -> bool:
    """Whether there is a state to look into; a server's always is.

    Raises:
        OSError: the place cannot be looked at.
    """
    return state_server(path) is not None or path.exists()


def state_clock(path: Path, clock: Callable[[], float]) -> Callable[[], float]:
    """Return the clock of a state, in seconds since 1970: this machine's, or its server's."""

    def now() -> float:
        server = state_server(path)
        return clock() if server is None else server.seconds(clock)

    return now
