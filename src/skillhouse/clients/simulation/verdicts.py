"""The values of the lens: what each client makes of each SKILL.md of a place."""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from skillhouse.skill import Profile


class LensState(enum.StrEnum):
    """What became of a file in one client."""

    SEEN = "seen"
    """Listed for the model."""
    MANUAL = "manual"
    """There for people only: `disable-model-invocation`."""
    SHADOWED = "shadowed"
    """Another skill of its name is taken."""
    DROPPED = "dropped"
    """Read and refused; the code says why."""
    UNTRUSTED = "untrusted"
    UNSEEN = "unseen"
    """Not looked at; the code says why, and `no-root` that no root reaches it."""


class Cut(enum.StrEnum):
    """What a client's bounds leave of a listed skill."""

    NOTHING = ""
    SHORTENED = "shortened"
    NO_DESCRIPTION = "no-description"
    OMITTED = "omitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one client makes of one file."""

    state: LensState
    name: str = ""
    """What the client calls it; empty where it is not read."""
    code: str = ""
    """Why it is not seen; of a seen one, what this client reads otherwise than we do."""
    reason: str = ""
    line: int | None = None
    other: str = ""
    """The SKILL.md that is taken instead."""
    cut: Cut = Cut.NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class LensSkill:
    """One SKILL.md of this machine, however many links lead to it."""

    file: str
    """Real path."""
    places: tuple[str, ...]
    """Each path at which a client meets it, in the order of their text."""
    root: str
    """The directory of skills that it lies in."""
    name: str
    """What its frontmatter calls it, or else its directory."""
    description_chars: int
    verdicts: tuple[Verdict, ...]
    """In the order of the clients."""

    @property
    def directory(self) -> str:
        """The directory of the skill, as the first place has it."""
        return os.path.dirname(self.places[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How a client's list stands to its bound, in characters."""

    limit: int
    reserved: int
    """What the client's own entries take of the limit."""
    needed: int
    """What all skills with whole descriptions take besides."""
    shortened: int
    """Skills whose description the limit shortens."""
    without_description: int
    omitted: int

    @property
    def over(self) -> int:
        """Characters that do not fit; 0 when all do."""
        return max(0, self.needed + self.reserved - self.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class LensClient:
    """A client and what it makes of this place."""

    profile: Profile
    roots: tuple[str, ...]
    """Every directory that it looks in, whether it exists or not."""
    own: frozenset[str] = frozenset()
    """Those of them that hold what came with the client or with a plugin of it."""
    budget: Budget | None = None

    @property
    def name(self) -> str:
        """The profile's name."""
        return self.profile.name


@dataclass(frozen=True, slots=True, kw_only=True)
class NearMiss:
    """Something in a directory of skills that no client takes for a skill."""

    code: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lens:
    """A place as several clients see it."""

    start: str
    project: str
    """The git root, or the start directory outside git."""
    home: str
    aliases: tuple[tuple[str, str], ...] = ()
    """(real path, path) of the project and of home: a link can lead to either."""
    clients: tuple[LensClient, ...]
    skills: tuple[LensSkill, ...]
    """By the short form of their path."""
    misses: tuple[NearMiss, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    """A digest of each SKILL.md whose name another one has, too."""

    def short(self, path: str) -> str:
        """Return a path relative to the project, or with `~` for home: fit to be published."""
        inside = _below(self._given(path), self.project)
        if inside is None or self.project == self.home:
            return self.tilde(path)
        return inside or "."

    def tilde(self, path: str) -> str:
        """Return a path with `~` for home."""
        inside = _below(self._given(path), self.home)
        return path if inside is None else f"~/{inside}" if inside else "~"

    def _given(self, path: str) -> str:
        """Return a path as the person who stands here writes it."""
        for real, given in self.aliases:
            inside = _below(path, real)
            if inside is not None:
                return f"{given}/{inside}" if inside else given
        return path


def _below(path: str, base: str) -> str | None:
    """Return what of `path` is below `base`, and None when it is not."""
    base = base.rstrip("/")
    if path == base:
        return ""
    return path[len(base) + 1 :] if path.startswith(base + "/") else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LensProblem:
    """One cause, everything it concerns, and the one change that ends it."""

    code: str
    title: str
    skills: tuple[str, ...] = ()
    """Short paths, with what is peculiar to each behind them."""
    clients: tuple[str, ...] = ()
    """Those that are concerned."""
    effect: str = ""
    """What they do because of it."""
    fix: str = ""
