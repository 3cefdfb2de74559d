"""The stop as a file of its own, which needs neither the database nor space on the disk.

INVARIANT: the file's name is the stop, and its content only says why. Renaming a file that is
there already takes no block and no inode, so a full disk does not prevent it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

from skillhouse.floor import StateError, make_private

READY, STOPPED = "ready", "stopped"
SIZE = 8_192
"""Bytes of the file: a reason of 500 and a name of 200 characters fit, escaped too."""
BY_MAX, REASON_MAX = 200, 500
_SAFELY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Neither through a link nor waiting for the other end of a pipe; Windows has no such flags."""


class StopMark:
    """A file that is called `stopped` while everything is stopped, and `ready` otherwise."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ready = os.fspath(directory / READY)
        self._stopped = os.fspath(directory / STOPPED)

    def reason(self) -> str:
        """Return why everything is stopped, or "".

        Raises:
            StateError: it cannot be found out.
        """
        try:
            os.lstat(self._stopped)
        except FileNotFoundError:
            return ""
        except (OSError, ValueError) as error:
            message = f"the state cannot be looked at: {error}"
            raise StateError(message, Path(self._stopped)) from error
        return self._said()

    def prepare(self) -> None:
        """Make the file that a stop renames, with its blocks, while there is space for it.

        Raises:
            OSError: there is none; a stop then has to make the file.
        """
        if os.path.lexists(self._ready) or os.path.lexists(self._stopped):
            return
        make_private(self.directory)
        with contextlib.suppress(FileExistsError):  # Another process was faster.
            self._write(b"", os.O_EXCL)

    def give(self, by: str, reason: str) -> bool:
        """Stop everything; False when this file said so before.

        Raises:
            StateError: the file could not be given its name, or a power cut may lose it.
        """
        try:
            if self.reason():
                return False
            make_private(self.directory)
            said = {"by": by[:BY_MAX], "reason": reason[:REASON_MAX]}
            data = json.dumps(said, ensure_ascii=False).encode(errors="backslashreplace")
            is_written = False
            # A disk that copies on write may have no space even for this; the name is enough.
            with contextlib.suppress(OSError):
                self._write(data)
                is_written = True
            os.rename(self._ready, self._stopped)
            # Only now, as a busy disk takes its time, and others are to see the name at once.
            if is_written:
                self._sync(self._stopped)
            self._sync(self.directory)
        except (OSError, ValueError) as error:
            message = f"the file of the stop cannot be written: {error}"
            raise StateError(message, Path(self._stopped)) from error
        return True

    def lift(self) -> bool:
        """Let everything go on; False when this file did not stop it.

        Raises:
            StateError: it is as it was.
        """
        try:
            # A power cut may bring the old name back, and that is the safe one.
            os.rename(self._stopped, self._ready)
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            message = f"the file of the stop cannot be renamed: {error}"
            raise StateError(message, Path(self._stopped)) from error
        return True

    def _write(self, data: bytes, flags: int = 0) -> None:
        """Write the whole file in place, so that it keeps the blocks that it has."""
        handle = os.open(self._ready, os.O_WRONLY | os.O_CREAT | _SAFELY | flags, 0o600)
        try:
            os.write(handle, data.ljust(SIZE))
        finally:
            os.close(handle)

    @staticmethod
    def _sync(path: str | Path) -> None:
        """Put it on the disk."""
        if sys.platform == "win32":  # pragma: no cover - directories cannot be opened there
            return
        handle = os.open(path, os.O_RDONLY | _SAFELY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _said(self) -> str:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            handle = os.open(self._stopped, os.O_RDONLY | _SAFELY)
            try:
                said = json.loads(os.read(handle, SIZE))
            finally:
                os.close(handle)
            return f"{said['reason']!s:.{REASON_MAX}} (by {said['by']!s:.{BY_MAX}})"
        return f"the file `{self._stopped}` says so"
