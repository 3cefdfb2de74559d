"""The one door between a tool call and its effect."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jsonschema_rs

from skillhouse.approval import Approval, ApprovalBroker, ApprovalError, Settled, content_digest
from skillhouse.audit import AuditDraft, AuditError, AuditLog, AuditRecord, DecidedPermission
from skillhouse.floor import nearest
from skillhouse.permission import Decision, Effect
from skillhouse.tools.approving import bound, question, rule_hint
from skillhouse.tools.call import (
    Output,
    Plan,
    RefusedError,
    Status,
    Tool,
    ToolCall,
    ToolResult,
    UnknownToolError,
    bounded,
)
from skillhouse.tools.need import Judged, Need
from skillhouse.tools.session import Session
from skillhouse.tools.write_gate import WriteGate

STRICTNESS = {Effect.ALLOW: 0, Effect.ASK: 1, Effect.DENY: 2}


Decide = Callable[[Need, Session], tuple[Decision, str]]
"""Answers a need of a conversation with a decision and its reason."""


class Gate:
    """Lets a call through when rules, a person and the log agree."""

    def __init__(
        self,
        tools: Sequence[Tool],
        *,
        decide: Decide,
        approvals: ApprovalBroker,
        audit: AuditLog,
        place: str,
        write_gate: WriteGate = WriteGate(),  # noqa: B008 - a frozen value.
    ) -> None:
        """Take the tools, who decides, who asks, who remembers, and the workspace's real path."""
        self.tools = {tool.name: tool for tool in tools}
        self._decide = decide
        self._approvals = approvals
        self._audit = audit
        self._place = place
        self._write_gate = write_gate
        self._validators = {
            tool.name: jsonschema_rs.Draft202012Validator(dict(tool.schema)) for tool in tools
        }

    async def call(self, call: ToolCall, session: Session) -> ToolResult:
        """Look up, check, decide, ask, record, run, record: the only way to an effect.

        Raises:
            UnknownToolError: no tool has that name.
        """
        tool = self._tool(call.name)
        wrong = self._wrong_arguments(tool, call.arguments)
        if wrong:
            return ToolResult(content=wrong, status="error")
        try:
            plan = tool.plan(call.arguments, session)
        except RefusedError as refused:
            return self._refuse(call, (), str(refused), refused.status)
        except OSError as error:
            return self._refuse(call, (), _said(tool, error), "error")
        judged = self._judge(plan.needs, session)
        effect = max((j.decision.effect for j in judged), key=STRICTNESS.__getitem__)
        if effect is Effect.DENY:
            denied = next(j for j in judged if j.decision.effect is Effect.DENY)
            return self._refuse(call, judged, f"denied: {denied.reason}", "denied")
        approval: Approval | None = None
        if effect is Effect.ASK:
            answered = await self._asked(tool, call, session, judged, plan)
            if isinstance(answered, ToolResult):
                return answered
            plan, approval = answered
        # INVARIANT: the record is durable before the effect starts, so a crash can leave an
        # intent without an outcome but never an outcome without an intent.
        try:
            intent = self._intent(tool, call, judged, approval)
        except AuditError as error:
            return ToolResult(content=f"nothing was done: {error}", status="denied")
        began = time.monotonic()
        output = Output(text="cancelled", failed=True)
        try:
            output = await plan.run()
        except RefusedError as refused:
            output = Output(text=str(refused), failed=True)
        except OSError as error:
            output = Output(text=_said(tool, error), failed=True)
        finally:
            # Also when the call is cancelled: what was begun has an outcome.
            self._outcome(call, intent, output, time.monotonic() - began)
        return ToolResult(
            content=bounded(output.text),
            status="error" if output.failed else "ok",
            data=output.data or None,
        )

    def _tool(self, name: str) -> Tool:
        tool = self.tools.get(name)
        if tool is None:
            known = sorted(self.tools)
            raise UnknownToolError(name, next(iter(nearest(name, known)), ""), known)
        return tool

    def _wrong_arguments(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        """Return what is wrong with the arguments, naming the nearest right one, or nothing."""
        try:
            # A surrogate by itself is JSON to Python, but no text for a file or a program.
            json.dumps(dict(arguments), allow_nan=False, ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            return f"the arguments of `{tool.name}` are not JSON values: {error}"
        known = tool.schema["properties"]
        for name in arguments:
            if name not in known:
                close = nearest(name, known)
                hint = f"did you mean `{close[0]}`" if close else f"known are {', '.join(known)}"
                return f"`{tool.name}` has no argument `{name}`; {hint}"
        for fault in self._validators[tool.name].iter_errors(dict(arguments)):
            place = ".".join(str(part) for part in fault.instance_path)
            where = f" `{place}`" if place else ""
            return f"wrong argument{where} of `{tool.name}`: {fault.message}"
        return ""

    def _judge(self, needs: Sequence[Need], session: Session) -> tuple[Judged, ...]:
        judged = []
        for need in needs:
            decision, reason = self._decide(need, session)
            found = Judged(need=need, decision=decision, reason=reason)
            judged.append(self._write_gate.judged(found, session.user))
        return tuple(judged)

    async def _asked(
        self, tool: Tool, call: ToolCall, session: Session, judged: Sequence[Judged], plan: Plan
    ) -> tuple[Plan, Approval] | ToolResult:
        """Get a yes to the exact call and use it up; without one, return what the model is told."""
        asked = question(call, judged, plan, self._place)
        settled = await self._approvals.settle(asked, call.approval_id)
        if settled.approval is None or settled.status != "approved":
            return self._unapproved(call, judged, settled)
        try:
            # INVARIANT: the call is worked out and hashed anew at the moment of use, so a yes
            # never runs anything but what was shown (decision 8).
            plan = tool.plan(call.arguments, session)
            now = self._judge(plan.needs, session)
            denied = next((j for j in now if j.decision.effect is Effect.DENY), None)
            if denied is not None:
                return self._refuse(call, now, f"denied: {denied.reason}", "denied")
            fresh = content_digest(bound(call, plan, self._place))
            approval = self._approvals.redeem(settled.approval.id, fresh, asked.session)
        except (ApprovalError, RefusedError, OSError) as error:
            said = _said(tool, error) if isinstance(error, OSError) else str(error)
            return self._refuse(call, judged, f"not approved: {said}", "denied", settled.approval)
        return plan, approval

    def _unapproved(self, call: ToolCall, judged: Sequence[Judged], settled: Settled) -> ToolResult:
        why = next(j for j in judged if j.decision.effect is Effect.ASK).reason
        hint = rule_hint(judged)
        found = settled.approval
        if settled.status == "pending" and found is not None:
            text = (
                f"not approved yet: {why}; nothing was done. A person can answer with "
                f"`skillhouse approvals approve {found.id}`; then repeat the same call{hint}"
            )
            return self._refuse(call, judged, text, "pending", found)
        text = f"not approved: {why}; {settled.reason}{hint}"
        return self._refuse(call, judged, text, "denied", found)

    def _refuse(
        self,
        call: ToolCall,
        judged: Sequence[Judged],
        reason: str,
        status: Status,
        approval: Approval | None = None,
    ) -> ToolResult:
        """Record a refusal and return it; that it cannot be recorded changes nothing about it."""
        draft = _draft(
            call, judged, kind="refusal", status=status, reason=reason, detail=_answer(approval)
        )
        self._audit.append_read(draft)
        approval_id = approval.id if approval is not None and status == "pending" else None
        return ToolResult(content=reason, status=status, approval_id=approval_id)

    def _intent(
        self, tool: Tool, call: ToolCall, judged: Sequence[Judged], approval: Approval | None
    ) -> AuditRecord | None:
        draft = _draft(call, judged, kind="intent", detail=_answer(approval))
        if tool.durable:
            return self._audit.append(draft, durable=True)
        return self._audit.append_read(draft)

    def _outcome(
        self, call: ToolCall, intent: AuditRecord | None, output: Output, seconds: float
    ) -> None:
        # The effect has happened: a log that fails now is said by the missing outcome, which
        # `audit verify` reports as unknown, and must not hide the result.
        self._audit.append_read(
            _draft(
                call,
                (),
                kind="outcome",
                status="error" if output.failed else "ok",
                reason=output.text[:200] if output.failed else "",
                intent=intent.id if intent else "",
                duration_ms=int(seconds * 1000),
                detail=dict(output.detail),
            )
        )


def _said(tool: Tool, error: OSError) -> str:
    """Return what the system said, without the paths that it names."""
    return f"`{tool.name}` failed: {(error.strerror or 'input or output').lower()}"


def _answer(approval: Approval | None) -> Mapping[str, object]:
    """Return what the log keeps of an approval: which one, the answer, who gave it and where."""
    if approval is None:
        return {}
    return {
        "approval": approval.id,
        "answer": approval.answer,
        "answered_by": approval.by,
        "answered_on": approval.channel,
    }


def _draft(call: ToolCall, judged: Sequence[Judged], **values: Any) -> AuditDraft:
    return AuditDraft(
        tool=call.name,
        agent=call.agent,
        user=call.user,
        channel=call.channel,
        arguments=dict(call.arguments),
        permissions=tuple(
            DecidedPermission(
                action=j.need.permission.action,
                resource=j.need.permission.resource,
                effect=j.decision.effect.value,
                layer=j.decision.layer,
                rule_index=j.decision.rule_index,
            )
            for j in judged
        ),
        **values,
    )
