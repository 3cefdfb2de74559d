"""Connections of processes that serve nothing, on machines that share a state."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from tests.approval.questions import question, said

from skillhouse.approval import ApprovalBroker, ApprovalError, ServerRow, new_connection

pytestmark = [pytest.mark.slow, pytest.mark.file_state]
Machine = Callable[[str], ApprovalBroker]


def listed(broker: ApprovalBroker) -> list[ServerRow]:
    return list(broker.connections.servers.all())


def test_a_client_on_another_machine_takes_over_no_question_of_one_that_is_alive(
    machine: Machine,
) -> None:
    """Two laptops with one state, each with a client of the same name over stdio."""
    laptop, other = machine("a"), machine("b")
    who = {"client": "codex", "connection": new_connection()}
    asked = laptop.open(question(**who))
    said(laptop, asked.id)
    request = asked.request
    later = {"client": "codex", "connection": new_connection(request.opened_ms + 1)}
    # Naively: its file is on the other machine, so that it seems to have ended.
    with pytest.raises(ApprovalError) as raised:
        other.redeem(asked.id, request.content_digest, request.session, **later)
    assert raised.value.code == "another-client"
    laptop.connections.close()
    other.redeem(asked.id, request.content_digest, request.session, **later)


def test_a_process_is_listed_from_its_first_question_until_it_ends(machine: Machine) -> None:
    laptop, other = machine("a"), machine("b")
    assert listed(other) == []
    laptop.open(question(client="codex", connection=new_connection()))
    (row,) = listed(other)
    assert (row.address, row.state) == ("", "ready")
    laptop.open(question("/w/b.txt", client="codex", connection=new_connection()))
    assert len(listed(other)) == 1
    laptop.connections.close()
    assert listed(other) == []


def test_one_that_was_killed_is_lost_and_so_is_its_connection(
    machine: Machine, state_url: str
) -> None:
    laptop, other = machine("a"), machine("b")
    connection = new_connection()
    laptop.open(question(client="codex", connection=connection))
    assert other.connections.is_live(connection)
    with psycopg.connect(state_url) as rows:
        # As a minute later, of a process that wrote nothing more.
        rows.execute("UPDATE server SET id = 'killed', beat_ms = beat_ms - 60000")
        rows.execute("UPDATE server_connection SET server = 'killed'")
    assert "lost" in [one.state for one in listed(other)]
    assert not other.connections.is_live(connection)
