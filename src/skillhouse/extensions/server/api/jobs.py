"""Work that takes long: one piece at a time, on a thread, with its progress among the events."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from skillhouse.extensions.server.api.problems import ApiProblem, problem_of, problem_value
from skillhouse.floor import SkillhouseError

if TYPE_CHECKING:
    from skillhouse.extensions.server.api.events import EventLog

JOBS_MAX = 20
"""Jobs that are known, each with its result: those that ended are forgotten first."""
WAITING_MAX = 10
PROGRESS_SECONDS = 0.25
"""Time between two events about the progress of one job."""
ENDED = ("done", "failed", "cancelled")


class JobCancelledError(SkillhouseError):
    """A job was cancelled while it fetched something; nothing was changed since."""

    code = "cancelled"


class Job:
    """One piece of work; its own thread writes, others read."""

    def __init__(self, kind: str, user: str, publish: Callable[[Job], None], now: float) -> None:
        """`now` is in seconds since 1970."""
        self.id = secrets.token_hex(8)
        self.kind = kind
        self.user = user
        self.state = "waiting"
        """waiting, running, done, failed or cancelled."""
        self.message = ""
        self.progress: tuple[int, int, str] = (0, 0, "")
        """Done, of how much (0: not known), and the unit."""
        self.result: Any = None
        self.problem: dict[str, Any] | None = None
        self.begun_ms = int(now * 1000)
        self.ended_ms = 0
        self.cancelled = threading.Event()
        self._publish = publish
        self._published = 0.0

    def report(self, line: str) -> None:
        """Say which step begins; JobCancelledError if it must not."""
        self._check()
        self.message, self.progress = line, (0, 0, "")
        self._publish(self)

    def advance(self, done: int, total: int, unit: str, *, now: float) -> None:
        """Note how far a step is; JobCancelledError if it must end."""
        self._check()
        self.progress = (done, total, unit)
        if now - self._published >= PROGRESS_SECONDS:
            self._published = now
            self._publish(self)

    def _check(self) -> None:
        if self.cancelled.is_set():
            raise JobCancelledError("the job was cancelled")

    def line(self) -> dict[str, Any]:
        """Return the job without what came of it."""
        done, total, unit = self.progress
        return {
            "id": self.id,
            "kind": self.kind,
            "state": self.state,
            "message": self.message,
            "progress": done,
            "total": total or None,
            "unit": unit,
            "begun_ms": self.begun_ms,
            "ended_ms": self.ended_ms or None,
        }

    def value(self) -> dict[str, Any]:
        return {**self.line(), "result": self.result, "problem": self.problem}


class Jobs:
    """The jobs of one service."""

    def __init__(
        self, events: EventLog, *, clock: Callable[[], float], moment: Callable[[], float]
    ) -> None:
        """`clock` gives seconds since 1970, `moment` those of a clock that never goes back."""
        self._events = events
        self._clock = clock
        self._moment = moment
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None

    def start(self, kind: str, user: str, work: Callable[[Job], Any]) -> Job:
        """Have work done after that which waits; what it returns is the job's result.

        Raises:
            ApiProblem: 429, as many wait as may.
        """
        job = Job(kind, user, self._publish, self._clock())
        with self._lock:
            if sum(one.state == "waiting" for one in self._jobs.values()) >= WAITING_MAX:
                text = f"{WAITING_MAX} jobs wait already"
                raise ApiProblem(429, "too-many-jobs", text, headers={"retry-after": "5"})
            ended = [one.id for one in self._jobs.values() if one.state in ENDED]
            for known in ended[: max(0, len(self._jobs) + 1 - JOBS_MAX)]:
                del self._jobs[known]
            self._jobs[job.id] = job
            if self._threads is None:
                # One thread: two installs at once would wait for each other's locks.
                self._threads = ThreadPoolExecutor(1, thread_name_prefix="skillhouse-job")
            threads = self._threads
        self._publish(job)
        threads.submit(self._run, job, work)
        return job

    def all(self) -> list[Job]:
        """Return the jobs, the newest first."""
        with self._lock:
            return list(reversed(self._jobs.values()))

    def get(self, job_id: str) -> Job | None:
        with self._lock:
            return self._jobs.get(job_id)

    def cancel(self, job: Job) -> None:
        """End a job before its next step, or as it goes on fetching; never within a change."""
        job.cancelled.set()
        if job.state == "waiting":
            self._end(job, "cancelled")

    def close(self) -> None:
        """End all jobs and wait for the one that runs."""
        for job in self.all():
            job.cancelled.set()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def moment(self) -> float:
        return self._moment()

    def _run(self, job: Job, work: Callable[[Job], Any]) -> None:
        if job.cancelled.is_set():
            if job.state == "waiting":
                self._end(job, "cancelled")
            return
        job.state = "running"
        self._publish(job)
        try:
            job.result = work(job)
        except Exception as error:  # noqa: BLE001 - the edge of one job.
            if job.cancelled.is_set() and isinstance(error, SkillhouseError):
                # Whatever it became on its way: a step names the error that ended it.
                self._end(job, "cancelled")
                return
            found = problem_of(error)
            job.problem = problem_value(found.status, found.code, str(found), **found.more)
            self._end(job, "failed")
        else:
            self._end(job, "done")

    def _end(self, job: Job, state: str) -> None:
        job.ended_ms = int(self._clock() * 1000)
        job.state = state
        self._publish(job)

    def _publish(self, job: Job) -> None:
        self._events.publish("job", job.line(), user=job.user)
