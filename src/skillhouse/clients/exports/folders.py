"""Which folder a client's skills are written into; all of it follows from the profiles."""

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
    """Return the profiles of all clients that are known, sorted by name."""
    found = (load_profile(name, places.profiles) for name in profile_names(places.profiles))
    return tuple(profile for profile in found if profile.client)


def client_profile(name: str, places: Locations) -> Profile:
    """Return the profile of a client.

    A design can have the name of its program, whose profile is then called `NAME-cli`.

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
    """As the client has it; links may be in it."""
    real: str
    anchor: str
    """Real path that it must not leave: home or the project."""
    where: Where
    follows: bool
    """Whether the client follows a link out of it."""

    @property
    def inside(self) -> str:
        """The real path relative to the anchor, with `/`."""
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
    """Return the folder that a client's skills are written into.

    Of those that it reads, it is the one that most clients read, so that one copy serves many;
    or with `own` the one that fewest read. Of equals the profile's first is taken.

    Raises:
        ExportError: the client reads no such folder, or a link leads it elsewhere.
    """
    found = roots_of(profile, places, project, where)
    if not found:
        reason = f"{profile.name} reads no folder of skills of the {where} here"
        raise ExportError("no-folder", project, reason)
    readers = {
        root.path: len(readers_of(os.path.realpath(root.path), clients, places, project, where))
        for root in found
    }
    # `max` and `min` return the first of equals.
    chosen = (min if own else max)(found, key=lambda root: readers[root.path])
    follows = (chosen.symlinks or profile.symlinks) == "follow"
    return resolved(str(chosen.path), places, project, where=where, follows=follows)


def readers_of(
    real: str, clients: Sequence[Profile], places: Locations, project: Path, where: Where
) -> tuple[str, ...]:
    """Return the clients that read a folder."""
    return tuple(
        profile.name
        for profile in clients
        if real
        in {os.path.realpath(root.path) for root in roots_of(profile, places, project, where)}
    )


def resolved(
    path: str, places: Locations, project: Path, *, where: Where, follows: bool = True
) -> Folder:
    """Return a folder with its real path, which no link leads out of home or the project.

    Raises:
        ExportError: a link leads out, or the path is no text.
    """
    real = os.path.realpath(path)
    if not is_utf8(real):
        raise ExportError("path-encoding", Path(path), "the folder's path is not UTF-8")
    anchor = os.path.realpath(project if where == "project" else places.home)
    if not Path(real).is_relative_to(anchor) or real == anchor:
        # A person may name a directory outside home by a variable, but no link leads there.
        if where == "project" or real != os.path.abspath(path):
            bound = "the project" if where == "project" else "home"
            raise ExportError("link-escape", Path(path), f"a link leads out of {bound} to `{real}`")
        anchor = Path(real).anchor
    return Folder(path=path, real=real, anchor=anchor, where=where, follows=follows)


def roots_of(profile: Profile, places: Locations, project: Path, where: Where) -> list[Root]:
    """Return the client's roots of the user, or those that lie directly in the project."""
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
