"""Puts a directory or a link into a client's folder, and takes it out, each in one step."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from skillhouse.clients.exports.export_state import ExportError
from skillhouse.clients.exports.folders import Folder
from skillhouse.clients.exports.trees import copy_tree, found_digest
from skillhouse.floor import PathError, open_directory_beneath

STAGING = ".skillhouse-"
"""Begins the name of a directory in which things are made ready, beside the folder: in the folder
itself a client would list them."""


class _NotPutBackError(ExportError):
    """What was taken out could not be put back; it stays where it is."""


class FolderHandle:
    """An open folder of a client; nothing is reached through a link."""

    def __init__(self, folder: Folder, *, create: bool) -> None:
        """Open the folder.

        Raises:
            ExportError: it is not there, or was swapped for a link since it was looked at.
        """
        self.folder = folder
        self.made: tuple[str, ...] = ()
        if os.open not in os.supports_dir_fd:  # pragma: no cover - Windows
            message = "this system has no directory descriptors, without which nothing is written"
            raise ExportError("no-descriptors", Path(folder.real), message)
        if create:
            self.made = _missing(folder)
        try:
            self._folder = open_directory_beneath(Path(folder.anchor), folder.inside, create=create)
            above = Path(folder.inside).parent.as_posix()
            self._above = open_directory_beneath(Path(folder.anchor), above)
        except PathError as error:
            message = "the folder cannot be opened without following a link"
            if error.code != "path-link":
                message = f"the folder cannot be opened ({error.code})"
            raise ExportError(error.code, Path(folder.path), message) from error

    def close(self) -> None:
        """Close the descriptors."""
        os.close(self._folder)
        os.close(self._above)

    def __enter__(self) -> FolderHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def staging(self) -> Iterator[Staged]:
        """Hold a directory of our own beside the folder; it is gone with all in it at the end."""
        name = f"{STAGING}{secrets.token_hex(8)}"
        os.mkdir(name, 0o700, dir_fd=self._above)
        try:
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self._above)
            try:
                yield Staged(self, handle, Path(self.folder.real).parent / name)
            finally:
                os.close(handle)
        except _NotPutBackError:
            # INVARIANT: what somebody else wrote is never lost, not even by a race.
            raise
        except BaseException:
            shutil.rmtree(name, dir_fd=self._above)
            raise
        shutil.rmtree(name, dir_fd=self._above)

    @property
    def handle(self) -> int:
        """Descriptor of the folder."""
        return self._folder


class Staged:
    """A thing made ready, and the swap that puts it in its place."""

    def __init__(self, hands: FolderHandle, handle: int, path: Path) -> None:
        self._hands = hands
        self._handle = handle
        self._path = path

    def copy(self, source: Path) -> str:
        """Copy a skill's directory here and return the digest of what was written.

        Raises:
            ExportError: it cannot be copied.
        """
        os.mkdir("new", 0o755, dir_fd=self._handle)
        into = os.open("new", os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self._handle)
        try:
            copy_tree(source, into)
        finally:
            os.close(into)
        return found_digest(self._path / "new")

    def link(self, leads_to: str) -> str:
        """Make a symbolic link here and return what stands for its digest."""
        os.symlink(leads_to, "new", dir_fd=self._handle)
        return found_digest(self._path / "new")

    def put(self, name: str, *, replaces: Collection[str] | None) -> None:
        """Put what was made ready into the folder, in the place of what is there.

        Args:
            name: Its name in the folder.
            replaces: Digests of what may be replaced; None replaces whatever is there.

        Raises:
            ExportError: something else is there; it is left, or put back, as it was.
        """
        self.take(name, replaces)
        try:
            os.rename("new", name, src_dir_fd=self._handle, dst_dir_fd=self._hands.handle)
        except OSError:
            self._put_back(name)
            raise
        os.fsync(self._hands.handle)

    def take(self, name: str, replaces: Collection[str] | None) -> bool:
        """Take what is there out of the folder; whether there was anything.

        Raises:
            ExportError: it is not one of `replaces`; it is put back.
        """
        try:
            os.rename(name, "old", src_dir_fd=self._hands.handle, dst_dir_fd=self._handle)
        except FileNotFoundError:
            return False
        # INVARIANT: looked at after it was taken, so nothing that came meanwhile is lost.
        if replaces is not None and found_digest(self._path / "old") not in replaces:
            self._put_back(name)
            place = Path(self._hands.folder.real) / name
            raise ExportError("changed-there", place, "something that we did not write is there")
        return True

    def _put_back(self, name: str) -> None:
        try:
            os.rename("old", name, src_dir_fd=self._handle, dst_dir_fd=self._hands.handle)
        except FileNotFoundError:
            return
        except OSError as error:
            place = self._path / "old"
            raise _NotPutBackError(
                "not-put-back", place, f"something took the place of `{name}`, which is now here"
            ) from error


def _missing(folder: Folder) -> tuple[str, ...]:
    """Return the directories of a folder's path that are not there, outermost first."""
    place = Path(folder.real)
    missing = []
    while str(place) != folder.anchor and not os.path.lexists(place):
        missing.append(str(place))
        place = place.parent
    return tuple(reversed(missing))


def remove_empty(directories: Collection[str]) -> tuple[str, ...]:
    """Remove directories that are empty, innermost first; return those that are still there."""
    left = []
    for directory in reversed(tuple(directories)):
        try:
            os.rmdir(directory)
        except FileNotFoundError:
            continue
        except OSError:
            left.append(directory)
    return tuple(reversed(left))
