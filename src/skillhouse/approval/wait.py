"""Waits for an answer, in whatever process it is given."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import Literal

import anyio
from anyio.lowlevel import RunVar
from msgspec import Struct

from skillhouse.approval.ledger import Ledger
from skillhouse.approval.request import (
    LASTING,
    Answer,
    Approval,
    ApprovalError,
    ApprovalState,
    Channel,
    Reply,
    allowed_answers,
    why_closed,
)
from skillhouse.floor import StateError
from skillhouse.floor.structs import replace
from skillhouse.floor.threads import in_thread

POLL_SECONDS = 0.1
"""Delay until an answer of another process is noticed; one check costs two `stat` calls."""
LOOK_SECONDS = 1.0
"""After which a question is looked at, whether or not its file seems to have changed."""

AWAITED: ContextVar[list[str] | None] = ContextVar("awaited approvals", default=None)
"""Where a caller set a list: the ids of the questions that its call waits for now, newest last."""

logger = logging.getLogger(__name__)


class ApprovalOutcome(Struct, frozen=True, kw_only=True):
    """How the wait for an answer ended."""

    status: Literal["approved", "denied", "pending"]
    reason: str
    approval: Approval | None = None
    """None when the question was not even asked."""
    is_new: bool = True
    """Whether the call opened the question; otherwise an earlier call of it did."""


class SessionLocks:
    """Serialises the questions of one conversation (S000-81)."""

    def __init__(self) -> None:
        # Locks belong to one event loop, and a process may have several.
        self._locks: RunVar[dict[str, tuple[anyio.Lock, int]]] = RunVar("approval turns")

    @asynccontextmanager
    async def of(self, session: str) -> AsyncIterator[None]:
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


RULES_TRIED_MAX = 3
"""Answers of one channel with a rule that is wider than what was offered."""
TakeAnswer = Callable[[Approval, Reply], None]
"""Takes an answer to a question; raises `ApprovalError` for one that does not count."""


async def wait_for_answer(
    question: Approval,
    channels: Sequence[Channel],
    take: TakeAnswer,
    ledger: Ledger,
    *,
    wait_seconds: float,
    waits: bool,
    is_ending: Callable[[], bool] = lambda: False,
) -> Approval:
    """Ask all channels at once and return the question with the first valid answer. Without a
    channel that can ask, it is returned open; without an answer in time, it is closed. `take` gets
    the answers of these channels, `ledger` shows those of other processes; `waits` says that an
    answer may come in another way. Once `is_ending`, the question is returned open at once."""
    asking = len(channels)
    moved = anyio.Event()

    async def ask(channel: Channel) -> None:
        nonlocal asking, moved
        try:
            counts = await _ask_channel(take, channel, question)
        except Exception:
            # Foreign code: a channel that fails gives no answer.
            logger.exception("a channel of approvals failed")
            counts = False
        if not counts:
            asking -= 1
        moved.set()

    seen: tuple[int, ...] = ()
    current = question
    failed: StateError | None = None
    async with anyio.create_task_group() as tasks:
        for channel in channels:
            tasks.start_soon(ask, channel)
        with anyio.move_on_after(wait_seconds):
            while current.state is ApprovalState.OPEN and (asking or waits) and not is_ending():
                with anyio.move_on_after(POLL_SECONDS):
                    await moved.wait()
                moved = anyio.Event()
                stamp = ledger.stamp()
                if stamp != seen:
                    try:
                        kept = await in_thread(lambda: ledger.get(question.id))
                        seen, current = stamp, kept or question
                    except StateError as error:
                        # Raised below: a task group would wrap it.
                        failed = error
                        break
        tasks.cancel_scope.cancel()
    if failed is not None:
        raise failed
    if current.state is ApprovalState.OPEN and (asking or waits) and not is_ending():
        message = f"no answer came within {wait_seconds:g} seconds"
        await in_thread(lambda: ledger.expire(question.id, message))
    return await in_thread(lambda: ledger.get(question.id)) or question


async def wait_until_closed(ledger: Ledger, approval_id: str, wait_seconds: float) -> bool:
    """Wait until a question is open no more, in whatever process that happens; return whether."""
    seen: tuple[int, ...] = ()
    looked = 0.0
    with anyio.move_on_after(wait_seconds):
        while True:
            stamp, now = ledger.stamp(), anyio.current_time()
            # Two changes within the clock of the file system have one stamp.
            if stamp != seen or now - looked > LOOK_SECONDS:
                seen, looked = stamp, now
                kept = await in_thread(lambda: ledger.get(approval_id))
                if kept is None or kept.state is not ApprovalState.OPEN:
                    return True
            await anyio.sleep(POLL_SECONDS)
    return False


async def _ask_channel(take: TakeAnswer, channel: Channel, question: Approval) -> bool:
    """Ask a person by one channel; return whether the question has an answer now."""
    request = question.request
    for _ in range(RULES_TRIED_MAX):
        reply = await channel.ask(request)
        if reply is None:
            return False
        if isinstance(reply, Answer):
            reply = Reply(answer=reply, by=request.user, channel=request.channel)
        if reply.answer in LASTING and reply.answer not in allowed_answers(request):
            reply = replace(reply, answer=Answer.ONCE, rules=())
        try:
            await in_thread(partial(take, question, reply))
        except ApprovalError as error:
            logger.info("an answer did not count: %s", error)
            if error.code == "too-wide":
                # The person sees why, and answers again.
                request = replace(question.request, reasons=(*request.reasons, str(error)))
                continue
            # Another answer was faster, which counts as well.
            return error.code in ("answered", "expired", "used")
        return True
    return False


def outcome_of(approval: Approval) -> ApprovalOutcome:
    if approval.state is ApprovalState.APPROVED:
        return ApprovalOutcome(status="approved", reason="", approval=approval)
    if approval.state is ApprovalState.OPEN:
        return ApprovalOutcome(status="pending", reason="waits for an answer", approval=approval)
    return ApprovalOutcome(status="denied", reason=why_closed(approval)[1], approval=approval)
