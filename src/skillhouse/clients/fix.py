"""One proposed change, and what bounds it."""

from __future__ import annotations

import os

from skillhouse.clients.verdicts import Lens
from skillhouse.floor import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """One change: a file's text, its name, its place, a link, or a delete.

    A text and a place may change together, and a link may take the place of what is deleted.
    """

    path: str
    """What is changed, renamed, moved or deleted, or the link that is made."""
    bound: str
    """The project or home, which the change must not leave."""
    codes: tuple[str, ...]
    """What it mends."""
    difference: tuple[str, ...] = ()
    """Lines of a unified diff."""
    before: str = ""
    after: str = ""
    renamed: str = ""
    """The new name of a file, in the same directory."""
    moved: str = ""
    """The new path of a file or directory; of a text's directory, where the text changes too."""
    target: str = ""
    """What the link leads to, relative to its directory."""
    discarded: str = ""
    """The id of a skill whose directory goes to the trash."""
    digest: str = ""
    """Of the tree that is deleted, as it was shown."""
    kept: str = ""
    """The equal directory that stays; nothing is deleted if it has changed."""


def bound_of(lens: Lens, path: str) -> str:
    """Return the project or home, whichever contains a path; empty where neither does."""
    for base in (lens.project, lens.home):
        tops = {base.rstrip("/") + "/", os.path.realpath(base).rstrip("/") + "/"}
        if path.startswith(tuple(tops)):
            return base
    return ""


def is_own(lens: Lens, path: str) -> bool:
    """Whether a client brought the file, and would replace it."""
    return any(path.startswith(f"{root}/") for client in lens.clients for root in client.own)
