"""Tests of the events that are kept for clients which reconnect."""

from __future__ import annotations

import anyio
from mcp.server.streamable_http import EventMessage
from mcp_types import JSONRPCNotification

from skillhouse.frontends.mcp.event_store import RecentEvents, SessionEvents


def note(text: str) -> JSONRPCNotification:
    return JSONRPCNotification(jsonrpc="2.0", method=text)


def replayed(events: SessionEvents, after: str) -> tuple[str | None, list[EventMessage]]:
    found: list[EventMessage] = []

    async def main() -> str | None:
        async def send(message: EventMessage) -> None:
            found.append(message)

        return await events.replay_events_after(after, send)

    return anyio.run(main), found


def stored(events: SessionEvents, stream: str, message: JSONRPCNotification | None) -> str:
    return anyio.run(events.store_event, stream, message)


def test_what_followed_on_the_stream_of_an_event_is_replayed_in_order() -> None:
    events = RecentEvents().new_session()
    first = stored(events, "1", None)
    a = stored(events, "1", note("a"))
    stored(events, "2", note("other"))
    stored(events, "1", None)
    b = stored(events, "1", note("b"))
    expected = [EventMessage(note("a"), a), EventMessage(note("b"), b)]
    assert replayed(events, first) == ("1", expected)
    assert replayed(events, b) == ("1", [])


def test_a_session_sees_no_event_of_another_one() -> None:
    recent = RecentEvents()
    one, two = recent.new_session(), recent.new_session()
    first = stored(one, "1", None)
    stored(one, "1", note("secret"))
    assert replayed(two, first) == (None, [])
    own = stored(two, "1", None)
    stored(one, "1", note("secret"))
    assert replayed(two, own) == ("1", [])


def test_the_oldest_events_go_first() -> None:
    recent = RecentEvents(events_max=3)
    events = recent.new_session()
    numbers = [stored(events, "1", note(str(at))) for at in range(5)]
    assert replayed(events, numbers[1]) == (None, [])
    assert [each.event_id for each in replayed(events, numbers[2])[1]] == numbers[3:]
    small = RecentEvents(bytes_max=100).new_session()
    first = stored(small, "1", note("a"))
    stored(small, "1", note("b" * 90))
    assert replayed(small, first) == (None, [])
