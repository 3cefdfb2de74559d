"""The values of a call: what was asked for, what it needs, and what came of it."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, cast

from msgspec import Struct, field

from skillhouse.floor import SkillhouseError, StateError
from skillhouse.floor.machine import state_advice
from skillhouse.floor.structs import PartialStruct

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from skillhouse.approval import ApprovedScript, Level
    from skillhouse.permission import CommandVerdict, Decision, Effect, Permission
    from skillhouse.sandbox import Streams
    from skillhouse.tools.activation import Activation
    from skillhouse.tools.artifacts import ArtifactFile
    from skillhouse.tools.command_inputs import CommandInputs

    # `ToolResult` alone is one of anything, also for who checks strictly.
    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

UNBOUND = "unbound"
"""The digest of a skill that has none: an approval of it holds once."""

HIDDEN_TEXT = "hidden text"
"""The layer that decides where a caution turns an allow into a question."""

PERSISTENCE = "persistence"
"""The layer that decides where a caution holds each time: a file that acts later is written."""

SCRIPT = "script"
"""The action of running the bytes of a script, which an approval allows until they change."""

READ_ACTIONS = frozenset({"skill", "read", "list", "search_skills"})
"""Actions that change nothing."""


class PermissionRequest(Struct, frozen=True, kw_only=True):
    """A permission that a call needs before it may run."""

    permission: Permission
    default: Effect
    """What holds when no rule matches."""
    why: str
    """The reason for that default."""
    argv: tuple[str, ...] = ()
    """The words of a command, for a standing approval."""
    skill_digest: str = ""
    """Tree digest of the skill that the permission is about."""
    level: Level | None = None
    """What is approved; what signs is decided on the transaction page only. None is that of the
    action: `read` for `READ_ACTIONS`, `write` for any other."""
    caution: str = ""
    """Why a person is asked although rules allow it; a standing approval of these very bytes
    (`skill_digest`) still holds, but of the layer `PERSISTENCE` none does."""
    caution_layer: str = HIDDEN_TEXT
    may_last: bool = True
    """Whether a standing approval is offered."""
    is_remark: bool = False
    """Whether it is asked only because of what rules say of the words, so that no approval is bound
    to it: the call has the same effect without it."""

    @property
    def effective_level(self) -> Level:
        if self.level is not None:
            return self.level
        return "read" if self.permission.action in READ_ACTIONS else "write"


class EvaluatedPermission(Struct, frozen=True, kw_only=True):
    """A permission request with its decision."""

    request: PermissionRequest
    decision: Decision
    reason: str
    gate: str = ""
    """The write gate's verdict, a word of `write_gate`; empty where it gave none."""


WILL_NOT_WORK = "will not work"
"""Name of the fact that says what of a command is known to fail."""
OUTPUT_MAX = 262_144
"""Characters of a result's text (docs/reference/limits.md)."""

TRANSACTION_PAGE = "transaction"
"""The page that shows a decoded transaction (the published design asks for it, section 5.2)."""
SKILL_CLAIM = "claim of the skill, not checked"
"""The one fact of a signature that was not decoded; the transaction page leaves it out."""

Status = Literal["ok", "error", "denied", "pending"]
Excerpt = Literal["head", "ends", "whole"]
"""What a model gets of a long result: its beginning, its beginning and end, or all of it."""

LEVELS: tuple[Level, ...] = ("read", "write", "sign")


class UnknownToolError(SkillhouseError):
    """No tool has this name; `suggestion` is the nearest that has, `why` the reason if known."""

    def __init__(self, name: str, suggestion: str, known: Sequence[str], *, why: str = "") -> None:
        hint = f"did you mean `{suggestion}`" if suggestion else f"known are {', '.join(known)}"
        super().__init__(f"unknown tool `{name}`; {why or hint}")
        self.name = name
        self.suggestion = suggestion
        self.why = why


class ToolNotOfferedError(UnknownToolError):
    """The tool exists, and this agent's list of tools does not name it."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        SkillhouseError.__init__(
            self,
            f"tool `{name}` is not offered to this agent; offered are {', '.join(known) or 'none'}",
        )
        self.name = name
        self.suggestion = ""
        self.why = ""


class RefusedError(Exception):
    """A call cannot be done as asked; the text says to the model what to try instead."""

    def __init__(self, message: str, *, denied: bool = False) -> None:
        super().__init__(message)
        self.status: Status = "denied" if denied else "error"


class CallerFields(TypedDict, total=False):
    """The fields of `Caller` as keywords."""

    agent: str
    user: str
    channel: str
    client: str
    connection: str
    client_info: str
    session_id: str
    message_id: str
    call_id: str
    trace: str
    model: str
    parent: str


class Caller(Struct, frozen=True, kw_only=True):
    """Who makes a call.

    An approval belongs to the connection that asked, and when that has ended to the next one of the
    same client; `session` answers end with it. A program that serves several clients names each.
    """

    agent: str = "default"
    user: str = "local"
    channel: str = "library"
    """Where the call comes from."""
    client: str = ""
    """Name of the client; the channel when empty."""
    connection: str = ""
    """Which connection of that client; that of the `Skillhouse` itself when empty."""
    client_info: str = ""
    """Name and version of the client as it gives them itself, for the audit log."""
    session_id: str = ""
    """The caller's ids: of the conversation, the message or request, the call, and the task."""
    message_id: str = ""
    call_id: str = ""
    trace: str = ""
    model: str = ""
    """The model that makes the call, as `provider:name`, for the audit log."""
    parent: str = ""
    """The `call_id` of the call within which this one is made; empty for the agent's own."""

    def tool_call(
        self, name: str, arguments: Mapping[str, Any], *, approval_id: str | None = None
    ) -> ToolCall:
        fields = {name: getattr(self, name) for name in Caller.__struct_fields__}
        return ToolCall(name=name, arguments=arguments, approval_id=approval_id or "", **fields)


