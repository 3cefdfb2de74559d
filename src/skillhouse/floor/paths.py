"""Paths from outside, checked as text and walked without leaving their base; and whole files.

Also the directories of programs in which no project chose what a program is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from skillhouse.floor.errors import ConfigError, PathError

ASSET_DIRECTORIES = ("references", "scripts", "assets")
"""The directories that mode "asset" allows (S003-49 to S003-51)."""

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
_DIRECTORY = getattr(os, "O_DIRECTORY", 0)

_MISSING = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}


@contextlib.contextmanager
def descriptor(handle: int) -> Iterator[int]:
    """Give an open descriptor, and close it at the end of the block."""
    try:
        yield handle
    finally:
        os.close(handle)


def sync_directory(directory: Path) -> None:
    """Make the names of a directory durable, where the system can."""
    if _DIRECTORY:  # pragma: no branch - Windows cannot open one.
        with descriptor(os.open(directory, os.O_RDONLY | _DIRECTORY | _CLOEXEC)) as handle:
            os.fsync(handle)


def is_below(path: str | Path, base: str | Path) -> bool:
    """Whether a normal path is a directory or below it, by its text.

    `Path.is_relative_to` goes through all directories above on Python 3.12: the square of a path's
    length, which who gives the path chooses.

    >>> is_below("/a/b", "/a"), is_below("/ab", "/a"), is_below("/a", "/")
    (True, False, True)
    """
    whole, above = os.path.normcase(path), os.path.normcase(base)
    return bool(above) and f"{whole}{os.sep}".startswith(above.rstrip(os.sep) + os.sep)


def checked_parts(relative: str, base: Path, *, mode: str = "any") -> tuple[str, ...]:
    """Return the segments of `relative`, refused (`PathError`) as vectors/README.md orders it."""
    code = _text_finding(relative)
    if code is None:
        parts = tuple(part for part in relative.split("/") if part not in ("", "."))
        if mode == "any" or (parts and parts[0] in ASSET_DIRECTORIES):
            return parts
        code = "path-prefix"
    raise PathError(code, relative, base)


def _text_finding(relative: str) -> str | None:
    if not relative:
        return "path-empty"
    if "\0" in relative:
        return "path-nul"
    if relative[1:2] == ":" and relative[0].isascii() and relative[0].isalpha():
        return "path-drive"
    if "\\" in relative:
        return "path-backslash"
    if relative.startswith("/"):
        return "path-absolute"
    if ".." in relative.split("/"):
        return "path-parent"
    return None


def confine(base: Path, relative: str, *, mode: str = "any") -> Path:
    """Return the regular file `relative` under `base`, links followed as long as they stay inside.

    The answer holds for the moment of the call only: open it with `open_beneath` if others can
    write there. Mode "asset" allows references/, scripts/ and assets/ only. The `code` of a
    `PathError` says why a path is refused (vectors/paths.jsonl).
    """
    parts = checked_parts(relative, base, mode=mode)
    root = os.path.realpath(base)
    current = root
    try:
        for part in parts:
            current = os.path.join(current, part)
            if stat.S_ISLNK(os.lstat(current).st_mode):
                # realpath does not fail on a missing target, so a link that leaves differs from
                # one that dangles inside.
                target = os.path.realpath(current)
                if not is_below(target, root):
                    raise PathError("path-escape", relative, base)
                os.stat(current)
                current = target
        kind = os.stat(current).st_mode
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) or error.errno in _MISSING:
            raise PathError("not-found", relative, base) from None
        raise PathError("unreadable", relative, base) from error
    if not stat.S_ISREG(kind):
        raise PathError("not-a-file", relative, base)
    return Path(current)


def open_beneath(base: Path, relative: str, *, flags: int = os.O_RDONLY) -> int:
    """Return a descriptor of the regular file `relative`, opened beneath `base` without links.

    Each part is opened relative to the descriptor of the one before with `O_NOFOLLOW`, so a
    directory that is swapped for a link while we walk cannot lead outside. Links are refused
    (`path-link`), also those that stay inside: `confine` first where they are wanted.
    """
    parts = checked_parts(relative, base)
    if not parts:
        raise PathError("not-a-file", relative, base)
    if os.open not in os.supports_dir_fd:  # pragma: no cover - Windows
        return os.open(confine(base, relative), flags | _CLOEXEC)
    handle = _open(base, relative, str(base), _DIRECTORY | os.O_RDONLY, None)
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        # O_NONBLOCK: opening a FIFO that has no writer must not hang.
        want = (flags | _NONBLOCK) if last else (os.O_RDONLY | _DIRECTORY)
        with descriptor(handle):
            below = _open(base, relative, part, want | _NOFOLLOW, handle)
        handle = below
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise PathError("not-a-file", relative, base)
    return handle


def open_directory_beneath(base: Path, relative: str, *, create: bool = False) -> int:
    """Return a descriptor of the directory `relative` (or "." for `base`), opened without links.

    The codes of a `PathError` are those of `open_beneath`; `not-found` also for a part that is a
    file.
    """
    parts = checked_parts(relative, base)
    handle = _open(base, relative, str(base), _DIRECTORY | os.O_RDONLY, None)
    for part in parts:
        try:
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=handle)
            below = _open(base, relative, part, os.O_RDONLY | _DIRECTORY | _NOFOLLOW, handle)
        except OSError as error:
            raise PathError("unreadable", relative, base) from error
        except ValueError:
            # Half a surrogate pair, which no name of a file has.
            raise PathError("not-found", relative, base) from None
        finally:
            os.close(handle)
        handle = below
    return handle


def _open(base: Path, relative: str, part: str, flags: int, handle: int | None) -> int:
    try:
        return os.open(part, flags | _CLOEXEC, 0o600, dir_fd=handle)
    except OSError as error:
        if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and _is_link(part, handle)):
            raise PathError("path-link", relative, base) from None
        if error.errno in _MISSING:
            raise PathError("not-found", relative, base) from None
        if error.errno in (errno.EISDIR, errno.ENXIO):
            raise PathError("not-a-file", relative, base) from None
        raise PathError("unreadable", relative, base) from error
    except ValueError:
        # Half a surrogate pair, which no name of a file has.
        raise PathError("not-found", relative, base) from None


def _is_link(part: str, handle: int | None) -> bool:
    try:
        return stat.S_ISLNK(os.stat(part, dir_fd=handle, follow_symlinks=False).st_mode)
    except OSError:
        return False


def read_beneath(base: Path, relative: str, *, max_bytes: int) -> bytes:
    """Return at most `max_bytes + 1` bytes of a file beneath `base`; longer means too large."""
    handle = open_beneath(base, relative)
    with os.fdopen(handle, "rb") as file:
        return file.read(max_bytes + 1)


def file_stamp(path: Path, *, follow_symlinks: bool = True) -> tuple[int, ...]:
    """Return what changes when a file is replaced or written; nothing for one that is not there."""
    try:
        info = os.stat(path, follow_symlinks=follow_symlinks)
    except OSError:
        return ()
    return (info.st_ino, info.st_mtime_ns, info.st_size)


def is_utf8(text: str) -> bool:
    """Whether a name of the file system was UTF-8 (undecodable bytes come as surrogates)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def sendable(text: str) -> str:
    r"""Return a text that can be encoded: names of files may hold bytes that are not Unicode.

    >>> print(sendable("caf\udce9"))
    caf\udce9
    """
    return text.encode("utf-8", "backslashreplace").decode()


