"""What the gate writes to the audit log about a call: an intent, an outcome, or a refusal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from skillhouse.approval import Approval, ApprovalState, session_key
from skillhouse.audit import AuditDraft, AuditLog, Confirmation, DecidedPermission, timestamp
from skillhouse.permission import Effect
from skillhouse.tools.call import UNBOUND, EvaluatedPermission, Output, Status, ToolResult
from skillhouse.tools.call_context import CallContext
from skillhouse.tools.tier_gate import STOPPED, all_stopped_text
from skillhouse.tools.write_gate import verdict_of


class Recorder:
    """Writes the records of calls."""

    def __init__(
        self,
        audit: AuditLog,
        workspace: str,
        rules: Callable[[], str] = lambda: "",
        *,
        profile: str = "",
    ) -> None:
        """`rules` returns the digest of the rules that decide."""
        self._audit = audit
        self._workspace = workspace
        self._rules = rules
        self._profile = profile

    def refuse(
        self, context: CallContext, reason: str, status: Status, *, audited: str = ""
    ) -> ToolResult:
        """Record a refusal and return it; that it cannot be recorded changes nothing about it.

        `audited` is the status for the log, where it does not follow from the client's.
        """
        self._audit.write_or_keep(
            self._draft(
                context,
                kind="refusal",
                status=audited or _published(context, status),
                reason=reason,
                error=reason if status == "error" else "",
                gate_verdict=_gate_verdict(context, status),
                detail={**_answer(context.approval), **_tiering(context)},
            )
        )
        approval = context.approval
        approval_id = approval.id if approval is not None and status == "pending" else None
        return ToolResult(content=reason, status=status, approval_id=approval_id)

    def refuse_stopped(self, context: CallContext, reason: str) -> ToolResult:
        text = f"denied: {all_stopped_text(reason)}"
        return self.refuse(context, text, "denied", audited=STOPPED)

    def intent(self, context: CallContext, *, durable: bool) -> str:
        """Return the record's id. After an AuditError nothing is recorded, and the call must not
        run."""
        detail = {**_answer(context.approval), **_tiering(context)}
        draft = self._draft(
            context, kind="intent", detail=detail, gate_verdict=_gate_verdict(context, "")
        )
        if durable:
            return self._audit.write(draft, durable=True)
        return self._audit.write_or_keep(draft)

    def outcome(
        self,
        context: CallContext,
        intent: str,
        output: Output,
        seconds: float,
        *,
        waited: float = 0.0,
        is_stopped: bool = False,
    ) -> None:
        """Record what came of a call that ran for so many seconds, after it waited for others.

        The effect has happened: a log that fails now must not hide the result; `audit verify`
        reports the missing outcome as unknown.
        """
        said = output.text[:200] if output.failed else ""
        status = "unknown" if output.is_unknown else "error" if output.failed else "ok"
        self._audit.write_or_keep(
            self._draft(
                context,
                kind="outcome",
                status="stopped" if is_stopped else status,
                reason=said,
                error=said,
                intent=intent,
                duration_ms=int(seconds * 1000),
                result_chars=len(output.text),
                waited_ms=int(waited * 1000),
                detail=dict(output.detail),
            )
        )

    def _draft(self, context: CallContext, **values: Any) -> AuditDraft:
        call, verdict, plan = context.call, context.verdict, context.plan
        skill = next(
            (j.request for j in context.evaluated if j.request.permission.action == "skill"), None
        )
        digests = (j.request.skill_digest for j in context.evaluated)
        digest = next(filter(None, digests), "")
        tier = verdict.effective_tier.value if verdict else ""
        decided = values["kind"] != "outcome"
        return AuditDraft(
            tool=call.name,
            agent=call.agent,
            user=call.user,
            channel=call.channel,
            client=call.client_info,
            workspace=self._workspace,
            arguments=dict(call.arguments),
            permissions=decided_permissions(context.evaluated) if decided else (),
            rules_digest=self._rules() if decided else "",
            profile=self._profile if decided else "",
            session=call.session_id or session_key(call.agent, call.user, call.channel),
            trace=call.trace,
            request=call.message_id,
            call=call.call_id,
            model=call.model,
            parent=call.parent,
            tier=verdict.tier.value if verdict else "",
            effective_tier=tier,
            security_level=context.level if plan else "",
            signer_tier=tier if context.level == "sign" else "",
            session_key=plan.session_key if plan else "",
            amount_usd=str(verdict.amount_usd) if verdict and verdict.amount_usd else "",
            skill=skill.permission.resource if skill else "",
            skill_digest=digest if digest != UNBOUND else "",
            confirmation=_confirmation(context) if decided else None,
            **values,
        )


def decided_permissions(evaluated: Sequence[EvaluatedPermission]) -> tuple[DecidedPermission, ...]:
    """Return the decisions of a call as its record has them."""
    return tuple(
        DecidedPermission(
            action=j.request.permission.action,
            resource=j.request.permission.resource,
            effect=j.decision.effect.value,
            layer=j.decision.layer,
            rule_index=j.decision.rule_index,
        )
        for j in evaluated
    )


def _published(context: CallContext, status: Status) -> str:
    verdict, approval = context.verdict, context.approval
    if verdict is not None and verdict.reason == STOPPED:
        return STOPPED
    if status == "denied" and approval is not None and approval.state is ApprovalState.EXPIRED:
        return "timeout"
    if status == "pending" and verdict is not None and verdict.effective_tier != verdict.tier:
        return "escalated"
    return status


def _answer(approval: Approval | None) -> Mapping[str, object]:
    if approval is None:
        return {}
    return {
        "approval": approval.id,
        "answer": approval.answer,
        "answered_by": approval.by,
        "answered_on": approval.channel,
        **({"device": f"{approval.device_name} ({approval.device})"} if approval.device else {}),
    }


def _tiering(context: CallContext) -> Mapping[str, object]:
    if context.verdict is None or not context.verdict.source:
        return {}
    return {"tier_source": context.verdict.source, "tier_reason": context.verdict.reason}


def _confirmation(context: CallContext) -> Confirmation | None:
    if context.approval is None:
        asked = any(j.decision.effect is Effect.ASK for j in context.evaluated)
        return Confirmation() if asked else None
    return confirmation_of(context.approval, context.verdict.channel if context.verdict else "")


def confirmation_of(approval: Approval, channel: str = "") -> Confirmation:
    """Return what the log has of a question; `channel` is that of a tier, where no answer came."""
    opened, closed = approval.request.opened_ms, approval.closed_ms
    approved = {
        ApprovalState.APPROVED: True,
        ApprovalState.USED: True,
        ApprovalState.DENIED: False,
    }.get(approval.state)
    return Confirmation(
        channel=approval.channel or channel,
        requested_at=timestamp(opened),
        responded_at=timestamp(closed) if closed and approved is not None else "",
        approved=approved,
        latency_ms=max(0, closed - opened) if closed else 0,
        approval=approval.id,
    )


def _gate_verdict(context: CallContext, status: str) -> str:
    """Return the word of the write gate, which says one only where it is set."""
    is_gated = any(judged.gate for judged in context.evaluated)
    return verdict_of(context, status) if is_gated else ""


def denied_later(answered: Approval) -> AuditDraft:
    """Return the record of a denial whose call does not wait: no other has it without a repeat."""
    asked = answered.request
    return AuditDraft(
        kind="refusal",
        tool=asked.tool,
        agent=asked.agent,
        user=asked.user,
        channel=asked.channel,
        client=asked.client_name,
        workspace=asked.place,
        permissions=tuple(
            DecidedPermission(action=one.action, resource=one.resource, effect="ask", layer="")
            for one in asked.asked
        ),
        status="denied",
        reason="a person refused it; no call waited for the answer",
        session=asked.session_id,
        request=asked.message_id,
        call=asked.call_id,
        confirmation=confirmation_of(answered),
    )