class ToolCall(Caller, frozen=True, kw_only=True):
    """What a model asked for, and on whose behalf."""

    name: str
    arguments: Mapping[str, Any]
    approval_id: str = ""
    """Id of an answered approval that is about this very call, if the caller has one."""


class ToolResult(PartialStruct, Generic[T], frozen=True, kw_only=True):
    """The result for the model; `T` is what the function of a tool of the program returned."""

    HIDDEN = frozenset(
        "excerpt most has_gaps intent is_asked returned returns artifacts "
        "artifacts_left_out".split()
    )
    UNCOMPARED = HIDDEN

    content: str
    status: Status = "ok"
    data: Mapping[str, Any] | None = None
    """The same as plain values, for programs."""
    approval_id: str | None = None
    excerpt: Excerpt = "head"
    """Which part of a long content is given to a model."""
    most: int = OUTPUT_MAX
    """Characters of the content that are kept."""
    has_gaps: bool = False
    """Whether lines of `left_out_text` are in it where something is missing."""
    intent: str = ""
    """Id of the record of a call that was handed over, for its outcome; empty for any other."""
    is_asked: bool = False
    """Whether who got the call that was handed over has to ask a person first."""
    returned: Any = None
    """What the program's function returned; None for other tools."""
    returns: Mapping[str, Any] | None = None
    """JSON Schema of what a skill's tool returned, where it says so and the call is `ok`."""
    artifacts: tuple[ArtifactFile, ...] = ()
    """The files that a skill's code wrote to its output folder, as they are kept."""
    artifacts_left_out: tuple[str, ...] = ()
    """Those that are not, each with the reason in one line."""

    @property
    def is_error(self) -> bool:
        return self.status != "ok"

    @property
    def value(self) -> T:
        """What the program's function returned, itself; `data` for other tools.

        Raises:
            SkillhouseError: the call is not `ok`, so nothing was returned.
        """
        if self.is_error:
            raise SkillhouseError(f"no value, the call is `{self.status}`: {self.content}")
        found: Any = self.data if self.returned is None else self.returned
        return cast("T", found)


class Output(Struct, frozen=True, kw_only=True):
    """What a tool did."""

    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    failed: bool = False
    detail: Mapping[str, Any] = field(default_factory=dict)
    """Facts for the audit log; texts and integers only."""
    activation: Activation | None = None
    span_attributes: Mapping[str, str | int] = field(default_factory=dict)
    """What telemetry may say of it, by the words of `floor.tracing`; no content."""
    excerpt: Excerpt = "head"
    """What a model gets of a text that is too long for it."""
    most: int = OUTPUT_MAX
    """Characters of the text that are kept."""
    has_gaps: bool = False
    """Whether lines of `left_out_text` are in it where something is missing."""
    waits_for: str = ""
    """Id of the open question inside the call at which it ended; empty when it did not."""
    returned: Any = None
    """What a program's own function returned, for the program."""
    returns: Mapping[str, Any] | None = None
    """JSON Schema that `returned_value` of the data fits, where the tool has one."""
    is_unknown: bool = False
    """Whether it failed without an answer, and may have had its effect."""
    artifacts: tuple[ArtifactFile, ...] = ()
    artifacts_left_out: tuple[str, ...] = ()
    is_handed_over: bool = False
    """Whether another program does the work, and what came of it is recorded later."""


class Progress(Struct, frozen=True, kw_only=True):
    """How far a call is."""

    progress: float
    """How much is done; more with each report of one call."""
    total: float | None
    message: str
    """One line in the words of what runs: untrusted."""


ProgressHandler = Callable[[Progress], Awaitable[None]]
"""Hears how far a call is. What it raises is logged and costs the call nothing."""
ReportProgress = Callable[[float, str], None]
"""Takes how much of a call is done, of `Plan.progress_total`, and a word about it."""


class AttachedRun(Struct, frozen=True, kw_only=True):
    """How a command runs in our sandbox on the descriptors of another process."""

    run: Callable[[CommandInputs | None, Streams], Awaitable[Output]]
    """Does as `Plan.run` or, with inputs, `Plan.run_sealed` does, without a limit of time for who
    waits; the output goes to the streams, and `Output.data` has the exit code."""
    directory: str
    """Where its shell is when it ends with 0; empty where only the shell knows."""


