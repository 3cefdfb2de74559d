"""Connections of processes that serve nothing, on machines that share a state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from tests.approval.questions import question, said
from tests.extensions.postgres.state_servers import new_database, served

from skillhouse.approval import ApprovalBroker, ApprovalError, ServerRow, new_connection

pytestmark = [pytest.mark.slow, pytest.mark.file_state]
Machine = Callable[[str], ApprovalBroker]


@pytest.fixture
def url(postgres_server: str) -> str:
    return new_database(postgres_server)


@pytest.fixture
def machine(tmp_path: Path, url: str) -> Iterator[Machine]:
    with ExitStack() as stack:

        def broker(name: str) -> ApprovalBroker:
            stack.enter_context(served(tmp_path / name, url))
            made = ApprovalBroker(tmp_path / name)
            stack.callback(made.connections.close)
            return made

        yield broker


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


def test_one_that_was_killed_is_lost_and_so_is_its_connection(machine: Machine, url: str) -> None:
    laptop, other = machine("a"), machine("b")
    connection = new_connection()
    laptop.open(question(client="codex", connection=connection))
    assert other.connections.is_live(connection)
    with psycopg.connect(url) as rows:
        # As a minute later, of a process that wrote nothing more.
        rows.execute("UPDATE server SET id = 'killed', beat_ms = beat_ms - 60000")
        rows.execute("UPDATE server_connection SET server = 'killed'")
    assert "lost" in [one.state for one in listed(other)]
    assert not other.connections.is_live(connection)
