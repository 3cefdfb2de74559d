"""Tickets: one use, one command, one place, one session, ten minutes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from skillhouse.frontends.hooks.tickets import (
    LIFE_SECONDS,
    WAITING_MAX,
    ProcessId,
    RunEnd,
    Ticket,
    TicketError,
    Tickets,
    ancestors,
    is_alive,
    place_of,
)
from skillhouse.sandbox import Streams


async def _run(streams: Streams) -> RunEnd:
    del streams
    return RunEnd(code=0)


def _ticket(place: Path, above: tuple[ProcessId, ...], expires: float = LIFE_SECONDS) -> Ticket:
    return Ticket(
        command="touch made",
        directory=place_of(str(place)),
        session="s",
        call="c",
        above=above,
        run=_run,
        began=lambda: None,
        ended=lambda _: None,
        expires=expires,
    )


def _mine() -> tuple[ProcessId, ...]:
    """Return this process and those above it, as of a hook that it started."""
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True
    ) as hook:
        found = ancestors(hook.pid)
        hook.communicate("\n")
    assert found[0].pid == os.getpid()
    return found


def test_a_ticket_ends_after_ten_minutes(tmp_path: Path) -> None:
    now = [0.0]
    tickets, above = Tickets(lambda: now[0]), _mine()
    place = place_of(str(tmp_path))
    secret = tickets.issue(_ticket(tmp_path, above))
    assert tickets.take(secret, command="touch made", directory=place, above=above).call == "c"
    secret = tickets.issue(_ticket(tmp_path, above))
    now[0] = LIFE_SECONDS
    with pytest.raises(TicketError, match="too old"):
        tickets.take(secret, command="touch made", directory=place, above=above)


def test_a_ticket_of_a_call_that_is_over_is_forgotten(tmp_path: Path) -> None:
    tickets, above = Tickets(lambda: 0.0), _mine()
    place = place_of(str(tmp_path))
    secret = tickets.issue(_ticket(tmp_path, above))
    assert tickets.withdraw("s", "c")
    with pytest.raises(TicketError, match="not known"):
        tickets.take(secret, command="touch made", directory=place, above=above)


def test_a_command_that_runs_or_was_started_keeps_its_call(tmp_path: Path) -> None:
    now = [0.0]
    tickets, above = Tickets(lambda: now[0]), _mine()
    place = place_of(str(tmp_path))
    tickets.note_started("s", "c")
    assert tickets.withdraw("s", "c")
    secret = tickets.issue(_ticket(tmp_path, above))
    tickets.note_started("s", "c")
    assert not tickets.withdraw("s", "c")
    ticket = tickets.take(secret, command="touch made", directory=place, above=above)
    assert not tickets.withdraw("s", "c")
    tickets.over(ticket)
    assert tickets.withdraw("s", "c")
    tickets.issue(_ticket(tmp_path, above))
    tickets.note_started("s", "c")
    now[0] = LIFE_SECONDS
    assert tickets.withdraw("s", "c")


def test_only_so_many_wait(tmp_path: Path) -> None:
    tickets, above = Tickets(lambda: 0.0), _mine()
    for _ in range(WAITING_MAX):
        tickets.issue(_ticket(tmp_path, above))
    with pytest.raises(TicketError, match="too many"):
        tickets.issue(_ticket(tmp_path, above))


def test_the_client_is_the_first_process_above_the_hook_that_is_left(tmp_path: Path) -> None:
    tickets, mine = Tickets(lambda: 0.0), _mine()
    gone = ProcessId(os.getpid(), "1")  # Another one had this number.
    assert not is_alive(gone)
    place = place_of(str(tmp_path))
    secret = tickets.issue(_ticket(tmp_path, (gone, *mine)))
    assert tickets.take(secret, command="touch made", directory=place, above=mine).call == "c"
    # A runner below the parent of the client alone is of another session.
    for above, said in (((gone, *mine), mine[1:]), ((gone,), mine), ((), mine), (mine, ())):
        secret = tickets.issue(_ticket(tmp_path, above))
        with pytest.raises(TicketError, match="another session"):
            tickets.take(secret, command="touch made", directory=place, above=said)
