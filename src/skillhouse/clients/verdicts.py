"""The values of a comparison: each client's verdict on each SKILL.md, and what its codes mean."""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from dataclasses import field
from typing import NamedTuple

from skillhouse.floor import dataclass
from skillhouse.skill import Profile


class LensState(enum.StrEnum):
    """What a client does with a file."""

    SEEN = "seen"
    """Listed for the model."""
    MANUAL = "manual"
    """For people only: `disable-model-invocation`."""
    SHADOWED = "shadowed"
    """Another skill of the same name is used."""
    DROPPED = "dropped"
    """Read and refused; the code says why."""
    UNTRUSTED = "untrusted"
    UNSEEN = "unseen"
    """Not found; the code says why, `no-root` that no root contains it."""


class Cut(enum.StrEnum):
    """How a client's bounds cut a listed skill."""

    NOTHING = ""
    SHORTENED = "shortened"
    NO_DESCRIPTION = "no-description"
    OMITTED = "omitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LensSkill:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LensClient:
    profile: Profile
    roots: tuple[str, ...]
    """Every directory that it reads, whether it exists or not."""
    own: frozenset[str] = frozenset()
    """Those of them with the client's own skills and its plugins'."""
    budget: Budget | None = None

    @property
    def name(self) -> str:
        return self.profile.name


@dataclass(frozen=True, slots=True, kw_only=True)
class NearMiss:
    """Something in a directory of skills that no client recognises as a skill."""

    code: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lens:
    """The skills here as several clients see them."""

    start: str
    project: str
    """The git root, or the start directory outside git."""
    home: str
    aliases: tuple[tuple[str, str], ...] = ()
    """(real path, path) of the project and of home, either of which can be a link."""
    clients: tuple[LensClient, ...]
    skills: tuple[LensSkill, ...]
    """Sorted by their short path."""
    misses: tuple[NearMiss, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    """A digest of each SKILL.md that shares its name with another one."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LensProblem:
    """One cause, the skills and clients concerned, and the one fix."""

    code: str
    title: str
    skills: tuple[str, ...] = ()
    """Short paths, each with its details."""
    clients: tuple[str, ...] = ()
    effect: str = ""
    """What these clients do because of it."""
    fix: str = ""


class Cause(NamedTuple):
    title: str
    fix: str


_ONE_UP = "move it, so that it is ROOT/NAME/SKILL.md"

CAUSES = {
    "frontmatter-missing": Cause(
        "the first line is not `---`", "begin the file with `---`, without a line before it"
    ),
    "frontmatter-unclosed": Cause(
        "the frontmatter has no closing `---`", "put a line `---` after the last field"
    ),
    "frontmatter-not-mapping": Cause(
        "the frontmatter is not a list of fields", "write it as `name: …` and `description: …`"
    ),
    "frontmatter-too-large": Cause(
        "the frontmatter is too large", "move long values into the body"
    ),
    "bom": Cause("it begins with a byte order mark", "save it as UTF-8 without a byte order mark"),
    "encoding": Cause("it is not UTF-8", "save it as UTF-8 without a byte order mark"),
    "fence-blanks": Cause("there are spaces after the first `---`", "delete them"),
    "frontmatter-ignored": Cause(
        "its YAML cannot be read, and the first line of the body is taken for the description",
        "put the value on the line in quotes",
    ),
    "frontmatter-cut": Cause(
        "`---` within a value ends the frontmatter", "write the value without three hyphens"
    ),
    "read-by-lines": Cause(
        "its YAML gives no text for `name` and `description`, and both are read line by line",
        "write each as text on one line, with a space after the colon",
    ),
    "yaml-error": Cause("its YAML cannot be read", "put the value on the line in quotes"),
    "yaml-duplicate-key": Cause("a field occurs twice", "delete one of the two"),
    "yaml-alias": Cause("its YAML uses an anchor or alias", "write the value out"),
    "yaml-tag": Cause("its YAML uses a tag", "write the value as plain text"),
    "yaml-depth": Cause("its YAML is nested too deeply", "write the values flat"),
    "one-line-block": Cause(
        "a value begins with `>` or `|` on one line", "put the value in quotes, without the mark"
    ),
    "not-text": Cause(
        "`name` or `description` is a number, or true, false or null", "put the value in quotes"
    ),
    "description-missing": Cause(
        "it has no description", "add `description:`, what it does and when to use it"
    ),
    "description-ignored": Cause(
        "its description is no text, and the first line of the body is used",
        "write it as one text in quotes",
    ),
    "name-type": Cause("its name is not text", "write it as one text in quotes"),
    "metadata-typed": Cause(
        "`metadata` is not a map", "write it as a map of text to text, or delete it"
    ),
    "description-type": Cause("its description is not text", "write it as one text in quotes"),
    "description-too-long": Cause("its description is too long", "shorten it to 1,024 characters"),
    "hidden-characters": Cause(
        "it contains hidden characters", "delete them; `skillhouse validate` says where"
    ),
    "name-missing": Cause("it has no name", "add `name:` with the name of its directory"),
    "name-invalid": Cause(
        "its name is not of a-z, 0-9 and single hyphens", "rename it and its directory"
    ),
    "name-mismatch": Cause(
        "its name is not that of its directory", "rename the directory to that name"
    ),
    "name-long": Cause("its name is longer than 64 characters", "shorten the name"),
    "too-large": Cause("the file is too large", "move parts of the body into other files"),
    "unreadable": Cause("it cannot be read", "make it readable for your user"),
    "not-a-file": Cause("SKILL.md is not a file", "put a file there"),
    "path-encoding": Cause("the name of its directory is not UTF-8", "rename the directory"),
    "link-file": Cause("SKILL.md is a symbolic link", "link the directory and not the file"),
    "link-escape": Cause("a link out of the directory of skills is not followed", "copy it there"),
    "link-ignored": Cause("a symbolic link is not followed", "copy what it leads to there"),
    "link-broken": Cause("a symbolic link is broken", "delete or recreate the link"),
    "link-cycle": Cause("a symbolic link leads in a circle", "delete the link"),
    "root-file": Cause("SKILL.md is directly in the directory of skills", _ONE_UP),
    "too-deep": Cause("it is nested too deeply", _ONE_UP),
    "inside-a-skill": Cause("it is inside another skill", _ONE_UP),
    "hidden-directory": Cause(
        "a directory on the way begins with a dot", "rename the directory, without the dot"
    ),
    "skipped-directory": Cause("it is in a directory that is skipped", _ONE_UP),
    "not-listed": Cause(
        "it is where the client looks, and was not found",
        "the client looks at a bounded number of directories: use fewer",
    ),
}
"""In the order in which they are reported."""

MISSES = {
    "wrong-case": Cause(
        "the name of the file is not exactly SKILL.md", "rename the file to `SKILL.md`"
    ),
    "no-skill-file": Cause(
        "a directory of skills has a directory without SKILL.md",
        "put a SKILL.md there, or move the directory elsewhere",
    ),
}
