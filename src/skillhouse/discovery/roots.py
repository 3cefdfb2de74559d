"""The directories that are scanned, in the order of the profile.

And which links out of one are followed: whose their targets are, and how far behind them.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from skillhouse.floor import git_root, is_sealed, is_secret_file, target_problem
from skillhouse.floor.regex import regex
from skillhouse.floor.structs import PartialStruct, replace
from skillhouse.skill import Finding, Profile, RootRule, Symlinks, WalkUp

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


GLOB_MAX = 2_000
"""Directories that the `*`s of one rule may match (docs/reference/limits.md)."""

_VARIABLE = regex(r"\$\{(?P<name>\w+)(?::-(?P<unset>[^}]*))?\}/?(?P<rest>.*)")


class Root(PartialStruct, frozen=True):
    """A directory below which skills are looked for."""

    HIDDEN = UNCOMPARED = frozenset({"places"})

    path: Path
    scope: str = "explicit"
    namespace: str = ""
    """The plugin of these skills, which are called `plugin:skill`."""
    max_depth: int | None = None
    """Overrides the scope's depth."""
    symlinks: Symlinks | Following | None = None
    """Overrides the profile's treatment of links."""
    note: str = ""
    """What was omitted when the root was made; `discover` reports it."""
    places: LinkPlaces = LinkPlaces()
    """Where links out of it may lead, as far as its scope lets any."""


class _StartPoint(Struct, frozen=True, kw_only=True):
    """The directories and variables that a rule's path can refer to."""

    start: Path
    home: Path
    environment: Mapping[str, str]
    explicit: tuple[str, ...]
    builtin: tuple[str, ...]

    def named(self, path: str) -> list[tuple[str, str]] | None:
        """Return (base, rest) pairs of a rule's path; None for a path of the walk.

        The base of a variable or an explicit root is literal; `*` is a pattern only in the rest.
        """
        if path == "{explicit}":
            return [(given, "") for given in self.explicit]
        if path == "{builtin}":
            return [(given, "") for given in self.builtin]
        if path == "~" or path.startswith("~/"):
            return [(str(self.home), path[2:])]
        if os.path.isabs(path):
            anchor = Path(path).anchor
            return [(anchor, path[len(anchor) :])]
        variable = _VARIABLE.fullmatch(path)
        if variable is None:
            return None
        value = self.environment.get(variable["name"], "")
        if not value and variable["unset"]:
            rest = "/".join(filter(None, (variable["unset"].rstrip("/"), variable["rest"])))
            return self.named(rest)
        return [(part, variable["rest"]) for part in value.split(os.pathsep) if part]


def default_roots(
    *,
    start: Path,
    home: Path,
    environment: Mapping[str, str],
    profile: Profile,
    explicit: Sequence[Path] = (),
    builtin: Path | None = None,
    written: Sequence[Path] = (),
    targets: frozenset[str] = frozenset(),
    link_ends: frozenset[str] = frozenset(),
) -> tuple[Root, ...]:
    """Return the roots of the profile's rules, whether they exist or not.

    An explicitly named root is not a project root even inside a project: in the home directory,
    the user's own skills must not wait until home is trusted as a project. A rule of a scope that
    the profile does not have is a ConfigError.

    Args:
        start: Where the agent works; project roots are looked for from here upwards.
        environment: Where the profile's variables are looked up.
        explicit: Further roots, in order.
        builtin: The skills of this package.
        written: Directories, besides the project, in which tools write.
        targets: Real directories of skills out of the project that its trust names.
        link_ends: Other real paths out of it that its trust names as what links lead to.
    """
    place = _StartPoint(
        start=Path(os.path.abspath(start)),
        home=home,
        environment=environment,
        explicit=tuple(map(str, explicit)),
        builtin=() if builtin is None else (str(builtin),),
    )
    candidates: list[tuple[bool, Root]] = []
    for (is_walked, _), group in itertools.groupby(_in_order(profile), _kind(profile, place)):
        roots_of = _walked if is_walked else _named
        candidates += [(is_walked, root) for root in roots_of(list(group), place, profile)]
    theirs = {_real(root.path) for is_walked, root in candidates if not is_walked}
    roots: dict[Path, Root] = {}
    for is_walked, root in candidates:
        if is_walked and _real(root.path) in theirs:
            continue
        if profile.duplicates == "last":
            # Of two equal roots the later one is stronger.
            roots.pop(root.path, None)
        roots.setdefault(root.path, root)
    places = LinkPlaces(
        project=project_of(place.start, home, git_root(place.start)),
        written=real_places(written),
        targets=targets,
        link_ends=link_ends,
    )
    return tuple(replace(root, places=places) for root in roots.values())


