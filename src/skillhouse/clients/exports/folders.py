"""Chooses the folder for a client's skills, from the profiles alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from skillhouse.clients.exports.export_state import ExportError, Where
from skillhouse.discovery import Root, default_roots
from skillhouse.floor import ConfigError, Locations, is_utf8, nearest
from skillhouse.skill import Profile, load_profile, profile_names


def client_profiles(places: Locations) -> tuple[Profile, ...]:
    """Return the profiles of all known clients, sorted by name."""
    profiles = (load_profile(name, places.profiles) for name in profile_names(places.profiles))
    return tuple(profile for profile in profiles if profile.client)


def client_profile(name: str, places: Locations) -> Profile:
    """Return the profile of a client.

    Where a design has the name of its program, the program's profile is called `NAME-cli`.

    Raises:
        ConfigError: no client has that name.
    """
    clients = {profile.name: profile for profile in client_profiles(places)}
    for known in (name, f"{name}-cli"):
        if known in clients:
            return clients[known]
    close = next(iter(nearest(name, clients)), "")
    message = f"unknown client `{name}`, expected one of: {', '.join(clients)}"
    raise ConfigError(message, key=name, suggestion=close)


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A directory of skills that a client reads."""

    path: str
    """As the client names it; may contain links."""
    real: str
    anchor: str
    """Real path of home or the project, which it must not leave."""
    where: Where
    follows: bool
    """Whether the client follows a link out of it."""

    @property
    def inside(self) -> str:
        return Path(self.real).relative_to(self.anchor).as_posix()


def folder_of(
    profile: Profile,
    clients: Sequence[Profile],
    places: Locations,
    project: Path,
    *,
    where: Where,
    own: bool,
) -> Folder:
    """Return the folder for a client's skills.

    It is the folder that most clients read, so that one copy serves many; with `own` the one
    that fewest read. Between equals the profile's order decides.

    Raises:
        ExportError: the client reads no such folder, or a link leads it elsewhere.
    """
    roots = roots_of(profile, places, project, where)
    if not roots:
        reason = f"{profile.name} reads no folder of skills of the {where} here"
        raise ExportError("no-folder", project, reason)
    readers = {
        root.path: len(readers_of(os.path.realpath(root.path), clients, places, project, where))
        for root in roots
    }
    # `max` and `min` return the first of equals.
    chosen = (min if own else max)(roots, key=lambda root: readers[root.path])
    follows = (chosen.symlinks or profile.symlinks) == "follow"
    return resolved(str(chosen.path), places, project, where=where, follows=follows)


def readers_of(
    real: str, clients: Sequence[Profile], places: Locations, project: Path, where: Where
) -> tuple[str, ...]:
    return tuple(
        profile.name
        for profile in clients
        if real
        in {os.path.realpath(root.path) for root in roots_of(profile, places, project, where)}
    )


def resolved(
    path: str, places: Locations, project: Path, *, where: Where, follows: bool = True
) -> Folder:
    """Return a folder with its real path, which is inside home or the project.

    Raises:
        ExportError: a link leads out, or the path is not UTF-8.
    """
    real = os.path.realpath(path)
    if not is_utf8(real):
        raise ExportError("path-encoding", Path(path), "the folder's path is not UTF-8")
    anchor = os.path.realpath(project if where == "project" else places.home)
    if not Path(real).is_relative_to(anchor) or real == anchor:
        # A variable may name a directory outside home, but no link may lead there.
        if where == "project" or real != os.path.abspath(path):
            bound = "the project" if where == "project" else "home"
            raise ExportError("link-escape", Path(path), f"a link leads out of {bound} to `{real}`")
        anchor = Path(real).anchor
    return Folder(path=path, real=real, anchor=anchor, where=where, follows=follows)


def roots_of(profile: Profile, places: Locations, project: Path, where: Where) -> list[Root]:
    """Return the client's roots of the user, or those directly in the project."""
    roots = default_roots(
        start=project, home=places.home, environment=places.environment, profile=profile
    )
    return [
        root
        for root in roots
        if root.scope == where
        and "\0" not in str(root.path)
        and (where == "user" or root.path.is_relative_to(project))
    ]
