"""The code that arrives at an executor: how much at a time, and which calls wait for which."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import IO

import anyio

from skillhouse.extensions.cells.rpc import NotBegunError, RpcRequest, message, parse
from skillhouse.sandbox.code_call import UNAVAILABLE, RpcError

UPLOADS = 4
"""Most requests whose archives arrive at one time; more wait."""
UPLOADS_EACH = 3
"""Of them from one caller, so that one who sends slowly leaves a place to the others."""
WAITING_UPLOADS = 256
"""Requests that wait for a place; more are refused with 503."""
WAIT_SECONDS = 60.0
"""Longest wait, for a place or for code that another call brings; a caller's own time is shorter
mostly, and it disconnects then."""
_DIGESTS = re.compile("(?:skilltree1|packages1):[0-9a-f]{64}")
Arrival = tuple[str, str]
"""A caller, and the digest of what it sends. Of one caller: no other can make a call wait."""


class Upload:
    """One request whose archives arrive."""

    def __init__(self, file: IO[bytes], free: Callable[[], None]) -> None:
        self.file = file
        self.arrivals: tuple[Arrival, ...] = ()
        self._free = free
        self._is_ended = False

    def end(self) -> None:
        """Free its place, and let go on who waits for it; what was sent is gone."""
        if not self._is_ended:
            self._is_ended = True
            self._free()
            # A full disk refuses what is written here at last; the file goes all the same.
            with contextlib.suppress(OSError):
                self.file.close()


class Uploads:
    """The requests whose archives arrive at one server."""

    def __init__(self, directory: Path, *, wait_seconds: float = WAIT_SECONDS) -> None:
        """Keep archives below `directory`, which nothing else writes, until they are read."""
        self._directory = directory
        self._wait_seconds = wait_seconds
        self._running: Counter[str] = Counter()
        self._arriving: Counter[Arrival] = Counter()
        self._waiting = 0
        self._changed = anyio.Event()

    @contextlib.asynccontextmanager
    async def place(self, caller: str) -> AsyncIterator[Upload]:
        """Yield an upload as soon as there is a place for it.

        Raises:
            NotBegunError: none became free in time, or too many wait.
            OSError: the disk is full.
        """
        await self._wait_for_place(caller)
        self._running[caller] += 1
        try:
            file = tempfile.NamedTemporaryFile(dir=self._directory, prefix="sent-")  # noqa: SIM115
        except OSError:
            self._free(caller, ())
            raise
        upload = Upload(file, lambda: self._free(caller, upload.arrivals))
        try:
            yield upload
        finally:
            upload.end()

    def announce(self, upload: Upload, caller: str, body: bytes) -> None:
        """Let calls that need this code wait for it, by the message that its archives follow."""
        upload.arrivals = tuple((caller, one) for one in _digests(body))
        self._arriving.update(upload.arrivals)

    async def wait_for(self, caller: str, *digests: str) -> None:
        """Return when none of these arrives from this caller any more, or it takes too long."""
        with anyio.move_on_after(self._wait_seconds):
            while any((caller, one) in self._arriving for one in digests):
                await self._changed.wait()

    async def _wait_for_place(self, caller: str) -> None:
        if self._has_place(caller):
            return
        if self._waiting >= WAITING_UPLOADS:
            raise _busy()
        self._waiting += 1
        try:
            with anyio.move_on_after(self._wait_seconds):
                while not self._has_place(caller):
                    await self._changed.wait()
        finally:
            self._waiting -= 1
        if not self._has_place(caller):
            raise _busy()

    def _has_place(self, caller: str) -> bool:
        return self._running.total() < UPLOADS and self._running[caller] < UPLOADS_EACH

    def _free(self, caller: str, arrivals: tuple[Arrival, ...]) -> None:
        self._running[caller] -= 1
        self._arriving.subtract(arrivals)
        self._running, self._arriving = +self._running, +self._arriving
        self._changed.set()
        self._changed = anyio.Event()


def _busy() -> NotBegunError:
    return NotBegunError(UNAVAILABLE, "other code is on its way here", reason="busy")


def _digests(body: bytes) -> list[str]:
    """Return the digests that a request names; none where it is no request of a call."""
    with contextlib.suppress(RpcError):
        asked = message(parse(body))
        params = asked.params if isinstance(asked, RpcRequest) else None
        return code_digests(params)
    return []


def code_digests(params: object) -> list[str]:
    """Return the digests of the code that the params of a call name.

    >>> code_digests({"context": {"digest": "skilltree1:" + "0" * 64}})[0][:14]
    'skilltree1:000'
    """
    context = params.get("context") if isinstance(params, dict) else None
    if not isinstance(context, dict):
        return []
    named = (context.get("digest"), context.get("packages_digest"))
    return [one for one in named if isinstance(one, str) and _DIGESTS.fullmatch(one)]
