"""Events for readers that stay connected: a ring of the newest, of which each reader has its place.

An id says the start and number, the time, and which skills there were: another server of the state,
where a balancer sends the reader next, has no such ring, and finds what it missed in the state and
in the log.

A reader that falls behind the ring is sent `reset` and goes on with what is there, so that slow
readers cost no memory. Each event belongs to a user; one without belongs to all.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from skillhouse.answers.doctor import InstanceAnswer
from skillhouse.answers.json_form import JsonAnswer, json_text, members
from skillhouse.answers.service import CutEventAnswer, ResetEventAnswer
from skillhouse.approval import OWNER
from skillhouse.floor.threads import in_thread

if TYPE_CHECKING:
    from starlette.types import Receive, Send

RING = 1_024
"""Events that are kept for readers that come back."""
EVENT_MAX = 16_384
"""Bytes of an event; of a larger one only the id and kind are sent."""
READERS_MAX = 64
ID_MAX = 128
"""Characters of an id of an event."""
QUIET_SECONDS = 15.0
"""A comment is sent after this time, by which either side notices a broken connection, and whether
the reader's key still holds is looked at again."""


AGAIN_MS = 500
"""When a reader is to come again after a stream that the service has ended."""


class Event(Struct, frozen=True, kw_only=True):
    number: int
    kind: str
    user: str
    """Whom it is about; empty for everyone."""
    data: bytes
    at_ms: int = 0


def event_data(value: JsonAnswer | Mapping[str, Any]) -> bytes:
    """Return the JSON of an event; of one that is too large its id alone."""
    data = json_text(value).encode()
    if len(data) <= EVENT_MAX:
        return data
    cut = CutEventAnswer(id=members(value).get("id"), is_cut=True)
    return json.dumps(members(cut)).encode()


MissedEvents = Callable[[int, str], "Sequence[Event] | None"]
"""Returns what happened since a time, in milliseconds since 1970, where the skills of then have a
mark; None where that is not known."""


class EventLog:
    """The events of one start; any thread may publish."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives seconds since 1970."""
        self._clock = clock
        self.missed: MissedEvents = lambda _, __: None
        """For a reader that comes from another server."""
        self.mark: Callable[[], str] = lambda: ""
        """Returns a text that changes with the skills, and is the same at each server."""
        # An id of an earlier start is no place in this ring.
        self.start = secrets.token_hex(8)
        """The id of this start, with which ids of events begin."""
        self.instance: InstanceAnswer | None = None
        """What a reader that has to read everything again gets."""
        self._ring: deque[Event] = deque(maxlen=RING)
        self._number = 0
        self._lock = threading.Lock()
        self._wakers: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self.is_ended = False
        """Whether the service ends: each reader is sent to another one, or to the next start."""

    @property
    def readers(self) -> int:
        return len(self._wakers)

    @property
    def reset(self) -> JsonAnswer | Mapping[str, Any]:
        """What `reset` says."""
        return {} if self.instance is None else ResetEventAnswer(instance=self.instance)

    def publish(self, kind: str, value: JsonAnswer | Mapping[str, Any], *, user: str = "") -> None:
        data = event_data(value)
        with self._lock:
            self._number += 1
            self._ring.append(
                Event(number=self._number, kind=kind, user=user, data=data, at_ms=self.now_ms())
            )
        self._wake()

    def end(self) -> None:
        """End the streams of all readers, once they have what is there."""
        self.is_ended = True
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            wakers = tuple(self._wakers.items())
        for waker, loop in wakers:
            # A loop that has just ended has no readers left.
            if not loop.is_closed():
                loop.call_soon_threadsafe(waker.set)

    def place(self, last_id: str) -> int | None:
        """Return the number of the last event that a reader has; None if it is not known here."""
        if not last_id:
            return self._number
        start, number, _, _ = _parts(last_id)
        if start != self.start or not (number.isascii() and number.isdigit()):
            return None
        place = int(number[:16])
        with self._lock:
            oldest = self._ring[0].number if self._ring else self._number + 1
            return place if oldest - 1 <= place <= self._number else None

    def after(self, place: int) -> tuple[list[Event], bool]:
        """Return the events after a place, and whether some were lost before them."""
        with self._lock:
            if not self._ring or self._ring[-1].number <= place:
                return [], False
            oldest = self._ring[0].number
            skip = max(0, place + 1 - oldest)
            found = [self._ring[at] for at in range(skip, len(self._ring))]
        return found, place + 1 < oldest

    def id_of(self, number: int, at_ms: int = 0) -> str:
        return f"{self.start}-{number}-{at_ms or self.now_ms()}-{self.mark()}"

    def now_ms(self) -> int:
        return int(self._clock() * 1000)

    def elsewhere(self, last_id: str) -> Sequence[Event] | None:
        """Return what a reader has missed whose last event was another server's; None if that is
        not known, as for an id of an earlier start with other skills."""
        start, _, at_ms, mark = _parts(last_id)
        if not (start and at_ms.isascii() and at_ms.isdigit() and len(at_ms) < 16):
            return None
        return self.missed(int(at_ms), mark)

    def open(
        self, user: str, last_id: str, *, holds: Callable[[], bool] = lambda: True
    ) -> EventStream | None:
        """Return a stream for a reader; None if too many are open.

        It ends soon after `holds` says that the reader's key has ended.
        """
        if len(self._wakers) >= READERS_MAX:
            return None
        return EventStream(self, user, last_id, holds)

    def add_waker(self, waker: asyncio.Event) -> Callable[[], None]:
        with self._lock:
            self._wakers[waker] = asyncio.get_running_loop()

        def remove() -> None:
            with self._lock:
                self._wakers.pop(waker, None)

        return remove


