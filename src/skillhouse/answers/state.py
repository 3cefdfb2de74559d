"""Where the state is, and what came of moving or copying it."""

from __future__ import annotations

from typing import Literal

from skillhouse.answers.json_form import Count, JsonAnswer


class StateAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Where the state is."""

    place: Literal["none", "file", "server"]
    file: str
    """The file that has it, or that points to it."""
    server: str
    """User, host, port and database; empty for a file. Never a password."""
    server_version: str
    version: Count
    """Of the tables; 0 where there are none yet."""
    rows: Count
    commits: Count
    """How many changes a server has seen."""
    listens: str
    """Whether notices of changes arrive: `yes`, `no` with what to do, or empty for a file."""


class StateCopyAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What was moved or copied, and found alike on both sides."""

    place: Literal["file", "server"]
    """Where the rows are now."""
    file: str
    tables: Count
    rows: Count
