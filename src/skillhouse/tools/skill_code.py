"""The tools that skills bring with them: their code runs in a cell, and asks through the gate."""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct, field

from skillhouse.approval import Level
from skillhouse.audit import KnownSecrets
from skillhouse.floor import ConfigError, MissingExtraError, TreeError, tree_digest, wire_name
from skillhouse.floor.structs import replace
from skillhouse.floor.threads import in_thread
from skillhouse.floor.tracing import SKILL_NAME, SKILL_SOURCE
from skillhouse.permission import Effect, Permission
from skillhouse.sandbox import Python, SandboxError, SandboxUnavailableError
from skillhouse.sandbox.code_call import (
    TOOL_SECONDS,
    CellResult,
    CellSpec,
    HostCalls,
    OutputPart,
    RpcError,
    wrap_failure,
    wrap_result,
)
from skillhouse.skill import SkillManifest, ToolSpec
from skillhouse.tools.artifacts import ArtifactDraft, Artifacts
from skillhouse.tools.call import (
    LEVELS,
    TRANSACTION_PAGE,
    Output,
    PermissionRequest,
    Plan,
    RefusedError,
    ReportProgress,
    ToolResult,
    UnknownToolError,
)
from skillhouse.tools.code_network import CodeNetwork, CodeReach, network_hint
from skillhouse.tools.code_result import LOG_LINES, call_detail, error_text, misfit, returned_value
from skillhouse.tools.telemetry import code_inside
from skillhouse.tools.tool import Session, Tool

if TYPE_CHECKING:
    from skillhouse.net import EgressProxy

TIMED_CHANNELS = frozenset({"mcp"})
"""Channels of which the clients end a call by a time-out of their own, often of 60 seconds."""
ANSWER_SECONDS = 10.0
"""Time after which these are answered while packages are installed."""
DEBUG_SECONDS = 3_600.0
"""Time of a call that a person debugs."""
CODE_ACTION = "skill_tool"
"""The action of calling a skill's own tool; the resource is `skill:tool`."""
DENIED_BY_GATE = -32_001
"""JSON-RPC code of what the gate refused to a skill (server error, implementation-defined)."""

_NOT_RUN = (SandboxError, SandboxUnavailableError, RpcError, ConfigError, MissingExtraError)
"""Why code was not run."""

Ask = Callable[[str, Mapping[str, Any]], Awaitable[ToolResult]]
"""Calls a tool for the skill; the call is decided, asked about and recorded by itself."""


class CodeSkill(Struct, frozen=True, kw_only=True):
    """An executable skill as this configuration has it."""

    manifest: SkillManifest
    directory: Path
    scope: str
    default: Effect
    """The effect of a read when no rule matches: that of its scope (decision 4)."""
    env: Mapping[str, str]
    """The declared variables that the operator hands to this skill, with their values."""
    shared: tuple[Path, ...] = ()
    """The operator's directories of packages, nearest first."""
    least: Mapping[str, Level] = field(default_factory=dict)
    """The operator's least level of a tool, by its name, or of all by ""."""
    frames_for_models: bool = False
    """Whether a model gets the places in the code that an exception passed through."""
    reach: CodeReach = field(default_factory=CodeReach)
    """What the SDKs of its code may reach."""
    is_debugged: bool = False
    """Whether a call has `DEBUG_SECONDS` and prints the whole traceback of an exception."""
    is_trusted: Callable[[str], bool] = lambda _: False
    """Whether reads of the code of a digest run directly, where `default` asks (S002-94)."""

    def level_of(self, spec: ToolSpec) -> Level:
        said = (spec.level, self.least.get(spec.name), self.least.get(""))
        return max((level for level in said if level is not None), key=LEVELS.index)


