"""Tests of frontends/mcp/approval_bridge.py: whose connection a request is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from skillhouse.approval import Connections
from skillhouse.frontends.mcp import approval_bridge
from skillhouse.frontends.mcp.approval_bridge import SESSION_HEADER, UNNAMED, ClientConnections


def request(session: str = "", name: str | None = "editor") -> Any:
    """Return what the SDK gives of a request, as far as it is looked at."""
    info = SimpleNamespace(client_info=SimpleNamespace(name=name, version="1.4.0"))
    return SimpleNamespace(
        session=SimpleNamespace(client_params=None if name is None else info),
        request=SimpleNamespace(headers={SESSION_HEADER: session} if session else {}),
    )


def test_each_session_is_a_connection_and_without_one_it_is_the_server(tmp_path: Path) -> None:
    clients = ClientConnections(Connections(tmp_path))
    own = clients.caller(request())
    one, two = (clients.caller(request(session)) for session in "ab")
    assert len({found["connection"] for found in (own, one, two)}) == 3
    assert clients.caller(request("a")) == one
    unnamed, odd = clients.caller(request(name=None)), clients.caller(request(name="a\nb"))
    assert (unnamed["client"], unnamed["client_info"]) == (UNNAMED, "")
    assert (odd["client"], odd["client_info"]) == ("a?b", "a?b 1.4.0")
    clients.end_session("a")
    assert clients.caller(request("a")) != one


def test_the_oldest_session_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approval_bridge, "SESSIONS_MAX", 2)
    held = Connections(tmp_path)
    clients = ClientConnections(held)
    first = clients.caller(request("a"))["connection"]
    held.hold(first)
    last = [clients.caller(request(session))["connection"] for session in "bc"]
    held.hold(last[1])
    assert [held.is_live(found) for found in (first, last[1])] == [False, True]
    clients.end()
    assert not held.is_live(last[1])
