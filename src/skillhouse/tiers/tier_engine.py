"""Judges calls by the tier policy and their history, and keeps account of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from skillhouse.floor import Clock, SkillhouseError, StateError, system_clock
from skillhouse.floor.rules import Effect
from skillhouse.floor.structs import replace
from skillhouse.tiers import tier_ledger as ledger
from skillhouse.tiers.emergency_stop import (
    CallsHere,
    CallsToEnd,
    Step,
    StopNotice,
    StopReport,
    do_steps,
    either,
    new_stop_id,
)
from skillhouse.tiers.tier_ledger import TierOutcome, TierStore
from skillhouse.tiers.tier_policy import TierPolicy
from skillhouse.tiers.tier_values import (
    COMPANION_APP,
    INLINE,
    PAGE,
    Tier,
    TierCall,
    TierLevel,
    TierState,
    TierVerdict,
)

TERMINAL = "terminal"
RESUME_CHANNELS = frozenset({TERMINAL, PAGE, COMPANION_APP})
"""Channels of the owner, out of reach of a model or a chat: only they lift a stop."""


class ResumeError(SkillhouseError):
    """A stop is not lifted for this user or from this channel."""


class TierEngine:
    """Decides calls by one policy and one state, which several processes may share."""

    def __init__(
        self,
        policy: TierPolicy,
        state: Path,
        *,
        clock: Clock = system_clock,
        on_stop: Sequence[Step] = (),
        on_resume: Sequence[Step] = (),
    ) -> None:
        """Nothing is opened before the first call.

        Args:
            policy: Its `assignees` may lift a stop.
            state: The state database.
            clock: Both clocks of the machine.
            on_stop: Further steps of a stop; each is done, even if others fail.
            on_resume: Steps before a stop is lifted; an error of one keeps the stop.
        """
        self.policy = policy
        self._store = TierStore(state, clock)
        self._on_stop = tuple(on_stop)
        self._on_resume = tuple(on_resume)
        self._stopped_here = ""
        """Set when a stop could not be written: at least this process runs no calls."""
        self._here: list[CallsHere] = []

    def judge(
        self,
        tool: str,
        user: str,
        *,
        level: TierLevel | None,
        is_vouched: bool = False,
        arguments: Mapping[str, Any],
        spends: Sequence[tuple[str, Decimal]] | None = (),
        session_key: str = "",
        reachable: frozenset[str] = frozenset({INLINE}),
        reserves: bool = True,
    ) -> TierVerdict:
        """Decide a call, and reserve what it would use up; see `TierCall` for the arguments.

        Every verdict with a reservation must be settled. State that cannot be used refuses. What
        does not reserve is a forecast: it changes nothing.
        """
        call = TierCall(
            tool=tool,
            user=user,
            level=level,
            is_vouched=is_vouched,
            arguments=arguments,
            spends=spends,
            session_key=session_key,
            reachable=reachable,
        )
        try:
            return self._judged(call) if reserves else self._forecast(call)
        except StateError as error:
            tier = self.policy.decide(call, TierState(stopped="no state")).tier
            return TierVerdict(
                effect=Effect.DENY,
                tier=tier,
                effective_tier=tier,
                reason="state-unreadable",
                message=f"nothing goes on, because {error}",
            )

    def begin(self, reservation: str, *, only_reads: bool = False) -> str:
        """Mark a call as running, at the last moment before it; return why it must not, or "".

        A stop that came while a person was being asked is seen here. Without a reservation only
        the stop is looked for. What `only_reads` begins where the state cannot be reached, too.
        """
        stopped, unknown = self.stop_state()
        if stopped:
            return f"everything is stopped: {stopped}"
        if unknown and not only_reads:
            return f"only reads go on: {unknown}"
        if reservation:
            try:
                with self._store.turn() as (connection, _):
                    # Looked for again, now under the lock.
                    stopped = ledger.stopped_reason(connection)
                    if stopped or not ledger.begin(connection, reservation):
                        return "the call was withdrawn: " + (stopped or "it is not waiting to run")
            except StateError as error:
                return str(error)
        return ""

    def settle(self, reservation: str, outcome: TierOutcome, amount: Decimal | None = None) -> bool:
        """Record the outcome of a call, once; return whether there was something to settle.

        This may stop everything by itself. After a `StateError` the reservation goes on to count.

        Args:
            reservation: Of the verdict; empty does nothing.
            outcome: How the call ended.
            amount: Dollars that it really spent, where that is known; None leaves what was
                reserved. A failure gives nothing back unless this says so.
        """
        if not reservation:
            return False
        if amount is not None and not (amount.is_finite() and amount >= 0):
            amount = None
        with self._store.turn() as (connection, now_ms):
            settled = ledger.settle(connection, reservation, outcome, usd=amount, now_ms=now_ms)
            why = ledger.trigger(connection, now_ms) if settled else ""
        if why and self.policy.emergency_stop.enabled:
            self.stop("automatic", why)
        return settled

    @property
    def is_stopped(self) -> bool:
        """Whether everything is stopped; also true if that is unknown."""
        return bool(self.stopped_reason)

    @property
    def stopped_reason(self) -> str:
        if self._stopped_here:
            return self._stopped_here
        try:
            return self._store.stopped()
        except StateError as error:
            return str(error)

    def stop_state(self) -> tuple[str, str]:
        """Return why everything is stopped, or "", and why that is not known, or "".

        INVARIANT: where the database cannot be reached only reads go on. The file of the stop is
        of this machine: what cannot be said of that is a stop of everything.
        """
        try:
            if stopped := self._stopped_here or self._store.stopped_here():
                return stopped, ""
        except StateError as error:
            return str(error), ""
        try:
            return self._store.stopped_by_row(), ""
        except StateError as error:
            return "", str(error)

    def stop_stamp(self) -> tuple[int, ...]:
        """Return numbers that change when the row of a stop may have changed; at little cost.

        Empty where the state is away: what looks for a stop goes on, by this machine's own file.
        """
        try:
            return self._store.stamp()
        except StateError:
            return ()

    def must_end_by_row(self) -> str:
        """Return why calls that run must end, as the database says it: a stop that was given on
        another machine. It waits for the database, and ends nothing where that is not there."""
        try:
            return self._store.stopped_by_row()
        except StateError:
            return ""

    @property
    def stop_directory(self) -> Path:
        """Where the file of the stop is, and the lines of the processes that run calls."""
        return self._store.mark.directory

    def prepare(self) -> None:
        """Make what a stop needs, while there is space for it; else `OSError`."""
        self._store.mark.prepare()

    def must_end(self) -> str:
        """Return why calls that run must end, or ""; without the database, so at little cost."""
        try:
            return self._stopped_here or self._store.mark.reason()
        except StateError as error:
            return str(error)

    def ends_too(self, calls: CallsHere) -> None:
        """Have each stop by this engine end these calls of this process."""
        self._here.append(calls)

    def stop(self, by: str, reason: str) -> StopReport:
        """Stop everything: write it down first, then do each step, whatever becomes of the others.

        The calls that run are ended, and waited for, for a second at most. After `StateError` it
        could be written down nowhere; the steps were done, and this process refuses every call.
        """
        fault: StateError | None = None
        is_new, unwritten = False, list[tuple[str, str]]()
        stop_id, mark = new_stop_id(), self._store.mark
        calls = CallsToEnd(self.stop_directory)
        try:
            is_new, unwritten = either(
                (
                    "write the file of the stop",
                    lambda: mark.give(by, reason, [stop_id]),
                ),
                ("write to the database", lambda: self._kept_stop(by, reason, stop_id)),
            )
        except StateError as error:
            fault, self._stopped_here = error, reason or "stopped"
        notice = StopNotice(by=by, reason=reason, action=self.policy.emergency_stop.action)
        done, failed = do_steps(self._on_stop, notice)
        ended, silent = calls.wait(self._here, reason or "stopped")
        if fault:
            raise fault
        failed = [*unwritten, *failed]
        return StopReport(
            is_new=is_new, done=tuple(done), failed=tuple(failed), ended=ended, silent=silent
        )

    def resume(self, by: str, channel: str) -> bool:
        """Lift a stop, and let halted tools go on; return whether there was one of them.

        What was given as a row is lifted at every server of the state, also at one that is away
        now: its file names the same stop. A stop that is given while this runs goes on to hold.
        Ended session keys stay ended: new ones must be made. `ResumeError` if `by` is no assignee
        or `channel` is not the owner's; after `StateError` the stop is as it was.
        """
        if channel not in RESUME_CHANNELS:
            raise ResumeError(
                "expected the owner at the terminal, the transaction page or the companion app, "
                f"got `{channel}`: nothing was resumed"
            )
        if by not in self.policy.assignees:
            raise ResumeError(f"`{by}` may not lift a stop here: nothing was resumed")
        was_here, mark = self._stopped_here, self._store.mark
        reason = self.stopped_reason
        here = mark.ids()
        ids = tuple(dict.fromkeys((*here, *self._store.given())))
        notice = StopNotice(by=by, reason=reason, action="resume")
        if reason:
            for _, step in self._on_resume:
                step(notice)
        with self._store.turn() as (connection, now_ms):
            if reason and not ids:
                # Not written there yet, where the database was full or lost meanwhile.
                ledger.stop(connection, by, reason, now_ms)
            resumed = ledger.resume(connection, now_ms, ids)
        # The file last: where it cannot be renamed, all is stopped still.
        resumed |= mark.lift(here)
        if self._stopped_here == was_here:
            self._stopped_here = ""
        return resumed or bool(was_here)

    def see_companion(self) -> None:
        """Note a sign of life of the companion app; after 30 minutes without, only reads go on."""
        with self._store.turn() as (connection, now_ms):
            ledger.see_companion(connection, now_ms)

    def companion_left_ms(self) -> int | None:
        """Return how long until only reads go on since the companion app is away, 0 once that is
        so; None where no sign of life is waited for. What warns people asks this."""
        if not self.policy.has_companion:
            return None
        with self._store.glance() as found:
            return None if found is None else ledger.companion_left_ms(*found)

    def forget_companion(self) -> None:
        with self._store.turn() as (connection, _):
            ledger.forget_companion(connection)

    def _kept_stop(self, by: str, reason: str, stop_id: str) -> bool:
        with self._store.turn() as (connection, now_ms):
            return ledger.stop(connection, by, reason, now_ms, stop_id)

    def close(self) -> None:
        self._store.close()

    def _forecast(self, call: TierCall) -> TierVerdict:
        if self._stopped_here:
            return self.policy.decide(call, TierState(stopped=self._stopped_here))
        with self._store.glance() as found:
            state = TierState() if found is None else ledger.state_of(found[0], call, found[1])
            return self.policy.decide(call, state)

    def _judged(self, call: TierCall) -> TierVerdict:
        rules = self.policy
        policy, _ = rules.resolve(call.tool, call.level, is_vouched=call.is_vouched)
        if policy.tier is Tier.NONE and policy.cooldown is None and call.spends == ():
            # Reads use nothing up, and are not to wait for the write lock.
            stopped, unknown = self.stop_state()
            is_read = call.is_vouched and call.level is TierLevel.READ
            return rules.decide(call, TierState(stopped=stopped or ("" if is_read else unknown)))
        if stopped := self._stopped_here or self._store.stopped_here():
            return rules.decide(call, TierState(stopped=stopped))
        with self._store.turn() as (connection, now_ms):
            verdict = rules.decide(call, ledger.state_of(connection, call, now_ms))
            if verdict.effect is Effect.DENY:
                return verdict
            token = ledger.reserve(connection, call, verdict.amount_usd, now_ms)
        return replace(verdict, reservation=token)


def is_stop_command(text: str, policy: TierPolicy, *, channel: str) -> bool:
    """Whether a message is one that stops everything: the whole of it, in any case.

    >>> is_stop_command(" /STOP ", TierPolicy(), channel="telegram")
    True
    >>> is_stop_command("please /stop", TierPolicy(), channel="telegram")
    False
    """
    rules = policy.emergency_stop
    return (
        rules.enabled
        and (not rules.channels or channel in rules.channels)
        and text.strip().lower() in {command.lower() for command in rules.commands}
    )
