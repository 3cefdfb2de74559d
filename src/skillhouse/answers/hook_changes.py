"""What `skillhouse hooks` and doctor say of the entries in a client's file."""

from __future__ import annotations

import enum

from msgspec import Struct


class HookStanding(enum.StrEnum):
    INSTALLED = "installed"
    CHANGED = "changed"
    """Some entry is not as we would write it, or is gone."""
    MISSING = "missing"
    UNREADABLE = "unreadable"


class HookChange(Struct, frozen=True, kw_only=True):
    """What an entry is, or what is done with it."""

    client: str
    title: str
    where: str
    file: str
    standing: HookStanding
    mode: str = ""
    action: str = ""
    """install or remove; empty where nothing is to be done."""
    done: bool = False
    difference: tuple[str, ...] = ()
    reason: str = ""
    to_do: str = ""
    """What a person must still do."""
    tried: str = ""
    guarded: tuple[str, ...] = ()
    """The client's tools that are judged by our rules."""
    sandboxed: tuple[str, ...] = ()
    """In mode `sandbox`, those of them whose commands run in our sandbox."""
    recorded: tuple[str, ...] = ()
    """Those that are recorded alone, as are all that are not named."""
    unknown: tuple[str, ...] = ()
    """Those that are not named, and were called."""
