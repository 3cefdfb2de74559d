"""The values of this room: a call, what it needs, what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, Protocol

from skillhouse.floor import SkillhouseError

if TYPE_CHECKING:
    from skillhouse.tools.activation import Activation
    from skillhouse.tools.command_inputs import CommandInputs
    from skillhouse.tools.permission_request import PermissionRequest
    from skillhouse.tools.session import Session

OUTPUT_MAX = 262_144
"""Characters of a result's text (DESIGN, bounds: 256 KiB, then cut with a notice)."""

TRANSACTION_PAGE = "transaction"
"""The page that shows a decoded transaction (the published design asks for it, section 5.2)."""

Status = Literal["ok", "error", "denied", "pending"]


class UnknownToolError(SkillhouseError):
    """No tool has this name; `suggestion` is the nearest that has."""

    def __init__(self, name: str, suggestion: str, known: Sequence[str]) -> None:
        hint = f"did you mean `{suggestion}`" if suggestion else f"known are {', '.join(known)}"
        super().__init__(f"unknown tool `{name}`; {hint}")
        self.name = name
        self.suggestion = suggestion


class RefusedError(Exception):
    """A call cannot be done as asked; the text tells the model what to try instead."""

    def __init__(self, message: str, *, denied: bool = False) -> None:
        super().__init__(message)
        self.status: Status = "denied" if denied else "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """What a model asked for, and on whose behalf."""

    name: str
    arguments: Mapping[str, Any]
    agent: str = "default"
    user: str = "local"
    channel: str = "library"
    client: str = ""
    """Name of the client, as it gives it itself."""
    connection: str = ""
    """Which connection of that client; an approval belongs to it."""
    approval_id: str = ""
    """Id of an answered approval that is about this very call, if the caller has one."""
    session_id: str = ""
    """The caller's ids, for the log and the question: of the conversation, of the message or
    request that the call came from, of the call itself, and of the task that it is a part of."""
    message_id: str = ""
    call_id: str = ""
    trace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What the model gets back."""

    content: str
    """Text for the model."""
    status: Status = "ok"
    data: Mapping[str, Any] | None = None
    """The same as plain values, for programs."""
    approval_id: str | None = None

    @property
    def is_error(self) -> bool:
        """Whether the call did not do what it was for."""
        return self.status != "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a tool did."""

    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    failed: bool = False
    """Whether the text is about a failure, such as a command that exited with another code."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """Facts for the audit log; texts and integers only."""
    activation: Activation | None = None
    """The skill whose text this is."""
    span_attributes: Mapping[str, str | int] = field(default_factory=dict)
    """What telemetry may say of it, by the words of `floor.conventions`; no content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a call is."""

    progress: float
    """How much is done; more with each word of one call."""
    total: float | None
    """How much there is to do, where that is known."""
    message: str
    """One line about it, in the words of what runs: untrusted."""


ProgressHandler = Callable[[Progress], Awaitable[None]]
"""Hears how far a call is. What it raises is logged and costs the call nothing."""
ReportProgress = Callable[[float, str], None]
"""Takes how much of a call is done, from 0 to 1, and a word about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One call worked out: what it needs, and the doing of exactly that."""

    needs: tuple[PermissionRequest, ...]
    run: Callable[[], Awaitable[Output]]
    """Only the gate calls this. Raises `RefusedError` when it turns out that it cannot be done."""
    run_with_progress: Callable[[ReportProgress], Awaitable[Output]] | None = None
    """Does as `run` does and says how far it is; None for what has nothing to say."""
    facts: tuple[tuple[str, str], ...] = ()
    """What a person who is asked should see besides the arguments, such as a difference."""
    inputs: Callable[[], CommandInputs] | None = None
    """Measures the files that the call depends on: an approval is about these bytes too."""
    run_sealed: Callable[[CommandInputs], Awaitable[Output]] | None = None
    """Does as `run` does, with the approved bytes of the files that run."""
    changes_workspace: bool = False
    """Whether it may change a file of the workspace."""
    title: str = ""
    """What a person is asked, in one line; empty when the gate is to say it."""
    page: str = ""
    """Where alone a person may decide it, such as `TRANSACTION_PAGE`: no rule that allows, no other
    channel and no lasting yes will do. Empty is anywhere."""
    binding: str = ""
    """Digest of the exact content that a yes is about, when the arguments do not say it all."""
    spends: tuple[tuple[str, Decimal], ...] | None = ()
    """What it spends, as currency and amount, decoded by us; None when nobody can know."""
    session_key: str = ""
    """Id of the active session key that would sign; empty when none would."""
    span_attributes: Mapping[str, str] = field(default_factory=dict)
    """What telemetry may say of it, by the words of `floor.conventions`: which skill it is of."""


class Tool(Protocol):
    """One thing that a model can ask for."""

    @property
    def name(self) -> str:
        """The name on the wire."""
        ...

    @property
    def description(self) -> str:
        """What it does and when to use it, for the model."""
        ...

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON Schema 2020-12 of the arguments: an object without further properties."""
        ...

    @property
    def durable(self) -> bool:
        """Whether the record of a call must be on the disk before it runs (decision 9)."""
        ...

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        """Work out a call whose arguments fit the schema; nothing happens yet.

        Raises:
            RefusedError: the call makes no sense here, whatever the rules say.
        """
        ...


def failure_text(tool_name: str, error: OSError) -> str:
    """Return what the system said, without the paths that it names."""
    return f"`{tool_name}` failed: {(error.strerror or 'input or output').lower()}"


def bounded(text: str) -> str:
    """Return a text of at most `OUTPUT_MAX` characters, which says so when it was cut."""
    if len(text) <= OUTPUT_MAX:
        return text
    notice = f"\n[cut: {len(text) - OUTPUT_MAX} more characters; ask for a part of it]"
    return text[:OUTPUT_MAX] + notice


def object_schema(
    properties: Mapping[str, Any], *, required: Sequence[str] = ()
) -> Mapping[str, Any]:
    """Return the JSON Schema of an object with just these properties."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }
