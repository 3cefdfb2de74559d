"""The folder for a client's skills: chosen from the profiles, opened, and changed in one rename."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from skillhouse.clients.client_table import client_of, is_installed, known_clients
from skillhouse.clients.export_state import ExportError, Where
from skillhouse.clients.trees import copy_tree, found_digest
from skillhouse.discovery import Root, default_roots
from skillhouse.floor import Locations, PathError, descriptor, is_utf8, open_directory_beneath
from skillhouse.skill import Profile, load_profile, profile_names


def client_profiles(places: Locations, *, here: bool = False) -> tuple[Profile, ...]:
    """Return the profiles of all clients: those whose reading is known, and those of folders alone.

    With `here` the latter only where the client is installed.
    """
    own = (load_profile(name, places.profiles) for name in profile_names(places.profiles))
    read = [profile for profile in own if profile.client]
    names = {profile.name for profile in read}
    rest = (one.folders() for one in known_clients().values() if one.name not in names)
    return (*read, *(one for one in rest if not here or is_installed(one, places)))


def client_profile(name: str, places: Locations) -> Profile:
    """Return the profile of a client, or raise `ConfigError`."""
    return client_of(name, {profile.name: profile for profile in client_profiles(places)})


def profile_to_compare(name: str, places: Locations) -> Profile:
    """Return a profile, of a client or a design, or the folders of a client; or `ConfigError`."""
    if name in profile_names(places.profiles):
        return load_profile(name, places.profiles)
    return client_profile(name, places)


class Folder(Struct, frozen=True, kw_only=True):
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


class ClientRoots:
    """The roots of clients, each client's found once: an export asks for them at every skill."""

    def __init__(self, places: Locations) -> None:
        self.places = places
        self._found: dict[tuple[str, Path, Where], list[Root]] = {}

    def of(self, profile: Profile, project: Path, where: Where) -> list[Root]:
        """Return the client's roots of the user, or those directly in the project."""
        key = (profile.name, project, where)
        if key not in self._found:
            places = self.places
            roots = default_roots(
                start=project, home=places.home, environment=places.environment, profile=profile
            )
            self._found[key] = [
                root
                for root in roots
                if root.scope == where
                and "\0" not in str(root.path)
                and (where == "user" or root.path.is_relative_to(project))
            ]
        return self._found[key]

    def readers(
        self, real: str, clients: Sequence[Profile], project: Path, where: Where
    ) -> tuple[str, ...]:
        """Return the clients that read a folder, wherever links lead by now."""
        return tuple(
            profile.name
            for profile in clients
            if real in {os.path.realpath(root.path) for root in self.of(profile, project, where)}
        )


def folder_of(
    profile: Profile,
    clients: Sequence[Profile],
    client_roots: ClientRoots,
    project: Path,
    *,
    where: Where,
    own: bool,
) -> Folder:
    """Return the folder for a client's skills, or raise `ExportError`.

    It is the folder that most clients read, so that one copy serves many; with `own` the one
    that fewest read. Between equals the profile's order decides.
    """
    roots = client_roots.of(profile, project, where)
    if not roots:
        reason = f"{profile.name} reads no folder of skills of the {where} here"
        raise ExportError("no-folder", project, reason)
    readers = {
        root.path: len(client_roots.readers(os.path.realpath(root.path), clients, project, where))
        for root in roots
    }
    # `max` and `min` return the first of equals.
    chosen = (min if own else max)(roots, key=lambda root: readers[root.path])
    follows = (chosen.symlinks or profile.symlinks) == "follow"
    return resolved(str(chosen.path), client_roots.places, project, where=where, follows=follows)


def resolved(
    path: str, places: Locations, project: Path, *, where: Where, follows: bool = True
) -> Folder:
    """Return a folder with its real path in home or the project; `ExportError` if a link leaves."""
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


STAGING = ".skillhouse-"
"""Prefix of the staging directory, which is beside the folder: in it a client would list it."""


class _NotPutBackError(ExportError):
    """The old content could not be restored; it stays in the staging directory."""


