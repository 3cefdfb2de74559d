"""The tier policy at the gate, and the calls of this process, which a stop ends.

While calls run, their event loop looks for the file of the stop every `LOOK_SECONDS`. While none
runs, nothing looks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Protocol, TypeVar

import anyio
from anyio.from_thread import start_blocking_portal
from msgspec import Struct, field

from skillhouse.floor import StateError
from skillhouse.floor.threads import in_thread
from skillhouse.permission import Effect
from skillhouse.tiers import TierEngine, TierLevel, TierOutcome, TierVerdict
from skillhouse.tiers.emergency_stop import OwnLine
from skillhouse.tiers.tier_values import INLINE, PAGE, Tier
from skillhouse.tools.call import Output, Plan, ToolCall, level_of

STOPPED = "emergency-stopped"
"""The reason of a verdict while everything is stopped."""
RESUME_HINT = "only the owner lets tools run again, at a terminal: ask the user"

logger = logging.getLogger(__name__)


class TierGate:
    """Asks the tiers about each call. Without a policy there is nothing but the stop."""

    def __init__(
        self,
        tiers: TierEngine | None = None,
        *,
        has_policy: bool = False,
        reachable: Callable[[], frozenset[str]] = lambda: frozenset({INLINE, PAGE}),
        background: Callable[[], Background | None] = lambda: None,
    ) -> None:
        """`reachable` gives the channels on which a person can be asked now.

        A stop ends `background` beside the calls. Without tiers nothing is decided or stopped.
        """
        self._tiers = tiers
        self.has_policy = has_policy
        """Whether calls have tiers; a policy file may come and go while this runs."""
        self._reachable = reachable
        self._running = RunningCalls(tiers, background)

    def judge(self, call: ToolCall, plan: Plan, account: Account | None) -> TierVerdict | None:
        """Reserve for the account what the policy says; without an account it is a forecast."""
        if self._tiers is None or not self.has_policy:
            return None
        verdict = self._tiers.judge(
            call.name,
            call.user,
            level=TierLevel(level_of(plan)),
            # All tools of this gate are our own, so their levels can be trusted.
            is_vouched=True,
            arguments=call.arguments,
            spends=plan.spends,
            session_key="active" if plan.session_key else "",
            reachable=self._reachable(),
            reserves=account is not None,
        )
        if account is not None:
            account.reservation = verdict.reservation
        return verdict

    def account(self) -> Account:
        return Account(self._tiers)

    def running(self) -> Running:
        return Running(self._running)

    def close(self) -> None:
        self._running.close()

    async def forget_lifted(self) -> None:
        """Take away the file of a stop that was lifted at another server, before a call is entered.

        What looks while calls run looks at the file alone, and would end this one for that stop.
        """
        if self._tiers is not None and self._tiers.must_end():
            await in_thread(self.refusals)

    def stopped(self) -> TierVerdict | None:
        """Return the refusal of a call that does more than read; None where it may go on."""
        stopped, unknown = self.refusals()
        return stopped or unknown

    def refusals(self) -> tuple[TierVerdict | None, TierVerdict | None]:
        """Return the refusal of every call where all is stopped, and that of every call that does
        more than read where this is not known: the state cannot be reached."""
        if self._tiers is None:
            return None, None
        stopped, unknown = self._tiers.stop_state()
        return (
            _refusal(all_stopped_text(stopped)) if stopped else None,
            _refusal(f"only reads go on: {unknown}") if unknown else None,
        )


def _refusal(message: str) -> TierVerdict:
    return TierVerdict(
        effect=Effect.DENY,
        tier=Tier.NONE,
        effective_tier=Tier.NONE,
        reason=STOPPED,
        message=message,
    )


class Account:
    """What one call holds of cooldowns and allowances."""

    def __init__(self, tiers: TierEngine | None) -> None:
        self._tiers = tiers
        self.reservation = ""
        self.outcome = TierOutcome.WITHDRAWN

    @property
    def holds(self) -> bool:
        return bool(self.reservation)

    def begin(self, *, only_reads: bool) -> str:
        why = self._tiers.begin(self.reservation, only_reads=only_reads) if self._tiers else ""
        if not why:
            # Until more is known: a call that is cancelled may have done all of it.
            self.outcome = TierOutcome.UNKNOWN
        return why

    def ended(self, output: Output, *, signs: bool) -> None:
        if not output.failed:
            self.outcome = TierOutcome.SUCCESS
        elif output.is_unknown:
            self.outcome = TierOutcome.UNKNOWN
        elif signs and not output.waits_for:
            self.outcome = TierOutcome.SIGN_FAILED
        else:
            self.outcome = TierOutcome.FAILED

    def settle(self) -> None:
        """Settle the reservation; where that fails, what was reserved goes on to count."""
        if self._tiers is None or not self.reservation:
            return
        try:
            self._tiers.settle(self.reservation, self.outcome)
        except StateError:
            # The effect may have happened: its result must not be lost for this.
            logger.exception("what a call used up could not be recorded")


def all_stopped_text(reason: str) -> str:
    return f"everything is stopped: {reason}; {RESUME_HINT}"


def stopped_text(reason: str) -> str:
    return f"stopped: {reason}; the call was ended, and what it did before stays; {RESUME_HINT}"


LOOK_SECONDS = 0.1
"""A stop is to end what runs within a second; killing takes some tenths of it."""
ROW_SECONDS = 0.4
"""After which the row of a stop is read while calls run, whether or not it seems to have changed:
notices of other machines may be lost."""


class Background(Protocol):
    """What outlives the calls that started it: the cells of skills' code."""

    @property
    def is_busy(self) -> bool: ...

    async def end(self) -> None:
        """End it; what is needed later starts again."""
        ...


