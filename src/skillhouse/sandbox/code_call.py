"""One call of a skill's code: whose code it is, what came of it, and what it may ask of the core.

What runs code is an extension; the gate's tools of skills are made of these values alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct, field

from skillhouse.floor import SkillhouseError
from skillhouse.sandbox.interpreters import Python

if TYPE_CHECKING:
    from skillhouse.net import EgressProxy

METHOD_NOT_FOUND = -32601
"""JSON-RPC 2.0, section 5.1."""
UNAVAILABLE = -32005
"""No code can be run, or not at the moment."""
TOOL_SECONDS = 30.0
"""Default time of one call (docs/reference/limits.md; S002-73)."""
SHARED_MAX = 2
"""Directories of packages besides the skill's own (S002-63: skills-level and host)."""


class RpcError(SkillhouseError):
    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str = "",
        frames: object = None,
        unreached: object = None,
        report: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.unreached = unreached
        """What a cell says of a host that was not reached; unchecked."""
        self.frames = frames
        """What a cell says of the places in its code; unchecked, and sent to nothing else."""
        self.reason = reason
        """Stable code for programs, for example "stale_capability"; "" for none."""
        self.report = report
        """By what whoever runs it finds the fault; "" for none."""

    def value(self) -> dict[str, Any]:
        error: dict[str, Any] = {"code": self.code, "message": str(self)}
        data = {"reason": self.reason, "report": self.report}
        if any(data.values()):
            error["data"] = {key: text for key, text in data.items() if text}
        return error


class CodeFrame(Struct, frozen=True, kw_only=True):
    """One place in a skill's code."""

    file: str
    """Relative to the skill's directory."""
    line: int
    """From 1."""
    function: str = ""
    """Empty where it has none, or one that is no name."""

    def text(self) -> str:
        """Return it in one line.

        >>> CodeFrame(file="main.py", line=3, function="get_price").text()
        'main.py:3 in get_price'
        """
        return f"{self.file}:{self.line}" + (f" in {self.function}" if self.function else "")


Language = Literal["python", "javascript"]
Kind = Literal["ok", "error", "timeout", "crashed", "resource-limit", "protocol", "unknown"]
"""The last: an executor elsewhere gave no answer, and the call may have had its effect."""
INTERNAL_ERROR = -32603
"""JSON-RPC 2.0, section 5.1. Of an executor: its own fault during a call, or a lost result."""
TOOL_FAILED = -32000
"""The skill's own code raised."""
RESOURCE_LIMIT = -32002
"""A limit of memory, processes, output or messages was exceeded."""


class CellSpec(Struct, frozen=True, kw_only=True):
    """Whose code runs, and for whom. Calls share a cell only if all of this is equal."""

    skill: str
    """The skill's id."""
    digest: str
    """Of the tree (`floor.tree_digest`); a tree with another digest is not run."""
    directory: Path
    language: Language
    entry: str
    """The file with `tools`, relative to the directory."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The declared variables and their values; each call gets them, the cell itself never."""
    dependencies: Path | None = None
    """Directory of installed packages: what `site-packages` or `node_modules` would hold."""
    shared: tuple[Path, ...] = ()
    """Such directories of the place and of the host, nearest first, at most `SHARED_MAX`; they are
    searched after `dependencies` (S002-63)."""
    python: Python | None = None
    """The interpreter of code in Python; None takes the default."""
    permissions: str = ""
    """Any text that changes with what the skill is permitted."""
    user: str = ""
    hosts: tuple[str, ...] = ()
    """What its calls may reach by the proxy that each call gets; with none there is no network."""
    executor: str = ""
    """The name that its manifest gives to the kind of executor that it needs; "" for any."""
    is_single: bool = False
    """True: no other call is expected, so nothing is prepared for one."""


class CellResult(Struct, frozen=True, kw_only=True):
    """What came of one call, for the core."""

    value: Any = None
    """The tool's result as plain JSON values; of kind "ok" only."""
    error: str = ""
    kind: Kind
    stdout_tail: str = ""
    """The end of the code's output, both streams together."""
    frames: tuple[CodeFrame, ...] = ()
    """The places in the skill's own files that an exception passed through, innermost last."""
    unreached: str = ""
    """`python`, or `node` and its version, where the error came of a host that was not reached
    or not found, as the code's own process says."""
    has_way: bool = False
    """Whether the call had a proxy as its way out."""
    seconds: float
    """From the start of the call in its cell; waiting for a cell does not count."""


class ExecutorState(Struct, frozen=True, kw_only=True):
    """One executor elsewhere, as a core sees it. What it says of itself is checked for its form,
    decides nothing, and may be untrue."""

    id: str
    """Its address: HOST:PORT, with the IP address where a name has several."""
    runs: tuple[str, ...]
    """What is run there, as `[skill_code.executors]` names it; "" for all else."""
    name: str = ""
    """By its own word, as are the next two and the calls; "" where it says none that is one."""
    version: str = ""
    level: str = ""
    isolation: Literal["shown", "unasked", "failed"] = "unasked"
    """Whether it has shown this core what it holds, which it is asked before it gets code."""
    state: Literal["ready", "full", "ending", "not-ready", "silent"] = "silent"
    why: str = ""
    """Why it is silent, or failed to show its isolation."""
    calls: int | None = None
    most: int | None = None
    lag_ms: int | None = None
    """How long its last answer to this question took."""
    seen_ms: int = 0
    """When it answered this core last, be it a call; 0 for never."""


class OutputPart(Struct, frozen=True, kw_only=True):
    """A piece of a file that code wrote to its output folder, as its process says: unchecked.

    The pieces of a file follow each other.
    """

    name: str
    """Relative to the folder; empty for the folder as a whole."""
    data: bytes = b""
    left_out: str = ""
    """Why this file is not sent; then it is no file, whatever came of it before."""


class HostCalls(Protocol):
    """What one call may request of the core. An `RpcError` is passed to the skill."""

    @property
    def network(self) -> EgressProxy | None:
        """The way out of this call alone, where its spec names hosts."""

    async def fetch(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take url, method, headers and body; give status, headers and body."""
        ...

    async def sign(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take what to sign; give the signer's answer."""
        ...

    async def read_file(self, path: str) -> str:
        """Take a path relative to the workspace; give its text."""
        ...

    def log(self, text: str) -> None: ...

    def output(self, part: OutputPart) -> None:
        """Take a piece of a file of the call's output folder, before the call's answer."""
        ...

    def progress(self, fraction: float, text: str) -> None:
        """Take the completed fraction, from 0 to 1, and a short text."""
        ...


def wrap_result(value: Any) -> dict[str, Any]:
    """Return a tool's result as a ToolResult (S002-76, 77, 80, 81).

    An object that has `success` is passed on unchanged; everything else becomes `data`.

    >>> wrap_result({"balance": "1.5"})
    {'success': True, 'data': {'balance': '1.5'}}
    >>> wrap_result({"success": False, "error": "no coin"})
    {'success': False, 'error': 'no coin'}
    """
    if isinstance(value, dict) and "success" in value:
        return value
    return {"success": True, "data": value}


def wrap_failure(result: CellResult) -> dict[str, Any]:
    return {"success": False, "error": result.error}
