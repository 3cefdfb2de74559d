"""Publishes what changes outside of this process: skills, questions, answers, calls.

Other processes share the state and the log, so both are looked at; without a reader nothing is.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from skillhouse.approval import ApprovalState
from skillhouse.audit import AuditError, Query, entries_of
from skillhouse.floor import SkillhouseError
from skillhouse.floor.threads import in_thread
from skillhouse.frontends.answers.approvals import question_event
from skillhouse.frontends.answers.json_form import members
from skillhouse.frontends.answers.service import IndexEventAnswer, call_event
from skillhouse.store import STATE_FILE, commit_stamp, state_exists

if TYPE_CHECKING:
    from skillhouse.extensions.server.api.events import EventLog
    from skillhouse.extensions.server.status import StatusReader
    from skillhouse.house import HouseSnapshot, Skillhouse

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.4
SCAN_EVERY = 5
"""Skills are scanned at each of so many looks."""
LATEST = 100
"""Questions, and records of the log, that are compared at most."""


@asynccontextmanager
async def beside(run: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run something that does not end by itself while the context lasts."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()


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

    def running(self) -> AbstractAsyncContextManager[None]:
        """Look while the context lasts and there are readers."""
        return beside(self._run)

    async def _run(self) -> None:
        is_looking = False
        for number in itertools.count():
            if self._events.readers:
                scans = not is_looking or number % SCAN_EVERY == 0
                await in_thread(partial(self.look, scans=scans))
                if not is_looking:
                    # What changed between a reader's page and this first look is in no event.
                    self._events.publish("reset", self._events.reset)
                is_looking = True
            else:
                is_looking = False
                self._states = self._seen = self._snapshot = self._size = None
                self._stamp = ()
            await anyio.sleep(LOOK_SECONDS)

    def look(self, *, scans: bool = True) -> None:
        """Publish what differs from the look before; the first one publishes nothing."""
        try:
            self._look_at_questions()
            self._look_at_calls()
            if scans:
                self._look_at_skills()
        except (SkillhouseError, OSError):
            # A state that cannot be read now; requests say so.
            logger.exception("looking for events")

    def _look_at_questions(self) -> None:
        path = self._house.config.state_directory / STATE_FILE
        if not state_exists(path):
            self._states = {}
            return
        stamp = commit_stamp(path)
        if stamp == self._stamp:
            return
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