class Running:
    """One call, from the question to a person until its effect has ended: a context manager.

    A stop cancels its block, and what follows the block is done.
    """

    __slots__ = ("_calls", "_loop", "_scope", "is_ended", "reason")

    def __init__(self, calls: RunningCalls) -> None:
        self._calls = calls
        self._scope = anyio.CancelScope()
        self._loop: _Loop | None = None
        self.reason = ""
        """Why a stop cancelled it."""
        self.is_ended = False
        """Whether it came to its end by the stop."""

    def __enter__(self) -> Running:
        self._loop = self._calls.enter(self)
        self._scope.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        try:
            return self._scope.__exit__(kind, error, trace)
        finally:
            self.is_ended |= bool(self.reason) and error is not None
            self._calls.leave(self, self._loop)

    def stopped(self) -> str:
        """Return why a stop ended this call, which did not succeed; "" if it was not a stop."""
        reason = self.reason or self._calls.must_end()
        self.is_ended = bool(reason)
        return reason

    def cancel(self, reason: str) -> None:
        self.reason = self.reason or reason
        self._scope.cancel()


class _Loop(Struct):
    """The calls of one event loop."""

    calls: set[Running] = field(default_factory=set)
    look: asyncio.TimerHandle | None = None
    ending: asyncio.Task[None] | None = None


