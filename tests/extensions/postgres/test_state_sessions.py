"""Approvals "for this session" of a state on a server: at each server, and not for longer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from tests.approval.questions import begun, question, said
from tests.extensions.postgres.state_servers import served

from skillhouse.approval import (
    Answer,
    ApprovalBroker,
    ApprovalError,
    Devices,
    caller_connection,
    new_connection,
)
from skillhouse.approval.request import session_key
from skillhouse.approval.session_grants import SESSION_HOURS
from skillhouse.store import STATE, STATE_FILE, pooled
from skillhouse.tiers.tier_ledger import stop

pytestmark = [pytest.mark.slow, pytest.mark.file_state]
CALLER = {"client": "bot", "connection": caller_connection("a token")}
KEY = session_key("default", "local", "library", *CALLER.values())
Machine = Callable[[str], ApprovalBroker]


def allow(broker: ApprovalBroker, who: dict[str, str] = CALLER) -> None:
    asked = broker.open(question(**who))
    said(broker, asked.id, Answer.SESSION)
    begun(broker, asked.id, **who)


def patterns(broker: ApprovalBroker, key: str = KEY) -> list[str]:
    return [one.pattern for one in broker.session_grants(key)]


def test_an_approval_for_the_session_holds_where_the_next_call_comes(machine: Machine) -> None:
    first, second = machine("a"), machine("b")
    assert patterns(second) == []
    allow(first)
    assert patterns(first) == patterns(second) == ["/w/"]
    other = session_key("default", "local", "library", "bot", caller_connection("another"))
    assert patterns(second, other) == []
    (listed,) = second.listed_grants()
    assert (listed.pattern, bool(listed.session)) == ("/w/", True)
    assert "a token" not in listed.session
    assert second.grant_store.all() == ()


def test_it_is_revoked_at_any_server(machine: Machine) -> None:
    first, second = machine("a"), machine("b")
    allow(first)
    (listed,) = second.listed_grants()
    # Another question that the same answer answered, and whose call has not come yet.
    waits = first.open(question(**CALLER))
    said(first, waits.id, Answer.SESSION)
    assert second.revoke(listed.id)
    assert patterns(first) == patterns(second) == []
    assert not second.revoke(listed.id)
    with pytest.raises(ApprovalError):
        begun(first, waits.id, **CALLER)
    assert patterns(first) == []


def test_a_stop_ends_it_and_what_ran_then_leaves_none(machine: Machine, tmp_path: Path) -> None:
    first, second = machine("a"), machine("b")
    allow(first)
    second.withdraw_all()
    assert patterns(first) == []
    asked = first.open(question(**CALLER))
    said(first, asked.id, Answer.SESSION)
    request = asked.request
    used = first.redeem(asked.id, request.content_digest, request.session, **CALLER)
    with pooled(tmp_path / "b" / STATE_FILE, STATE) as store, store.transaction() as connection:
        stop(connection, "anna", "a drill", 1)
    first.store_rules(used, **CALLER)
    assert patterns(first) == patterns(second) == []


def test_its_time_is_that_of_the_database(
    machine: Machine, state_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = machine("a"), machine("b")
    allow(first)
    with psycopg.connect(state_url) as connection:
        query = (
            "SELECT expires_ms - extract(epoch FROM clock_timestamp()) * 1000 FROM session_grant"
        )
        ((left,),) = connection.execute(query.encode()).fetchall()
    assert SESSION_HOURS * 3_600_000 - 60_000 < left <= SESSION_HOURS * 3_600_000
    assert patterns(second) == ["/w/"]
    with psycopg.connect(state_url) as connection:
        connection.execute(
            "UPDATE session_grant SET expires_ms = extract(epoch FROM clock_timestamp()) * 1000 - 1"
        )
        connection.execute("UPDATE skillhouse_state SET commits = commits + 1")
    monkeypatch.setattr("time.time", lambda: 0.0)
    assert patterns(machine("c")) == []
    monkeypatch.undo()
    allow(second, {"client": "bot", "connection": caller_connection("another")})
    with psycopg.connect(state_url) as connection:
        assert connection.execute("SELECT count(*) FROM session_grant").fetchall() == [(1,)]


def test_it_ends_with_the_device_that_gave_it(machine: Machine, tmp_path: Path) -> None:
    first, second = machine("a"), machine("b")
    device = Devices(tmp_path / "a").pair("phone", user="local").id
    asked = first.open(question(**CALLER))
    said(first, asked.id, Answer.SESSION, channel="device", device=device)
    begun(first, asked.id, **CALLER)
    assert patterns(second) == ["/w/"]
    Devices(tmp_path / "b").unpair(device)
    assert patterns(first) == patterns(second) == []
    assert second.listed_grants() == ()


def test_it_ends_with_the_connection(machine: Machine) -> None:
    first, second = machine("a"), machine("b")
    connection = new_connection()
    allow(first, {"client": "codex", "connection": connection})
    allow(first)
    key = session_key("default", "local", "library", "codex", connection)
    assert patterns(second, key) == ["/w/"]
    first.connections.end(connection)
    assert patterns(second, key) == []
    assert patterns(second) == ["/w/"]


def test_without_the_state_none_is_used_and_nothing_fails(tmp_path: Path) -> None:
    """Reads are judged with these, too, and go on."""
    with served(tmp_path, "postgresql://127.0.0.1:1/none"):
        assert patterns(ApprovalBroker(tmp_path)) == []
