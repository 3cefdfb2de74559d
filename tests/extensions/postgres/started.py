"""Processes that a test starts use the state that the test itself uses: on the same server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from skillhouse.house import Locations
from skillhouse.house.config.config_keys import STATE_VARIABLE
from skillhouse.store import STATE_FILE

DIRECTORY_VARIABLE = "SKILLHOUSE_STATE_DIRECTORY"
OURS = "skillhouse."
"""What the package itself starts, as a command in the sandbox, gets the variables that it gave."""


@contextmanager
def states_of_started(base: Path, url_of: Callable[[Path], str]) -> Iterator[None]:
    """Name the state to each process that is started meanwhile and whose home is below `base`.

    A process that inherits the variables of this one, as after a fork, gets none: name its state
    with `with_state`. One whose variables or whose user's file name a state keeps it.
    """
    start: Callable[..., None] = subprocess.Popen.__init__
    current = _CURRENT[:]

    def init(self: Any, *words: Any, env: Mapping[str, str] | None = None, **named: Any) -> None:
        by = sys._getframe(1).f_globals.get("__name__", "")  # noqa: SLF001 - who starts it.
        if not by.startswith(OURS):
            env = with_state(env)
        start(self, *words, env=env, **named)

    _CURRENT[:] = [(base, url_of)]
    subprocess.Popen.__init__ = init  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        subprocess.Popen.__init__ = start  # type: ignore[method-assign]
        _CURRENT[:] = current


_CURRENT: list[tuple[Path, Callable[[Path], str]]] = []


def with_state(env: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Return variables of a process with the address of its state; the same where it has none."""
    variables = os.environ if env is None else env
    home = variables.get("HOME")
    if not _CURRENT or not isinstance(home, str) or STATE_VARIABLE in variables:
        return env
    base, url_of = _CURRENT[0]
    if not Path(home).is_relative_to(base):
        return env
    places = Locations(start=Path(home), home=Path(home), environment=dict(variables))
    if _names_state(places.user_file):
        return env
    directory = Path(variables.get(DIRECTORY_VARIABLE) or places.state())
    return {**variables, STATE_VARIABLE: url_of(directory / STATE_FILE)}


def _names_state(file: Path) -> bool:
    try:
        return "[state]" in file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