class RunningCalls:
    """All calls of this process, on whichever event loops they run."""

    def __init__(
        self, tiers: TierEngine | None, background: Callable[[], Background | None] = lambda: None
    ) -> None:
        self._tiers = tiers
        self._background = background
        self._loops: dict[asyncio.AbstractEventLoop, _Loop] = {}
        self._lock = threading.Lock()
        self._line: OwnLine | None = None
        self._has_line = True
        self._running = self._ended = 0
        self._row: tuple[tuple[int, ...], float] = ((), 0.0)
        self._reads_row = False
        if tiers is not None:
            tiers.ends_too(self)

    def enter(self, call: Running) -> _Loop | None:
        if self._tiers is None:
            return None
        loop = asyncio.get_running_loop()
        here = self._loops.get(loop) or self._added(loop)
        # INVARIANT: the call shows in the line before it looks for a stop, and a stop looks at the
        # lines after its file is there: one of both sees the other.
        self._note(1)
        here.calls.add(call)
        if here.look is None:
            here.look = loop.call_later(LOOK_SECONDS, self._look, loop)
        return here

    def leave(self, call: Running, loop: _Loop | None) -> None:
        if loop is not None:
            loop.calls.discard(call)
            self._note(-1, ended=call.is_ended)

    def must_end(self) -> str:
        return self._tiers.must_end() if self._tiers else ""

    def end(self, reason: str) -> tuple[str, int]:
        """End all calls; see `CallsHere`."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        count = sum(len(each.calls) for each in self._loops.values())
        for loop in tuple(self._loops):
            if loop is here:
                self._look(loop, reason)
            else:
                # One that is closed runs nothing.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._look, loop, reason)
        # A loop that waits for this cannot end its calls before.
        return ("", 0) if here is None or self._line is None else (self._line.name, count)

    def close(self) -> None:
        with self._lock:
            if self._line is not None:
                self._line.close()
            self._line = None

    def _added(self, loop: asyncio.AbstractEventLoop) -> _Loop:
        with self._lock:
            self._loops = {one: its for one, its in self._loops.items() if not one.is_closed()}
            return self._loops.setdefault(loop, _Loop())

    def _note(self, more: int, *, ended: bool = False) -> None:
        """Write how many calls run. Where that fails they are ended all the same, but uncounted."""
        with self._lock:
            self._running += more
            self._ended += ended
            try:
                if self._line is None or self._line.pid != os.getpid():
                    self._line = self._made()
                if self._line is not None:
                    self._line.write(self._running, self._ended)
            except OSError as error:
                if self._has_line:
                    logger.warning("a stop will not wait for the calls of this process: %s", error)
                self._has_line = False

    def _made(self) -> OwnLine | None:
        if self._tiers is None or not self._has_line:
            return None
        self._tiers.prepare()
        return OwnLine(self._tiers.stop_directory)

    def _look(self, loop: asyncio.AbstractEventLoop, given: str = "") -> None:
        """End this loop's calls if all is stopped; look again while there is anything to end."""
        here = self._loops[loop]
        if here.look is not None:
            here.look.cancel()
            here.look = None
        background = self._background()
        is_busy = background is not None and background.is_busy
        if not here.calls and not is_busy:
            return
        if reason := self.must_end() or given:
            for call in here.calls:
                call.cancel(reason)
            if background is not None and is_busy and (not here.ending or here.ending.done()):
                here.ending = loop.create_task(_ended(background.end()))
        else:
            self._look_at_row(loop)
        here.look = loop.call_later(LOOK_SECONDS, self._look, loop)

    def _look_at_row(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read the row of a stop on another thread, and end these calls if it is there: a stop
        that was given on another machine has no file here."""
        tiers = self._tiers
        if tiers is None or self._reads_row:
            return
        stamp, now = tiers.stop_stamp(), loop.time()
        if stamp == self._row[0] and now - self._row[1] < ROW_SECONDS:
            return
        self._row, self._reads_row = (stamp, now), True

        def read() -> None:
            try:
                reason = tiers.must_end_by_row()
            finally:
                self._reads_row = False
            if reason:
                # One that is closed runs nothing.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._look, loop, reason)

        loop.run_in_executor(None, read)


async def _ended(end: Awaitable[None]) -> None:
    try:
        await end
    except Exception:  # the edge of a task of its own; the next look tries again.
        logger.exception("what runs beside the calls could not be ended")


T = TypeVar("T")


class Portal:
    """A thread with an event loop of its own, alive until it is closed.

    One thread for all calls: a sandboxed process ends with the thread that started it
    (`--die-with-parent`), so a thread a call would kill what it started.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._portal = self._stack.enter_context(start_blocking_portal())
        self._thread = self._portal.call(threading.get_ident)
        self._tasks: set[asyncio.Task[None]] = set()

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        return self._portal.call(function)

    def start(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Let it run on the thread, from any thread; it handles its own errors."""

        def begin() -> None:
            task = asyncio.get_running_loop().create_task(function())
            # The loop itself holds a task only weakly.
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        if threading.get_ident() == self._thread:
            begin()
        else:
            self._portal.start_task_soon(begin)

    def close(self) -> None:
        """End the thread; running calls are waited for."""
        self._stack.close()