class FolderHandle:
    """An open folder of a client; nothing is reached through a link."""

    def __init__(self, folder: Folder, *, create: bool) -> None:
        """Open the folder; `ExportError` if it was replaced by a link since it was checked."""
        self.folder = folder
        self.made: tuple[str, ...] = ()
        if os.open not in os.supports_dir_fd:  # pragma: no cover - Windows
            message = "this system has no directory descriptors, without which nothing is written"
            raise ExportError("no-descriptors", Path(folder.real), message)
        if create:
            self.made = _missing(folder)
        try:
            self.handle = open_directory_beneath(Path(folder.anchor), folder.inside, create=create)
            above = Path(folder.inside).parent.as_posix()
            self._above = open_directory_beneath(Path(folder.anchor), above)
        except PathError as error:
            message = "the folder cannot be opened without following a link"
            if error.code != "path-link":
                message = f"the folder cannot be opened ({error.code})"
            raise ExportError(error.code, Path(folder.path), message) from error

    def close(self) -> None:
        os.close(self.handle)
        os.close(self._above)

    def __enter__(self) -> FolderHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def staging(self) -> Iterator[Staged]:
        """Make a staging directory beside the folder, and remove it at the end."""
        name = f"{STAGING}{secrets.token_hex(8)}"
        os.mkdir(name, 0o700, dir_fd=self._above)
        try:
            opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self._above)
            with descriptor(opened) as handle:
                yield Staged(self, handle, Path(self.folder.real).parent / name)
        except _NotPutBackError:
            # INVARIANT: content that we did not write is never lost, not even by a race.
            raise
        except BaseException:
            shutil.rmtree(name, dir_fd=self._above)
            raise
        shutil.rmtree(name, dir_fd=self._above)


class Staged:
    def __init__(self, folder: FolderHandle, handle: int, path: Path) -> None:
        self._folder = folder
        self._handle = handle
        self._path = path

    def copy(self, source: Path) -> str:
        os.mkdir("new", 0o755, dir_fd=self._handle)
        with descriptor(os.open("new", os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self._handle)) as into:
            copy_tree(source, into)
        return found_digest(self._path / "new")

    def link(self, leads_to: str) -> str:
        os.symlink(leads_to, "new", dir_fd=self._handle)
        return found_digest(self._path / "new")

    def put(self, name: str, *, replaces: Collection[str] | None) -> None:
        """Install the staged content in the folder under `name`; see `take` for `replaces`."""
        self.take(name, replaces)
        try:
            os.rename("new", name, src_dir_fd=self._handle, dst_dir_fd=self._folder.handle)
        except OSError:
            self._put_back(name)
            raise
        os.fsync(self._folder.handle)

    def take(self, name: str, replaces: Collection[str] | None) -> bool:
        """Move `name` out of the folder; False when it does not exist.

        Content whose digest is not in `replaces` is put back (`changed-there`); None allows any.
        """
        try:
            os.rename(name, "old", src_dir_fd=self._folder.handle, dst_dir_fd=self._handle)
        except FileNotFoundError:
            return False
        # INVARIANT: checked after it was moved, so nothing that was written meanwhile is lost.
        if replaces is not None and found_digest(self._path / "old") not in replaces:
            self._put_back(name)
            place = Path(self._folder.folder.real) / name
            raise ExportError("changed-there", place, "skillhouse did not write what is there")
        return True

    def _put_back(self, name: str) -> None:
        try:
            os.rename("old", name, src_dir_fd=self._handle, dst_dir_fd=self._folder.handle)
        except FileNotFoundError:
            return
        except OSError as error:
            place = self._path / "old"
            raise _NotPutBackError(
                "not-put-back", place, f"something took the place of `{name}`, which is now here"
            ) from error


def _missing(folder: Folder) -> tuple[str, ...]:
    place = Path(folder.real)
    missing = []
    while str(place) != folder.anchor and not os.path.lexists(place):
        missing.append(str(place))
        place = place.parent
    return tuple(reversed(missing))
