"""The directories that are scanned, strongest first."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from skillhouse.skill import Profile


@dataclass(frozen=True, slots=True)
class Root:
    """A directory below which skills are looked for."""

    path: Path
    scope: str = "explicit"


def default_roots(
    *,
    start: Path,
    home: Path,
    environment: Mapping[str, str],
    profile: Profile,
    explicit: Sequence[Path] = (),
    builtin: Path | None = None,
) -> tuple[Root, ...]:
    """Return the roots of the profile's scopes, whether they exist or not.

    Args:
        start: Where the agent works; project roots are looked for from here upwards.
        home: Stands for `~` in the profile's user directories.
        environment: Where the profile's variable with further roots is looked up.
        profile: The directories and the order of the scopes.
        explicit: Roots that were given by hand, in their order.
        builtin: The skills that come with this package.
    """
    named = environment.get(profile.environment_variable, "").split(os.pathsep)
    of_scope = {
        "explicit": _absolute([*explicit, *filter(None, named)]),
        "user": _absolute(_expanded(directory, home) for directory in profile.user_directories),
        "builtin": _absolute([] if builtin is None else [builtin]),
    }
    # What a person named is theirs, also where it lies in a project: at home, the user's own
    # skills must not wait until the home directory is trusted as a project.
    theirs = {path for paths in of_scope.values() for path in paths}
    of_scope["project"] = [path for path in project_roots(start, profile) if path not in theirs]
    roots: dict[Path, Root] = {}
    for rule in profile.scopes:
        for path in of_scope.get(rule.name, []):
            roots.setdefault(path, Root(path, rule.name))
    return tuple(roots.values())


def project_roots(start: Path, profile: Profile) -> tuple[Path, ...]:
    """Return the project's skill directories from `start` up to the git root, nearest first.

    Outside git only `start` itself is a project.
    """
    start = Path(os.path.abspath(start))
    top = git_root(start)
    places = [start]
    while top is not None and places[-1] != top:
        places.append(places[-1].parent)
    return tuple(place / directory for place in places for directory in profile.project_directories)


def git_root(start: Path) -> Path | None:
    """Return the nearest directory from `start` upwards that holds `.git`, or None."""
    for place in (start, *start.parents):
        if os.path.lexists(place / ".git"):
            return place
    return None


def _absolute(paths: Iterable[str | Path]) -> list[Path]:
    return [Path(os.path.abspath(path)) for path in paths]


def _expanded(directory: str, home: Path) -> Path:
    return home / directory[2:] if directory.startswith("~/") else Path(directory)