class EventStream:
    """The answer to one reader, by Server-Sent Events (HTML Living Standard, 9.2)."""

    def __init__(self, log: EventLog, user: str, last_id: str, holds: Callable[[], bool]) -> None:
        self._holds = holds
        self._log = log
        self._user = user
        self._last_id = last_id

    async def __call__(self, receive: Receive, send: Send) -> None:
        waker = asyncio.Event()
        remove = self._log.add_waker(waker)
        gone = asyncio.ensure_future(left(receive))
        try:
            await self._begin(send)
            place = self._log.place(self._last_id)
            if place is None:
                place = await self._come_from_elsewhere(send)
            while not gone.done() and await in_thread(self._holds):
                waker.clear()
                place = await self._send_after(place, send)
                if self._log.is_ended:
                    await _last(send)
                    return
                await _first((gone, waker), send)
        finally:
            remove()
            gone.cancel()

    async def _begin(self, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await _write(send, b"retry: 2000\n\n")

    async def _come_from_elsewhere(self, send: Send) -> int:
        """Send what the state and the log have of the time since the reader's last event."""
        number = self._log.place("") or 0
        missed = await in_thread(lambda: self._log.elsewhere(self._last_id))
        if missed is None:
            return await self._reset(send)
        await self._send(missed, send, number)
        return number

    async def _reset(self, send: Send) -> int:
        """Have the reader read everything again: what it has missed is not known."""
        number = self._log.place("") or 0
        data = json_text(self._log.reset).encode()
        await _write(send, b"id: %s\nevent: reset\ndata: %s\n\n" % (self._id(number), data))
        return number

    async def _send_after(self, place: int, send: Send) -> int:
        """Send what is there; a reader that reads slowly is waited for, and holds one batch."""
        events, has_lost = self._log.after(place)
        if has_lost:
            return await self._reset(send)
        await self._send(events, send)
        return events[-1].number if events else place

    async def _send(self, events: Sequence[Event], send: Send, number: int = 0) -> None:
        """Send those of the reader's user; `number` is the place of events that have none."""
        mine = [one for one in events if self._user == OWNER or one.user in ("", self._user)]
        if mine:
            parts = [
                b"id: %s\nevent: %s\ndata: %s\n\n"
                % (self._id(one.number or number, one.at_ms), one.kind.encode(), one.data)
                for one in mine
            ]
            await _write(send, b"".join(parts))

    def _id(self, number: int, at_ms: int = 0) -> bytes:
        return self._log.id_of(number, at_ms).encode()


def _parts(last_id: str) -> tuple[str, str, str, str]:
    """Return start, number, time and mark of an id, which is a client's word."""
    parts = last_id[:ID_MAX].split("-")
    start, number, at_ms, mark = (*parts, "", "", "", "")[:4]
    return start, number, at_ms, mark


async def _first(waits: tuple[asyncio.Future[None], asyncio.Event], send: Send) -> None:
    """Wait until the reader has gone or there is something new; a comment keeps the line open."""
    gone, waker = waits
    news = asyncio.ensure_future(waker.wait())
    try:
        done, _ = await asyncio.wait(
            (gone, news), timeout=QUIET_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        news.cancel()
    if not done:
        await _write(send, b": \n\n")


async def left(receive: Receive) -> None:
    """Wait until the client of a request, whose body was read, has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _last(send: Send) -> None:
    """End a stream in order, with how soon its reader is to come again."""
    end = b"retry: %d\n: the service ends\n\n" % AGAIN_MS
    await send({"type": "http.response.body", "body": end, "more_body": False})


async def _write(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})
