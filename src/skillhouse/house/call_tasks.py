"""Calls that clients poll for (MCP tasks, SEP-2663): what each waits for, and what became of it."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from msgspec import Struct

from skillhouse.approval import Connections, new_connection
from skillhouse.store import STATE, STATE_FILE, pooled, state_clock

KEEP_MS = 24 * 3_600_000
"""How long a task is known, from its creation (docs/reference/limits.md)."""
OPEN_MAX = 50
"""Tasks of one agent, user and channel that have not ended."""
KEPT_MAX = 200
"""Tasks of one agent, user and channel, with those that have ended."""
ARGUMENTS_MAX = 1_048_576
"""Characters of the arguments of a call that waits, as JSON."""

TaskState = Literal["running", "cancelling", "asking", "done", "failed", "cancelled", "lost"]

RUNNING: tuple[TaskState, ...] = ("running", "cancelling")


class CallTask(Struct, frozen=True, kw_only=True):
    """One call that a client polls for, and whose it is."""

    agent: str
    user: str
    channel: str
    client: str
    connection: str
    tool: str
    arguments: str
    """JSON of an object; empty for a call that runs for the first time."""
    state: TaskState
    """`cancelling` runs, and its client wants its end; `asking` waits for an approval; of a `lost`
    one the process ended, and with it the call: what it did is not known."""
    approval: str = ""
    """Id of the approval that it waits for."""
    outcome: str = ""
    """JSON of its result, or of its error if it failed."""
    runner: str = ""
    """The process that runs it, as a connection."""
    opened_ms: int = 0
    updated_ms: int = 0


class CallTasks:
    """The tasks of one state directory, as one server sees them."""

    def __init__(
        self,
        state_directory: Path,
        connections: Connections,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = state_directory / STATE_FILE
        self._connections = connections
        self._clock = state_clock(self._path, clock)
        self.runner = new_connection()
        """This server, where it runs calls."""

    def open(self, task: CallTask) -> str:
        """Keep a new task and return its id, which only its client may know; empty if its client
        has too many. OSError if a connection cannot be tracked."""
        # INVARIANT: alive before the task is there, so that no other client can take it over, and
        # no other process takes a call that runs for a lost one.
        self._connections.hold(task.connection)
        self._connections.hold(self.runner)
        task_id = secrets.token_urlsafe(32)
        now = self._now_ms()
        whose = (task.agent, task.user, task.channel)
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute("DELETE FROM call_task WHERE opened_ms <= ?", (now - KEEP_MS,))
            rows = connection.execute(
                "SELECT seq, state, runner FROM call_task "
                "WHERE agent = ? AND user_name = ? AND channel = ? ORDER BY seq",
                whose,
            ).fetchall()
            ended = [seq for seq, state, runner in rows if not self._is_open(state, runner)]
            if len(rows) - len(ended) >= OPEN_MAX:
                return ""
            for seq in ended[: max(0, len(rows) + 1 - KEPT_MAX)]:
                connection.execute("DELETE FROM call_task WHERE seq = ?", (seq,))
            connection.execute(
                "INSERT INTO call_task (digest, agent, user_name, channel, client, connection, "
                "tool, arguments, state, approval, outcome, runner, opened_ms, updated_ms) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    _digest(task_id),
                    *whose,
                    task.client,
                    task.connection,
                    task.tool,
                    task.arguments,
                    task.state,
                    task.approval,
                    task.outcome,
                    self.runner if task.state == "running" else "",
                    now,
                    now,
                ),
            )
        return task_id

    def get(self, task_id: str) -> CallTask | None:
        """Return a task; None for an unknown or old one."""
        with pooled(self._path, STATE) as store:
            rows = store.rows(
                "SELECT agent, user_name, channel, client, connection, tool, arguments, state, "
                "approval, outcome, runner, opened_ms, updated_ms FROM call_task "
                "WHERE digest = ? AND opened_ms > ?",
                (_digest(task_id), self._now_ms() - KEEP_MS),
            )
        for row in rows:
            names = CallTask.__struct_fields__
            found = CallTask(**dict(zip(names, row, strict=True)))
            if found.state in RUNNING and not self._connections.is_live(found.runner):
                self.end(task_id, "lost", "")
                return self.get(task_id)
            return found
        return None

    def begin(self, task_id: str, approval: str) -> bool:
        """Take a call that waited for this approval, to run it; False if another one did.

        INVARIANT: of all servers that see the answer one makes the call, once.
        """
        self._connections.hold(self.runner)
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            changed = connection.execute(
                "UPDATE call_task SET state = 'running', runner = ?, updated_ms = ? "
                "WHERE digest = ? AND state = 'asking' AND approval = ?",
                (self.runner, self._now_ms(), _digest(task_id), approval),
            ).rowcount
        return int(changed) == 1

    def ask(self, task_id: str, approval: str, arguments: str) -> None:
        """Have a running call wait for an approval."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "UPDATE call_task SET state = 'asking', approval = ?, arguments = ?, "
                "updated_ms = ? WHERE digest = ? AND state = 'running'",
                (approval, arguments, self._now_ms(), _digest(task_id)),
            )

    def end(self, task_id: str, state: TaskState, outcome: str) -> None:
        """Keep what became of a running call; what it was called with is needed no more."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "UPDATE call_task SET state = ?, outcome = ?, arguments = '', updated_ms = ? "
                "WHERE digest = ? AND state IN ('running', 'cancelling')",
                (state, outcome, self._now_ms(), _digest(task_id)),
            )

    def cancel(self, task_id: str) -> bool:
        """End a task that waits for an approval; False if it does not, and then its server is to
        end its call, if it runs."""
        values = (self._now_ms(), _digest(task_id))
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            changed = connection.execute(
                "UPDATE call_task SET state = 'cancelled', arguments = '', updated_ms = ? "
                "WHERE digest = ? AND state = 'asking'",
                values,
            ).rowcount
            connection.execute(
                "UPDATE call_task SET state = 'cancelling', updated_ms = ? "
                "WHERE digest = ? AND state = 'running'",
                values,
            )
        return int(changed) == 1

    def close(self) -> None:
        """Give up what this server ran; a call that is still running is lost from then on."""
        self._connections.end(self.runner)

    def _is_open(self, state: TaskState, runner: str) -> bool:
        return state == "asking" or (state in RUNNING and self._connections.is_live(runner))

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)


def _digest(task_id: str) -> str:
    # The id is all that a client needs to get the result, so the state keeps none.
    return hashlib.sha256(task_id.encode("utf-8", "surrogatepass")).hexdigest()