_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Return what is in a regular file, or in the one that a link leads to; else `ConfigError`."""
    try:
        # O_NONBLOCK: opening a FIFO that has no writer must not hang.
        handle = os.open(path, os.O_RDONLY | _CLOEXEC | _NONBLOCK)
    except OSError:
        # A socket cannot be opened at all.
        if path.is_socket():
            raise ConfigError("expected a regular file, got a socket", path=path) from None
        raise
    return read_opened(handle, path, max_bytes)


def read_opened(handle: int, path: Path, max_bytes: int) -> bytes:
    """Return what is in a regular file that is open; else `ConfigError`. It is closed then."""
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise ConfigError(f"expected a regular file, got {kind}", path=path)
    with os.fdopen(handle, "rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ConfigError(f"expected at most {max_bytes} bytes", path=path)
    return data


@contextlib.contextmanager
def write_atomically(path: Path, *, mode: int = 0o600, durable: bool = False) -> Iterator[BinaryIO]:
    """Give a new file that replaces `path` at the end; after an error nothing has changed.

    A link at `path` is replaced itself. With `durable`, wait until the disk has the file and its
    name.
    """
    beside = path.with_name(f".{os.urandom(8).hex()}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CLOEXEC | _NOFOLLOW, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    if durable:
        sync_directory(path.parent)


def git_root(start: Path) -> Path | None:
    """Return the nearest directory from `start` upwards that is a work tree of git."""
    place = os.fspath(start)
    if os.path.lexists(os.path.join(place, ".git")):
        return start
    return next((one for one in start.parents if os.path.lexists(f"{one}/.git")), None)


ADDRESS_MAX = 107
"""Bytes of an address without its final NUL: `sun_path` of unix(7) has 108."""


@contextlib.contextmanager
def unix_address(path: Path) -> Iterator[str]:
    """Yield an address by which the socket at `path` can be bound or connected to meanwhile.

    A path is limited to 107 bytes, which a temporary directory may have alone. On Linux the
    directory's descriptor names it shortly; elsewhere the address is the path.

    Raises:
        OSError: the directory cannot be opened.
    """
    if not sys.platform.startswith("linux") or len(os.fsencode(path)) <= ADDRESS_MAX:
        yield str(path)
        return
    descriptor = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)


def safe_path(environment: Mapping[str, str], start: Path) -> str:
    """Return `PATH` without relative folders and those of the project around `start`.

    `npx` and activated environments put folders of the project first, and an empty entry is the
    current directory: an untrusted project would choose what `npm` is.
    """
    project = os.path.realpath(git_root(start) or start)
    entries = environment.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(
        entry
        for entry in entries
        if os.path.isabs(entry) and not Path(os.path.realpath(entry)).is_relative_to(project)
    )
