"""Claude Code's own tools behind the gate, by hooks inside the program."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from skillhouse.floor import MissingExtraError, SkillhouseError
from skillhouse.frontends.adapters.framework_bridge import FrameworkBridge, KeptResult
from skillhouse.frontends.hooks.hook_clients import HookCall, HookEventError
from skillhouse.frontends.hooks.program_calls import ProgramCalls
from skillhouse.tools import ToolResult

try:
    from claude_agent_sdk import (
        CanUseTool,
        HookMatcher,
        PermissionResult,
        PermissionResultAllow,
        PermissionResultDeny,
        ToolPermissionContext,
    )
except ModuleNotFoundError as error:
    raise MissingExtraError("claude-agent", error.name or "claude_agent_sdk") from error

if TYPE_CHECKING:
    from claude_agent_sdk.types import HookContext, HookInput, HookJSONOutput

WAIT_SECONDS = 3_600
"""How long a hook may wait for the user; a question expires after as long."""

logger = logging.getLogger(__name__)


async def decided(
    ask: CanUseTool, name: str, arguments: dict[str, Any], question: dict[str, Any]
) -> PermissionResult | None:
    """Return what the program's `can_use_tool` answers to a question; None where it fails."""
    reason = "; ".join(question["reasons"])
    context = ToolPermissionContext(title=question["title"], decision_reason=reason)
    try:
        return await ask(name, arguments, context)
    except Exception:
        # The program's own code failed; another channel can still answer the question.
        logger.exception("can_use_tool failed for %s", name)
        return None


class OwnTools:
    """Judges each call of a tool that is not ours, and records what came of it."""

    def __init__(self, bridge: FrameworkBridge, ours: str, ask: CanUseTool | None) -> None:
        """`ours` is the beginning of the names of our tools, which have a gate already."""
        self._bridge, self._ours, self._ask = bridge, ours, ask
        self._calls = ProgramCalls("claude-code", bridge.house)
        self._allowed = KeptResult[tuple[str, dict[str, Any]]]()

    def added_to(self, hooks: Any) -> dict[str, list[HookMatcher]]:
        """Return hooks of options with ours."""
        # INVARIANT: a hook that fails or takes too long refuses the call.
        before = HookMatcher(hooks=[self._before], timeout=WAIT_SECONDS, on_failure="block")
        after = HookMatcher(hooks=[self._after])
        ends = ("PostToolUse", "PostToolUseFailure", "Stop", "SubagentStop")
        ours = {"PreToolUse": before, **dict.fromkeys(ends, after)}
        more = {event: [*(hooks or {}).get(event, ()), one] for event, one in ours.items()}
        return {**(hooks or {}), **more}

    def is_allowed(self, call_id: str | None, name: str, arguments: dict[str, Any]) -> bool:
        """Whether the gate allowed this very call, which is then not asked about again."""
        return self._allowed.take(call_id) == (name, arguments)

    async def _before(self, event: HookInput, _: str | None, __: HookContext) -> HookJSONOutput:
        given: Any = event
        if given["tool_name"].startswith(self._ours):
            return {}
        try:
            call = self._calls.call(given)
            result = await self._settled(call)
        except (SkillhouseError, HookEventError, OSError) as error:
            result = ToolResult(content=f"skillhouse cannot judge: {error}", status="error")
        if result.status == "ok":
            self._allowed.keep(call.call, (call.tool, dict(call.given)))
            return {}
        denial: HookJSONOutput = json.loads(self._calls.client.answer("deny", result.content))
        return denial

    async def _settled(self, call: HookCall) -> ToolResult:
        """Put a call to the gate, and a question about it to the program."""
        caller = self._bridge.caller()
        result = await self._calls.answer(call, caller)
        question = self._bridge.question(result)
        if question is None or self._ask is None:
            return result
        given, approval_id = dict(call.given), question["approval_id"]
        answer = await decided(self._ask, call.tool, given, question)
        if isinstance(answer, PermissionResultDeny):
            return self._bridge.refused(approval_id, answer.message)
        if not isinstance(answer, PermissionResultAllow):
            return result
        if answer.updated_input not in (None, given):
            text = "not approved: the user changed the arguments; make the call with them"
            return self._bridge.refused(approval_id, text)
        now = await self._calls.answer(call, caller)
        if not self._bridge.approve_unchanged(now, approval_id):
            return now
        return await self._calls.answer(call, caller, approval_id)

    async def _after(self, event: HookInput, _: str | None, __: HookContext) -> HookJSONOutput:
        given: Any = event
        await self._calls.ended(given)
        return {}
