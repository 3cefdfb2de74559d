"""Publishes what changes outside of this process: skills, questions, answers, calls.

Other processes share the state and the log, so both are looked at; without a reader nothing is.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from skillhouse.answers.approvals import question_event
from skillhouse.answers.json_form import JsonAnswer, members
from skillhouse.answers.service import IndexEventAnswer, JobLineAnswer, call_event
from skillhouse.approval import ApprovalState
from skillhouse.audit import AuditError, Query, entries_of, timestamp
from skillhouse.extensions.server.api.events import Event, event_data
from skillhouse.floor import SkillhouseError
from skillhouse.floor.threads import in_thread
from skillhouse.store import STATE_FILE, commit_stamp, state_exists

if TYPE_CHECKING:
    from skillhouse.extensions.server.api.events import EventLog
    from skillhouse.extensions.server.api.job_rows import KeptJob
    from skillhouse.extensions.server.status import StatusReader
    from skillhouse.house import HouseSnapshot, Skillhouse

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.4
SCAN_EVERY = 5
"""Skills are scanned at each of so many looks."""
LATEST = 100
"""Questions, and records of the log, that are compared at most."""
MISSED_MS = 3_600_000
"""For how long a reader may have been away that comes from another server."""
SLACK_MS = 2_000
"""By how much clocks of servers may differ, with how late a server notices; a reader gets what is
in this time twice."""


@asynccontextmanager
async def beside(run: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run something that does not end by itself while the context lasts.

    After a fault it begins again: with it `/mcp` and all else of the application would end.
    """

    async def go_on() -> None:
        while True:
            try:
                await run()
            except Exception:
                logger.exception("looking for news")
            await anyio.sleep(LOOK_SECONDS)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(go_on)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()


def _event(kind: str, value: JsonAnswer, at_ms: int, *, user: str) -> Event:
    return Event(number=0, kind=kind, user=user, data=event_data(value), at_ms=at_ms)


