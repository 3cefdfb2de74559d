"""The types of what the API answers; members that are not named here may be there too."""

from __future__ import annotations

from typing import Any, Generic, NotRequired, TypedDict, TypeVar

T = TypeVar("T")


class SkillJson(TypedDict):
    id: str
    name: str
    description: str
    scope: str
    location: str
    directory: str
    uri: str
    root: NotRequired[str]
    clients: NotRequired[list[str]]
    score: NotRequired[float]


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


class SourceJson(TypedDict):
    text: str
    digest: str


class ContentJson(SkillJson):
    body: str
    hidden_text: str | None
    resources: list[str]


class ToolJson(TypedDict):
    name: str
    full_name: str
    skill: str | None
    level: str | None
    description: str
    parameters: dict[str, Any]


class CallResultJson(TypedDict):
    status: str
    """ok, error, denied or pending."""
    content: str
    data: dict[str, Any] | None
    approval_id: str | None
    request: str


class DecisionJson(TypedDict):
    action: str
    resource: str
    effect: str
    layer: str
    reason: str


class QuestionJson(TypedDict):
    id: str
    state: str
    tool: str
    title: str
    agent: str
    user: str
    content: Any
    content_digest: str
    always: list[str]
    expires_ms: int


class AuditEntryJson(TypedDict):
    record: dict[str, Any]
    outcome: dict[str, Any] | None
    status: str


class JobJson(TypedDict):
    """Work that takes long; `result` or `problem` is there once it has ended."""

    id: str
    kind: str
    state: str
    """waiting, running, done, failed or cancelled."""
    message: str
    progress: int
    total: int | None
    result: Any
    problem: dict[str, Any] | None


class PlannedJson(TypedDict):
    """What a change would do with one skill, or what came of it."""

    name: str
    status: str
    """planned, unchanged, pinned or refused; afterwards installed or declined."""
    plan_digest: NotRequired[str]
    questions: NotRequired[list[str]]
    """What `answers` must name: unsigned, untrusted, obeyed, edited."""
    files: NotRequired[list[dict[str, Any]]]
    changes: NotRequired[list[str]]
    error: NotRequired[dict[str, str]]


class AgreedJson(TypedDict):
    plan_digest: str
    answers: list[str]


class PageJson(TypedDict, Generic[T]):
    """One page of a list; `next` is the cursor of the following one."""

    items: list[T]
    total: int | None
    next: str | None
