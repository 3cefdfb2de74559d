"""Tests of house/call_tasks.py: calls that clients poll for, over processes and time."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.approval import Connections, new_connection
from skillhouse.house import call_tasks
from skillhouse.house.call_tasks import KEEP_MS, CallTask, CallTasks, TaskState
from tests.harness import Clock


class Server:
    """One server's view of a state, with a lock of its own as a process has it."""

    def __init__(self, state: Path, clock: Clock) -> None:
        self.connections = Connections(state)
        self.tasks = CallTasks(state, self.connections, clock=clock)
        self.connection = new_connection()

    def open(self, state: TaskState, user: str = "local") -> str:
        """Keep a task of this server's client."""
        task = CallTask(
            agent="default",
            user=user,
            channel="mcp",
            client="test",
            connection=self.connection,
            tool="write",
            arguments='{"path": "a"}',
            state=state,
            approval="q1" if state == "asking" else "",
        )
        return self.tasks.open(task)

    def state(self, task_id: str) -> str:
        """Return the state of a task; empty for none."""
        found = self.tasks.get(task_id)
        return "" if found is None else found.state


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(tmp_path: Path, clock: Clock) -> Server:
    return Server(tmp_path, clock)


def test_a_task_is_kept_with_all_that_its_call_needs(server: Server) -> None:
    found = server.tasks.get(server.open("asking"))
    assert found is not None
    assert (found.tool, found.arguments, found.approval) == ("write", '{"path": "a"}', "q1")
    assert found.opened_ms == found.updated_ms > 0
    assert found.runner == ""
    assert server.connections.is_live(server.connection)


def test_only_one_takes_a_call_that_was_answered(server: Server) -> None:
    task_id = server.open("asking")
    assert not server.tasks.begin(task_id, "another")
    assert server.tasks.begin(task_id, "q1")
    assert not server.tasks.begin(task_id, "q1")
    assert server.state(task_id) == "running"
    server.tasks.ask(task_id, "q2", "{}")
    assert not server.tasks.begin(task_id, "q1")
    assert server.tasks.begin(task_id, "q2")
    server.tasks.end(task_id, "done", "{}")
    server.tasks.ask(task_id, "q3", "{}")
    found = server.tasks.get(task_id)
    assert found is not None
    assert (found.state, found.outcome, found.arguments) == ("done", "{}", "")


def test_what_ran_when_its_process_ended_is_lost_for_good(
    server: Server, tmp_path: Path, clock: Clock
) -> None:
    other = Server(tmp_path, clock)
    running, asking = server.open("running"), server.open("asking")
    assert other.state(running) == "running"
    server.connections.close()
    assert (other.state(running), other.state(asking)) == ("lost", "asking")
    server.tasks.end(running, "done", "{}")
    assert other.state(running) == "lost"


def test_a_cancellation_ends_a_question_and_is_a_wish_for_a_call(server: Server) -> None:
    asking, running = server.open("asking"), server.open("running")
    assert server.tasks.cancel(asking)
    assert not server.tasks.cancel(running)
    assert (server.state(asking), server.state(running)) == ("cancelled", "cancelling")
    assert not server.tasks.begin(asking, "q1")
    server.tasks.end(running, "done", "{}")
    assert server.state(running) == "done"
    assert not server.tasks.cancel(running)
    assert server.state(running) == "done"


def test_a_task_is_known_for_a_day(server: Server, clock: Clock) -> None:
    task_id = server.open("asking")
    clock.now += KEEP_MS / 1000 - 1
    assert server.state(task_id) == "asking"
    clock.now += 2
    assert server.state(task_id) == ""
    assert server.state("no such id") == server.state("\ud800") == ""


def test_too_many_are_refused_to_one_user_and_old_results_go(
    server: Server, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_tasks, "OPEN_MAX", 2)
    monkeypatch.setattr(call_tasks, "KEPT_MAX", 3)
    first, second = server.open("asking"), server.open("running")
    assert server.open("asking") == ""
    assert server.open("asking", user="eve")
    server.tasks.cancel(first)
    third = server.open("running")
    assert third
    server.tasks.end(third, "done", "{}")
    assert server.open("asking")
    # The oldest one that has ended, and never one that has not.
    assert (server.state(first), server.state(second)) == ("", "running")
    server.connections.close()
    # Calls of a process that is gone take no room.
    assert Server(tmp_path, clock).open("asking")
