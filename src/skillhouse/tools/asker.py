"""Asks a person about exactly one call, and consumes the approval.

A standing approval that a question offers allows no more than the question shows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from skillhouse import permission
from skillhouse.approval import (
    NEVER_LASTING,
    Approval,
    ApprovalBroker,
    ApprovalError,
    ApprovalOutcome,
    ApprovalRequest,
    ApprovalState,
    Asked,
    Pattern,
    canonical,
    content_digest,
)
from skillhouse.floor import StateError
from skillhouse.floor.call_clock import clock_stopped
from skillhouse.floor.errors import first_of
from skillhouse.floor.secret_names import is_secret
from skillhouse.floor.structs import replace
from skillhouse.floor.threads import in_thread
from skillhouse.permission import Effect
from skillhouse.tiers import TierOutcome
from skillhouse.tools.call import (
    HIDDEN_TEXT,
    PERSISTENCE,
    UNBOUND,
    WILL_NOT_WORK,
    Output,
    PermissionRequest,
    RedeemedApprovals,
    RefusedError,
    ToolResult,
    failure_text,
)
from skillhouse.tools.call_context import CallContext, CallState, Forecast, Refusal
from skillhouse.tools.telemetry import approval_span
from skillhouse.tools.tool import Session, Tool

if TYPE_CHECKING:
    from skillhouse.tools.command_inputs import CommandInputs
    from skillhouse.tools.recorder import Recorder
    from skillhouse.tools.workspace_lock import WorkspaceLock

ASKED_AGAIN_MAX = 3
"""Questions of one call whose files change each time, before it is refused."""
EARLIER_MAX = 20
"""Latest questions among which an earlier one about the same call is looked for."""

EvaluateAgain = Callable[[Tool, CallContext, Session], CallContext]
"""Plans a call and decides it again."""
Begin = Callable[[Tool, CallState], ToolResult | None]
"""Records that a call is about to run, or returns the refusal."""


def standing_patterns(
    needs: Sequence[PermissionRequest], workspace_root: str
) -> tuple[Pattern, ...]:
    """Return what a standing approval would allow; nothing if it cannot cover the whole call."""
    patterns: list[Pattern] = []
    for need in needs:
        pattern = standing_pattern(need, workspace_root)
        lasts = need.may_last and need.effective_level != "sign"
        if not pattern or not lasts or need.skill_digest == UNBOUND:
            return ()
        patterns.append(
            Pattern(action=lasting_action(need), pattern=pattern, skill_digest=need.skill_digest)
        )
    return tuple(dict.fromkeys(patterns))


def lasting_action(need: PermissionRequest) -> str:
    """Return the action of the rule that would answer a request from then on.

    What is remarked of a command's words is not, once a rule names all of them.
    """
    return "exec" if need.is_remark and need.argv else need.permission.action


def standing_pattern(need: PermissionRequest, workspace_root: str) -> str:
    """Return the pattern of a standing approval, or "" where there is none.

    A file that is written below a directory of the workspace is covered with the files next to
    it, and any other file alone: the top of the workspace is never covered, and what is read has
    no others with it, since there may be secrets among them.
    """
    action, resource = lasting_action(need), need.permission.resource
    if not resource or action in NEVER_LASTING or "*" in resource or "?" in resource:
        return ""
    if action == "exec":
        return permission.standing_rule(need.argv)
    if action != "write":
        return resource
    directory, _, name = resource.rpartition("/")
    if not (name and directory.startswith(f"{workspace_root}/")):
        return resource
    if is_secret(os.path.relpath(resource, workspace_root)) or os.path.isdir(resource):
        return resource
    return f"{directory}/"


class Asker:
    """Asks about the calls of all gates of one configuration."""

    def __init__(
        self,
        approvals: Callable[[], ApprovalBroker],
        recorder: Recorder,
        workspace_root: str,
        redeemed: RedeemedApprovals | None = None,
    ) -> None:
        """`approvals` gives what asks: most calls ask no one, and it is made for the first."""
        self._get_approvals = approvals
        self.redeemed = redeemed or RedeemedApprovals()
        """Passes an approval that was consumed to the plan that it authorises."""
        self._recorder = recorder
        self._workspace_root = workspace_root

    @property
    def _approvals(self) -> ApprovalBroker:
        return self._get_approvals()

    async def approved(
        self,
        tool: Tool,
        session: Session,
        state: CallState,
        lock: WorkspaceLock | None,
        evaluate_again: EvaluateAgain,
        begin: Begin,
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
            request = await in_thread(partial(self._question, context, inputs))
            if isinstance(request, ToolResult):
                return request
            # A person takes longer than code may.
            with clock_stopped():
                outcome = await approval_span(self._approvals.request_approval(request, given))
            state.context = replace(context, approval=outcome.approval)
            if outcome.approval is None or outcome.status != "approved":
                return await in_thread(partial(self._unapproved, state, outcome, session))
            async with AsyncExitStack() as alone:
                if lock is not None:
                    # INVARIANT: no call holds the workspace while its question is open, and what
                    # is compared below cannot change before the call has ended.
                    hold = lock.hold(exclusive=True, title=state.title)
                    await alone.enter_async_context(hold)
                work = partial(
                    self._redeem_and_begin, tool, session, state, request, evaluate_again, begin
                )
                begun = await in_thread(work)
                if begun is None or isinstance(begun, ToolResult):
                    state.holding.push_async_exit(alone.pop_all())
                    return begun
            # It has not begun: these are the inputs as they are now, which were not approved.
            inputs, given = begun, ""
        text = "not approved: what it depends on changes all the time; wait until nothing else does"
        return await in_thread(lambda: self._recorder.refuse(state.context, text, "denied"))

    def keep(self, state: CallState) -> None:
        """Keep the approval of a call that ended at a question of its own: see `Ledger.keep`."""
        approval = state.context.approval
        if approval is not None:
            self._approvals.keep(approval, state.output.waits_for)

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

    def _redeem_and_begin(
        self,
        tool: Tool,
        session: Session,
        state: CallState,
        request: ApprovalRequest,
        evaluate_again: EvaluateAgain,
        begin: Begin,
    ) -> ToolResult | CommandInputs | None:
        """Consume the approval and begin, or return the inputs that are not those approved.

        INVARIANT: the call is planned and measured again at the moment of use, so an approval
        never runs anything but what was shown (decision 8).
        """
        context = state.context
        approval = context.approval
        assert approval is not None  # noqa: S101 - `approved` has looked.
        try:
            now = evaluate_again(tool, context, session)
            if now.denied is not None:
                return self._recorder.refuse(now, f"denied: {now.denied.reason}", "denied")
            inputs = _measured(now)
            fresh = content_digest(bound(now, self._workspace_root, inputs))
            if inputs is not None and fresh != approval.request.content_digest:
                changed = changed_inputs(now, inputs, approval, self._workspace_root)
                if changed is not None:
                    return inputs
            used = self._approvals.redeem(
                approval.id, fresh, request.session, request.client, request.connection
            )
        except (ApprovalError, RefusedError, OSError) as error:
            return self._failed(context, error)
        plan = now.known_plan
        if inputs is not None and plan.run_sealed is not None:
            sealed = partial(plan.run_sealed, inputs)
            # INVARIANT: whoever hears of progress runs the approved bytes, too.
            with_progress = sealed if plan.run_with_progress is not None else None
            plan = replace(plan, run=partial(sealed, None), run_with_progress=with_progress)
            now = replace(now, plan=plan)
        state.context = replace(now, approval=used)
        return begin(tool, state) or self._stored(state, used)

    def _stored(self, state: CallState, used: Approval) -> ToolResult | None:
        """Store what outlasts a call that has just begun, or end it: what a person allowed from
        now on would be lost otherwise, without a word."""
        call = state.context.call
        try:
            self._approvals.store_rules(used, call.client, call.connection)
            device, at = used.device, used.closed_ms
            kept = [replace(s, device=device, approved_ms=at) for s in state.plan.approved]
            if kept:
                self._approvals.scripts.add(kept)
        except (StateError, OSError) as error:
            text = f"nothing was done: what was approved cannot be stored: {error}"
            state.output = Output(text=text, failed=True)
            return ToolResult(content=text, status="error")
        return None

    def _changed(self, context: CallContext, inputs: CommandInputs | None) -> str:
        """Return what changed since the latest question about the same call, or nothing."""
        if inputs is None:
            return ""
        for earlier in self._approvals.latest(EARLIER_MAX):
            if earlier.request.tool == context.call.name:
                changed = changed_inputs(context, inputs, earlier, self._workspace_root)
                if changed is not None:
                    is_current = earlier.state in (ApprovalState.OPEN, ApprovalState.APPROVED)
                    return changed if is_current else ""
        return ""

    def _unapproved(
        self, state: CallState, outcome: ApprovalOutcome, session: Session
    ) -> ToolResult:
        context = state.context
        # A stop also withdraws the question, and that may come before it cancels the call.
        if reason := state.running.stopped():
            return self._recorder.refuse_stopped(context, reason)
        why = next(j for j in context.evaluated if j.decision.effect is Effect.ASK).reason
        hint = rule_hint(context, self._workspace_root)
        approval = outcome.approval
        if approval is not None and (changed := dict(approval.request.found).get(CHANGED)):
            why = f"{why}; changed since the earlier question: {changed}"
        if approval is not None and approval.request.tool != context.call.name:
            why = f"the call is approved, and its `{approval.request.tool}` is not"
        if outcome.status == "pending" and approval is not None:
            how = request_to_user(approval.request, self._approvals.page)
            # The code of a skill that asks for this has begun.
            done = "" if session.origin_digest else "nothing was done; "
            known = dict(approval.request.found).get(WILL_NOT_WORK, "")
            fails = f" ({known})" if known else ""
            text = f"not approved yet: {why}{fails}; {done}{how}, then repeat the same call{hint}"
            if not outcome.is_new:
                # The call that opened the question has its record: one a question.
                return ToolResult(content=text, status="pending", approval_id=approval.id)
            return self._recorder.refuse(context, text, "pending")
        if approval is not None:
            # Only a person's denial makes a tool halt: a model's many calls do not.
            state.account.outcome = TierOutcome.DENIED if approval.by else TierOutcome.TIMEOUT
        return self._recorder.refuse(
            context, f"not approved: {why}; {outcome.reason}{hint}", "denied"
        )

    def _failed(self, context: CallContext, error: Exception) -> ToolResult:
        name = context.call.name
        text = failure_text(name, error) if isinstance(error, OSError) else str(error)
        return self._recorder.refuse(context, f"not approved: {text}", "denied")


def _measured(context: CallContext) -> CommandInputs | None:
    inputs = context.known_plan.inputs
    return None if inputs is None else inputs()


CHANGED = "changed since the earlier question"
"""Name of the fact that says which files of a call are not what an earlier question showed."""
FILES_SHOWN = 20
"""Names of bound files that a person is shown."""
_SAME_CALL = ("tool", "arguments", "cwd", "agent", "user", "channel")
"""What two questions about one call have in common, whatever its files hold."""


def question(
    context: CallContext, workspace_root: str, inputs: CommandInputs | None, *, changed: str = ""
) -> ApprovalRequest:
    """Return the question about exactly this call (decision 8).

    A repeated call has the same digest as long as everything that `bound` takes in is the same.
    """
    call, plan, verdict = context.call, context.known_plan, context.verdict
    asked = [j for j in context.evaluated if j.decision.effect is Effect.ASK]
    patterns = standing_patterns([j.request for j in asked], workspace_root)
    content = bound(context, workspace_root, inputs)
    arguments = tuple((key, _sent(item)) for key, item in call.arguments.items())
    return ApprovalRequest(
        tool=call.name,
        agent=call.agent,
        user=call.user,
        channel=call.channel,
        client=call.client,
        connection=call.connection,
        title=_title(context, asked[0].request, inputs),
        # INVARIANT: no argument is among what was found, whatever the name of its parameter.
        found=(
            *(((CHANGED, changed),) if changed else ()),
            *plan.facts,
            *plan.remarks,
            *_bound_facts(inputs),
        ),
        sent=(*arguments, *plan.claims),
        reasons=tuple(dict.fromkeys(j.reason for j in asked)),
        content_digest=content_digest(content),
        content=content,
        always=tuple(p.text for p in patterns),
        place=workspace_root,
        level=context.level,
        on_page=context.on_page,
        wait_seconds=verdict.timeout_seconds if verdict else 0,
        asked=tuple(
            Asked(
                action=j.request.permission.action,
                resource=j.request.permission.resource,
                skill_digest=j.request.skill_digest,
            )
            for j in asked
        ),
        patterns=patterns,
        session_id=call.session_id,
        message_id=call.message_id,
        call_id=call.call_id,
    )


def _sent(value: object) -> str:
    """Return an argument as a person reads it: a text as it is, anything else as the JSON of it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _title(context: CallContext, first: PermissionRequest, inputs: CommandInputs | None) -> str:
    title = context.known_plan.title or f"{context.call.name}: {first.permission.resource}"
    return f"not bound to files: {title}" if inputs is not None and inputs.unbound else title


