"""Reports spans and measurements to OpenTelemetry, if this process has set it up.

The one file that imports `opentelemetry`, and only when the process has loaded it already, as code
that sets up an SDK has done. Without one neither the import (some 30 ms) nor spans cost anything.

INVARIANT: what goes out is bounded and printable, whoever wrote it, and an exception's text never
does: it may hold what a call was about."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar, Token
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Self

from skillhouse.floor.errors import SkillhouseError
from skillhouse.floor.regex import regex

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer


OPERATION = "gen_ai.operation.name"
EXECUTE_TOOL = "execute_tool"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
CALL_ID = "gen_ai.tool.call.id"
CALL_ARGUMENTS = "gen_ai.tool.call.arguments"
CALL_RESULT = "gen_ai.tool.call.result"
AGENT_NAME = "gen_ai.agent.name"
CONVERSATION_ID = "gen_ai.conversation.id"
SKILL_NAME = "gen_ai.skill.name"
SKILL_DESCRIPTION = "gen_ai.skill.description"
SKILL_SOURCE = "gen_ai.skill.source.uri"
SKILL_RESOURCE_NAME = "gen_ai.skill.resource.name"
ERROR_TYPE = "error.type"
PROGRAM = "process.executable.name"
EXIT_CODE = "process.exit.code"
HTTP_METHOD = "http.request.method"
HTTP_STATUS = "http.response.status_code"
HTTP_RESENDS = "http.request.resend_count"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
URL_SCHEME = "url.scheme"
INSTANCE = "service.instance.id"
"""The resource of an SDK has it where its operator says so; an operator who names servers has it
in spans and measurements in any case."""
CAPTURE_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""Says whether content goes into telemetry; it does not where this is not set."""

STATUS = "skillhouse.status"
LEVEL = "skillhouse.level"
POLICY_EFFECT = "skillhouse.policy.effect"
POLICY_LAYERS = "skillhouse.policy.layers"
POLICY_ACTIONS = "skillhouse.policy.actions"
TIER = "skillhouse.tier"
EFFECTIVE_TIER = "skillhouse.tier.effective"
APPROVAL_ID = "skillhouse.approval.id"
APPROVAL_STATUS = "skillhouse.approval.status"
APPROVAL_CHANNEL = "skillhouse.approval.channel"
SANDBOX_KIND = "skillhouse.sandbox.kind"
SANDBOX_LEVEL = "skillhouse.sandbox.level"
SANDBOX_LIMIT = "skillhouse.sandbox.limit"
SANDBOX_OUTCOME = "skillhouse.cells.outcome"

POLICY_SPAN = "skillhouse.policy"
APPROVAL_SPAN = "skillhouse.approval.wait"
SANDBOX_SPAN = "skillhouse.sandbox.run"
SANDBOX_START_SPAN = "skillhouse.sandbox.start"

DURATION = "gen_ai.execute_tool.duration"
CALLS = "skillhouse.tool.calls"
APPROVAL_WAIT = "skillhouse.approval.wait.duration"
SANDBOX_START = "skillhouse.sandbox.start.duration"

