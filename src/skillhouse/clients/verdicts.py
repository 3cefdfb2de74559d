"""The values of a comparison: each client's verdict on each SKILL.md."""

from __future__ import annotations

import enum
import os
from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct, field

from skillhouse.skill import Profile


class LensState(enum.StrEnum):
    """What a client does with a file."""

    SEEN = "seen"
    """Listed for the model."""
    MANUAL = "manual"
    """For people only: `disable-model-invocation`."""
    FOLDER = "folder"
    """In a folder of a client of which no more than its folders is known."""
    SHADOWED = "shadowed"
    """Another skill of the same name is used."""
    DROPPED = "dropped"
    """Read and refused; the code says why."""
    UNTRUSTED = "untrusted"
    UNSEEN = "unseen"
    """Not found; the code says why, `no-root` that no root contains it."""


LISTED = frozenset({LensState.SEEN, LensState.MANUAL, LensState.FOLDER})
"""States of a skill that a client has, as far as is known."""


class Cut(enum.StrEnum):
    """How a client's bounds cut a listed skill."""

    NOTHING = ""
    SHORTENED = "shortened"
    NO_DESCRIPTION = "no-description"
    OMITTED = "omitted"


class Verdict(Struct, frozen=True, kw_only=True):
    state: LensState
    name: str = ""
    """Name of the skill in this client; empty when it is not read."""
    code: str = ""
    """Why it is not seen; for a seen one, what this client reads differently from us."""
    reason: str = ""
    line: int | None = None
    other: str = ""
    """The SKILL.md that is used instead."""
    cut: Cut = Cut.NOTHING


class ReportedSkill(Struct, frozen=True, kw_only=True):
    """One SKILL.md, however many links lead to it."""

    file: str
    """Real path."""
    places: tuple[str, ...]
    """Each path at which a client finds it, the real path first, then sorted."""
    root: str
    """The root that contains it."""
    name: str
    """The name in its frontmatter, or else of its directory."""
    description_chars: int
    verdicts: tuple[Verdict, ...]
    """In the order of the clients."""

    @property
    def directory(self) -> str:
        return os.path.dirname(self.places[0])


class BudgetUse(Struct, frozen=True, kw_only=True):
    """The use of a client's list budget, in characters."""

    limit: int
    reserved: int
    """Used by the client's own entries."""
    needed: int
    """Needed by all skills with whole descriptions."""
    shortened: int
    """Skills whose description the limit shortens."""
    without_description: int
    omitted: int

    @property
    def over(self) -> int:
        """Characters that do not fit; 0 when all do."""
        return max(0, self.needed + self.reserved - self.limit)


class ClientColumn(Struct, frozen=True, kw_only=True):
    profile: Profile
    roots: tuple[str, ...]
    """Every directory that it reads, whether it exists or not."""
    own: frozenset[str] = frozenset()
    """Those of them with the client's own skills and its plugins'."""
    budget: BudgetUse | None = None

    @property
    def name(self) -> str:
        return self.profile.name


class NearMiss(Struct, frozen=True, kw_only=True):
    """Something in a directory of skills that no client recognises as a skill."""

    code: str
    path: str


class ClientReport(Struct, frozen=True, kw_only=True):
    """The skills here as several clients see them."""

    start: str
    project: str
    """The git root, or the start directory outside git."""
    home: str
    aliases: tuple[tuple[str, str], ...] = ()
    """(real path, path) of the project and of home, either of which can be a link."""
    clients: tuple[ClientColumn, ...]
    skills: tuple[ReportedSkill, ...]
    """Sorted by their short path."""
    misses: tuple[NearMiss, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    """A digest of each SKILL.md that shares its name with another one."""
    exported: Mapping[str, str] = field(default_factory=dict)
    """Real path of each copy that `export` wrote, with that of the skill it was copied from."""
    faults: tuple[tuple[str, str], ...] = ()
    """Clients that could not be looked at, and why; they are not among `clients`."""
    looked_at: tuple[str, ...] = ()
    """Files and directories of skills, there or not, without whose change this stays as it is."""

    def by_client(self, skill: ReportedSkill) -> Iterator[tuple[str, Verdict]]:
        """Yield each client's name with its verdict on a skill."""
        for client, verdict in zip(self.clients, skill.verdicts, strict=True):
            yield client.name, verdict

    def in_order(self, names: Collection[str]) -> tuple[str, ...]:
        """Return these clients in the order of the comparison."""
        return tuple(client.name for client in self.clients if client.name in names)

    def short(self, path: str) -> str:
        """Return a path relative to the project or to `~`, without the name of the user."""
        inside = _below(self._given(path), self.project)
        if inside is None or self.project == self.home:
            return self.tilde(path)
        return inside or "."

    def tilde(self, path: str) -> str:
        inside = _below(self._given(path), self.home)
        return path if inside is None else f"~/{inside}" if inside else "~"

    def _given(self, path: str) -> str:
        """Return a path with the project and home as the user names them."""
        for real, given in self.aliases:
            inside = _below(path, real)
            if inside is not None:
                return f"{given}/{inside}" if inside else given
        return path


def _below(path: str, base: str) -> str | None:
    """Return the part of `path` below `base`; None when it is not below."""
    base = base.rstrip("/")
    if path == base:
        return ""
    return path[len(base) + 1 :] if path.startswith(base + "/") else None


class ReportedProblem(Struct, frozen=True, kw_only=True):
    """One cause, the skills and clients concerned, and the one fix."""

    code: str
    title: str
    skills: tuple[str, ...] = ()
    """Short paths, each with its details."""
    clients: tuple[str, ...] = ()
    effect: str = ""
    """What these clients do because of it."""
    fix: str = ""