def _bound_facts(inputs: CommandInputs | None) -> tuple[tuple[str, str], ...]:
    if inputs is None:
        return ()
    if inputs.unbound:
        return (("not bound to files", inputs.unbound),)
    files = first_of(list(inputs.files), FILES_SHOWN)
    loadable = "every file of the workspace that a program can load" if inputs.signature else ""
    bound_to = "; ".join(filter(None, (files, loadable)))
    return (("bound to", bound_to),) if bound_to else ()


def changed_inputs(
    context: CallContext, inputs: CommandInputs, earlier: Approval, workspace_root: str
) -> str | None:
    """Return what changed since an earlier question about the same call; None for another call."""
    before = json.loads(earlier.request.content)
    now = json.loads(bound(context, workspace_root, inputs))
    if any(before.get(key) != now[key] for key in _SAME_CALL):
        return None
    return inputs.changes(before, workspace_root, earlier.request.opened_ms * 1_000_000)


def bound(context: CallContext, workspace_root: str, inputs: CommandInputs | None) -> str:
    """Return the canonical JSON of the exact call, which is what an approval is about.

    It holds the arguments, every permission request with its skill's tree digest, the files that it
    depends on, what the person is shown, where it is decided, and on whose behalf it is.

    INVARIANT: none of it is there because of what rules say. The answer to another question may
    store a rule at any time, and the approved call is still the same.
    """
    call, plan = context.call, context.known_plan
    content: dict[str, object] = {
        "tool": call.name,
        "arguments": dict(call.arguments),
        "needs": [_need(need) for need in plan.needs if not need.is_remark],
        **(inputs.value() if inputs is not None else {"files": {}}),
        "shown": [list(fact) for fact in (*plan.facts, *plan.claims)],
        "level": context.level,
        "cwd": workspace_root,
        "agent": call.agent,
        "user": call.user,
        "channel": call.channel,
    }
    if plan.binding:
        content["binding"] = plan.binding
    if context.on_page:
        # An approval from elsewhere, given before the call was moved to the page, does not count.
        content["on_page"] = True
    return canonical(content)