def cell_of(
    skill: CodeSkill,
    digest: str,
    *,
    packages: Path | None,
    agent: str,
    user: str,
    python: Python | None,
) -> CellSpec:
    """Callers share a cell only if they may do the same things."""
    manifest = skill.manifest
    return CellSpec(
        skill=manifest.name,
        digest=digest,
        directory=skill.directory,
        language=manifest.language,
        entry=manifest.entry,
        env=skill.env,
        dependencies=packages,
        shared=skill.shared,
        python=python,
        permissions=f"{agent} {' '.join(sorted(skill.env))}",
        hosts=tuple(map(str, skill.reach.hosts)),
        executor=manifest.executor,
        user=user,
    )


class Runner(Protocol):
    async def execute(
        self,
        spec: CellSpec,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        meta: Mapping[str, Any],
        timeout: float,  # noqa: ASYNC109 - a result reports it.
        host: HostCalls,
    ) -> CellResult: ...

    async def tool_names(self, spec: CellSpec) -> tuple[str, ...]: ...

    async def check(self, spec: CellSpec, tool: str) -> None:
        """Raise SandboxError or RpcError where this code cannot run; nothing of it is run."""
        ...

    async def reload(self, skill: str | None) -> None: ...

    async def close(self) -> None: ...


class CodeServices(Protocol):
    """What a tool of a skill runs with: runners, interpreters, packages, the network."""

    async def runner(self, digest: str, language: Literal["python", "javascript"]) -> Runner:
        """Raises SandboxUnavailableError where no code runs on this machine."""
        ...

    async def check_exports(self, skill: CodeSkill, spec: CellSpec) -> None:
        """See once for each digest which tools the code lacks; they are not offered any more."""
        ...

    async def check_packages(self, skill: CodeSkill) -> None:
        """Raise SandboxError where a skill's dependencies cannot be installed; nothing is."""
        ...

    async def packages(
        self, skill: CodeSkill, *, say: ReportProgress, within: float | None
    ) -> Path | None:
        """Install a skill's dependencies once; SandboxError where they cannot be had.

        Args:
            say: Hears that they are installed.
            within: Seconds after which it raises, and they are installed further; None waits.
        """
        ...

    def python(self, skill: CodeSkill) -> Python | None:
        """Return the interpreter of a skill in Python; SandboxError where none fits."""
        ...

    @property
    def artifacts(self) -> Artifacts:
        """What keeps the files that calls write to their output folder."""

    def network(self, skill: CodeSkill, session: Session, call: str, tool: str) -> CodeNetwork:
        """Return the way out of one call, by its id and its tool's name."""
        ...


