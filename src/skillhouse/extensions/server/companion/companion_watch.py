"""Notes to apps that are closed, and the warning before only reads go on (S000-110)."""

from __future__ import annotations

import logging
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Literal

import anyio

from skillhouse.answers.service import CompanionEventAnswer
from skillhouse.approval import OWNER, Approval
from skillhouse.extensions.server.api.event_watch import beside
from skillhouse.floor import SkillhouseError
from skillhouse.floor.threads import in_thread

if TYPE_CHECKING:
    from skillhouse.extensions.server.api.events import EventLog
    from skillhouse.extensions.server.companion.app_pushes import Pushes, Subscription
    from skillhouse.house import Skillhouse

LOOK_SECONDS = 1.0
AWAY_EVERY = 10
"""How long the app is away is looked at with each of so many looks."""
TOOL_CHARACTERS = 80

logger = logging.getLogger(__name__)


class CompanionWatch:
    """One look at a time; what was sent to whom is in the state, for all servers of it."""

    def __init__(self, house: Skillhouse, pushes: Pushes, events: EventLog) -> None:
        self._house = house
        self._enforcement = house.services.enforcement
        self._companion = house.services.companion
        self._pushes = pushes
        self._events = events
        self._sent: dict[str, set[str]] = {}
        """Ids of the questions, and the words of warnings, that each device has got, as far as this
        server knows."""
        self._away: Literal["back", "soon", "now"] = "back"

    def running(self) -> AbstractAsyncContextManager[None]:
        return beside(self._run)

    async def _run(self) -> None:
        number = 0
        while True:
            try:
                await self.look(with_away=number % AWAY_EVERY == 0)
            except (SkillhouseError, OSError):
                # A state that cannot be read now; requests say so.
                logger.exception("looking for companion apps")
            number += 1
            await anyio.sleep(LOOK_SECONDS)

    async def look(self, *, with_away: bool = True) -> None:
        if with_away:
            await in_thread(self.look_at_absence)
        failed = set()
        for to, note in await in_thread(self._due):
            if to.device in failed:
                continue  # It has to wait, and holds no other up.
            key = _key(note)
            found = await in_thread(partial(self._pushes.take, to.device, key))
            if found == "taken":
                is_sent = await self._pushes.send(to, note)
                await in_thread(partial(self._pushes.note_sent, to.device, key, is_sent=is_sent))
                if not is_sent:
                    failed.add(to.device)
                    continue
            if found != "busy":
                self._sent.setdefault(to.device, set()).add(key)

    def look_at_absence(self) -> None:
        """Publish when the warning begins, when only reads go on, and when that is over."""
        minutes = self._companion.warning()
        state: Literal["back", "soon", "now"] = (
            "back" if minutes is None else "soon" if minutes else "now"
        )
        if state == self._away:
            return
        if state == "back":
            # First: where the state is away, the next look does it, and the next absence is said.
            self._pushes.forget("away")
        self._away = state
        for sent in self._sent.values():
            sent.discard("away")
        self._events.publish("companion", CompanionEventAnswer(state=state, minutes=minutes))

    def _due(self) -> list[tuple[Subscription, dict[str, str]]]:
        due = self._pushes.due()
        if not due:
            return []
        pending = self._house.approvals.pending()
        users = {one.id: one.user for one in self._enforcement.devices.all()}
        open_ids = {one.id for one in pending} | {"away"}
        found = []
        for to in due:
            sent = self._sent.setdefault(to.device, set())
            sent &= open_ids
            user = users.get(to.device)
            wanted = [_question_note(one) for one in pending if user in (OWNER, one.request.user)]
            if self._away == "soon":
                wanted.append({"kind": "away", "id": "", "tool": ""})
            found += [(to, note) for note in wanted if _key(note) not in sent]
        return found


def _question_note(question: Approval) -> dict[str, str]:
    # No word of what is asked: a push service and a locked screen see this.
    tool = question.request.tool[:TOOL_CHARACTERS]
    return {"kind": "question", "id": question.id, "tool": tool}


def _key(note: dict[str, str]) -> str:
    return note["id"] or note["kind"]
