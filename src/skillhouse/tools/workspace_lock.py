"""Keeps calls of all processes from changing a workspace while an approved call runs there.

Each holder has a file in one directory of the state, with an exclusive `flock` on it for as long as
it holds: the kernel releases that when a process dies, so a crash leaves nothing held. Workspaces
overlap when one contains the other; an exclusive holder excludes every overlapping one.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Literal

import anyio
from msgspec import Struct

from skillhouse.floor import make_private
from skillhouse.floor.lock import try_lock
from skillhouse.floor.structs import asdict, replace

BUSY_SECONDS = 5.0
"""Longest wait for others; an approval is not consumed by it."""
POLL_SECONDS = 0.01
TITLE_MAX = 200
_MUTEX = "mutex"
_SUFFIX = ".hold"

_held: contextvars.ContextVar[frozenset[str]] = contextvars.ContextVar("held", default=frozenset())


class WorkspaceLockError(Exception):
    """The lock of the workspace cannot be used; nothing was done."""

    status: Literal["denied", "error"] = "denied"
    """That of the call's result."""


class WorkspaceBusyError(WorkspaceLockError):
    """Another call kept the workspace for too long; nothing was done."""

    status = "error"


class _Hold(Struct, frozen=True, kw_only=True):
    """A call that has a workspace, or waits for it."""

    workspace: str
    exclusive: bool
    waiting: bool = False
    title: str

    def excludes(self, other: _Hold) -> bool:
        """Of two that wait, either may be first."""
        if not (self.exclusive or other.exclusive) or (self.waiting and other.exclusive):
            return False
        mine, others = Path(self.workspace), Path(other.workspace)
        return mine.is_relative_to(others) or others.is_relative_to(mine)


class WorkspaceLock:
    """The lock of one workspace, shared by all processes that keep their state in one place."""

    def __init__(self, directory: Path, workspace: Path) -> None:
        self._directory = directory
        self._workspace = os.path.realpath(workspace)

    @contextlib.asynccontextmanager
    async def hold(
        self, *, exclusive: bool, title: str, timeout_seconds: float = BUSY_SECONDS
    ) -> AsyncIterator[None]:
        """Hold the workspace for a block, in which further calls run under the same hold.
        `exclusive` lets no other call change it. Raises WorkspaceBusyError after `timeout_seconds`,
        WorkspaceLockError where the lock's files cannot be used."""
        before = _held.get()
        if self._workspace in before:
            yield
            return
        wanted = _Hold(workspace=self._workspace, exclusive=exclusive, title=title[:TITLE_MAX])
        with contextlib.ExitStack() as holding:
            try:
                await self._acquire(wanted, holding, timeout_seconds)
            except OSError as error:
                reason = (error.strerror or "input or output").lower()
                text = f"nothing was done: the workspace cannot be locked: {reason}"
                raise WorkspaceLockError(text) from error
            token = _held.set(before | {self._workspace})
            try:
                yield
            finally:
                _held.reset(token)

    async def _acquire(
        self, wanted: _Hold, holding: contextlib.ExitStack, timeout_seconds: float
    ) -> None:
        deadline = time.monotonic() + timeout_seconds
        make_private(self._directory)
        against: _Hold | None = None
        with contextlib.ExitStack() as queue:
            is_queued = False
            while True:
                with self._mutex() as is_mine:
                    if is_mine:
                        against = self._excluding(wanted)
                    if is_mine and against is None:
                        holding.enter_context(self._file(wanted))
                        return
                    if is_mine and wanted.exclusive and not is_queued:
                        # Those that come later and would share wait behind it.
                        queue.enter_context(self._file(replace(wanted, waiting=True)))
                        is_queued = True
                if time.monotonic() > deadline:
                    raise WorkspaceBusyError(_busy_text(against))
                await anyio.sleep(POLL_SECONDS)

    @contextlib.contextmanager
    def _mutex(self) -> Iterator[bool]:
        """Yield whether no other process looks at the holders' files."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(self._directory / _MUTEX, flags, 0o600)
        try:
            yield try_lock(handle)
        finally:
            os.close(handle)

    def _excluding(self, wanted: _Hold) -> _Hold | None:
        for name in sorted(os.listdir(self._directory)):
            if name.endswith(_SUFFIX):
                hold = _living(f"{self._directory}/{name}")
                if hold is not None and hold.excludes(wanted):
                    return hold
        return None

    @contextlib.contextmanager
    def _file(self, hold: _Hold) -> Iterator[None]:
        """Keep a holder's file, made under the mutex, locked in the block."""
        path = f"{self._directory}/{secrets.token_hex(8)}{_SUFFIX}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        handle = os.open(path, flags, 0o600)
        try:
            # INVARIANT: locked before the mutex is released, so that no other process takes it for
            # the file of a dead one.
            try_lock(handle)
            os.write(handle, json.dumps(asdict(hold)).encode())
            yield
        finally:
            # Removed before it is unlocked: a name that is there and unlocked is a dead holder's.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            os.close(handle)


def _living(path: str) -> _Hold | None:
    """Remove the file of a process that is gone."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        if try_lock(handle):
            os.unlink(path)
            return None
        return _Hold(**json.loads(os.read(handle, 65_536)))
    except FileNotFoundError:
        return None
    finally:
        os.close(handle)


def _busy_text(against: _Hold | None) -> str:
    running = f"`{against.title}` is running there" if against else "its lock cannot be had"
    return f"the workspace is busy: {running}; nothing was done, no approval was used: try again"