def _real(path: Path) -> str:
    # A path with NUL cannot be resolved; `discover` reports it.
    return str(path) if "\0" in str(path) else os.path.realpath(path)


def _in_order(profile: Profile) -> list[RootRule]:
    scopes = [scope.name for scope in profile.scopes]
    ranks = {rule.scope: scopes.index(profile.scope(rule.scope).name) for rule in profile.roots}
    if profile.root_order == "written":
        return list(profile.roots)
    return sorted(profile.roots, key=lambda rule: ranks[rule.scope])


def _kind(profile: Profile, place: _StartPoint) -> Callable[[RootRule], tuple[bool, str]]:
    """Return the group key of neighbouring rules whose roots are listed together."""

    def kind(rule: RootRule) -> tuple[bool, str]:
        scope = rule.scope if profile.root_order == "scope" else ""
        return place.named(rule.path) is None, scope

    return kind


def _named(rules: list[RootRule], place: _StartPoint, _: Profile) -> Iterator[Root]:
    for rule in rules:
        for base, rest in place.named(rule.path) or ():
            yield from _expanded(rule, base, rest)


def _walked(rules: list[RootRule], place: _StartPoint, profile: Profile) -> Iterator[Root]:
    ways = [_way(place, rule.walk or profile.walk) for rule in rules]
    if profile.walk_order == "by_root":
        for rule, way in zip(rules, ways, strict=True):
            for directory in way:
                yield from _expanded(rule, str(directory), rule.path)
        return
    # All ways begin at the start and go upwards, so the longest contains the others.
    longest = max(ways, key=len)
    if profile.walk_order == "farthest":
        longest = longest[::-1]
    for directory in longest:
        for rule, way in zip(rules, ways, strict=True):
            if directory in way:
                yield from _expanded(rule, str(directory), rule.path)


def _way(place: _StartPoint, walk: WalkUp) -> tuple[Path, ...]:
    """Return the directories from the start up to where the walk ends, which is one of them.

    Without a git root the start is all; where home is not above the start, the file system's
    root ends the walk.
    """
    way = (place.start, *place.start.parents)
    home = Path(os.path.abspath(place.home))
    end: Path | None = way[-1]
    if walk == "none":
        end = None
    elif walk == "git_root":
        end = git_root(place.start)
    elif walk == "home" and home in way:
        end = home
    return way[: way.index(end) + 1] if end is not None else way[:1]


def _expanded(rule: RootRule, base: str, rest: str) -> Iterator[Root]:
    """Yield a root for each match of the `*`s of `rest` below `base`."""
    base = os.path.abspath(base)
    places: list[tuple[str, tuple[str, ...]]] = [(base, ())]
    note = ""
    for segment in rest.split("/") if rest else ():
        if segment != "*":
            places = [(os.path.join(path, segment), stars) for path, stars in places]
            continue
        below = ((path, stars, name) for path, stars in places for name in _directories(path))
        places = [
            (os.path.join(path, name), (*stars, name))
            for path, stars, name in itertools.islice(below, GLOB_MAX)
        ]
        if next(below, None) is not None:
            note = f"more than {GLOB_MAX} directories fit `{rule.path}`; the rest is left out"
    for number, (path, stars) in enumerate(places, 1):
        yield Root(
            Path(os.path.abspath(path)),
            rule.scope,
            stars[rule.namespace - 1] if rule.namespace else "",
            rule.max_depth,
            rule.symlinks,
            note if number == len(places) else "",
        )


def _directories(place: str) -> list[str]:
    """Return the names that `*` fits in `place`, sorted; a link fits if it stays in `place`."""
    try:
        with os.scandir(place) as entries:
            names = sorted(entry.name for entry in entries if not entry.name.startswith("."))
    except OSError:
        # A place that is not there, or not readable, holds no roots.
        return []
    inside = os.path.join(os.path.realpath(place), "")
    return [
        name
        for name in names
        if os.path.isdir(os.path.join(place, name))
        and os.path.realpath(os.path.join(place, name)).startswith(inside)
    ]
