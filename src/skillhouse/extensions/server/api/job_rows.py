"""Jobs in the state, so that each server of it shows and ends those that another one runs.

They are rows of the table of calls that clients poll for, with a channel of their own.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from skillhouse.answers.errors import ProblemAnswer
from skillhouse.answers.json_form import plain
from skillhouse.answers.service import JobAnswer, JobLineAnswer
from skillhouse.approval import Connections, new_connection
from skillhouse.extensions.server.api.problems import ApiProblem
from skillhouse.floor import SkillhouseError
from skillhouse.floor.structs import replace
from skillhouse.store import STATE, STATE_FILE, pooled, state_clock

if TYPE_CHECKING:
    from skillhouse.answers.service import JobState

logger = logging.getLogger(__name__)

CHANNEL = "job"
"""In the place of a client's channel: no client of MCP has it."""
KEEP_MS = 24 * 3_600_000
KEPT_MAX = 100
"""Jobs of all servers that are kept; those that have ended are forgotten first."""
RESULT_MAX = 1_048_576
"""Characters of a job that are kept; of a longer one only its server has the result."""
# One that was taken for lost, as while its server was stopped, is one that runs.
GOES_ON = (
    "UPDATE call_task SET outcome = ?, updated_ms = ?, state = 'running' WHERE digest = ? "
    "AND state IN ('running', 'done')"
)
ENDS = "UPDATE call_task SET outcome = ?, updated_ms = ?, state = 'done' WHERE digest = ?"
LOSES = (
    "UPDATE call_task SET outcome = ?, updated_ms = ?, "
    "state = CASE state WHEN 'cancelling' THEN 'cancelled' ELSE 'done' END "
    "WHERE digest = ? AND updated_ms = ? AND state IN ('running', 'cancelling')"
)
_COLUMNS = "SELECT digest, user_name, outcome, state, runner, updated_ms FROM call_task"
ELSEWHERE = (
    "SELECT digest, user_name, CASE state WHEN 'done' THEN '' ELSE outcome END, state, runner, "
    "updated_ms FROM call_task WHERE channel = ? AND runner <> ? AND opened_ms > ? ORDER BY seq"
)
GOING = ("running", "cancelling")
LOST = "the server that ran this job has ended; what it did so far is not known"
TOO_LONG = "the result is too long to be kept; the server that ran the job has it"


class KeptJob:
    """A job that another server runs or ran."""

    def __init__(self, user: str, value: dict[str, Any], lost_ms: int = 0) -> None:
        """`lost_ms` is when its server was seen to have ended, before the job did."""
        self.user = user
        line = msgspec.convert(value["line"], JobLineAnswer)
        self._result = value["result"]
        self._problem = value["problem"] and msgspec.convert(value["problem"], ProblemAnswer)
        if lost_ms:
            line = replace(line, state="failed", ended_ms=lost_ms)
            self._problem = ApiProblem(503, "job-lost", LOST).answer()
        self._line = line
        self.id, self.begun_ms = line.id, line.begun_ms

    @property
    def state(self) -> JobState:
        return self._line.state

    def line(self) -> JobLineAnswer:
        return self._line

    def answer(self) -> JobAnswer:
        return JobAnswer(line=self._line, result=self._result, problem=self._problem)

    def without_result(self) -> KeptJob:
        self._result = None
        return self


