"""The key of what a client keeps for us between two rounds, which a later server must accept."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from mcp.server.request_state import AESGCMRequestStateCodec, InvalidRequestState

from skillhouse.floor import StateError, make_private

KEY_FILE = "mcp-rounds.key"
"""Below the state directory; every server of the house has the same."""
KEY_BYTES = 32

_READING = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_IS_POSIX = os.name == "posix"
"""Elsewhere the directory's own protection is all there is."""


class KeptCodec:
    """Seals state with a key that outlives the process; the key is made when it is first needed.

    What is sealed is encrypted and authenticated (AES-GCM, by the SDK), so a client neither reads
    nor changes it.
    """

    def __init__(self, directory: Path) -> None:
        """Take the state directory."""
        self._path = directory / KEY_FILE
        self._codec: AESGCMRequestStateCodec | None = None

    def prepare(self) -> None:
        """Have a key.

        Raises:
            StateError: there is none that can be used, and none can be made.
        """
        if self._codec is None:
            self._codec = AESGCMRequestStateCodec([read_or_made(self._path)])

    def seal(self, payload: bytes) -> str:
        """Return a text that only this house can have made.

        Raises:
            StateError: as `prepare`.
        """
        self.prepare()
        assert self._codec is not None  # noqa: S101 - `prepare` made it.
        return self._codec.seal(payload)

    def unseal(self, token: str) -> bytes:
        """Return what was sealed.

        Raises:
            InvalidRequestState: this house did not make it, or the key is gone.
        """
        try:
            self.prepare()
        except StateError as error:
            raise InvalidRequestState(str(error)) from error
        assert self._codec is not None  # noqa: S101 - `prepare` made it.
        return self._codec.unseal(token)


def read_or_made(path: Path) -> bytes:
    """Return the key in a file that is its owner's alone; make it where there is none.

    Raises:
        StateError: it cannot be read or made, or others could have read or changed it.
    """
    try:
        make_private(path.parent)
        if not os.path.lexists(path):
            _make(path)
        return _read(path)
    except OSError as error:
        raise StateError(f"cannot use the key: {error.strerror}", path) from error


def _read(path: Path) -> bytes:
    handle = os.open(path, _READING)
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(handle)
        key = file.read(KEY_BYTES + 1) if stat.S_ISREG(info.st_mode) else b""
    if _IS_POSIX and (info.st_uid != os.geteuid() or info.st_mode & 0o077):
        raise StateError("the key is not for its owner alone; delete it, and it is made anew", path)
    if len(key) != KEY_BYTES:
        raise StateError(f"expected {KEY_BYTES} bytes; delete it, and it is made anew", path)
    return key


def _make(path: Path) -> None:
    """Put a whole key in place; of two processes that do so at once, one is first."""
    made = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(made, path, follow_symlinks=False)
    finally:
        made.unlink()
