"""Gets a person's approval of exactly one call, and consumes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from functools import partial

from skillhouse.approval import (
    ApprovalBroker,
    ApprovalError,
    ApprovalOutcome,
    ApprovalRequest,
    ApprovalState,
    content_digest,
)
from skillhouse.floor.threads import in_thread
from skillhouse.permission import Effect
from skillhouse.tiers import TierOutcome
from skillhouse.tools.call import RefusedError, ToolResult, failure_text
from skillhouse.tools.call_context import CallContext, CallState
from skillhouse.tools.command_inputs import CommandInputs
from skillhouse.tools.question import (
    CHANGED,
    bound,
    changed_inputs,
    question,
    request_to_user,
    rule_hint,
)
from skillhouse.tools.recorder import Recorder
from skillhouse.tools.session import Session
from skillhouse.tools.telemetry import approval_span
from skillhouse.tools.tool import Tool
from skillhouse.tools.workspace_lock import WorkspaceLock

ASKED_AGAIN_MAX = 3
"""Questions of one call whose files change each time, before it is refused."""
EARLIER_MAX = 20
"""Latest questions among which an earlier one about the same call is looked for."""

Judge = Callable[[Tool, CallContext, Session], CallContext]
"""Plans a call and decides it again."""
Begin = Callable[[Tool, CallState], ToolResult | None]
"""Records that a call is about to run, or returns the refusal."""


class Asker:
    """Asks about the calls of one gate."""

    def __init__(
        self,
        approvals: ApprovalBroker,
        recorder: Recorder,
        workspace_root: str,
        judge: Judge,
        begin: Begin,
    ) -> None:
        self._approvals = approvals
        self._recorder = recorder
        self._workspace_root = workspace_root
        self._judge = judge
        self._begin = begin

    async def approved(
        self, tool: Tool, session: Session, state: CallState, lock: WorkspaceLock | None
    ) -> ToolResult | None:
        """Get an approval of the exact call, consume it and begin; or return the refusal.

        Where files of the call have changed since it was approved, it is asked about again.

        Raises:
            WorkspaceLockError: another call kept the workspace, or it cannot be locked.
        """
        given = state.context.call.approval_id
        inputs: CommandInputs | None = None
        for _ in range(ASKED_AGAIN_MAX):
            context = state.context
            asked = await in_thread(partial(self._question, context, inputs))
            if isinstance(asked, ToolResult):
                return asked
            settled = await approval_span(self._approvals.request_approval(asked, given))
            state.context = replace(context, approval=settled.approval)
            if settled.approval is None or settled.status != "approved":
                return await in_thread(partial(self._unapproved, state, settled))
            async with AsyncExitStack() as alone:
                if lock is not None:
                    # INVARIANT: no call holds the workspace while its question is open, and what
                    # is compared below cannot change before the call has ended.
                    hold = lock.hold(exclusive=True, title=state.title)
                    await alone.enter_async_context(hold)
                found = await in_thread(partial(self._redeemed, tool, session, state, asked))
                if not isinstance(found, CommandInputs):
                    state.holding.push_async_exit(alone.pop_all())
                    return found
            inputs, given = found, ""
        text = "not approved: the files that it depends on change all the time"
        return await in_thread(lambda: self._recorder.refuse(state.context, text, "denied"))

    def _question(
        self, context: CallContext, inputs: CommandInputs | None
    ) -> ApprovalRequest | ToolResult:
        try:
            inputs = inputs or _measured(context)
            return question(
                context, self._workspace_root, inputs, changed=self._changed(context, inputs)
            )
        except (RefusedError, OSError) as error:
            return self._failed(context, error)

    def _redeemed(
        self, tool: Tool, session: Session, state: CallState, asked: ApprovalRequest
    ) -> ToolResult | CommandInputs | None:
        """Consume the approval and begin, or return the inputs that are not those approved.

        INVARIANT: the call is planned and measured again at the moment of use, so an approval
        never runs anything but what was shown (decision 8).
        """
        context = state.context
        approval = context.approval
        assert approval is not None  # noqa: S101 - `approved` has looked.
        try:
            now = self._judge(tool, context, session)
            if now.denied is not None:
                return self._recorder.refuse(now, f"denied: {now.denied.reason}", "denied")
            inputs = _measured(now)
            fresh = content_digest(bound(now, self._workspace_root, inputs))
            if inputs is not None and fresh != approval.request.content_digest:
                changed = changed_inputs(now, inputs, approval, self._workspace_root)
                if changed is not None:
                    return inputs
            used = self._approvals.redeem(
                approval.id, fresh, asked.session, asked.client, asked.connection
            )
        except (ApprovalError, RefusedError, OSError) as error:
            return self._failed(context, error)
        if inputs is not None and now.plan is not None and now.plan.run_sealed is not None:
            now = replace(now, plan=replace(now.plan, run=partial(now.plan.run_sealed, inputs)))
        state.context = replace(now, approval=used)
        return self._begin(tool, state)

    def _changed(self, context: CallContext, inputs: CommandInputs | None) -> str:
        """Return what changed since the latest question about the same call, or nothing."""
        if inputs is None:
            return ""
        for earlier in self._approvals.latest(EARLIER_MAX):
            if earlier.request.tool == context.call.name:
                found = changed_inputs(context, inputs, earlier, self._workspace_root)
                if found is not None:
                    return (
                        found
                        if earlier.state in (ApprovalState.OPEN, ApprovalState.APPROVED)
                        else ""
                    )
        return ""

    def _unapproved(self, state: CallState, settled: ApprovalOutcome) -> ToolResult:
        context = state.context
        # A stop also withdraws the question, and that may come before it cancels the call.
        if reason := state.running.stopped():
            return self._recorder.refuse_stopped(context, reason)
        why = next(j for j in context.evaluated if j.decision.effect is Effect.ASK).reason
        hint = rule_hint(context)
        found = settled.approval
        if found is not None and (changed := dict(found.request.facts).get(CHANGED)):
            why = f"{why}; changed since the earlier question: {changed}"
        if settled.status == "pending" and found is not None:
            how = request_to_user(found.request, self._approvals.page)
            text = (
                f"not approved yet: {why}; nothing was done; {how}, then repeat the same call{hint}"
            )
            return self._recorder.refuse(context, text, "pending")
        if found is not None:
            # Only a person's denial makes a tool halt: a model's many calls do not.
            state.account.outcome = TierOutcome.DENIED if found.by else TierOutcome.TIMEOUT
        return self._recorder.refuse(
            context, f"not approved: {why}; {settled.reason}{hint}", "denied"
        )

    def _failed(self, context: CallContext, error: Exception) -> ToolResult:
        name = context.call.name
        text = failure_text(name, error) if isinstance(error, OSError) else str(error)
        return self._recorder.refuse(context, f"not approved: {text}", "denied")


def _measured(context: CallContext) -> CommandInputs | None:
    return (
        context.plan.inputs()
        if context.plan is not None and context.plan.inputs is not None
        else None
    )


class RedeemedApprovals:
    """Passes an approval that the gate consumed to the plan that it authorises, once."""

    def __init__(self) -> None:
        self._yeses: dict[str, list[str]] = {}
        # INVARIANT: held to read or change; calls come from several event loops.
        self._lock = threading.Lock()

    def take(self, binding: str) -> str:
        """Return and forget the id of the approval of exactly this content; "" when there is none.

        >>> agreed = RedeemedApprovals()
        >>> with agreed.giving("sha256:1", "yes-1"):
        ...     agreed.take("sha256:2"), agreed.take("sha256:1"), agreed.take("sha256:1")
        ('', 'yes-1', '')
        """
        with self._lock:
            found = self._yeses.get(binding)
            return found.pop() if found else ""

    @contextmanager
    def giving(self, binding: str, approval_id: str) -> Iterator[None]:
        """Offer an approval while its call runs; empty texts offer nothing."""
        if not (binding and approval_id):
            yield
            return
        with self._lock:
            self._yeses.setdefault(binding, []).append(approval_id)
        try:
            yield
        finally:
            with self._lock:
                left = [yes for yes in self._yeses.pop(binding) if yes != approval_id]
                if left:
                    self._yeses[binding] = left