class Plan(Struct, frozen=True, kw_only=True):
    """One planned call: what it needs, and what runs exactly that."""

    needs: tuple[PermissionRequest, ...]
    run: Callable[[], Awaitable[Output]]
    """Only the gate calls this. Raises `RefusedError` when it turns out that it cannot be done."""
    run_with_progress: Callable[[ReportProgress], Awaitable[Output]] | None = None
    """Does as `run` does and says how far it is."""
    progress_total: float | None = 1.0
    """What `run_with_progress` counts to; None where that is not known."""
    prepare: Callable[[], None] | None = None
    """Does on the thread that has just begun the call what `run` would do on one first; only where
    no person was asked. What is wrong then, `run` says."""
    check_feasible: Callable[[], Awaitable[object]] | None = None
    """Awaited before a person is asked; raises `RefusedError` where no approval makes it run."""
    facts: tuple[tuple[str, str], ...] = ()
    """What a person who is asked should see besides the arguments, such as a difference: what was
    found here, under labels of ours."""
    claims: tuple[tuple[str, str], ...] = ()
    """What the skill or its server says of the call; a person sees it as part of what was sent."""
    remarks: tuple[tuple[str, str], ...] = ()
    """Further facts: what rules say of it. No approval is bound to these."""
    inputs: Callable[[], CommandInputs] | None = None
    """Measures the files that the call depends on: an approval is about these bytes too."""
    run_sealed: Callable[[CommandInputs, ReportProgress | None], Awaitable[Output]] | None = None
    """Does as `run` does, with the approved bytes of the files that run."""
    attached: AttachedRun | None = None
    """Does it for a process of another program; None where it starts none."""
    changes_workspace: bool = False
    title: str = ""
    """What a person is asked, in one line; empty when the gate is to say it."""
    page: str = ""
    """Where alone a person may decide it, such as `TRANSACTION_PAGE`: no rule that allows, no other
    channel and no standing approval will do. Empty is anywhere."""
    binding: str = ""
    """Digest of the exact content that is approved, where the arguments are not all of it."""
    spends: tuple[tuple[str, Decimal], ...] | None = ()
    """What it spends, as currency and amount, decoded here; None when it cannot be known."""
    approved: tuple[ApprovedScript, ...] = ()
    """What outlasts the call where a person approves it, once it has begun."""
    loads: tuple[str, ...] = ()
    """The files of the skills whose texts it gives to the client's model, as they were judged."""
    runs_alone: bool = False
    """Whether no other call may change the workspace meanwhile, also where no one is asked."""
    session_key: str = ""
    """Id of the active session key that would sign; empty when none would."""
    command: CommandVerdict | None = None
    """How its command line was read and judged; None of what is no command."""
    span_attributes: Mapping[str, str] = field(default_factory=dict)
    """What telemetry may say of it, by the words of `floor.tracing`: which skill it is of."""


def level_of(plan: Plan) -> Level:
    return max((need.effective_level for need in plan.needs), key=LEVELS.index)


def failure_text(tool_name: str, error: OSError) -> str:
    """Return what the system said, without the paths that it names."""
    return f"`{tool_name}` failed: {(error.strerror or 'input or output').lower()}"


def unwritten_text(error: StateError | OSError) -> str:
    """Return why nothing was done of a call for which a file of ours could not be written."""
    if isinstance(error, StateError):
        return f"nothing was done: {error}"
    reason = (error.strerror or "input or output").lower()
    text = f"nothing was done: what a call needs cannot be written: {reason}"
    advice = state_advice(error)
    return f"{text}; {advice}" if advice else text


ANY_OBJECT: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": True}
"""The schema of a tool whose arguments its own program has checked."""


def object_schema(
    properties: Mapping[str, Any], *, required: Sequence[str] = ()
) -> Mapping[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


class RedeemedApprovals:
    """Passes an approval that the gate consumed to the plan that it authorises, once."""

    def __init__(self) -> None:
        self._approvals: dict[str, list[str]] = {}
        # INVARIANT: held to read or change; calls come from several event loops.
        self._lock = threading.Lock()

    def take(self, binding: str) -> str:
        """Return and forget the id of the approval of exactly this content; "" when there is none.

        >>> redeemed = RedeemedApprovals()
        >>> with redeemed.giving("sha256:1", "id-1"):
        ...     redeemed.take("sha256:2"), redeemed.take("sha256:1"), redeemed.take("sha256:1")
        ('', 'id-1', '')
        """
        with self._lock:
            approvals = self._approvals.get(binding)
            return approvals.pop() if approvals else ""

    @contextmanager
    def giving(self, binding: str, approval_id: str) -> Iterator[None]:
        if not (binding and approval_id):
            yield
            return
        with self._lock:
            self._approvals.setdefault(binding, []).append(approval_id)
        try:
            yield
        finally:
            with self._lock:
                left = [one for one in self._approvals.pop(binding) if one != approval_id]
                if left:
                    self._approvals[binding] = left
