"""The one door between a tool call and its effect."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema_rs

from skillhouse.approval import Answer, ApprovalRequest, Channel, grant_patterns
from skillhouse.audit import AuditDraft, AuditError, AuditLog, AuditRecord, DecidedPermission
from skillhouse.floor import Digest, digest, nearest
from skillhouse.permission import Decision, Effect, Permission
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
from skillhouse.tools.need import Need
from skillhouse.tools.session import Session

STRICTNESS = {Effect.ALLOW: 0, Effect.ASK: 1, Effect.DENY: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A need with the decision about it."""

    need: Need
    decision: Decision
    reason: str


Decide = Callable[[Permission, Effect, str, str, str], tuple[Decision, str]]
"""Takes a permission, its default and why, an agent and a skill's digest; answers with a reason."""

Remember = Callable[[Sequence[Need]], None]
"""Keeps a lasting yes to these needs."""


class Gate:
    """Lets a call through when rules, a person and the log agree."""

    def __init__(
        self,
        tools: Sequence[Tool],
        *,
        decide: Decide,
        remember: Remember,
        channel: Channel,
        audit: AuditLog,
    ) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self._decide = decide
        self._remember = remember
        self._channel = channel
        self._audit = audit
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
        if effect is Effect.ASK and not await self._approved(call, judged, plan):
            return self._refuse(call, judged, _not_approved(judged), "denied")
        # INVARIANT: the record is durable before the effect starts, so a crash can leave an
        # intent without an outcome but never an outcome without an intent.
        try:
            intent = self._intent(tool, call, judged)
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
            decision, reason = self._decide(
                need.permission, need.default, need.why, session.agent, need.skill_digest
            )
            judged.append(Judged(need=need, decision=decision, reason=reason))
        return tuple(judged)

    async def _approved(self, call: ToolCall, judged: Sequence[Judged], plan: Plan) -> bool:
        """Ask a person about the exact call; a lasting yes is kept for what it covers."""
        asked = [j for j in judged if j.decision.effect is Effect.ASK]
        covered = {
            j.need.permission: grant_patterns(
                j.need.permission.action, j.need.permission.resource, j.need.argv
            )
            for j in asked
        }
        always = tuple(
            f"{wanted.action} {pattern}" for wanted, found in covered.items() for pattern in found
        )
        answer = await self._channel.ask(
            ApprovalRequest(
                id=secrets.token_hex(8),
                tool=call.name,
                agent=call.agent,
                user=call.user,
                title=f"{call.name}: {asked[0].need.permission.resource}",
                facts=(*((key, str(item)) for key, item in call.arguments.items()), *plan.facts),
                reasons=tuple(j.reason for j in asked),
                content_digest=_content_digest(call),
                always=always if all(covered.values()) else (),
            )
        )
        if answer is Answer.ALWAYS and always:
            self._remember([j.need for j in asked])
        return answer is not Answer.NO

    def _refuse(
        self, call: ToolCall, judged: Sequence[Judged], reason: str, status: Status
    ) -> ToolResult:
        """Record a refusal and return it; that it cannot be recorded changes nothing about it."""
        self._audit.append_read(_draft(call, judged, kind="refusal", status=status, reason=reason))
        return ToolResult(content=reason, status=status)

    def _intent(self, tool: Tool, call: ToolCall, judged: Sequence[Judged]) -> AuditRecord | None:
        draft = _draft(call, judged, kind="intent")
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


def _not_approved(judged: Sequence[Judged]) -> str:
    """Return why nothing happened, and which rule of the user's would have let it."""
    asked = next(j for j in judged if j.decision.effect is Effect.ASK)
    wanted = asked.need.permission
    rules = grant_patterns(wanted.action, wanted.resource, asked.need.argv)
    hint = f"; a rule that allows `{wanted.action} {rules[0]}` would let it through"
    return f"not approved: {asked.reason}{hint if rules else ''}"


def _content_digest(call: ToolCall) -> Digest:
    """Return the digest of the exact call; its arguments are known to be JSON values."""
    exact = {"tool": call.name, "arguments": dict(call.arguments)}
    return digest(json.dumps(exact, sort_keys=True, separators=(",", ":")).encode())


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
