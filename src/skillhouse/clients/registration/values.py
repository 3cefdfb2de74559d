"""How a client's entry for our server stands, and what a change of it does."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Standing(enum.StrEnum):
    """How the entry stands."""

    INSTALLED = "installed"
    """As we wrote it, and as we would."""
    OUTDATED = "outdated"
    """As we wrote it; today it would be another."""
    CHANGED = "changed"
    """We wrote it, and somebody changed it since."""
    BY_HAND = "by-hand"
    """It starts skillhouse, and we did not write it."""
    FOREIGN = "foreign"
    """The name belongs to another server."""
    MISSING = "missing"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEntry:
    """What is kept of an entry that we wrote."""

    file: str
    """Real path of the client's file."""
    client: str
    name: str
    text: str
    """The entry as JSON."""
    made_file: bool = False
    """Whether there was no such file before."""
    made_table: bool = False
    """Whether the file had no table of servers before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One client's file: how it stood, and what was or would be done."""

    client: str
    file: str
    name: str
    standing: Standing
    """Before anything was done."""
    fault: str = ""
    """Why it is not safe to let the client start what the entry says; empty when it is."""
    action: str = ""
    """install, uninstall, fix, or empty for nothing."""
    done: bool = False
    reason: str = ""
    snippet: str = ""
    """What to paste, where the file is not to be edited."""
    difference: tuple[str, ...] = ()
    """Lines of a unified diff."""
    backup: str = ""
    """Where the file is kept as it was before our first change."""
    note: str = ""
