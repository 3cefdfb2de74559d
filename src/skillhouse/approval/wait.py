"""Waits for an answer, in whatever process it is given."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import anyio
from anyio.lowlevel import RunVar

from skillhouse.approval.request import (
    LASTING,
    Answer,
    Approval,
    ApprovalError,
    ApprovalState,
    Channel,
    Reply,
    allowed_answers,
    closed,
)
from skillhouse.floor import StateError
from skillhouse.floor.threads import in_thread

if TYPE_CHECKING:
    from skillhouse.approval.broker import ApprovalBroker
    from skillhouse.approval.ledger import Ledger

POLL_SECONDS = 0.1
"""How long an answer of another process may go unnoticed; a look costs two `stat` calls."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalOutcome:
    """How a question stands."""

    status: Literal["approved", "denied", "pending"]
    reason: str
    approval: Approval | None = None
    """None when the question was not even asked."""


class SessionLocks:
    """Lets one question of a conversation be asked at a time; the others wait in line (S000-81)."""

    def __init__(self) -> None:
        # Locks belong to one event loop, and a house may be used from several.
        self._locks: RunVar[dict[str, tuple[anyio.Lock, int]]] = RunVar("approval turns")

    @asynccontextmanager
    async def of(self, session: str) -> AsyncIterator[None]:
        """Wait for the turn of a conversation's call."""
        locks = self._locks.get({})
        self._locks.set(locks)
        lock, users = locks.get(session, (anyio.Lock(), 0))
        locks[session] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            users = locks[session][1] - 1
            if users:
                locks[session] = (lock, users)
            else:
                del locks[session]


async def wait_for_answer(
    broker: ApprovalBroker, ledger: Ledger, question: Approval, *, waits: bool
) -> Approval:
    """Ask all channels at once and return the question with the first valid answer.

    Where nobody can be asked, it is returned open; where nobody answers in time, it is closed.

    Args:
        broker: Whose channels are asked; takes the answers.
        ledger: Where answers of other processes show.
        question: An open question.
        waits: Whether somebody else in this process may answer.
    """
    settings = broker.settings
    wait_seconds = question.request.wait_seconds or settings.wait_seconds
    waits = waits or settings.unattended == "deny"
    asking = len(broker.channels)
    moved = anyio.Event()

    async def ask(channel: Channel) -> None:
        nonlocal asking, moved
        try:
            counts = await _answered(broker, channel, question)
        except Exception:
            # Somebody else's code: a way that fails is a way on which nobody answers.
            logger.exception("a channel of approvals failed")
            counts = False
        if not counts:
            asking -= 1
        moved.set()

    seen: tuple[int, ...] = ()
    current = question
    failed: StateError | None = None
    async with anyio.create_task_group() as tasks:
        for channel in broker.channels:
            tasks.start_soon(ask, channel)
        with anyio.move_on_after(wait_seconds):
            while current.state is ApprovalState.OPEN and (asking or waits):
                with anyio.move_on_after(POLL_SECONDS):
                    await moved.wait()
                moved = anyio.Event()
                stamp = ledger.stamp()
                if stamp != seen:
                    try:
                        found = await in_thread(lambda: ledger.get(question.id))
                        seen, current = stamp, found or question
                    except StateError as error:
                        # Raised below: a task group would wrap it.
                        failed = error
                        break
        tasks.cancel_scope.cancel()
    if failed is not None:
        raise failed
    if current.state is ApprovalState.OPEN and (asking or waits):
        message = f"nobody answered within {wait_seconds:g} seconds"
        await in_thread(lambda: ledger.expire(question.id, message))
    return await in_thread(lambda: ledger.get(question.id)) or question


async def _answered(broker: ApprovalBroker, channel: Channel, question: Approval) -> bool:
    """Ask one channel; whether it gave an answer that counts."""
    request = question.request
    reply = await channel.ask(request)
    if reply is None:
        return False
    if isinstance(reply, Answer):
        reply = Reply(answer=reply, by=request.user, channel=request.channel)
    answer = reply.answer
    if answer in LASTING and answer not in allowed_answers(request):
        answer = Answer.ONCE
    try:
        await in_thread(
            lambda: broker.answer(
                question.id,
                answer,
                by=reply.by,
                channel=reply.channel,
                nonce=request.nonce,
                message=reply.message,
            )
        )
    except ApprovalError as error:
        logger.info("an answer did not count: %s", error)
        # Somebody else was faster, which is an answer as well.
        return error.code in ("answered", "expired", "used")
    return True


def outcome_of(found: Approval) -> ApprovalOutcome:
    """Return how a question stands after it was asked."""
    if found.state is ApprovalState.APPROVED:
        return ApprovalOutcome(status="approved", reason="", approval=found)
    if found.state is ApprovalState.OPEN:
        return ApprovalOutcome(status="pending", reason="waits for an answer", approval=found)
    return ApprovalOutcome(status="denied", reason=closed(found)[1], approval=found)