class SkillCodeTool(Tool):
    """One tool of one skill: its call is planned here, and its code runs in a cell."""

    durable = True
    reads_only = False
    is_about_skills = True
    required_actions = (CODE_ACTION,)

    def __init__(
        self,
        skill: CodeSkill,
        spec: ToolSpec,
        services: CodeServices,
        ask: Callable[[Session], Ask],
    ) -> None:
        self.full_name = f"{skill.manifest.name}:{spec.name}"
        self.name = wire_name(skill.manifest.name, spec.name)
        self.title = self.full_name
        self.required_resource = self.full_name
        self.description = spec.description
        self.schema: Mapping[str, Any] = {"properties": {}, **spec.parameters}
        self.returns = spec.returns
        self.skill = skill
        self.level = skill.level_of(spec)
        self._spec = spec
        self._services = services
        self._ask = ask

    def python(self) -> Python | None:
        """Return the interpreter that runs it, None for other languages; SandboxError for none."""
        return self._services.python(self.skill)

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        session.verify_code(self.skill.directory, self.skill.scope)
        try:
            digest = tree_digest(self.skill.directory)
            # Before anything is asked or installed: no answer would make it run.
            self.python()
            if self.skill.reach.refusal:
                raise RefusedError(f"`{self.full_name}`: {self.skill.reach.refusal}")
        except TreeError as error:
            raise RefusedError(
                f"`{self.full_name}` cannot be bound to its code: {error}"
            ) from error
        except SandboxError as error:
            raise RefusedError(f"`{self.full_name}`: {error}") from error

        async def run(say: ReportProgress = _unheard) -> Output:
            mine = replace(session, origin_digest=digest)
            call = secrets.token_hex(8)
            network: CodeNetwork | None = None
            if self.skill.reach.hosts:
                network = self._services.network(self.skill, mine, call, self.full_name)
            hidden = tuple(self.skill.env.values())
            draft = self._services.artifacts.draft(self.full_name, session, hidden)
            host = _Host(self._ask(mine), say, draft, None if network is None else network.proxy)
            try:
                result = await self._result(digest, arguments, session, host, call)
                kept = await in_thread(draft.finish)
            finally:
                draft.discard()
            known = KnownSecrets(self.skill.env.values())
            detail = call_detail(self.full_name, result, host.lines, known)
            if network is not None:
                detail = {**detail, "call": call, "connections": list(network.connections)}
            detail = {**detail, **kept.detail()}
            wrapped = self._fitting(self._wrapped(result, known, network))
            failed = wrapped.get("success") is False
            is_ended = result.kind in ("ok", "error")
            waits_for = host.waits_for if failed and is_ended else ""
            if waits_for:
                detail = {**detail, "waits_for": waits_for}
            return Output(
                text=f"`{self.full_name}` {host.waiting}" if waits_for else _text(wrapped),
                data=wrapped,
                failed=failed,
                returns=self.returns,
                detail=detail,
                excerpt="ends",
                waits_for=waits_for,
                is_unknown=result.kind == "unknown",
                artifacts=kept.files,
                artifacts_left_out=kept.left_out,
            )

        async def check_feasible() -> None:
            try:
                runner = await self._services.runner(digest, self.skill.manifest.language)
                await self._services.check_packages(self.skill)
                await runner.check(self._cell(digest, session), self._spec.name)
            except _NOT_RUN as error:
                raise RefusedError(f"`{self.full_name}`: {error}") from error

        reached = ", ".join(map(str, self.skill.reach.hosts))
        facts = (
            *((("network", f"only {reached}"),) if reached else ()),
            ("skill", f"{self.skill.manifest.name} {self.skill.manifest.version}".strip()),
            ("directory", str(self.skill.directory)),
            ("may", {"read": "read", "write": "change things", "sign": "sign"}[self.level]),
        )
        return Plan(
            needs=(self.need(digest),),
            run=run,
            run_with_progress=run,
            check_feasible=check_feasible,
            facts=facts,
            page=TRANSACTION_PAGE if self.level == "sign" else "",
            span_attributes={
                SKILL_NAME: self.skill.manifest.name,
                SKILL_SOURCE: self.skill.directory.as_uri(),
            },
        )

    def _wrapped(
        self, result: CellResult, known: KnownSecrets, network: CodeNetwork | None
    ) -> dict[str, Any]:
        if result.kind == "ok":
            return wrap_result(result.value)
        frames = result.frames if self.skill.frames_for_models else ()
        why = error_text(result, known, frames=frames)
        hint = network_hint(self.skill.manifest, result, network)
        if hint:
            first, *more = why.split("\n", 1)
            why = "\n".join([f"{first} ({hint})", *more])
        return wrap_failure(replace(result, error=why))

    def _fitting(self, wrapped: dict[str, Any]) -> dict[str, Any]:
        """Return a result, as an error that has it in its text where it is not what the manifest
        says that the tool returns."""
        if self.returns is None or wrapped.get("success") is False:
            return wrapped
        why = misfit(self.returns, returned_value(wrapped))
        if not why:
            return wrapped
        said = f"`{self.full_name}` was run, and its result does not fit `returns` of its manifest"
        return {"success": False, "error": f"{said}: {why}; it returned: {_text(wrapped)}"}

    def need(self, digest: str, level: Level | None = None) -> PermissionRequest:
        """Return the permission to call it; with `read` as the level, to import its code.

        A skill's own word about its level never makes it milder.
        """
        level = level or self.level
        default = self.skill.default if level == "read" else Effect.ASK
        why = f"no rule matches; a tool that may {level} asks by default"
        if level == "read":
            scope = self.skill.scope
            why = f"no rule matches; skills of scope {scope} are {default.value} by default"
            if default is Effect.ASK and self.skill.is_trusted(digest):
                default = Effect.ALLOW
                why = "no rule matches; it reads, and its code is unchanged since it was trusted"
        return PermissionRequest(
            permission=Permission(action=CODE_ACTION, resource=self.full_name),
            default=default,
            why=why,
            skill_digest=digest,
            level=level,
            may_last=level != "sign",
        )

    def _cell(self, digest: str, session: Session, packages: Path | None = None) -> CellSpec:
        return cell_of(
            self.skill,
            digest,
            packages=packages,
            agent=session.agent,
            user=session.user,
            python=self.python(),
        )

    async def _result(
        self,
        digest: str,
        arguments: Mapping[str, Any],
        session: Session,
        host: _Host,
        call: str,
    ) -> CellResult:
        manifest = self.skill.manifest
        try:
            runner = await self._services.runner(digest, manifest.language)
            within = ANSWER_SECONDS if session.channel in TIMED_CHANNELS else None
            packages = await self._services.packages(self.skill, say=host.say, within=within)
            spec = self._cell(digest, session, packages)
            meta: dict[str, Any] = {
                "skillName": manifest.name,
                "toolName": self._spec.name,
                "callId": call,
                "userId": session.user,
                "channel": session.channel,
            }
            milliseconds = self._spec.timeout_ms
            seconds = TOOL_SECONDS if milliseconds is None else milliseconds / 1_000
            if self.skill.is_debugged:
                meta["debug"] = True
                seconds = max(seconds, DEBUG_SECONDS)
            result = await code_inside(
                runner.execute(
                    spec, self._spec.name, arguments, meta=meta, timeout=seconds, host=host
                ),
                manifest.language,
            )
            if result.kind == "error":
                await self._services.check_exports(self.skill, spec)
            return result
        except _NOT_RUN as error:
            raise RefusedError(f"`{self.full_name}`: {error}") from error


