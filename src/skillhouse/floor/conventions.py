"""The words of telemetry: OpenTelemetry's conventions for generative AI, and ours beside them.

Those of skills and tools have the status "Development" there, so they may change: they stand here
and nowhere else (https://github.com/open-telemetry/semantic-conventions-genai, execute-tool.md).
"""

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
