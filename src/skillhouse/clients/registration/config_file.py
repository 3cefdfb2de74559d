"""A client's configuration file: read whole, and replaced in one step when it did not change."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from skillhouse.floor import (
    PathError,
    SkillhouseError,
    digest,
    make_private,
    open_directory_beneath,
)

CONFIG_MAX = 16 * 1024 * 1024
"""Bytes of a client's configuration; Claude Code's grows with every project."""

_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
# Opening a FIFO must not hang.
_READ |= getattr(os, "O_NONBLOCK", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)


class ConfigFileError(SkillhouseError):
    """A client's file is not to be edited; `code` says why, and nothing was changed."""

    def __init__(self, code: str, path: Path, message: str) -> None:
        super().__init__(f"{message}: `{path}`")
        self.code = code
        self.path = path


class ConfigFile:
    """One file, as it was when it was read."""

    def __init__(self, path: Path, *, bound: Path, may_be_outside: bool) -> None:
        """Find out where the file truly is, and read it.

        Args:
            path: As the client has it; links may be in it.
            bound: Home or the project, which no link may lead out of.
            may_be_outside: Whether a path without links may lie elsewhere: a person can name
                a directory by a variable.

        Raises:
            ConfigFileError: a link leads out, it is no regular file or not ours, or too large.
        """
        self.path = path
        self.real = Path(os.path.realpath(path))
        anchor = Path(os.path.realpath(bound))
        if not self.real.is_relative_to(anchor):
            if not may_be_outside or str(self.real) != os.path.abspath(path):
                raise self._error("link-escape", f"a link leads out of `{bound}`; edit it yourself")
            anchor = Path(self.real.anchor)
        self._anchor = anchor
        self._inside = self.real.parent.relative_to(anchor).as_posix()
        self._data, self._mode = self._read()

    @property
    def exists(self) -> bool:
        """Whether there is such a file."""
        return self._data is not None

    @property
    def text(self) -> str:
        """What is in it.

        Raises:
            ConfigFileError: it is not UTF-8.
        """
        try:
            return (self._data or b"").decode()
        except UnicodeDecodeError:
            raise self._error("not-text", "expected UTF-8 text") from None

    def write(self, text: str, *, mode: int) -> None:
        """Replace the file in one step.

        Args:
            text: What is to be in it.
            mode: Permissions of a new file; those of an old one stay.

        Raises:
            ConfigFileError: it changed since it was read; nothing was changed.
        """
        handle = self._directory(create=True)
        name = f".{self.real.name}.{secrets.token_hex(8)}"
        try:
            made = os.open(name, _CREATE, 0o600, dir_fd=handle)
            try:
                with os.fdopen(made, "wb") as file:
                    file.write(text.encode())
                    file.flush()
                    os.fchmod(file.fileno(), mode if self._mode is None else self._mode)
                    os.fsync(file.fileno())
                self._refuse_if_changed()
                os.rename(name, self.real.name, src_dir_fd=handle, dst_dir_fd=handle)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=handle)
                raise
            os.fsync(handle)
        finally:
            os.close(handle)

    def remove(self) -> None:
        """Remove the file.

        Raises:
            ConfigFileError: it changed since it was read.
        """
        handle = self._directory(create=False)
        try:
            self._refuse_if_changed()
            os.unlink(self.real.name, dir_fd=handle)
        finally:
            os.close(handle)

    def back_up(self, directory: Path) -> Path | None:
        """Keep the file as it is, once; return where, or None when there is nothing to keep."""
        if self._data is None:
            return None
        make_private(directory)
        mark = digest(os.fsencode(self.real)).removeprefix("sha256:")[:16]
        place = directory / f"{mark}-{self.real.name}"
        try:
            handle = os.open(place, _CREATE, 0o600)
        except FileExistsError:
            return place
        with os.fdopen(handle, "wb") as file:
            file.write(self._data)
            file.flush()
            os.fsync(file.fileno())
        return place

    def _refuse_if_changed(self) -> None:
        # The client may write the file itself; what is left of the race is one rename.
        if self._read()[0] != self._data:
            raise self._error("changed-meanwhile", "somebody changed it meanwhile; try again")

    def _read(self) -> tuple[bytes | None, int | None]:
        try:
            handle = self._directory(create=False)
        except ConfigFileError as error:
            if error.code == "not-found":
                return None, None
            raise
        try:
            file = os.open(self.real.name, _READ, dir_fd=handle)
        except FileNotFoundError:
            return None, None
        except OSError as error:
            raise self._error("unreadable", (error.strerror or "unreadable").lower()) from error
        finally:
            os.close(handle)
        with os.fdopen(file, "rb") as opened:
            info = os.fstat(opened.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise self._error("not-a-file", "expected a regular file")
            if info.st_uid != os.geteuid():
                raise self._error("not-ours", "it belongs to somebody else; edit it yourself")
            if info.st_nlink > 1:
                # A new file in its place would part from its other names.
                raise self._error("hard-links", "it has several hard links; edit it yourself")
            data = opened.read(CONFIG_MAX + 1)
        if len(data) > CONFIG_MAX:
            raise self._error("too-large", f"expected at most {CONFIG_MAX} bytes")
        return data, stat.S_IMODE(info.st_mode)

    def _directory(self, *, create: bool) -> int:
        if os.open not in os.supports_dir_fd:  # pragma: no cover - Windows
            raise self._error("no-descriptors", "this system has no directory descriptors")
        try:
            return open_directory_beneath(self._anchor, self._inside, create=create)
        except PathError as error:
            code = error.code
            if code == "unreadable" and not os.path.lexists(self.real.parent):
                code = "not-found"
            raise self._error(code, f"its directory cannot be opened ({code})") from error

    def _error(self, code: str, message: str) -> ConfigFileError:
        return ConfigFileError(code, self.path, message)