def rule_hint(context: CallContext, workspace_root: str) -> str:
    asked = next(j for j in context.evaluated if j.decision.effect is Effect.ASK)
    wanted = asked.request.permission
    rule = standing_pattern(asked.request, workspace_root)
    if rule.endswith("/"):
        rule = wanted.resource
    no_rule_helps = ("tiers", "write gate", HIDDEN_TEXT, PERSISTENCE)
    if not rule or context.on_page or asked.decision.layer in no_rule_helps:
        return ""
    action = lasting_action(asked.request)
    return f"; a rule that allows `{action} {rule}` would let it through"


def request_to_user(request: ApprovalRequest, page: str) -> str:
    """Return what a model is to ask of its user; never a command, which it could run itself."""
    asked = f"ask the user to approve {request.id}"
    if page:
        return f"{asked} ({page}/approvals/{request.id})"
    return (
        f"{asked} on the skillhouse page or a paired device" if request.out_of_band_only else asked
    )


def _need(need: PermissionRequest) -> Mapping[str, object]:
    return {
        "action": need.permission.action,
        "resource": need.permission.resource,
        "argv": list(need.argv),
        "skill_digest": need.skill_digest,
    }


def forecast_of(decided: CallContext | Refusal, workspace_root: str) -> Forecast:
    context = decided.context if isinstance(decided, Refusal) else decided
    page = context.plan is not None and context.on_page
    facts = Forecast(
        effect=Effect.DENY,
        status="denied",
        reasons=(),
        judged=context.evaluated,
        level=context.level,
        on_page=page,
        command=context.plan.command if context.plan is not None else None,
    )
    if isinstance(decided, Refusal):
        reason = decided.text.removeprefix("denied: ")
        layer = (
            context.denied.decision.layer if context.denied else "tiers" if context.verdict else ""
        )
        return replace(facts, status=decided.status, reasons=(reason,), layer=layer)
    deciding = next(j for j in context.evaluated if j.decision.effect is context.effect)
    facts = replace(facts, effect=context.effect, layer=deciding.decision.layer)
    if context.effect is Effect.ALLOW:
        return replace(facts, status="ok", reasons=tuple(j.reason for j in context.evaluated))
    asked = question(context, workspace_root, None)
    return replace(facts, status="pending", reasons=asked.reasons, title=asked.title)
