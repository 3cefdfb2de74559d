"""The types of what the API answers; members that are not named here may be there too.

Generated from skillhouse.answers by `./x docs`; do not edit.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, NotRequired, TypedDict, TypeVar

T = TypeVar("T")


class PageJson(TypedDict, Generic[T]):
    """One page of a list; `next` is the cursor of the following one."""

    items: list[T]
    total: int | None
    next: str | None


class AgreedJson(TypedDict):
    plan_digest: str
    answers: list[str]


class AnsweringDeviceJson(TypedDict):
    id: str
    name: str


class ArtifactJson(TypedDict):
    """A file that a call of a skill's code wrote, as it is kept; `media_type` is by its name."""

    name: str
    bytes: int
    digest: str
    media_type: str
    uri: str


class AuditEntryJson(TypedDict):
    """A call as a list has it."""

    record: dict[str, Any]
    outcome: dict[str, Any] | None
    status: str
    about: str


class BroughtFindingJson(TypedDict):
    code: str
    severity: Literal["error", "warning", "info"]
    message: str


class BroughtMentionJson(TypedDict):
    """What the skill's text names, and what the rules say of it."""

    kind: str
    text: str
    effect: Literal["allow", "ask", "deny"]
    reason: str


class BroughtToolJson(TypedDict):
    name: str
    level: str


class BuildJson(TypedDict):
    """Where a package was built, as a verified attestation says."""

    issuer: str
    repository: str
    workflow: str
    repository_id: str
    commit: str
    ref: str


class CallResultJson(TypedDict):
    """What a call came to; `request` is the id that its record has."""

    status: Literal["ok", "error", "denied", "pending"]
    content: str
    data: dict[str, Any] | None
    approval_id: str | None
    artifacts: NotRequired[list[ArtifactJson]]
    artifacts_left_out: NotRequired[list[str]]
    request: str


class CatalogJson(TypedDict):
    text: str
    tokens: int
    included: list[str]
    omitted: list[str]


class CodeVerdictJson(TypedDict):
    """A tool of a skill's own code that fits, and what the gate would say of a call."""

    skill: str
    tool: str
    description: str
    level: str
    effect: Literal["allow", "ask", "deny"]
    reason: str


class ContentJson(TypedDict):
    """A loaded skill; what people do not see of its body is there as escapes."""

    id: str
    name: str
    description: str
    scope: str
    location: str
    directory: str
    uri: str
    body: str
    hidden_text: str | None
    resources: list[str]
    resources_omitted: int
    resources_more: bool
    diagnostics: list[DiagnosticJson]


class DecisionJson(TypedDict):
    """The decision about a permission, and the rules that match it."""

    action: str
    resource: str
    effect: Literal["allow", "ask", "deny"]
    layer: str
    rule_index: int | None
    reason: str
    rules: list[MatchedRuleJson]


class DefinitionFileJson(TypedDict):
    name: str
    path: str
    type: str


class DefinitionJson(TypedDict):
    """A skill after a change (S004-82)."""

    id: str
    name: str
    description: str
    source: str
    path: str
    directoryPath: str
    enabled: bool
    instructions: str
    allowedTools: list[str]
    files: list[DefinitionFileJson]


class DiagnosticJson(TypedDict):
    code: str
    severity: Literal["error", "warning", "info"]
    message: str
    path: str | None
    line: int | None
    field: str | None
    hint: str | None
    mend: str | None
    detail: str | None


class FactJson(TypedDict):
    label: str
    value: str


class FactsJson(TypedDict):
    """What skillhouse found, under labels of its own, and what the call sent under any label."""

    found: list[FactJson]
    sent: list[FactJson]


class HiddenTextJson(TypedDict):
    path: str
    what: str


class HitJson(TypedDict):
    """A skill that fits a request; `shadowed_by` is the id of the one that agents see instead."""

    id: str
    name: str
    description: str
    scope: str
    location: str
    directory: str
    uri: str
    score: float
    exact: bool
    fields: list[str]
    confidence: float
    matches: dict[str, list[str]]
    alike: list[str]
    similarity: float
    reason: str
    learned: float
    listing: str
    shadowed_by: NotRequired[str]


class JobJson(TypedDict):
    """Work that takes long; `result` or `problem` is there once it has ended."""

    id: str
    kind: str
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    message: str
    progress: int
    total: int | None
    unit: str
    begun_ms: int
    begun: str | None
    ended_ms: int | None
    ended: str | None
    result: Any
    problem: ProblemJson | None


class LibrarySkillJson(TypedDict):
    """A skill, or a file or place that is none, with its state and what it costs."""

    id: str
    name: str
    description: str
    scope: str
    path: str
    clients: list[str]
    state: str
    listing: str
    reason: str
    hint: str | None
    mend: str | None
    code: str | None
    line: int | None
    catalog_tokens: int
    file_tokens: int
    recent: int | None
    language: str
    tools: list[str]
    key: str


class ListedSkillJson(TypedDict):
    """A skill with its root, the clients that read that, and how a model hears of it."""

    id: str
    name: str
    description: str
    scope: str
    location: str
    directory: str
    uri: str
    root: str
    clients: list[str]
    listing: str
    warning: str


class MatchedRuleJson(TypedDict):
    """A rule that matches; `command` is the one of a line that it matches."""

    command: NotRequired[str]
    layer: str
    rule_index: int
    effect: Literal["allow", "ask", "deny"]
    action: str
    pattern: str
    reason: str
    is_verdict: bool
    decided: bool