COUNTERS = {CALLS: ("{call}", "calls of tools, by what came of them")}
"""Unit and meaning of each counter."""
HISTOGRAMS = {
    DURATION: ("s", "the duration of a single tool execution"),
    APPROVAL_WAIT: ("s", "how long a call waited for a person's answer"),
    SANDBOX_START: ("s", "from asking for a sandbox to the first process in it"),
}
"""Unit and meaning of each histogram."""
SECONDS_BUCKETS = (
    *(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28),
    *(2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
)
"""Bounds of the histograms, as the conventions advise for durations."""


TEXT_MAX = 1_024
"""Characters of an attribute; a skill's description has at most as many (specification)."""
NAME_MAX = 128
"""Characters of a name, an id or a span's name."""
ITEMS_MAX = 16
"""Texts in a list."""

Kind = Literal["internal", "client"]
Value = str | int | float | bool | Sequence[str]

logger = logging.getLogger(__name__)

_SCOPE = "skillhouse"
_API = "opentelemetry.trace"
_instance: ContextVar[str] = ContextVar("instance", default="")
_TRACEPARENT = regex(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
"""Version 00 of W3C Trace Context, "traceparent Header"."""


class Span:
    """No-op span, used when no tracer is configured."""

    __slots__ = ()

    @property
    def is_heard(self) -> bool:
        return False

    @property
    def traceparent(self) -> str:
        """The header that lets others continue this trace; empty where there is none."""
        return ""

    def set(self, attributes: Mapping[str, Value]) -> None:
        """Add attributes; texts are cleaned and cut."""

    def rename(self, name: str) -> None:
        """Change its name, now that more is known."""

    def fail(self, code: str) -> None:
        """Mark it as failed, under a code that reveals nothing of the content."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object
    ) -> None:
        return None


class _Heard(Span):
    """A span of the API; the current one from `with` to its end."""

    __slots__ = ("_kind", "_name", "_parent", "_span", "_token")

    def __init__(self, name: str, kind: Kind, parent: str) -> None:
        self._name = name
        self._kind = kind
        self._parent = parent
        self._span: Any = None
        self._token: Any = None

    @property
    def is_heard(self) -> bool:
        return bool(self._span.is_recording())

    @property
    def traceparent(self) -> str:
        return _written(self._span)

    def set(self, attributes: Mapping[str, Value]) -> None:
        if self.is_heard:
            self._span.set_attributes({name: _sent(value) for name, value in attributes.items()})

    def rename(self, name: str) -> None:
        self._span.update_name(cleaned(name, NAME_MAX))

    def fail(self, code: str) -> None:
        from opentelemetry.trace import StatusCode  # noqa: PLC0415 - see the module.

        if self.is_heard:
            self._span.set_attribute(ERROR_TYPE, cleaned(code, NAME_MAX))
            self._span.set_status(StatusCode.ERROR)

    def __enter__(self) -> Self:
        from opentelemetry import context, trace  # noqa: PLC0415 - see the module.

        kind = trace.SpanKind.CLIENT if self._kind == "client" else trace.SpanKind.INTERNAL
        around = _around(self._parent)
        try:
            self._span = _tracer().start_span(cleaned(self._name, NAME_MAX), around, kind=kind)
        except Exception:
            # The SDK is not ours: a fault in it must not fail a call.
            logger.exception("a span could not begin")
            self._span = trace.INVALID_SPAN
        self._token = context.attach(trace.set_span_in_context(self._span, around))
        if name := _instance.get():
            self.set({INSTANCE: name})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object
    ) -> None:
        from opentelemetry import context  # noqa: PLC0415 - see the module.

        if error is not None:
            code = getattr(error, "code", "") if isinstance(error, SkillhouseError) else ""
            self.fail(code or type(error).__name__)
        context.detach(self._token)
        try:
            self._span.end()
        except Exception:
            # Likewise; the effect may have happened, and its result must not be lost for this.
            logger.exception("a span could not end")


_UNHEARD = Span()


def span(name: str, *, kind: Kind = "internal", parent: str = "") -> Span:
    """Return a span to enter with `with`; what is opened inside is its child.

    `kind` is "client" where another machine is asked. A `parent` from outside that is no
    `traceparent` says nothing, and within a span of the same trace it is that span's.
    """
    return _Heard(name, kind, parent) if is_heard() else _UNHEARD


def begin_instance(name: str) -> Token[str]:
    """Have what follows in this context say which server it is of, until `end_instance`."""
    return _instance.set(name)


def end_instance(token: Token[str]) -> None:
    _instance.reset(token)


def current() -> str:
    """Return the `traceparent` of the span that we are in; empty where there is none."""
    if not is_heard():
        return ""
    from opentelemetry import trace  # noqa: PLC0415 - see the module.

    return _written(trace.get_current_span())


def count(name: str, attributes: Mapping[str, str]) -> None:
    if _API in sys.modules:
        _counter(name).add(1, _named(attributes))


def observe(name: str, seconds: float, attributes: Mapping[str, str]) -> None:
    if _API in sys.modules:
        _histogram(name).record(seconds, _named(attributes))


def is_traceparent(text: str) -> bool:
    """Whether a text from outside names a trace and a span.

    >>> is_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    True
    """
    return _TRACEPARENT.fullmatch(text) is not None


def cleaned(text: str, most: int = TEXT_MAX) -> str:
    """Return untrusted text on one line, without what does not print, and not too long.

    >>> cleaned("a\\nb\\u202ec", 3)
    'a b'
    """
    if len(text) <= most and text.isprintable():
        return text
    text = text[: 4 * most]
    if not text.isprintable():
        text = "".join(c for c in " ".join(text.split()) if c.isprintable())
    return text[:most]


def is_heard() -> bool:
    """Whether this process has set up an SDK that takes spans."""
    # Looked up instead of imported, which takes longer; another thread may be half through it.
    api = sys.modules.get(_API)
    proxy = getattr(api, "ProxyTracerProvider", None)
    provider = getattr(api, "get_tracer_provider", None)
    if api is None or proxy is None or provider is None:
        return False
    # The proxy is the provider until an SDK is set up.
    return type(provider()) is not proxy


def _written(span: Any) -> str:
    ids = span.get_span_context()
    if not ids.is_valid:
        return ""
    return f"00-{ids.trace_id:032x}-{ids.span_id:016x}-{int(ids.trace_flags):02x}"


def _around(parent: str) -> Context | None:
    """Return the context in which a span begins; None is the current one."""
    match = _TRACEPARENT.fullmatch(parent)
    if match is None:
        return None
    from opentelemetry import trace  # noqa: PLC0415 - see the module.

    trace_id, span_id, flags = (int(part, 16) for part in match.groups())
    if trace.get_current_span().get_span_context().trace_id == trace_id:
        # Whoever brought it, such as the MCP SDK, has opened a span of its own already.
        return None
    sampled = trace.TraceFlags(flags)
    ids = trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=sampled)
    return trace.set_span_in_context(trace.NonRecordingSpan(ids)) if ids.is_valid else None


def _sent(value: Value) -> Value:
    if isinstance(value, str):
        return cleaned(value)
    if isinstance(value, bool | int | float):
        return value
    return tuple(cleaned(item, NAME_MAX) for item in value[:ITEMS_MAX])


def _named(attributes: Mapping[str, str]) -> dict[str, str]:
    found = {name: cleaned(value, NAME_MAX) for name, value in attributes.items()}
    return found | {INSTANCE: name} if (name := _instance.get()) else found


@cache
def _tracer() -> Tracer:
    from opentelemetry import trace  # noqa: PLC0415 - see the module.

    return trace.get_tracer(_SCOPE)


@cache
def _counter(name: str) -> Any:
    from opentelemetry import metrics  # noqa: PLC0415 - see the module.

    unit, about = COUNTERS[name]
    return metrics.get_meter(_SCOPE).create_counter(name, unit, about)


@cache
def _histogram(name: str) -> Any:
    from opentelemetry import metrics  # noqa: PLC0415 - see the module.

    unit, about = HISTOGRAMS[name]
    return metrics.get_meter(_SCOPE).create_histogram(
        name, unit, about, explicit_bucket_boundaries_advisory=SECONDS_BUCKETS
    )
