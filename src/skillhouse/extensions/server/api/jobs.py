"""Work that takes long: one piece at a time, on a thread, with its progress among the events."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from skillhouse.answers.json_form import copied
from skillhouse.answers.service import JobAnswer, JobLineAnswer, JobState
from skillhouse.extensions.server.api.job_rows import JobRows, KeptJob
from skillhouse.extensions.server.api.problems import ApiProblem, problem_of
from skillhouse.floor import SkillhouseError

if TYPE_CHECKING:
    from skillhouse.answers.errors import ProblemAnswer
    from skillhouse.answers.json_form import ListAnswer
    from skillhouse.extensions.server.api.events import EventLog

JOBS_MAX = 20
"""Jobs that are known, each with its result: those that ended are forgotten first."""
WAITING_MAX = 10
PROGRESS_SECONDS = 0.25
"""Time between two events about the progress of one job."""
KEEP_SECONDS = 1.0
"""Time between two changes of its row, and so until it ends where another server is asked to end
it."""
ENDED = ("done", "failed", "cancelled")

logger = logging.getLogger(__name__)


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
        self.state: JobState = "waiting"
        self.message = ""
        self.progress: tuple[int, int, str] = (0, 0, "")
        """Done, of how much (0: not known), and the unit."""
        self.result: ListAnswer | None = None
        self.problem: ProblemAnswer | None = None
        self.begun_ms = int(now * 1000)
        self.ended_ms = 0
        self.cancelled = threading.Event()
        self._publish = publish
        self._published = 0.0
        self.kept = float("-inf")
        """When its row was written last."""
        self.keeping = threading.Lock()
        """Held while its row is written: what it was is never written after what it is."""

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

    def line(self) -> JobLineAnswer:
        """Return the job without what came of it."""
        done, total, unit = self.progress
        ended = self.ended_ms or None
        return copied(
            JobLineAnswer, self, progress=done, total=total or None, unit=unit, ended_ms=ended
        )

    def answer(self) -> JobAnswer:
        return JobAnswer(line=self.line(), result=self.result, problem=self.problem)


class Jobs:
    """The jobs of one service."""

    def __init__(
        self,
        events: EventLog,
        *,
        clock: Callable[[], float],
        moment: Callable[[], float],
        rows: JobRows | None = None,
    ) -> None:
        """`clock` gives seconds since 1970, `moment` those of a clock that never goes back; `rows`
        are those of all servers of the state, None for this one alone."""
        self._events = events
        self._clock = clock
        self._moment = moment
        self._rows = rows
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None

    def start(self, kind: str, user: str, work: Callable[[Job], ListAnswer | None]) -> Job:
        """Have work done after that which waits; what it returns is the job's result.

        Raises:
            ApiProblem: 429, as many wait as may.
            StateError: the job cannot be kept, so other servers would know nothing of it.
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
        if self._rows is not None:
            try:
                self._rows.open(job.id, kind, user, job.answer())
            except (SkillhouseError, OSError):
                with self._lock:
                    del self._jobs[job.id]
                raise
        self._publish(job)
        threads.submit(self._run, job, work)
        return job

    def all(self) -> list[Job | KeptJob]:
        """Return the jobs, the newest first; also those of other servers of the state."""
        with self._lock:
            own = list(self._jobs.values())
        found: list[Job | KeptJob] = [*self.elsewhere(), *own]
        # Those of one moment as they were begun.
        found.reverse()
        return sorted(found, key=lambda one: -one.begun_ms)

    def elsewhere(self) -> Sequence[KeptJob]:
        """Return the jobs of other servers."""
        return () if self._rows is None else self._rows.elsewhere()

    def get(self, job_id: str) -> Job | KeptJob | None:
        with self._lock:
            own = self._jobs.get(job_id)
        return own if own is not None or self._rows is None else self._rows.get(job_id)

    def cancel(self, job: Job | KeptJob) -> None:
        """End a job before its next step, or as it goes on fetching; never within a change.

        Another server that runs it does so within a second.
        """
        if isinstance(job, KeptJob):
            if self._rows is not None:
                self._rows.end(job.id)
            return
        job.cancelled.set()
        if job.state == "waiting":
            self._end(job, "cancelled")

    def close(self) -> None:
        """End all jobs and wait for the one that runs."""
        with self._lock:
            own = list(self._jobs.values())
        for job in own:
            job.cancelled.set()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        for job in own:
            if job.state == "waiting":
                self._end(job, "cancelled")
        if self._rows is not None:
            self._rows.close()

    def moment(self) -> float:
        return self._moment()

    def _run(self, job: Job, work: Callable[[Job], ListAnswer | None]) -> None:
        if not job.cancelled.is_set():
            job.state = "running"
            self._keep(job)
        if job.cancelled.is_set():
            if job.state in ("waiting", "running"):
                self._end(job, "cancelled")
            return
        self._events.publish("job", job.line(), user=job.user)
        try:
            job.result = work(job)
        except Exception as error:  # noqa: BLE001 - the edge of one job.
            if job.cancelled.is_set() and isinstance(error, SkillhouseError):
                # Whatever it became on its way: a step names the error that ended it.
                self._end(job, "cancelled")
                return
            job.problem = problem_of(error).answer()
            self._end(job, "failed")
        else:
            self._end(job, "done")

    def _end(self, job: Job, state: JobState) -> None:
        job.ended_ms = int(self._clock() * 1000)
        job.state = state
        self._keep(job)
        self._events.publish("job", job.line(), user=job.user)

    def _publish(self, job: Job) -> None:
        if self._moment() - job.kept >= KEEP_SECONDS:
            self._keep(job)
        self._events.publish("job", job.line(), user=job.user)

    def _keep(self, job: Job) -> None:
        """Write its row, and see whether another server was asked to end it."""
        if self._rows is None:
            return
        job.kept = self._moment()
        try:
            with job.keeping:
                is_kept = self._rows.keep(job.id, job.answer())
            if not is_kept:
                job.cancelled.set()
        except (SkillhouseError, OSError) as error:
            # It goes on here; its readers at other servers see it as it was.
            logger.warning("a job cannot be kept: %s", error)
