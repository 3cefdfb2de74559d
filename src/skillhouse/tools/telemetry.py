"""The spans of a call. By the conventions for generative AI, it is one span `execute_tool NAME`,
which loading a skill or reading its file says more of. Arguments and results are content: only
where the operator asks for them they go along, as the audit log keeps them, redacted and cut."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit, urlunsplit

from skillhouse.floor import tracing
from skillhouse.floor import tracing as words
from skillhouse.floor.structs import replace
from skillhouse.skill import Skill
from skillhouse.tools.call import (
    OUTPUT_MAX,
    Output,
    Plan,
    ProgressHandler,
    ToolCall,
    ToolResult,
    level_of,
)
from skillhouse.tools.call_context import CallContext
from skillhouse.tools.tool import Session, Tool

if TYPE_CHECKING:
    from skillhouse.approval import ApprovalOutcome
    from skillhouse.sandbox import Completed
    from skillhouse.sandbox.code_call import CellResult

Preview = Callable[[Mapping[str, Any]], Mapping[str, object]]
"""Returns values as the audit log would keep them."""

_CAPTURING = frozenset({"true", "1", "span_only", "span_and_event"})
"""Values of the conventions' variable that put content into spans."""


class CallTelemetry:
    """Makes the spans of calls."""

    def __init__(self, preview: Preview | None = None, server: str = "") -> None:
        """`server` is the name of this one, where servers have names."""
        self.preview = preview
        self.server = server

    @classmethod
    def by(cls, environment: Mapping[str, str], preview: Preview, *, server: str = "") -> Self:
        """Take content only if the environment asks for it."""
        wanted = environment.get(words.CAPTURE_VARIABLE, "").strip().lower()
        return cls(preview if wanted in _CAPTURING else None, server)

    def of(self, tool: Tool, call: ToolCall, listener: ProgressHandler | None = None) -> CallSpan:
        return CallSpan(self, tool, call, listener)


class CallSpan:
    """The span of one call, and its figures."""

    def __init__(
        self,
        telemetry: CallTelemetry,
        tool: Tool,
        call: ToolCall,
        listener: ProgressHandler | None,
    ) -> None:
        self.call = call
        """The call; where it came without a trace, it has this span's once that is entered."""
        self.listener = listener
        self._preview = telemetry.preview
        self._server = telemetry.server
        self._tool = tool
        self._began = 0.0
        self._status = ""
        self._traits: dict[str, str | int] = {}
        name = f"{words.EXECUTE_TOOL} {tool.name}"
        self._span = tracing.span(name, parent=call.trace)

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._instance = tracing.begin_instance(self._server)
        self._span.__enter__()
        if self._span.is_heard:
            call = self.call
            ids = {words.CALL_ID: call.call_id, words.CONVERSATION_ID: call.session_id}
            self._span.set(
                {
                    words.OPERATION: words.EXECUTE_TOOL,
                    words.TOOL_NAME: call.name,
                    words.TOOL_TYPE: "function",
                    words.AGENT_NAME: call.agent,
                    **{name: value for name, value in ids.items() if value},
                }
            )
            if not call.trace:
                self.call = replace(call, trace=self._span.traceparent)
            self._content(words.CALL_ARGUMENTS, call.arguments)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object
    ) -> None:
        failure = type(error).__name__ if error is not None else ""
        failure = failure or (self._status if self._status in ("error", "denied") else "")
        self._span.__exit__(kind, error, traceback)
        name = {words.TOOL_NAME: self.call.name}
        tracing.count(words.CALLS, {**name, words.STATUS: self._status or "cancelled"})
        about = {**name, words.TOOL_TYPE: "function", words.AGENT_NAME: self.call.agent}
        if failure:
            about[words.ERROR_TYPE] = failure
        tracing.observe(words.DURATION, time.monotonic() - self._began, about)
        tracing.end_instance(self._instance)

    def plan(self, plan: Plan) -> None:
        if self._span.is_heard:
            self._say({**plan.span_attributes, words.LEVEL: level_of(plan)})

    def output(self, output: Output) -> None:
        if self._span.is_heard:
            self._say(output.span_attributes)

    def ended(self, result: ToolResult) -> ToolResult:
        self._status = result.status
        if self._span.is_heard:
            self._span.set({words.STATUS: result.status})
            if result.approval_id:
                self._span.set({words.APPROVAL_ID: result.approval_id})
            if result.status in ("error", "denied"):
                self._span.fail(result.status)
            elif result.status == "ok":
                self._content(words.CALL_RESULT, {"content": result.content[:OUTPUT_MAX]})
        return result

    def _say(self, span_attributes: Mapping[str, str | int]) -> None:
        """Add traits, and name the span after what is loaded, read or run."""
        self._traits.update(span_attributes)
        self._span.set(span_attributes)
        of: tuple[str, ...]
        if words.SKILL_RESOURCE_NAME in self._traits:
            of = (words.SKILL_NAME, words.SKILL_RESOURCE_NAME)
        elif words.PROGRAM in self._traits:
            of = (words.PROGRAM,)
        elif self._tool.loads_skills:
            of = (words.SKILL_NAME,)
        else:
            return
        named = " ".join(str(self._traits[word]) for word in of if word in self._traits)
        self._span.rename(f"{words.EXECUTE_TOOL} {self._tool.name} {named}")

    def _content(self, name: str, value: Mapping[str, Any]) -> None:
        if self._preview is not None:
            kept = json.dumps(self._preview(value), ensure_ascii=False, default=str)
            self._span.set({name: kept})


