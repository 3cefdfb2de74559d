"""What a service does: tokens, jobs, events, and what came of a stop or a reload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import UNSET, UnsetType

from skillhouse.answers.doctor import InstanceAnswer
from skillhouse.answers.errors import ProblemAnswer
from skillhouse.answers.json_form import Count, JsonAnswer, copied
from skillhouse.audit import timestamp
from skillhouse.floor import Diagnostic, Severity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skillhouse.approval import ServerRow
    from skillhouse.audit import AuditEntry
    from skillhouse.house.access_tokens import Access
    from skillhouse.manage.code_reload import LoadedCode, Reloaded
    from skillhouse.sandbox.code_call import ExecutorState
    from skillhouse.tiers import StopReport


class TokenAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A token or browser; what it opens with is kept nowhere."""

    id: str
    name: str
    kind: str
    user: str
    agent: str
    scopes: list[str]
    created_ms: Count
    expires_ms: Count | None
    used_ms: Count | None


class NewTokenAnswer(JsonAnswer, frozen=True, kw_only=True):
    flat_members = ("access",)
    access: TokenAnswer
    token: str


class RevokedTokenAnswer(JsonAnswer, frozen=True, kw_only=True):
    flat_members = ("access",)
    access: TokenAnswer
    revoked: bool = True


class HealthAnswer(JsonAnswer, frozen=True, kw_only=True):
    status: Literal["ok"] = "ok"
    instance: InstanceAnswer | UnsetType = UNSET
    """Only for who has a key."""


class ServerAnswer(JsonAnswer, frozen=True, kw_only=True):
    """One of the servers that share a state."""

    id: str
    """Another one after each start."""
    name: str
    address: str
    version: str
    started: str
    heard: str
    """When it was heard of last."""
    state: Literal["ready", "draining", "lost"]
    is_this: bool
    """Whether it is the one that answers."""
    log: str
    """Name of the key of its log; empty before its first record."""
    head: int
    """The newest record of its log that the state has a head of; 0 without one."""
    head_at: str
    """When that head was made; empty without one."""
    clock_ms: int
    """By how much its clock is before that of the state."""


class ExecutorAnswer(JsonAnswer, frozen=True, kw_only=True):
    """An executor of skills' code elsewhere; what it says of itself decides nothing."""

    id: str
    """HOST:PORT, with the IP address where a name has several."""
    runs: list[str]
    """The languages and names that are run there; "" for all else."""
    name: str
    """As are version, level and calls, by its own word."""
    version: str
    level: str
    isolation: Literal["shown", "unasked", "failed"]
    """Whether it has shown this server what it holds, which it is asked before it gets code."""
    state: Literal["ready", "full", "ending", "not-ready", "silent"]
    why: str
    calls: Count | None
    most: Count | None
    lag_ms: Count | None
    """How long it took to say this."""
    seen: str
    """When it answered this server last; empty for never."""


ReadyReason = Literal[
    "draining",
    "state",
    "configuration",
    "skills",
    "mcp-ended",
    "events-ended",
    "companion-ended",
    "bot-ended",
    "beats-ended",
    "log-answers-ended",
]
"""Why a server gets no work; `-ended` is what ran beside requests, and does so no more."""


class ReadyAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Whether a balancer is to send work to this server, and why not."""

    status: Literal["ready", "not-ready"]
    reasons: list[ReadyReason]


class ResetEventAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What was missed is not known: everything is to be read again, from this service."""

    instance: InstanceAnswer


class CutEventAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What is sent of an event that is too large; the whole is to be read."""

    id: str | None
    is_cut: Literal[True]


class ProofAnswer(JsonAnswer, frozen=True, kw_only=True):
    proof: str


class RemainsAnswer(JsonAnswer, frozen=True, kw_only=True):
    """One thing that skillhouse left, and what became of it."""

    kind: str
    """entry, hook, service, export or folder."""
    path: str
    what: str
    status: str
    reason: str
    """Why it stays."""


class StoppedAnswer(JsonAnswer, frozen=True, kw_only=True):
    stopped: bool
    reason: str


class ResumedAnswer(JsonAnswer, frozen=True, kw_only=True):
    resumed: bool


class FailedStepAnswer(JsonAnswer, frozen=True, kw_only=True):
    step: str
    error: str


class StopAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What a stop did."""

    new: bool
    ended: Count
    silent: tuple[int, ...]
    killed: Count
    done: tuple[str, ...]
    failed: tuple[FailedStepAnswer, ...]


class FailedToolAnswer(JsonAnswer, frozen=True, kw_only=True):
    name: str
    error: str


