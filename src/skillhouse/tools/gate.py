"""The one door between a tool call and its effect."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jsonschema_rs

from skillhouse.approval import ApprovalBroker, ApprovalError, Settled, content_digest
from skillhouse.audit import AuditError, AuditLog
from skillhouse.floor import nearest
from skillhouse.permission import Decision, Effect, Outcome
from skillhouse.tools.agreed import Agreed
from skillhouse.tools.approving import bound, question, rule_hint, ways_to_answer
from skillhouse.tools.call import (
    Listener,
    Output,
    Plan,
    RefusedError,
    Tool,
    ToolCall,
    ToolResult,
    UnknownToolError,
    bounded,
)
from skillhouse.tools.case import Case, raised
from skillhouse.tools.need import Judged, Need
from skillhouse.tools.progress import relayed
from skillhouse.tools.recording import Recorder
from skillhouse.tools.session import Session
from skillhouse.tools.telemetry import Telling, Told, deciding, waiting
from skillhouse.tools.tier_gate import STOPPED, Account, TierGate
from skillhouse.tools.write_gate import WriteGate

Decide = Callable[[Need, Session], tuple[Decision, str]]
"""Answers a need of a conversation with a decision and its reason."""


class Gate:
    """Lets a call through when rules, tiers, a person and the log agree."""

    def __init__(
        self,
        tools: Sequence[Tool],
        *,
        decide: Decide,
        approvals: ApprovalBroker,
        audit: AuditLog,
        place: str,
        write_gate: WriteGate = WriteGate(),  # noqa: B008 - a frozen value.
        tiers: TierGate | None = None,
        agreed: Agreed | None = None,
        telling: Telling = Telling(),  # noqa: B008 - it never changes.
    ) -> None:
        """Take the tools, and everybody who has a say.

        Args:
            tools: What can be called.
            decide: Answers a need by the rules.
            approvals: Asks a person.
            audit: Remembers.
            place: The workspace's real path.
            write_gate: Who may change anything.
            tiers: The tier policy, and whether everything is stopped.
            agreed: Hands the yeses that were taken here to the tools that need them.
            telling: Says to telemetry what is done, and no content unless it is told to.
        """
        self.tools = {tool.name: tool for tool in tools}
        # Inside, a skill's tool is `skill:tool`; a model sees the name on the wire (decision 12).
        full_names = ((getattr(tool, "full_name", ""), tool) for tool in tools)
        self._by_full_name = {name: tool for name, tool in full_names if name}
        self._decide = decide
        self._approvals = approvals
        self._recorder = Recorder(audit)
        self._place = place
        self._write_gate = write_gate
        self._tiers = tiers or TierGate()
        self._agreed = agreed or Agreed()
        self._telling = telling
        self._validators = {
            tool.name: jsonschema_rs.Draft202012Validator(dict(tool.schema)) for tool in tools
        }

    async def call(
        self, call: ToolCall, session: Session, *, listener: Listener | None = None
    ) -> ToolResult:
        """Look up, check, decide, ask, record, run, record: the only way to an effect.

        The order is that of decision 7: scope, the user's list, the path's rules, the tier, a
        person, the log, the effect. The listener hears how far the effect is.

        Raises:
            UnknownToolError: no tool has that name.
        """
        tool = self._tool(call.name)
        call = _identified(replace(call, name=tool.name))
        with self._telling.of(tool, call, listener) as told:
            return told.ended(await self._through(tool, told.call, session, told))

    async def _through(
        self, tool: Tool, call: ToolCall, session: Session, told: Told
    ) -> ToolResult:
        wrong = self._wrong_arguments(tool, call.arguments)
        if wrong:
            return ToolResult(content=wrong, status="error")
        case = self._worked_out(tool, call, session, told)
        if isinstance(case, ToolResult):
            return case
        with self._tiers.account(case.verdict) as account:
            if case.effect is Effect.ASK:
                case = await self._asked(tool, case, session, account)
                if isinstance(case, ToolResult):
                    return case
            return await self._run(tool, case, session, account, told)

    def _worked_out(
        self, tool: Tool, call: ToolCall, session: Session, told: Told
    ) -> Case | ToolResult:
        """Return the call with all that is decided about it, or the refusal."""
        case = Case(call=call, verdict=self._tiers.stopped())
        if case.verdict is not None:
            return self._recorder.refuse(case, f"denied: {case.verdict.message}", "denied")
        try:
            case = replace(case, plan=(plan := _planned(tool, call, session)))
        except RefusedError as refused:
            return self._recorder.refuse(case, str(refused), refused.status)
        except OSError as error:
            return self._recorder.refuse(case, _said(tool, error), "error")
        told.plan(plan)
        with deciding() as decided:
            case = replace(case, judged=self._judge(plan.needs, session))
            if case.denied is None:
                case = replace(case, verdict=self._tiers.judge(call, plan))
            decided(case)
        if case.denied is not None:
            return self._recorder.refuse(case, f"denied: {case.denied.reason}", "denied")
        if case.verdict is not None and case.verdict.effect is Effect.DENY:
            return self._recorder.refuse(case, f"denied: {case.verdict.message}", "denied")
        return raised(case)

    async def _run(
        self, tool: Tool, case: Case, session: Session, account: Account, told: Told
    ) -> ToolResult:
        """Record, run, record."""
        plan, approval = case.plan, case.approval
        assert plan is not None  # noqa: S101 - `_worked_out` gave it.
        stopped = account.begin()
        if stopped:
            text = f"nothing was done: {stopped}"
            return self._recorder.refuse(case, text, "denied", audited=STOPPED)
        # INVARIANT: the record is durable before the effect starts, so a crash can leave an
        # intent without an outcome but never an outcome without an intent.
        try:
            intent = self._recorder.intent(case, durable=tool.durable)
        except AuditError as error:
            account.outcome = Outcome.WITHDRAWN
            return ToolResult(content=f"nothing was done: {error}", status="denied")
        began = time.monotonic()
        output = Output(text="cancelled", failed=True)
        try:
            with self._agreed.giving(plan.binding, approval.id if approval else ""):
                output = await _ran(tool, plan, told.listener)
            account.ended(output, signs=case.level == "sign")
        finally:
            # Also when the call is cancelled: what was begun has an outcome.
            self._recorder.outcome(case, intent, output, time.monotonic() - began)
            told.output(output)
        if output.activation is not None and not output.failed:
            session.activations.note(
                output.activation, call_id=case.call.call_id, is_approved=approval is not None
            )
        return ToolResult(
            content=bounded(output.text),
            status="error" if output.failed else "ok",
            data=output.data or None,
        )

    def _tool(self, name: str) -> Tool:
        tool = self.tools.get(name) or self._by_full_name.get(name)
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
        is_closed = tool.schema.get("additionalProperties") is False
        for name in arguments:
            if is_closed and name not in known:
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
            judged.append(self._write_gate.judged(found, session.user, self._place))
        return tuple(judged)

    async def _asked(
        self, tool: Tool, case: Case, session: Session, account: Account
    ) -> Case | ToolResult:
        """Get a yes to the exact call and use it up; without one, return what the model is told."""
        asked = question(case, self._place)
        settled = await waiting(self._approvals.settle(asked, case.call.approval_id))
        case = replace(case, approval=settled.approval)
        if settled.approval is None or settled.status != "approved":
            return self._unapproved(case, settled, account)
        try:
            # INVARIANT: the call is worked out and hashed anew at the moment of use, so a yes
            # never runs anything but what was shown (decision 8).
            plan = _planned(tool, case.call, session)
            now = raised(replace(case, plan=plan, judged=self._judge(plan.needs, session)))
            if now.denied is not None:
                return self._recorder.refuse(now, f"denied: {now.denied.reason}", "denied")
            fresh = content_digest(bound(now, self._place))
            used = self._approvals.redeem(settled.approval.id, fresh, asked.session)
        except (ApprovalError, RefusedError, OSError) as error:
            said = _said(tool, error) if isinstance(error, OSError) else str(error)
            return self._recorder.refuse(case, f"not approved: {said}", "denied")
        return replace(now, approval=used)

    def _unapproved(self, case: Case, settled: Settled, account: Account) -> ToolResult:
        why = next(j for j in case.judged if j.decision.effect is Effect.ASK).reason
        hint = rule_hint(case)
        found = settled.approval
        if settled.status == "pending" and found is not None:
            how = ways_to_answer(found.request, self._approvals.page)
            text = (
                f"not approved yet: {why}; nothing was done. Approval {found.id} waits for a "
                f"person, who can {how}; then repeat the same call{hint}"
            )
            return self._recorder.refuse(case, text, "pending")
        if found is not None:
            # Only a person's no makes a tool halt: a model's many calls do not.
            account.outcome = Outcome.DENIED if found.by else Outcome.TIMEOUT
        return self._recorder.refuse(case, f"not approved: {why}; {settled.reason}{hint}", "denied")


def _planned(tool: Tool, call: ToolCall, session: Session) -> Plan:
    """Return the call worked out; what a skill asks by itself is bound to that skill."""
    plan = tool.plan(call.arguments, session)
    if not session.asker:
        return plan
    needs = (n if n.skill_digest else replace(n, skill_digest=session.asker) for n in plan.needs)
    return replace(plan, needs=tuple(needs))


async def _ran(tool: Tool, plan: Plan, listener: Listener | None) -> Output:
    """Run a plan; what it cannot do is an output that says so."""
    try:
        if listener is None or plan.run_telling is None:
            return await plan.run()
        async with relayed(listener) as say:
            return await plan.run_telling(say)
    except RefusedError as refused:
        return Output(text=str(refused), failed=True)
    except OSError as error:
        return Output(text=_said(tool, error), failed=True)


def _identified(call: ToolCall) -> ToolCall:
    """Return the call with an id of its own, where the caller gave none."""
    return call if call.call_id else replace(call, call_id=secrets.token_hex(8))


def _said(tool: Tool, error: OSError) -> str:
    """Return what the system said, without the paths that it names."""
    return f"`{tool.name}` failed: {(error.strerror or 'input or output').lower()}"