class EventWatch:
    """Compares with what it saw last; one look at a time."""

    def __init__(self, house: Skillhouse, reader: StatusReader, events: EventLog) -> None:
        self._house = house
        self._reader = reader
        self._events = events
        self._stamp: tuple[int, ...] = ()
        self._states: dict[str, str] | None = None
        self._size: tuple[int, int] | None = None
        self._seen: dict[str, str] | None = None
        self._snapshot: HouseSnapshot | None = None
        self._lines: dict[str, JobLineAnswer] | None = None
        self.jobs: Callable[[], Sequence[KeptJob]] = lambda: ()
        """Returns the jobs of other servers; those of this one publish by themselves."""
        self._marked: tuple[HouseSnapshot | None, str] = (None, "")
        # INVARIANT: one look at a time, also that of a reader who comes from another server.
        self._lock = threading.Lock()
        events.missed = self.missed
        events.mark = self._mark

    def running(self) -> AbstractAsyncContextManager[None]:
        """Look while the context lasts and there are readers."""
        return beside(self._run)

    async def _run(self) -> None:
        is_looking = False
        for number in itertools.count():
            if self._events.readers:
                scans = not is_looking or number % SCAN_EVERY == 0
                knows_before = self._states is not None
                await in_thread(partial(self.look, scans=scans))
                if not is_looking and not knows_before:
                    # What changed between a reader's page and this first look is in no event.
                    self._events.publish("reset", self._events.reset)
                is_looking = True
            else:
                is_looking = False
                self._states = self._seen = self._snapshot = self._size = self._lines = None
                self._stamp = ()
            await anyio.sleep(LOOK_SECONDS)

    def look(self, *, scans: bool = True) -> None:
        """Publish what differs from the look before; the first one publishes nothing."""
        try:
            with self._lock:
                self._look(scans=scans)
        except (SkillhouseError, OSError):
            # A state that cannot be read now; requests say so.
            logger.exception("looking for events")

    def _look(self, *, scans: bool = True) -> None:
        self._look_at_questions()
        if scans and any(one.ended_ms is None for one in (self._lines or {}).values()):
            # One whose server has died ends without a commit, unless a server looks.
            self._look_at_jobs()
        self._look_at_calls()
        if scans:
            self._look_at_skills()

    def missed(self, since_ms: int, mark: str) -> Sequence[Event] | None:
        """Return the questions, answers, jobs and calls since a time, by the state and the log.

        What happened in the last moment before it is among them: clocks differ, and a server
        notices late. None where there may be more than these, or the skills were others.
        """
        now_ms = self._events.now_ms()
        try:
            with self._lock:
                # What changes after this is seen by the next look.
                self._look()
                if not mark or mark != self._mark() or not 0 <= now_ms - since_ms < MISSED_MS:
                    return None
                return self._since(since_ms - SLACK_MS)
        except (SkillhouseError, OSError):
            logger.exception("looking for events that a reader missed")
            return None

    def _since(self, since_ms: int) -> Sequence[Event] | None:
        found: list[Event] = []
        questions = self._house.approvals.latest(LATEST)
        for one in questions:
            for kind, at_ms in (("question", one.request.opened_ms), ("answer", one.closed_ms)):
                if at_ms > since_ms:
                    user = one.request.user
                    found.append(_event(kind, question_event(one), at_ms, user=user))
        for job in self.jobs():
            at_ms = job.line().ended_ms or self._events.now_ms()
            if at_ms > since_ms:
                found.append(_event("job", job.line(), at_ms, user=job.user))
        log = self._house.audit_log
        query = Query(since=timestamp(since_ms))
        calls = list(itertools.islice(entries_of(log.path, query, key=log.key), LATEST))
        if len(calls) == LATEST or (
            len(questions) == LATEST and questions[-1].request.opened_ms > since_ms
        ):
            return None
        for call in calls:
            at_ms = int(datetime.fromisoformat(call.record.ts).timestamp() * 1000)
            found.append(_event("call", call_event(call), at_ms, user=call.record.user))
        return sorted(found, key=lambda one: one.at_ms)

    def _mark(self) -> str:
        snapshot = self._house.snapshot
        if self._marked[0] is not snapshot:
            skills = sorted(repr((one.id, one.frontmatter)) for one in snapshot.index.skills)
            self._marked = (snapshot, hashlib.sha256("\n".join(skills).encode()).hexdigest()[:12])
        return self._marked[1]

    def _look_at_questions(self) -> None:
        path = self._house.config.state_directory / STATE_FILE
        if not state_exists(path):
            self._states = {}
            return
        stamp = commit_stamp(path)
        if stamp == self._stamp:
            return
        # Before what is seen counts as seen: after a fault the next look has both once more.
        self._look_at_jobs()
        found = self._house.approvals.latest(LATEST)
        before, self._states = self._states, {one.id: one.state.value for one in found}
        self._stamp = stamp
        if before is None:
            return
        for one in reversed(found):
            if before.get(one.id) == one.state.value:
                continue
            kind = "question" if one.state is ApprovalState.OPEN else "answer"
            self._events.publish(kind, question_event(one), user=one.request.user)

    def _look_at_jobs(self) -> None:
        found = self.jobs()
        before, self._lines = self._lines, {one.id: one.line() for one in found}
        if before is None:
            return
        for one in found:
            if before.get(one.id) != one.line():
                self._events.publish("job", one.line(), user=one.user)

    def _look_at_calls(self) -> None:
        log = self._house.audit_log
        try:
            found = os.stat(log.path)
        except FileNotFoundError:
            self._size = (0, 0)
            return
        size = (found.st_ino, found.st_size)
        if size == self._size:
            return
        is_first, self._size = self._size is None, size
        try:
            newest = list(itertools.islice(entries_of(log.path, Query(), key=log.key), LATEST))
        except AuditError:
            return
        before = self._seen or {}
        self._seen = {one.record.id: one.status for one in newest}
        if is_first:
            return
        for one in reversed(newest):
            if before.get(one.record.id) != one.status:
                self._events.publish("call", call_event(one), user=one.record.user)

    def _look_at_skills(self) -> None:
        self._reader.scan()
        with self._reader.using() as house:
            now = house.snapshot
            before, self._snapshot = self._snapshot, now
            if before is None or before is now:
                return
            found = now.since(before)
        value = IndexEventAnswer(
            added=[skill.id for skill in found.added],
            removed=[skill.id for skill in found.removed],
            changed=[skill.id for skill in found.changed],
            findings=found.findings,
        )
        if any(members(value).values()):
            self._events.publish("index", value)
