"""Results that are too long for a model, each kept in a file for the conversation that got it.

A file is named in the result, and `read` opens it for that conversation alone: what a session may
read is looked up in a table of this process, and never found by a path. The directory of a process
is removed when it ends; that of a killed one by whoever looks next, who finds its lock free: the
kernel gives a lock back whatever ends a process, and process ids come back or are another's inside
a container.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from skillhouse.floor import PathError, dataclass, make_private, read_beneath
from skillhouse.floor.lock import try_lock
from skillhouse.tools.call import RefusedError
from skillhouse.tools.excerpt import KeptFile
from skillhouse.tools.tool import Session

DIRECTORY = "results"
"""Below the directory of the state, which no command and no other tool reads."""
SESSION_FILES = 100
"""Results of one conversation that are kept."""
SESSION_BYTES = 16 << 20
TOTAL_FILES = 1_000
"""Results of all conversations of one process that are kept."""
TOTAL_BYTES = 64 << 20
WHOLE_CHANNELS = frozenset({"cli"})
"""Channels whose results are for the caller's own screen or pipe: `skillhouse call` ends with its
call, so that its process could keep nothing for later."""
_LOCK = ".lock"
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)

_Owner = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """A long result that is kept."""

    owner: _Owner
    name: str
    size: int
    digest: bytes


def gets_whole(session: Session) -> bool:
    """Whether a call's result goes to no model: skill code, whose own result is bounded in turn,
    or a command line."""
    return bool(session.origin_digest) or session.channel in WHOLE_CHANNELS


class ResultFiles:
    """The long results of one process.

    INVARIANT: a file is given only to the session that it was made for, and only while it holds
    the bytes that were written.
    """

    def __init__(
        self,
        state_directory: Path,
        *,
        hide: Callable[[str], str] = str,
        session_files: int = SESSION_FILES,
        session_bytes: int = SESSION_BYTES,
        total_files: int = TOTAL_FILES,
        total_bytes: int = TOTAL_BYTES,
    ) -> None:
        """`hide` takes out of a text what no file may hold."""
        self.directory = state_directory / DIRECTORY
        self.hide = hide
        self._session_bounds = (session_files, session_bytes)
        self._bounds = (total_files, total_bytes)
        self._kept: OrderedDict[str, _Result] = OrderedDict()
        """By path, oldest first."""
        # INVARIANT: held to read or change what is kept; calls come on several threads.
        self._lock = threading.Lock()
        self._own: Path | None = None
        self._remove: weakref.finalize[[Path, int, int], ResultFiles] | None = None

    def keep(self, session: Session, text: str) -> KeptFile:
        """Write a text for a session; OSError if it cannot be written."""
        data = text.encode("utf-8", "replace")
        with self._lock:
            directory = self._own_directory()
        name = f"{secrets.token_hex(16)}.txt"
        path = str(directory / name)
        _write(path, data)
        result = _Result(
            owner=_owner(session), name=name, size=len(data), digest=hashlib.sha256(data).digest()
        )
        with self._lock:
            self._kept[path] = result
            gone = self._beyond(result.owner)
        _unlink(gone)
        return KeptFile(path=path, size=len(data))

    def holds(self, path: str) -> bool:
        """Whether a path is one of a result, of whomever and whenever."""
        return path.startswith(f"{self.directory}/")

    def check(self, session: Session, path: str) -> None:
        """Raise RefusedError for a path that is no result of this session, or not any more."""
        self._known(session, path)

    def text(self, session: Session, path: str) -> str:
        """Return a result of this session; RefusedError for any other, or one that is gone."""
        result = self._known(session, path)
        try:
            data = read_beneath(Path(path).parent, result.name, max_bytes=result.size)
        except (PathError, OSError):
            data = b""
        if hashlib.sha256(data).digest() != result.digest:
            self._forget([path])
            message = f"the result in `{path}` was changed or removed; make the call again"
            raise RefusedError(message)
        return data.decode("utf-8")

    def _known(self, session: Session, path: str) -> _Result:
        with self._lock:
            result = self._kept.get(path)
        if result is None or result.owner != _owner(session):
            # One answer for both: whether another session has it is not for this one to know.
            raise RefusedError(
                f"no result of this conversation is in `{path}`: only the newest "
                f"{self._session_bounds[0]} are kept, and none for longer than the conversation; "
                "make the call again"
            )
        return result

    def end_connection(self, connection: str) -> None:
        """Remove the results of all sessions of a connection."""
        self._forget_where(lambda owner: owner[-1] == connection)

    def end(self, session: Session) -> None:
        """Remove the results of a session."""
        ended = _owner(session)
        self._forget_where(lambda owner: owner == ended)

    def close(self) -> None:
        """Remove all results; later ones are kept again."""
        with self._lock:
            remove, self._remove, self._own = self._remove, None, None
            self._kept.clear()
        if remove is not None:
            remove()

    def sweep(self) -> None:
        """Remove what processes left behind that were killed."""
        try:
            names = os.listdir(self.directory)
        except OSError:
            return
        for name in names:
            if name.endswith(_LOCK):
                _sweep(self.directory / name)

    def _own_directory(self) -> Path:
        if self._own is None:
            make_private(self.directory)
            own, handle = _claimed(self.directory)
            self._remove = weakref.finalize(self, _remove, own, handle, os.getpid())
            self._own = own
        # Something that cleans up may have taken it.
        self._own.mkdir(mode=0o700, exist_ok=True)
        return self._own

    def _beyond(self, owner: _Owner) -> list[str]:
        """Forget the oldest results beyond the bounds, first of one session; return their paths."""
        own = [path for path, result in self._kept.items() if result.owner == owner]
        gone = self._oldest(own, *self._session_bounds)
        return gone + self._oldest(list(self._kept), *self._bounds)

    def _oldest(self, paths: list[str], files: int, size: int) -> list[str]:
        used = sum(self._kept[path].size for path in paths)
        gone = []
        # The newest stays: it is the one that was just named.
        for place, path in enumerate(paths[:-1]):
            if len(paths) - place <= files and used <= size:
                break
            used -= self._kept.pop(path).size
            gone.append(path)
        return gone

    def _forget_where(self, is_ended: Callable[[_Owner], bool]) -> None:
        with self._lock:
            paths = [path for path, result in self._kept.items() if is_ended(result.owner)]
        self._forget(paths)

    def _forget(self, paths: list[str]) -> None:
        with self._lock:
            for path in paths:
                self._kept.pop(path, None)
        _unlink(paths)


def _owner(session: Session) -> _Owner:
    return (
        session.agent,
        session.user,
        session.channel,
        session.client,
        session.id,
        session.connection,
    )


def _claimed(directory: Path) -> tuple[Path, int]:
    """Make a directory of this process, and hold the lock beside it."""
    while True:
        own = directory / f"{os.getpid()}-{secrets.token_hex(8)}"
        lock = own.with_name(own.name + _LOCK)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _CLOEXEC
        handle = os.open(lock, flags, 0o600)
        # Whoever sweeps may have found it before it was held, and removes it.
        if try_lock(handle) and lock.exists():
            own.mkdir(mode=0o700)
            return own, handle
        os.close(handle)


def _write(path: str, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
    except OSError:
        # The disk may be full: half a file is no result, and takes room.
        _unlink([path])
        raise


def _unlink(paths: list[str]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _sweep(lock: Path) -> None:
    """Remove a directory whose process is gone; one that runs holds the lock."""
    try:
        handle = os.open(lock, os.O_RDWR | _NOFOLLOW | _CLOEXEC)
    except OSError:
        return
    try:
        if try_lock(handle):
            _remove_all(lock.with_name(lock.name.removesuffix(_LOCK)))
    except OSError:
        # A file system without locks: whether it is in use cannot be known.
        return
    finally:
        os.close(handle)


def _remove(own: Path, handle: int, process: int) -> None:
    # A forked child has the same descriptor, and nothing of its own here.
    if os.getpid() == process:
        _remove_all(own)
        os.close(handle)


def _remove_all(own: Path) -> None:
    shutil.rmtree(own, ignore_errors=True)
    _unlink([f"{own}{_LOCK}"])
