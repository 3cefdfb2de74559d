"""How long, and for how many at one time, this server waits for a request that has not come yet.

Whoever reaches the port can open connections, before anything asks for a key. Each costs a
descriptor, and without any the house cannot even write its log.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_SECONDS = 10.0
"""From the connection, or the last answer, to the whole head of the next request."""
WAITING_MAX = 256
"""Connections without a request that is worked on; beyond, the one that waits longest goes."""


def header_timeout_protocol(
    *, seconds: float = HEAD_SECONDS, most: int = WAITING_MAX
) -> type[H11Protocol]:
    """Return the protocol of one listener, for uvicorn."""
    waiting: dict[H11Protocol, asyncio.TimerHandle] = {}

    class HeaderTimeoutProtocol(H11Protocol):
        # uvicorn's narrower than asyncio's own, as in its protocol.
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._is_busy():
                self._wait_no_more()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if not self._is_busy() and not self.transport.is_closing():
                self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._wait_no_more()
            super().connection_lost(exc)

        def _is_busy(self) -> bool:
            cycle: RequestResponseCycle | None = self.cycle
            return cycle is not None and not cycle.response_complete

        def _wait(self) -> None:
            self._wait_no_more()
            # What comes meanwhile does not lengthen it.
            waiting[self] = self.loop.call_later(seconds, self.transport.abort)
            if len(waiting) > most:
                longest = next(iter(waiting))
                waiting.pop(longest).cancel()
                longest.transport.abort()

        def _wait_no_more(self) -> None:
            timer = waiting.pop(self, None)
            if timer is not None:
                timer.cancel()

    return HeaderTimeoutProtocol
