"""Which links out of a root are followed: whose their targets are, and how far behind them.

In a person's own folders a link leads where the person, or root, alone can write, as the clients
follow it (docs/decisions/0399-links-of-a-person.md). In a project a link stays inside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from skillhouse.floor import is_sealed, is_secret_file, target_problem
from skillhouse.skill import Finding, Symlinks

LINK_DEPTH_MAX = 2
"""Directories below the target of a link out of a root that are looked at: clients look one deep,
and a link to a tree of 21,000 directories cost each listing 0.3 s of the processor."""
LINK_DIRECTORIES_MAX = 500
"""Directories behind one such link, which count with the root's."""

PROJECT = "project"
"""The scope of what the current work can change: nothing of it is read without trust."""

Following = Literal["within_root", "within_project", "own", "follow", "ignore"]
"""What is done about links of one root."""


def following_of(symlinks: Symlinks | Following, scope: str) -> Following:
    """Return what a profile says about the links of a root in a scope."""
    if symlinks != "by_scope":
        return symlinks
    return {"user": "own", PROJECT: "within_project"}.get(scope, "within_root")  # type: ignore[return-value]


class LinkPlaces(Struct, frozen=True, kw_only=True):
    """The directories that decide about links out of a root; all are real paths."""

    project: str = ""
    """The project that someone works in; empty where there is none of its own."""
    written: tuple[str, ...] = ()
    """Further directories in which tools write."""
    targets: frozenset[str] = field(default=frozenset())
    """Directories of skills outside of the project that its trust names."""
    link_ends: frozenset[str] = field(default=frozenset())
    """Other paths out of the project that its trust names: files, and directories of files."""
    is_trusted: bool = True
    """Whether the skills of the project may be read."""

    def is_of_work(self, real: str) -> bool:
        """Whether what is at a real path is in reach of the current work."""
        return any(_is_below(real, place) for place in (self.project, *self.written) if place)

    def refusal(
        self, following: Following, link: str, real: str, behind: Followed | None
    ) -> Finding | None:
        """Return why a link out of the root to a real path is not followed; None where it is.

        Args:
            following: What the root says.
            link: Where the link is.
            real: Where it leads.
            behind: The link of the person behind which it is, if it is not the person's own.
        """
        if behind is not None and not behind.holds(link, real):
            message = f"a symbolic link out of what `{behind.link}` leads to, to `{real}`"
            return Finding("link-escape", message)
        if following == "own":
            if self.is_of_work(real) and not self.is_trusted:
                message = f"a symbolic link into this project, to `{real}`: not read"
                return Finding("link-untrusted", message, info=True)
        elif following == "within_project":
            if self.project and _is_below(real, self.project):
                return None
            is_named = real in self.link_ends
            if not is_named and not any(_is_below(target, real) for target in self.targets):
                where = "out of the project" if self.project else "out of the root"
                message = f"a symbolic link {where}, to `{real}`, which no trust names"
                return Finding("link-escape", message)
        else:
            return Finding("link-escape", f"a symbolic link out of the root, to `{real}`")
        if is_secret_file(real, real):
            return Finding("link-escape", f"a symbolic link to a secret, `{real}`")
        problem = target_problem(Path(real))
        message = f"a symbolic link to `{real}`: {problem}"
        return Finding("link-owner", message, fatal=True) if problem else None


class Followed(Struct):
    """One link out of a root that is followed, and what is looked at behind it."""

    link: str
    real: str
    depth_max: int
    """Below the root."""
    directories: int = 0
    said: set[str] = field(default_factory=set)
    """Codes of what was reported."""

    def holds(self, link: str, real: str) -> bool:
        """Whether a further link stays in what the first leads to, or in a store of packages."""
        place = os.path.realpath(os.path.dirname(link))
        return _is_below(real, self.real) or (is_sealed(Path(place)) and is_sealed(Path(real)))

    def room(self, wanted: int) -> int:
        """Count directories, and return how many of them may be looked at."""
        room = max(0, min(wanted, LINK_DIRECTORIES_MAX - self.directories))
        self.directories += wanted
        return room


def project_of(start: Path, home: Path, top: Path | None) -> str:
    """Return the real path of the project at `start`; empty where the person's home is in it.

    Args:
        start: Where someone works.
        home: The person's.
        top: The git root of the start, if there is one.
    """
    project = os.path.realpath(top or start)
    return "" if _is_below(os.path.realpath(home), project) else project


def real_places(places: Iterable[Path]) -> tuple[str, ...]:
    return tuple(os.path.realpath(place) for place in places)


def _is_below(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip("/") + "/")
