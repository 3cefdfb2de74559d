"""Whether this server takes work, and its end: requests that run are answered before it goes.

A balancer asks `/readyz` and sends nothing more once that is 503. It learns so only when it asks
next, so until then requests are answered as before, each on a connection that ends with it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread
from anyio.lowlevel import RunVar

from skillhouse.approval import LiveServers
from skillhouse.floor import SkillhouseError
from skillhouse.floor.threads import of_loop
from skillhouse.house import SkillBundleSource, Skillhouse
from skillhouse.store import STATE, STATE_FILE, pooled

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from skillhouse.answers.service import ReadyReason

HEALTH_PATH = "/healthz"
READY_PATH = "/readyz"
PROBE_PATHS = frozenset((HEALTH_PATH, READY_PATH))
DRAIN_SECONDS = 20.0
"""How long requests that run are waited for after SIGTERM; 10 less than what Kubernetes waits."""
QUIET_SECONDS = 1.0
"""Without a request, after a balancer has seen 503: then it has heard of it."""
NOTICE_SECONDS = 3.0
"""After which a balancer that asked before, and does so no more, knows it in another way."""
PROBED_SECONDS = 60.0
"""Age of the last probe from which nothing asks any more, and no notice is needed."""
LOOK_SECONDS = 0.5
"""How long what was found of the state is answered to more probes."""
STATE_SECONDS = 2.0
"""After which a state that does not answer is one that cannot be used."""


class Readiness:
    """Says why this server is to get no work now, if it is so."""

    def __init__(
        self,
        house: Skillhouse,
        servers: LiveServers,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` gives seconds."""
        self._house = house
        self._servers = servers
        self._clock = clock
        self._state_path = house.config.state_directory / STATE_FILE
        self._lock = threading.Lock()
        self._looked: tuple[float, tuple[ReadyReason, ...]] | None = None
        self._at_drain: list[Callable[[], object]] = []
        self._limiter: RunVar[anyio.CapacityLimiter] = RunVar("readiness")
        self._needed: list[tuple[ReadyReason, Callable[[], bool]]] = []
        self._ended: tuple[ReadyReason, ...] = ()
        self.is_draining = False

    def needs(self, reason: ReadyReason, runs: Callable[[], bool]) -> None:
        """Give a reason while something that is to run beside requests does not."""
        self._needed.append((reason, runs))

    @asynccontextmanager
    async def beside(
        self, reason: ReadyReason, context: AbstractAsyncContextManager[None]
    ) -> AsyncIterator[None]:
        """Hold the context of what runs beside requests, and give the reason once it has failed.

        A fault of one ends all that are held with it; the reason is that of the one that failed.
        """
        try:
            async with context:
                yield
        except Exception:
            self._ended = self._ended or (reason,)
            raise

    def at_drain(self, work: Callable[[], object]) -> None:
        """Have something done when the end of this server begins."""
        self._at_drain.append(work)

    def begin_drain(self) -> None:
        """Do what is to be done then; called on the event loop."""
        for work in self._at_drain:
            work()

    async def reasons(self) -> tuple[ReadyReason, ...]:
        """Return why it is not ready; empty when it is."""
        found: tuple[ReadyReason, ...] = ("state",)
        with anyio.move_on_after(STATE_SECONDS):
            # Not `in_thread`, which waits for work that was begun: that may hang at the state.
            found = await to_thread.run_sync(
                self._found, abandon_on_cancel=True, limiter=of_loop(self._limiter, 2)
            )
        # Looked at on the event loop: a state that hangs hides none of them.
        ended = [reason for reason, runs in self._needed if not runs()]
        draining: tuple[ReadyReason, ...] = ("draining",) if self.is_draining else ()
        return (*draining, *found, *self._ended, *ended)

    def _found(self) -> tuple[ReadyReason, ...]:
        """Return what is so now, or was a moment ago."""
        with self._lock:
            now = self._clock()
            if self._looked is not None and now - self._looked[0] < LOOK_SECONDS:
                return self._looked[1]
            found: list[ReadyReason] = []
            if not (self._servers.is_reached() and self._can_write()):
                found.append("state")
            self._house.config_reload.check()
            if self._house.config_reload.fault:
                found.append("configuration")
            config = self._house.config
            if config.skills.source and not SkillBundleSource(config).is_here():
                found.append("skills")
            self._looked = (self._clock(), tuple(found))
            return tuple(found)

    def _can_write(self) -> bool:
        try:
            # An empty transaction: it takes the lock of writers, and changes nothing.
            with pooled(self._state_path, STATE) as store, store.transaction() as connection:
                connection.execute("SELECT 1").fetchone()
        except (SkillhouseError, OSError):
            return False
        return True


class DrainControl:
    """An ASGI application in front of another: counts its requests, and says when it may end."""

    def __init__(
        self,
        app: ASGIApp,
        readiness: Readiness,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` gives seconds."""
        self._app = app
        self._readiness = readiness
        self._clock = clock
        self._running = 0
        self._last_request = self._last_probe = float("-inf")
        self._began = 0.0
        self._is_noticed = False

    @property
    def is_draining(self) -> bool:
        return self._readiness.is_draining

    def drain(self) -> None:
        """Begin the end, once; from a handler of signals too."""
        if not self.is_draining:
            self._began = self._clock()
            self._readiness.is_draining = True

    def begin(self) -> None:
        """End streams and waits; called on the event loop after `drain`."""
        self._readiness.begin_drain()

    def is_over(self, most_seconds: float) -> bool:
        """Whether nothing is lost by the end now, or it was waited for long enough."""
        now = self._clock()
        if now - self._began >= most_seconds:
            return True
        if self._running:
            return False
        if self._last_probe < self._began - PROBED_SECONDS:
            return True
        has_heard = self._is_noticed or now - self._began >= NOTICE_SECONDS
        return has_heard and now - max(self._last_request, self._began) >= QUIET_SECONDS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"] in PROBE_PATHS:
            if scope["path"] == READY_PATH:
                self._last_probe = self._clock()
                self._is_noticed |= self.is_draining
            await self._app(scope, receive, self._closing(send))
        else:
            await self._counted(scope, receive, send)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count a request until its answer begins; a call that is answered by a stream, to its
        end. The bytes of an answer that a client does not read are not waited for."""
        is_counted = True
        self._running += 1
        self._last_request = self._clock()

        def ended() -> None:
            nonlocal is_counted
            self._running -= is_counted
            is_counted = False

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start" and not (
                scope["method"] == "POST" and _is_stream(message)
            ):
                ended()
            await closing(message)

        closing = self._closing(send)
        try:
            await self._app(scope, receive, watched)
        finally:
            ended()
            self._last_request = self._clock()

    def _closing(self, send: Send) -> Send:
        """Return a `send` that ends each connection with its answer once the end has begun."""

        async def closing(message: Message) -> None:
            if message["type"] == "http.response.start" and self.is_draining:
                headers = [*message.get("headers", ()), (b"connection", b"close")]
                message = {**message, "headers": headers}
            await send(message)

        return closing


def _is_stream(message: Message) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in message.get("headers", ())
    )