class JobRows:
    """The jobs of all servers of a state, as one of them sees them."""

    def __init__(
        self, state_directory: Path, connections: Connections, *, clock: Callable[[], float]
    ) -> None:
        self._path = state_directory / STATE_FILE
        self._connections = connections
        self._clock = state_clock(self._path, clock)
        self._runner = new_connection()
        """This server, where it runs jobs."""
        self._ended: dict[tuple[str, int], KeptJob | None] = {}
        """Those of other servers that had ended when they were read, by their row and its time."""

    def open(self, job_id: str, kind: str, user: str, answer: JobAnswer) -> None:
        """Keep a new job; StateError, or OSError, if that fails."""
        # INVARIANT: alive before the row is there, so that no server takes its job for a lost one.
        self._connections.hold(self._runner)
        now = self._now_ms()
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                # One that runs is not forgotten for others: its server would take it for ended.
                "DELETE FROM call_task WHERE channel = ? AND (opened_ms <= ? OR "
                "state IN ('done', 'cancelled') AND seq IN (SELECT seq FROM call_task "
                "WHERE channel = ? ORDER BY seq DESC LIMIT 1000 OFFSET ?))",
                (CHANNEL, now - KEEP_MS, CHANNEL, KEPT_MAX - 1),
            )
            connection.execute(
                "INSERT INTO call_task (digest, agent, user_name, channel, client, connection, "
                "tool, arguments, state, approval, outcome, runner, opened_ms, updated_ms) "
                "VALUES (?, '', ?, ?, '', '', ?, '', 'running', '', ?, ?, ?, ?)",
                (_key(job_id), user, CHANNEL, kind, _text(answer), self._runner, now, now),
            )

    def keep(self, job_id: str, answer: JobAnswer) -> bool:
        """Keep how far a job is; False if another server was asked to end it."""
        query = GOES_ON if answer.line.ended_ms is None else ENDS
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            changed = connection.execute(
                query, (_text(answer), self._now_ms(), _key(job_id))
            ).rowcount
        return bool(changed)

    def end(self, job_id: str) -> None:
        """Ask the server that runs a job to end it."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "UPDATE call_task SET state = 'cancelling' WHERE digest = ? AND state = 'running'",
                (_key(job_id),),
            )

    def get(self, job_id: str) -> KeptJob | None:
        return self._get(_key(job_id))

    def elsewhere(self) -> list[KeptJob]:
        """Return the jobs of other servers, without their results.

        It is asked at each commit: what has ended is read once.
        """
        with pooled(self._path, STATE) as store:
            rows = store.rows(ELSEWHERE, (CHANNEL, self._runner, self._now_ms() - KEEP_MS))
        known, ended = dict(self._ended), {}
        found: list[KeptJob | None] = []
        for row in rows:
            key, state, place = str(row[0]), row[3], (str(row[0]), int(row[5]))
            if state != "done":
                found.append(self._job(*row))
                continue
            if place not in known:
                whole = self._get(key)
                known[place] = whole and whole.without_result()
            ended[place] = known[place]
            found.append(known[place])
        self._ended = ended
        return [one for one in found if one is not None]

    def close(self) -> None:
        self._connections.end(self._runner)

    def _get(self, key: str) -> KeptJob | None:
        with pooled(self._path, STATE) as store:
            query = f"{_COLUMNS} WHERE digest = ? AND opened_ms > ?"
            rows = store.rows(query, (key, self._now_ms() - KEEP_MS))
        return self._job(*rows[0]) if rows else None

    def _job(
        self, key: str, user: str, outcome: str, state: str, runner: str, updated_ms: int
    ) -> KeptJob | None:
        is_lost = state in GOING and not self._connections.is_live(runner)
        try:
            # Not `json.loads`: it takes half of a character, which no answer can hold.
            value = msgspec.json.decode(outcome)
            job = KeptJob(user, value, self._now_ms() if is_lost else 0)
            plain(job.answer())
        except (msgspec.MsgspecError, ValueError, KeyError, TypeError, RecursionError):
            # Of a later version, whose server shows it, or of whoever else writes the state; the
            # others are shown all the same.
            logger.debug("a job is not one of this version", exc_info=True)
            return None
        if is_lost:
            self._lose(key, updated_ms, job)
        return job

    def _lose(self, key: str, updated_ms: int, job: KeptJob) -> None:
        """Keep that a job has ended with its server: by this commit each other server sees it.

        Its server may be there after all, and have written meanwhile: then that counts.
        """
        try:
            with pooled(self._path, STATE) as store, store.transaction() as connection:
                lost = (_text(job.answer()), self._now_ms(), key, updated_ms)
                connection.execute(LOSES, lost)
        except SkillhouseError as error:
            # Who reads it next tries again.
            logger.warning("that a job is lost cannot be kept: %s", error)

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)


def _key(job_id: str) -> str:
    # Tasks of clients have a SHA-256 there, and no job can have the name of one.
    return f"{CHANNEL}:{job_id}"


def _text(answer: JobAnswer) -> str:
    """Return a job as the state keeps it; its parts are read again as what they were."""
    value = {
        "line": msgspec.to_builtins(answer.line),
        "result": plain(answer.result),
        "problem": msgspec.to_builtins(answer.problem),
    }
    text = json.dumps(value)
    if len(text) <= RESULT_MAX:
        return text
    short = ApiProblem(507, "result-too-long", TOO_LONG).answer()
    return json.dumps({**value, "result": None, "problem": msgspec.to_builtins(short)})