class StepAnswer(JsonAnswer, frozen=True, kw_only=True):
    directory: str
    step: str


class ReloadAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What a reload says besides the names of the tools that were loaded."""

    not_tried: list[str]
    failed: tuple[FailedToolAnswer, ...]
    steps: tuple[StepAnswer, ...]


JobState: TypeAlias = Literal["waiting", "running", "done", "failed", "cancelled"]


class JobLineAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A job without what came of it, as events have it."""

    id: str
    kind: str
    state: JobState
    message: str
    progress: Count
    total: Count | None
    unit: str
    begun_ms: Count
    ended_ms: Count | None


class JobAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Work that takes long; `result` or `problem` is there once it has ended."""

    flat_members = ("line",)
    line: JobLineAnswer
    result: Any
    problem: ProblemAnswer | None


class ProgressAnswer(JsonAnswer, frozen=True, kw_only=True):
    """How far a call is."""

    request: str
    tool: str
    progress: float
    total: float | None
    message: str | None


class CallEventAnswer(JsonAnswer, frozen=True, kw_only=True):
    id: str
    tool: str
    status: str
    agent: str
    user: str
    client: str
    ts: str
    request: str


class IndexEventAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Ids of the skills that came, went or changed."""

    added: list[str]
    removed: list[str]
    changed: list[str]
    findings: int


class CompanionEventAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Whether the companion app is away: `soon` only reads go on, `now` they do, or it is back."""

    state: Literal["soon", "now", "back"]
    minutes: int | None
    """Until only reads go on; null when it is back."""


def token_answer(access: Access) -> TokenAnswer:
    return copied(
        TokenAnswer,
        access,
        scopes=sorted(access.scopes),
        expires_ms=access.expires_ms or None,
        used_ms=access.used_ms or None,
    )


def server_answer(
    server: ServerRow, own_id: str, heads: Mapping[str, tuple[str, int, int]]
) -> ServerAnswer:
    """`heads` has of each log the server, place and time of its newest head in the state."""
    _, head, at_ms = heads.get(server.log_name, ("", 0, 0))
    return copied(
        ServerAnswer,
        server,
        started=timestamp(server.began_ms),
        heard=timestamp(server.beat_ms),
        is_this=server.id == own_id,
        log=server.log_name,
        head=head,
        head_at=timestamp(at_ms) if at_ms else "",
        clock_ms=server.skew_ms,
    )


def executor_answer(state: ExecutorState) -> ExecutorAnswer:
    return copied(
        ExecutorAnswer,
        state,
        runs=list(state.runs),
        seen=timestamp(state.seen_ms) if state.seen_ms else "",
    )


def stop_answer(report: StopReport) -> StopAnswer:
    return StopAnswer(
        new=report.is_new,
        ended=report.ended,
        silent=tuple(report.silent),
        killed=report.killed,
        done=tuple(report.done),
        failed=tuple(FailedStepAnswer(step=name, error=why) for name, why in report.failed),
    )


def failures(found: Iterable[LoadedCode], problems: Sequence[Diagnostic]) -> list[tuple[str, str]]:
    """Return what of skills' code cannot be used, with the reason."""
    loaded = tuple(found)
    whole = [(skill.skill, skill.error) for skill in loaded if skill.error]
    single = [
        (f"{skill.skill}:{tool}", "the manifest declares it, and the code does not export it")
        for skill in loaded
        if skill.lacking is not None
        for tool in skill.lacking.tools
    ]
    errors = [
        (str(problem.path or ""), problem.message)
        for problem in problems
        if problem.severity is Severity.ERROR
    ]
    return whole + single + errors


def loaded_names(found: Iterable[LoadedCode]) -> list[str]:
    """Return the tools whose code was loaded, or met by an earlier call."""
    return [name for skill in found if not skill.untried for name in skill.tools]


def untried_names(found: Iterable[LoadedCode]) -> list[str]:
    """Return the tools that are offered, and whose code no one may run without a question."""
    return [name for skill in found if skill.untried for name in skill.tools]


def reload_answer(done: Reloaded, problems: Sequence[Diagnostic]) -> ReloadAnswer:
    failed = failures(done.loaded, problems)
    return ReloadAnswer(
        not_tried=untried_names(done.loaded),
        failed=tuple(FailedToolAnswer(name=name, error=error) for name, error in failed),
        steps=tuple(
            StepAnswer(directory=str(directory), step=step) for directory, step in done.steps
        ),
    )


def call_event(entry: AuditEntry) -> CallEventAnswer:
    record = entry.record
    return copied(CallEventAnswer, record, status=entry.status)
