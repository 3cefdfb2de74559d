"""What a person is asked about a call, and what an approval is bound to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from skillhouse.approval import (
    Approval,
    ApprovalRequest,
    Asked,
    Pattern,
    canonical,
    content_digest,
    grant_patterns,
    may_last,
)
from skillhouse.permission import Effect
from skillhouse.tools.call import HIDDEN_TEXT, PERSISTENCE, UNBOUND, PermissionRequest
from skillhouse.tools.call_context import CallContext
from skillhouse.tools.command_inputs import CommandInputs, changes

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

    Args:
        case: The call.
        workspace_root: The workspace's real path.
        inputs: The files that the call depends on.
        changed: What is different from an earlier question about the same call.
    """
    call, plan, verdict = context.call, context.known_plan, context.verdict
    asked = [j for j in context.evaluated if j.decision.effect is Effect.ASK]
    patterns = _patterns([j.request for j in asked])
    content = bound(context, workspace_root, inputs)
    arguments = tuple((key, str(item)) for key, item in call.arguments.items())
    return ApprovalRequest(
        tool=call.name,
        agent=call.agent,
        user=call.user,
        channel=call.channel,
        client=call.client,
        connection=call.connection,
        title=_title(context, asked[0].request, inputs),
        # What we decoded comes before what the model wrote.
        facts=(
            *(((CHANGED, changed),) if changed else ()),
            *((*plan.facts, *arguments) if plan.page else (*arguments, *plan.facts)),
            *_bound_facts(inputs),
        ),
        reasons=tuple(dict.fromkeys(j.reason for j in asked)),
        content_digest=content_digest(content),
        content=content,
        always=tuple(f"{p.action} {p.pattern}" for p in patterns),
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


def _title(context: CallContext, first: PermissionRequest, inputs: CommandInputs | None) -> str:
    title = context.known_plan.title or f"{context.call.name}: {first.permission.resource}"
    return f"not bound to files: {title}" if inputs is not None and inputs.unbound else title


def _bound_facts(inputs: CommandInputs | None) -> tuple[tuple[str, str], ...]:
    if inputs is None:
        return ()
    if inputs.unbound:
        return (("not bound to files", inputs.unbound),)
    names = list(inputs.files)
    more = f" and {len(names) - FILES_SHOWN} more" if len(names) > FILES_SHOWN else ""
    found = [", ".join(names[:FILES_SHOWN]) + more] if names else []
    if inputs.signature:
        found.append("every file of the workspace that a program can load")
    return (("bound to", "; ".join(found)),) if found else ()


def changed_inputs(
    context: CallContext, inputs: CommandInputs, earlier: Approval, workspace_root: str
) -> str | None:
    """Return what changed since an earlier question about the same call; None for another call."""
    before, now = (
        json.loads(earlier.request.content),
        json.loads(bound(context, workspace_root, inputs)),
    )
    if any(before.get(key) != now[key] for key in _SAME_CALL):
        return None
    return changes(before, inputs, workspace_root, earlier.request.opened_ms * 1_000_000)


def bound(context: CallContext, workspace_root: str, inputs: CommandInputs | None) -> str:
    """Return the canonical JSON of the exact call, which is what an approval is about.

    It holds the arguments, every permission request with its skill's tree digest, the files that it
    depends on, what the person is shown, where it is decided, and on whose behalf it is.
    """
    call, plan = context.call, context.known_plan
    content: dict[str, object] = {
        "tool": call.name,
        "arguments": dict(call.arguments),
        "needs": [_need(need) for need in plan.needs],
        **(inputs.value() if inputs is not None else {"files": {}}),
        "shown": [list(fact) for fact in plan.facts],
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


def rule_hint(context: CallContext) -> str:
    """Return which rule would have let the call through, or ""."""
    found = next(j for j in context.evaluated if j.decision.effect is Effect.ASK)
    wanted = found.request
    rules = grant_patterns(wanted.permission.action, wanted.permission.resource, wanted.argv)
    no_rule_helps = ("tiers", "write gate", HIDDEN_TEXT, PERSISTENCE)
    if not rules or context.on_page or found.decision.layer in no_rule_helps:
        return ""
    return f"; a rule that allows `{wanted.permission.action} {rules[0]}` would let it through"


def request_to_user(request: ApprovalRequest, page: str) -> str:
    """Return what a model is to ask of its user; never a command, which it could run itself.

    Args:
        request: The question, as it is kept.
        page: Address of the page where questions are decided; empty where it is not known.
    """
    asked = f"ask the user to approve {request.id}"
    if page:
        return f"{asked} ({page}/approvals/{request.id})"
    return f"{asked} on the skillhouse page" if request.out_of_band_only else asked


def _patterns(needs: Sequence[PermissionRequest]) -> tuple[Pattern, ...]:
    """Return what a standing approval would allow; nothing if it cannot cover the whole call."""
    found: list[Pattern] = []
    for need in needs:
        wanted = need.permission
        patterns = grant_patterns(wanted.action, wanted.resource, need.argv)
        lasts = need.may_last and need.effective_level != "sign" and may_last(need.argv)
        if not patterns or not lasts or need.skill_digest == UNBOUND:
            return ()
        found += [
            Pattern(action=wanted.action, pattern=pattern, skill_digest=need.skill_digest)
            for pattern in patterns
        ]
    return tuple(found)


def _need(need: PermissionRequest) -> Mapping[str, object]:
    return {
        "action": need.permission.action,
        "resource": need.permission.resource,
        "argv": list(need.argv),
        "skill_digest": need.skill_digest,
    }
