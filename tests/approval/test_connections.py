"""Tests of approval/connections.py: who is alive, across processes and after SIGKILL."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from skillhouse.approval import (
    Answer,
    ApprovalBroker,
    ApprovalError,
    Connections,
    caller_connection,
    new_connection,
)
from skillhouse.approval.connections import DIRECTORY, STALE_SECONDS, began_ms
from skillhouse.floor import StateError
from skillhouse.floor.structs import replace
from tests.approval.questions import begun, broker_at, question, said
from tests.harness import Clock

HOLDING = """
import sys
from pathlib import Path
from skillhouse.approval import Connections
held = Connections(Path(sys.argv[1]))
held.hold(sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""


def test_a_connection_lives_until_it_ends(tmp_path: Path) -> None:
    mine, other = Connections(tmp_path), Connections(tmp_path)
    mine.hold("a")
    mine.hold("a")
    mine.hold("")
    assert (mine.is_live("a"), other.is_live("a")) == (True, True)
    assert not other.is_live("b")
    assert not other.is_live("")
    with pytest.raises(OSError, match="belongs to another process"):
        other.hold("a")
    other.end("a")
    assert other.is_live("a")
    mine.end("a")
    assert not other.is_live("a")
    assert list((tmp_path / DIRECTORY).iterdir()) == []
    mine.hold("b")
    mine.close()
    assert not other.is_live("b")


@pytest.mark.file_state
def test_a_connection_that_nothing_refers_to_ends(tmp_path: Path) -> None:
    left = Connections(tmp_path)
    left.hold("a")
    del left
    assert not Connections(tmp_path).is_live("a")


@pytest.mark.slow
def test_a_killed_process_has_no_connection(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDING, str(tmp_path), "a"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        here = Connections(tmp_path)
        assert here.is_live("a")
        holder.kill()
        holder.wait()
    assert not here.is_live("a")
    [file] = (tmp_path / DIRECTORY).iterdir()
    # Its file is removed when it is old, and one of a living process is not.
    here.hold("b")
    assert file.exists()
    old = file.stat().st_mtime - STALE_SECONDS - 60
    for each in (tmp_path / DIRECTORY).iterdir():
        os.utime(each, (old, old))
    here.hold("c")
    assert not file.exists()
    assert here.is_live("b")


def test_where_nobody_can_tell_a_connection_is_alive(tmp_path: Path) -> None:
    here = Connections(tmp_path)
    here.hold("a")
    [file] = (tmp_path / DIRECTORY).iterdir()
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")
    assert here.is_live("a")
    here.close()


def test_an_id_says_when_it_began() -> None:
    assert began_ms(new_connection(now_ms=7)) == 7
    assert began_ms(new_connection()) > 1_700_000_000_000
    assert [began_ms(text) for text in ("", "mine", "²-x", "-1")] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("client", "later_ms", "ended", "owns"),
    [
        ("editor", 1, True, True),
        ("editor", 1, False, False),
        ("editor", -1, True, False),
        ("viewer", 1, True, False),
    ],
)
def test_who_succeeds_a_connection(
    tmp_path: Path, client: str, later_ms: int, ended: bool, owns: bool
) -> None:
    clock = Clock()
    origin_digest, other = broker_at(tmp_path, clock=clock), broker_at(tmp_path, clock=clock)
    now_ms = int(clock.now * 1000)
    asked = question(client="editor", connection=new_connection(now_ms - 5))
    opened = origin_digest.open(asked)
    said(origin_digest, opened.id, Answer.SESSION)
    if ended:
        origin_digest.connections.end(asked.connection)
    successor = new_connection(now_ms + later_ms)
    who = (opened.id, asked.content_digest, asked.session, client, successor)
    if not owns:
        with pytest.raises(ApprovalError) as refused:
            other.redeem(*who)
        assert refused.value.code == "another-client"
        return
    begun(other, opened.id, client=client, connection=successor)
    # The answer is for the connection that used it.
    mine = question(client=client, connection=successor)
    assert len(other.session_grants(mine.connection_key)) == 1
    assert other.session_grants(asked.connection_key) == ()


def test_a_session_answer_settles_no_question_of_another_connection(tmp_path: Path) -> None:
    broker = broker_at(tmp_path)
    own, others = (
        [
            broker.open(question(f"/w/{name}.txt", client="editor", connection=connection)).id
            for name in "ab"
        ]
        for connection in ("1-a", "1-b")
    )
    said(broker, own[0], Answer.SESSION)
    states = [broker.get(found).state.value for found in (*own, *others)]
    assert states == ["approved", "approved", "open", "open"]
    broker.connections.close()


def test_a_caller_without_a_connection_is_the_same_in_each_process(tmp_path: Path) -> None:
    mine, other = Connections(tmp_path), Connections(tmp_path)
    caller = caller_connection("token 1", "default", "owner", "mcp", "editor")
    mine.hold(caller)
    other.hold(caller)
    asked = replace(question(), client="editor", connection=caller, opened_ms=1)
    assert other.own(asked, "editor", caller)
    for who in (
        ("token 2", "default", "owner", "mcp", "editor"),
        ("token 1", "default", "owner", "mcp", "viewer"),
        ("token 1", "defaultowner", "", "mcp", "editor"),
    ):
        assert not other.own(asked, "editor", caller_connection(*who))
    # It has no end, so that no later connection of that name is its next one.
    mine.end(caller)
    mine.close()
    assert not other.own(asked, "editor", new_connection())


@pytest.mark.slow
def test_two_processes_that_ask_the_same_at_once_open_one_question(tmp_path: Path) -> None:
    caller = caller_connection("token 1", "editor")
    asking = [replace(question(), client="editor", connection=caller) for _ in range(40)]
    brokers = [broker_at(tmp_path) for _ in range(4)]

    async def ask(broker: ApprovalBroker) -> None:
        for request in asking:
            await broker.request_approval(request)

    async def all_at_once() -> None:
        async with anyio.create_task_group() as tasks:
            for broker in brokers:
                tasks.start_soon(ask, broker)

    anyio.run(all_at_once)
    assert len(brokers[0].pending()) == 1


def test_a_fault_of_one_that_hears_of_an_end_keeps_it_from_no_other(tmp_path: Path) -> None:
    connections, heard = Connections(tmp_path), list[str]()

    def fails(_: str) -> None:
        raise StateError("the state is away", tmp_path)

    connections.on_end(fails)
    connections.on_end(heard.append)
    connections.hold("a")
    connections.end("a")
    assert heard == ["a"]
    assert not connections.is_live("a")