@contextmanager
def policy_span() -> Iterator[Callable[[CallContext], None]]:
    """Hold the span of a decision, and yield what adds the decision to it."""
    with tracing.span(words.POLICY_SPAN) as span:

        def decided(context: CallContext) -> None:
            if span.is_heard:
                span.set(_verdict(context))

        yield decided


def _verdict(context: CallContext) -> Mapping[str, tracing.Value]:
    """Return the decision and its layers; a resource would be content."""
    attributes: dict[str, tracing.Value] = {
        words.POLICY_ACTIONS: [one.request.permission.action for one in context.evaluated],
        words.POLICY_LAYERS: [one.decision.layer for one in context.evaluated],
        words.POLICY_EFFECT: context.effect.value,
    }
    if context.verdict is not None:
        attributes[words.TIER] = context.verdict.tier.value
        attributes[words.EFFECTIVE_TIER] = context.verdict.effective_tier.value
        if context.denied is None and context.verdict.effect.value != "allow":
            attributes[words.POLICY_EFFECT] = context.verdict.effect.value
    return attributes


async def approval_span(settling: Awaitable[ApprovalOutcome]) -> ApprovalOutcome:
    began = time.monotonic()
    with tracing.span(words.APPROVAL_SPAN) as span:
        settled = await settling
        about: dict[str, str] = {words.APPROVAL_STATUS: settled.status}
        channel = settled.approval.channel if settled.approval is not None else ""
        if channel:
            about[words.APPROVAL_CHANNEL] = channel
        span.set(about)
        if settled.approval is not None:
            span.set({words.APPROVAL_ID: settled.approval.id})
    tracing.observe(words.APPROVAL_WAIT, time.monotonic() - began, about)
    return settled


async def command_inside(running: Awaitable[Completed], level: str) -> Completed:
    with tracing.span(words.SANDBOX_SPAN) as span:
        span.set({words.SANDBOX_KIND: "command", words.SANDBOX_LEVEL: level})
        done = await running
        if done.limit:
            span.set({words.SANDBOX_LIMIT: done.limit})
            span.fail("limit")
        if done.exit_code is not None:
            span.set({words.EXIT_CODE: done.exit_code})
    if done.start_seconds is not None:
        about = {words.SANDBOX_KIND: "command", words.SANDBOX_LEVEL: level}
        tracing.observe(words.SANDBOX_START, done.start_seconds, about)
    return done


async def code_inside(running: Awaitable[CellResult], language: str) -> CellResult:
    with tracing.span(words.SANDBOX_SPAN) as span:
        span.set({words.SANDBOX_KIND: language})
        result = await running
        span.set({words.SANDBOX_OUTCOME: result.kind})
        if result.kind != "ok":
            span.fail(result.kind)
    return result


def skill_attributes(skill: Skill, session: Session) -> Mapping[str, str]:
    away = "" if session.remote_skills is None else session.remote_skills.address(skill)
    return {
        words.SKILL_NAME: skill.name,
        words.SKILL_DESCRIPTION: skill.description,
        words.SKILL_SOURCE: _without_credentials(away or skill.uri),
    }


def _without_credentials(uri: str) -> str:
    """Return an address for a span.

    >>> _without_credentials("https://me:word@example.org/skills/a?token=b")
    'https://example.org/skills/a'
    """
    parts = urlsplit(uri)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