class MentionJson(TypedDict):
    """What a skill's text names, and what the gate would say of it."""

    kind: str
    text: str
    line: int
    effect: Literal["allow", "ask", "deny"]
    layer: str
    reason: str
    argv: list[str] | None


class NamedHitJson(TypedDict):
    id: str
    name: str
    score: float
    exact: bool
    fields: list[str]
    confidence: float
    matches: dict[str, list[str]]
    alike: list[str]
    similarity: float
    reason: str
    learned: float
    listing: NotRequired[str]


class NamedHostJson(TypedDict):
    origin: str
    files: list[str]
    effect: Literal["allow", "ask", "deny"]


class ObeyedFileJson(TypedDict):
    """A file that agents or other programs obey."""

    path: str
    reason: str


class PlannedJson(TypedDict):
    """What a change would do with one skill, or what came of it."""

    name: str
    own_name: NotRequired[str]
    version: NotRequired[str]
    description: NotRequired[str]
    license: NotRequired[str]
    repository: NotRequired[str]
    trusted: NotRequired[bool | None]
    published_at: NotRequired[str | None]
    downgrade: NotRequired[bool]
    resolved: NotRequired[str]
    inside: NotRequired[str]
    moved_from: NotRequired[str]
    near: NotRequired[str]
    rewritten: NotRequired[str]
    unexpected: NotRequired[str]
    builds: NotRequired[list[BuildJson]]
    unverified: NotRequired[list[str]]
    publisher: NotRequired[str | None]
    registry: NotRequired[str | None]
    signed: NotRequired[bool]
    warnings: NotRequired[list[str]]
    owners: NotRequired[list[str] | None]
    digest: NotRequired[str]
    tree_digest: NotRequired[str]
    size: NotRequired[int]
    files: NotRequired[list[TreeFileJson]]
    lacking: NotRequired[list[str]]
    obeyed: NotRequired[list[ObeyedFileJson]]
    allowed_tools: NotRequired[list[str]]
    tools: NotRequired[list[BroughtToolJson]]
    env: NotRequired[list[str]]
    dependencies: NotRequired[list[str]]
    mentions: NotRequired[list[BroughtMentionJson]]
    hosts: NotRequired[list[NamedHostJson]]
    hidden: NotRequired[list[HiddenTextJson]]
    findings: NotRequired[list[BroughtFindingJson]]
    scope: NotRequired[str]
    path: NotRequired[str]
    installed: NotRequired[str | None]
    changes: NotRequired[list[str]]
    questions: NotRequired[list[str]]
    lock_hash: NotRequired[str]
    note: NotRequired[str]
    plan_digest: NotRequired[str]
    status: NotRequired[str]
    error: NotRequired[RefusalJson]


class ProbeResultJson(TypedDict):
    """The result of one probe of the self-test."""

    name: str
    passed: bool
    detail: str


class ProblemJson(TypedDict):
    """A problem of the API (RFC 9457), whose last members are there where its `code` has them."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str | None
    mend: str | None
    report: NotRequired[str]
    candidates: NotRequired[list[str]]
    scope: NotRequired[str]
    diagnostics: NotRequired[list[DiagnosticJson]]


class QuestionJson(TypedDict):
    """An approval request with everything it covers, but not its nonce."""

    id: str
    state: Literal["open", "approved", "used", "denied", "expired"]
    tool: str
    title: str
    agent: str
    user: str
    channel: str
    client: str
    call_id: str
    place: str
    level: str
    out_of_band_only: bool
    reasons: list[str]
    facts: FactsJson
    always: list[str]
    content: Any
    content_digest: str
    opened_ms: int
    opened: str | None
    expires_ms: int
    expires: str | None
    answer: str | None
    answered_by: str | None
    answered_on: str | None
    device: AnsweringDeviceJson | None
    message: str | None
    closed_ms: int | None
    closed: str | None


class RefusalJson(TypedDict):
    """Why a skill of several was not changed."""

    code: str
    message: str


class RehearsalJson(TypedDict):
    request: str
    catalog: CatalogJson
    hidden: int
    hits: list[NamedHitJson]
    weak: bool
    nothing_fits: bool
    skill: SkillJson | None
    decision: DecisionJson | None
    content: ContentJson | None
    fault: str | None
    mentions: list[MentionJson]
    unjudged: list[UnjudgedJson]
    sandbox: SandboxStatusJson | None
    protected: list[str]
    code: list[CodeVerdictJson]


class SandboxStatusJson(TypedDict):
    """The level that was found, and why it is no better one."""

    level: str
    reasons: list[str]
    probes: list[ProbeResultJson]
    hint: str


class SkillJson(TypedDict):
    id: str
    name: str
    description: str
    scope: str
    location: str
    directory: str
    uri: str


class SourceJson(TypedDict):
    text: str
    digest: str


class ToolJson(TypedDict):
    """A tool; `skill` and `level` are null for a built-in one, `python` but for Python."""

    name: str
    full_name: str
    skill: str | None
    level: str | None
    python: ToolPythonJson | None
    description: str
    parameters: dict[str, Any]


class ToolPythonJson(TypedDict):
    """The interpreter that runs a tool and why, or the problem."""

    program: NotRequired[str]
    version: NotRequired[str]
    why: NotRequired[str]
    problem: NotRequired[str]


class TreeFileJson(TypedDict):
    """One file of a tree."""

    path: str
    mode: str
    size: int
    sha256: str


class UnjudgedJson(TypedDict):
    line: int
    label: str
