"""Keeps the events of streams for clients that reconnect (revision 2025-11-25, SEP-1699).

With it the SDK begins each stream with an event that has an id, no data and `retry`. Since
2026-07-28 streams cannot be resumed, and have neither.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import JSONRPCMessage
from msgspec import Struct

RETRY_MS = 1_000
"""When a client connects again after its stream has ended."""
EVENTS_MAX = 10_000
BYTES_MAX = 32 * 1_048_576
"""Of the events of all sessions together; the oldest ones go first."""


class StoredEvent(Struct, frozen=True):
    session: int
    stream: str
    message: JSONRPCMessage | None
    """None for the first event of a stream, which has no message."""
    size: int


class RecentEvents:
    """The last events of all sessions, within one bound for all."""

    def __init__(self, *, events_max: int = EVENTS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._events: OrderedDict[int, StoredEvent] = OrderedDict()
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._last = 0
        self._sessions = 0

    def new_session(self) -> SessionEvents:
        self._sessions += 1
        return SessionEvents(self, self._sessions)

    def add(self, session: int, stream: str, message: JSONRPCMessage | None) -> int:
        """Store an event, and return its number."""
        size = 0 if message is None else len(message.model_dump_json(exclude_unset=True))
        self._last += 1
        self._events[self._last] = StoredEvent(session, stream, message, size)
        self._bytes += size
        while len(self._events) > self._events_max or self._bytes > self._bytes_max:
            _, oldest = self._events.popitem(last=False)
            self._bytes -= oldest.size
        return self._last

    def after(self, session: int, number: int) -> tuple[str, list[EventMessage]] | None:
        """Return the stream of an event, and what followed on it; None if it is not there.

        INVARIANT: only events of `session` are found, whatever number its client gives.
        """
        known = self._events.get(number)
        if known is None or known.session != session:
            return None
        return known.stream, [
            EventMessage(event.message, str(at))
            for at, event in self._events.items()
            if at > number
            and event.message is not None
            and (event.session, event.stream) == (session, known.stream)
        ]


class SessionEvents(EventStore):
    """The events of one session."""

    def __init__(self, events: RecentEvents, session: int) -> None:
        self._events = events
        self._session = session

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        return str(self._events.add(self._session, stream_id, message))

    async def replay_events_after(
        self, last_event_id: str, send_callback: EventCallback
    ) -> str | None:
        is_number = last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 19
        found = self._events.after(self._session, int(last_event_id)) if is_number else None
        if found is None:
            return None
        stream, messages = found
        for message in messages:
            await send_callback(message)
        return stream


class ResumableSessions(StreamableHTTPSessionManager):
    """The SDK's manager; each session it opens gets a store of its own."""

    def __init__(self, **options: Any) -> None:
        self._recent = RecentEvents()
        super().__init__(retry_interval=RETRY_MS, **options)

    @property
    def event_store(self) -> EventStore:
        """A new store: the SDK asks once for each session.

        Ids of streams are those of requests, so sessions that share a store would see each other's.
        """
        return self._recent.new_session()

    @event_store.setter
    def event_store(self, _: EventStore | None) -> None:
        """Ignore the SDK's value."""
