"""The gate between a tool call and its effect."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.audit import AuditError
from skillhouse.floor import StateError, nearest
from skillhouse.floor.lock import once
from skillhouse.floor.machine import is_unwritable
from skillhouse.floor.structs import replace
from skillhouse.floor.threads import finish_in_thread, in_thread
from skillhouse.permission import Effect
from skillhouse.tiers import TierOutcome, TierVerdict
from skillhouse.tools.asker import Asker, forecast_of
from skillhouse.tools.call import (
    EvaluatedPermission,
    Output,
    PermissionRequest,
    Plan,
    ProgressHandler,
    RefusedError,
    Status,
    ToolCall,
    ToolNotOfferedError,
    ToolResult,
    UnknownToolError,
    failure_text,
    level_of,
    unwritten_text,
)
from skillhouse.tools.call_context import (
    CallContext,
    CallState,
    Forecast,
    Refusal,
    escalated_to_ask,
    plan_of_request,
    planned,
    refused_or_escalated,
)
from skillhouse.tools.delivery import Delivery, relayed
from skillhouse.tools.recorder import Recorder
from skillhouse.tools.result_files import bounded
from skillhouse.tools.telemetry import CallSpan, CallTelemetry, policy_span
from skillhouse.tools.tier_gate import STOPPED, Account, TierGate, stopped_text
from skillhouse.tools.tool import Decide, Session, Tool
from skillhouse.tools.tool_set import CALL_SKILL_TOOL, ToolSet
from skillhouse.tools.workspace_lock import WorkspaceLock, WorkspaceLockError
from skillhouse.tools.write_gate import WriteGate

if TYPE_CHECKING:
    from skillhouse.tools.deferred_tools import DeferredTools


class PermissionJudge:
    """Decides the permission requests of calls: by rules, and then by the write gate."""

    def __init__(
        self,
        decide: Decide,
        workspace_root: str,
        write_gate: WriteGate = WriteGate(),  # noqa: B008 - a frozen value.
    ) -> None:
        self._decide = decide
        self.workspace_root = workspace_root
        # One that is off and lists no paths decides nothing.
        self._write_gate = write_gate if write_gate.enabled or write_gate.allow_paths else None

    def evaluate(
        self, requests: Sequence[PermissionRequest], session: Session
    ) -> tuple[EvaluatedPermission, ...]:
        """Return each request with its decision and the reason."""
        evaluated = []
        for request in requests:
            decision, reason = self._decide(request, session)
            judged = EvaluatedPermission(request=request, decision=decision, reason=reason)
            if self._write_gate is not None:
                judged = self._write_gate.apply(judged, session.user, self.workspace_root)
            evaluated.append(judged)
        return tuple(evaluated)


class Gate:
    """Lets a call through when rules, tiers, a person and the log agree."""

    def __init__(
        self,
        tools: ToolSet,
        *,
        judge: PermissionJudge,
        asker: Asker,
        recorder: Recorder,
        tiers: TierGate | None = None,
        workspace: WorkspaceLock | None = None,
        telemetry: CallTelemetry = CallTelemetry(),  # noqa: B008 - it never changes.
        delivery: Delivery | None = None,
        deferred: DeferredTools | None = None,
    ) -> None:
        """Compose it of what agrees to a call: `judge` for the rules, `asker` for a person and
        `recorder` for the log.

        `workspace` keeps other calls from changing the workspace; None where no tool does.
        `delivery` makes of a result what a model gets. None is for gates whose results no model
        gets as they are: they are neither concealed nor escaped. `deferred` are the tools of
        skills for which a request has no room.
        """
        self._tools = tools
        self._judge = judge
        self._asker = asker
        self._recorder = recorder
        self._tiers = tiers or TierGate()
        self._workspace = workspace
        self._telemetry = telemetry
        self._delivery = delivery
        self._deferred = deferred

    @once
    def tools(self) -> dict[str, Tool]:
        """The tools that a model is shown."""
        return self._tools.shown()

    def tools_with(self, also: Collection[str]) -> dict[str, Tool]:
        """Return the same, and the unlisted tools of these names."""
        return self._tools.shown(also) if also else self.tools

    def listed(self, also: Collection[str] = (), in_use: Sequence[Path] = ()) -> dict[str, Tool]:
        """Return the tools of a request: of skills those for which it has room.

        `in_use` has the directories of the skills that the conversation has loaded.
        """
        shown = self.tools_with(also)
        return self._deferred.listed(shown, in_use) if self._deferred else shown

    def knows(self, name: str) -> bool:
        """Whether a tool has the name, offered or not, or several of skills."""
        return self._tools.get(name) is not None or bool(self._tools.bare(name))

    async def call(
        self, call: ToolCall, session: Session, *, listener: ProgressHandler | None = None
    ) -> ToolResult:
        """Look up, check, decide, ask, record, run, record: the only way to an effect.

        The order: a stop, the rules, the write gate, the tier, a person, the log, the effect
        (decision 111). The listener hears how far the effect is.

        Raises:
            UnknownToolError: no tool has that name, or its agent is not offered it.
        """
        try:
            tool, call = self._resolved(call, session)
        except RefusedError as refused:
            return ToolResult(content=str(refused), status=refused.status)
        if not self._is_offered(tool, session):
            raise ToolNotOfferedError(tool.name, sorted(self.listed()))
        if not call.call_id:
            call = replace(call, call_id=secrets.token_hex(8))
        with self._telemetry.of(tool, call, listener) as span:
            result = span.ended(await self._handle(tool, span.call, session, span))
        if self._delivery is None:
            result = replace(result, content=bounded(result.content, result.excerpt))
        else:
            result = await self._delivery.delivered(result, session)
        if result.is_error and result.data is None:
            result = replace(result, data=tool.shaped(result))
        return result

    def _resolved(self, call: ToolCall, session: Session) -> tuple[Tool, ToolCall]:
        """Return the tool and the call of it; of `call_skill_tool` those that its arguments name,
        or RefusedError where these name no tool of a skill, or one that does not take the rest."""
        is_inside = call.name == CALL_SKILL_TOOL and not session.origin_digest
        if not is_inside or self._tools.get(CALL_SKILL_TOOL) is None:
            return self._tool_of(call, session)
        from skillhouse.tools.deferred_tools import called_tool  # noqa: PLC0415 - few calls do.

        return called_tool(self._tools, call)

    def _tool_of(self, call: ToolCall, session: Session) -> tuple[Tool, ToolCall]:
        """Return the tool of a name, and the call under the tool's own name."""
        tool = self._tools.get(call.name)
        # What a skill asks for by itself is a tool of ours, and never another skill's.
        bare = () if tool or session.origin_digest else self._tools.bare(call.name)
        if len(bare) == 1:
            (tool,) = bare
        if tool is None:
            known = sorted(self.listed())
            close = next(iter(nearest(call.name, self.tools)), "")
            several = ", ".join(f"`{one.full_name}`" for one in bare)
            why = (
                f"several skills have it: {several}" if bare else self._tools.why_absent(call.name)
            )
            raise UnknownToolError(call.name, close, known, why=why)
        return tool, replace(call, name=tool.name, arguments=tool.canonical(call.arguments))

    def _is_offered(self, tool: Tool, session: Session) -> bool:
        """Whether the agent may call it. Calls of a skill's own code are not the model's: rules
        decide them, and not the list of what the model may call."""
        return bool(session.origin_digest) or self._tools.offer.includes(tool)

    async def _handle(
        self, tool: Tool, call: ToolCall, session: Session, span: CallSpan
    ) -> ToolResult:
        wrong = self._tools.argument_fault(tool, call.arguments)
        if wrong:
            return ToolResult(content=wrong, status="error")
        await self._tiers.forget_lifted()
        with self._tiers.running() as running:
            state = CallState(CallContext(call=call), self._tiers.account(), running)
            async with state.holding:
                try:
                    return await self._proceed(tool, session, state, span)
                finally:
                    if state.intent or state.account.holds:
                        # Also when the call is cancelled: what was begun has an outcome.
                        await finish_in_thread(lambda: self._close(state))
        # Only a stop cancels it without cancelling whoever waits for the result.
        return await in_thread(lambda: self._ended_by_stop(state))

    async def _proceed(
        self, tool: Tool, session: Session, state: CallState, span: CallSpan
    ) -> ToolResult:
        # Plans walk and hash, and the log and the state may be locked by another process: none of
        # it keeps the event loop from other calls.
        refusal = await in_thread(lambda: self._authorize(tool, session, state, span))
        # With an intent it has begun already: nothing was to be asked or waited for.
        if refusal is None and not state.intent:
            try:
                refusal = await self._approve_and_begin(tool, session, state)
            except (WorkspaceLockError, RefusedError) as error:
                status, text, context = error.status, str(error), state.context
                state.account.outcome = TierOutcome.WITHDRAWN
                refusal = await in_thread(lambda: self._recorder.refuse(context, text, status))
            except (StateError, OSError) as error:
                if not (isinstance(error, StateError) or is_unwritable(error)):
                    raise
                state.account.outcome = TierOutcome.WITHDRAWN
                refusal = await in_thread(partial(self._end_unwritten, state, error))
        return refusal or await self._run(tool, session, state, span)

    def _authorize(
        self, tool: Tool, session: Session, state: CallState, span: CallSpan
    ) -> ToolResult | None:
        """Decide, and begin what need not wait for a person or the workspace; or refuse."""
        call, account = state.context.call, state.account
        decided = self._plan_and_decide(tool, call, session, span, account=account)
        if isinstance(decided, Refusal):
            state.context = decided.context
            return self._recorder.refuse(decided.context, decided.text, decided.status)
        state.context = decided
        is_asked = decided.effect is Effect.ASK and not (tool.asks_itself and not decided.on_page)
        if is_asked or (self._workspace and state.plan.changes_workspace):
            return None
        return self._begin_unasked(tool, state)

    def _plan_and_decide(
        self,
        tool: Tool,
        call: ToolCall,
        session: Session,
        span: CallSpan | None,
        *,
        account: Account | None = None,
        need: PermissionRequest | None = None,
    ) -> CallContext | Refusal:
        """Plan a call and decide it. For a forecast there is no account, in which the tier would
        reserve what the call spends, and no span."""
        stopped, unknown = self._tiers.refusals()
        context = CallContext(call=call, verdict=stopped)
        if stopped is not None:
            return _stopped(context, stopped)
        try:
            plan = planned(tool, call, session) if need is None else plan_of_request(need)
            context = replace(context, plan=plan)
            # INVARIANT: one row is read before each effect, and without it there is none.
            if unknown is not None and level_of(plan) != "read":
                return _stopped(replace(context, verdict=unknown), unknown)
        except RefusedError as refused:
            return Refusal(context=context, text=str(refused), status=refused.status)
        except OSError as error:
            return Refusal(context=context, text=failure_text(tool.name, error), status="error")
        if span is None:
            return refused_or_escalated(self._with_decisions(context, session, account))
        span.plan(plan)
        with policy_span() as note_decisions:
            context = self._with_decisions(context, session, account)
            note_decisions(context)
        return refused_or_escalated(context)

    def _with_decisions(
        self, context: CallContext, session: Session, account: Account | None
    ) -> CallContext:
        """Add the decisions of rules, write gate and tiers."""
        context = replace(
            context, evaluated=self._judge.evaluate(context.known_plan.needs, session)
        )
        if context.denied is not None:
            return context
        return replace(
            context, verdict=self._tiers.judge(context.call, context.known_plan, account)
        )

    async def _approve_and_begin(
        self, tool: Tool, session: Session, state: CallState
    ) -> ToolResult | None:
        """Get an approval where one is needed, and the workspace (else WorkspaceLockError), and
        begin; or return the refusal."""
        lock = self._workspace if state.plan.changes_workspace else None
        if state.context.effect is Effect.ASK:
            # Whoever answers should not have to hear afterwards that nothing could run.
            if state.plan.check_feasible is not None:
                await state.plan.check_feasible()
            return await self._asker.approved(
                tool, session, state, lock, self._evaluated_again, self._begin
            )
        if lock is not None:
            await state.holding.enter_async_context(
                lock.hold(exclusive=state.plan.runs_alone, title=state.title)
            )
        return await in_thread(lambda: self._begin_unasked(tool, state))

    def _evaluated_again(self, tool: Tool, context: CallContext, session: Session) -> CallContext:
        """Plan and decide the call again, at the moment of use."""
        plan = planned(tool, context.call, session)
        return escalated_to_ask(
            replace(context, plan=plan, evaluated=self._judge.evaluate(plan.needs, session))
        )

    def _begin_unasked(self, tool: Tool, state: CallState) -> ToolResult | None:
        refusal = self._begin(tool, state)
        # After the record, and on this thread: each change of threads takes some 0.3 ms.
        if refusal is None and state.plan.prepare is not None:
            state.plan.prepare()
        return refusal

    def _begin(self, tool: Tool, state: CallState) -> ToolResult | None:
        stopped = state.account.begin(only_reads=state.context.level == "read")
        if stopped:
            text = f"nothing was done: {stopped}"
            return self._recorder.refuse(state.context, text, "denied", audited=STOPPED)
        # INVARIANT: the record is durable before the effect starts, so a crash can leave an
        # intent without an outcome but never an outcome without an intent.
        try:
            state.intent = self._recorder.intent(state.context, durable=tool.durable)
        except AuditError as error:
            state.account.outcome = TierOutcome.WITHDRAWN
            return ToolResult(content=f"nothing was done: {error}", status="denied")
        state.began = time.monotonic()
        return None

    def _end_unwritten(self, state: CallState, error: StateError | OSError) -> ToolResult:
        """End a call for which something of ours could not be written, with a record of it."""
        text = unwritten_text(error)
        if not state.intent:
            return self._recorder.refuse(state.context, text, "error")
        state.output = Output(text=text, failed=True)
        return ToolResult(content=text, status="error")

    async def _run(
        self, tool: Tool, session: Session, state: CallState, span: CallSpan
    ) -> ToolResult:
        plan, approval = state.plan, state.context.approval
        try:
            with self._asker.redeemed.giving(plan.binding, approval.id if approval else ""):
                conceal = self._delivery.conceal if self._delivery else _as_it_is
                state.output = await _run_plan(tool, plan, span.listener, conceal)
            state.account.ended(state.output, signs=state.context.level == "sign")
        finally:
            reason = state.running.stopped() if state.output.failed else ""
            if reason:
                state.is_stopped = True
                state.output = replace(state.output, text=stopped_text(reason), waits_for="")
            span.output(state.output)
        if session.has_new_marks:
            state.output = await _informed(session, state.output)
        output = state.output
        if output.activation is not None and not output.failed:
            session.activations.note(
                output.activation, call_id=state.context.call.call_id, is_approved=bool(approval)
            )
        if output.waits_for:
            await in_thread(lambda: self._asker.keep(state))
        status: Status = "pending" if output.waits_for else "error" if output.failed else "ok"
        # Of a tool that asks itself (`Tool.asks_itself`), this is what its runner has to ask.
        unasked = () if approval else (j for j in state.context.evaluated if _asks(j))
        question = "; ".join(dict.fromkeys(one.reason for one in unasked))
        return ToolResult(
            content=question or output.text,
            status=status,
            data=output.data or None,
            approval_id=output.waits_for or None,
            excerpt=output.excerpt,
            most=output.most,
            has_gaps=output.has_gaps,
            intent=state.intent if output.is_handed_over else "",
            is_asked=bool(question),
            returned=output.returned,
            returns=None if output.failed else output.returns,
            artifacts=output.artifacts,
            artifacts_left_out=output.artifacts_left_out,
        )

    def _close(self, state: CallState) -> None:
        try:
            if state.intent and not state.output.is_handed_over:
                self._recorder.outcome(
                    state.context,
                    state.intent,
                    state.output,
                    time.monotonic() - state.began,
                    waited=state.began - state.came,
                    is_stopped=state.is_stopped,
                )
        finally:
            state.account.settle()

    def _ended_by_stop(self, state: CallState) -> ToolResult:
        reason = state.running.reason
        if state.intent:
            return ToolResult(content=stopped_text(reason), status="error")
        return self._recorder.refuse_stopped(state.context, reason)

    def forecast(
        self, call: ToolCall, session: Session, *, need: PermissionRequest | None = None
    ) -> Forecast:
        """Return what `call` would answer now, by the same steps up to the question.

        Nothing is run, recorded, asked or reserved. An approval that waits to be used is not
        looked for. With `need` that is decided, whatever the arguments are.

        Raises:
            UnknownToolError: no tool has that name.
        """
        try:
            tool, call = self._resolved(call, session)
        except RefusedError as refused:
            return Forecast(effect=Effect.DENY, status="error", reasons=(str(refused),))
        if not self._is_offered(tool, session):
            reason = str(ToolNotOfferedError(tool.name, sorted(self.listed())))
            return Forecast(effect=Effect.DENY, status="error", reasons=(reason,))
        if need is None:
            wrong = self._tools.argument_fault(tool, call.arguments)
            if wrong:
                return Forecast(effect=Effect.DENY, status="error", reasons=(wrong,))
        decided = self._plan_and_decide(tool, call, session, None, need=need)
        return forecast_of(decided, self._judge.workspace_root)


def _stopped(context: CallContext, verdict: TierVerdict) -> Refusal:
    return Refusal(context=context, text=f"denied: {verdict.message}", status="denied")


def _asks(judged: EvaluatedPermission) -> bool:
    return judged.decision.effect is Effect.ASK


def _as_it_is(text: str) -> str:
    return text


async def _informed(session: Session, output: Output) -> Output:
    """Have the other servers know what a text makes commands need, before the model has it."""
    try:
        await in_thread(session.keep_marks)
    except StateError as error:
        text = f"nothing is given of it, since other servers could not be informed: {error}"
        return Output(text=text, failed=True)
    return output


async def _run_plan(
    tool: Tool, plan: Plan, listener: ProgressHandler | None, conceal: Callable[[str], str]
) -> Output:
    try:
        if listener is None or plan.run_with_progress is None:
            return await plan.run()
        async with relayed(listener, total=plan.progress_total, conceal=conceal) as say:
            return await plan.run_with_progress(say)
    except RefusedError as refused:
        return Output(text=str(refused), failed=True)
    except OSError as error:
        return Output(text=failure_text(tool.name, error), failed=True)