class _Host(Struct):
    """What one call may ask of the core, each through the gate: the cell's `HostCalls`."""

    ask: Ask
    say: ReportProgress
    files: ArtifactDraft
    network: EgressProxy | None = None
    lines: list[str] = field(default_factory=list)
    waits_for: str = ""
    """Id of the first question of the call that is open."""
    waiting: str = ""
    """Where the call ended at it, and what the user is to do."""

    async def fetch(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        known = ("url", "method", "headers", "body")
        result = await self._asked(
            "fetch", {key: request[key] for key in known if request.get(key)}
        )
        answer = result.data or {}
        if "status" not in answer:
            # No server answered: a refusal, a question, or a fault. An answer of any status is one.
            _check(result)
        return {
            "status": answer.get("status", 0),
            "headers": answer.get("headers", {}),
            "body": answer.get("body", ""),
        }

    async def sign(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        result = await self._asked("sign", request)
        _check(result)
        return result.data or {}

    async def read_file(self, path: str) -> str:
        result = await self._asked("read", {"path": path})
        _check(result)
        return result.content

    def log(self, text: str) -> None:
        if len(self.lines) < LOG_LINES:
            self.lines.append(text[:1_000])

    def output(self, part: OutputPart) -> None:
        self.files.take(part)

    def progress(self, fraction: float, text: str) -> None:
        self.say(fraction, text)

    async def _asked(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        try:
            result = await self.ask(tool, arguments)
        except UnknownToolError as error:
            # As where there are no keys: nothing can sign.
            message = f"this agent has no tool `{tool}`"
            raise RpcError(DENIED_BY_GATE, message, reason="denied") from error
        if result.status == "pending" and not self.waits_for:
            self.waits_for = result.approval_id or ""
            self.waiting = f"ended at `{tool}`: {result.content}"
        return result


def _unheard(fraction: float, text: str) -> None: ...


def _check(result: ToolResult) -> None:
    if result.is_error:
        raise RpcError(DENIED_BY_GATE, result.content, reason=result.status)


def _text(wrapped: Mapping[str, Any]) -> str:
    if wrapped.get("success") is False:
        return str(wrapped.get("error", "failed"))
    data = returned_value(wrapped)
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
