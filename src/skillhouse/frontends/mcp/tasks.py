"""The tasks extension (SEP-2663): a client polls for a call that takes long, or waits for approval.

The SDK has none of it; once it has, this module ends. A call becomes a task only for a client that
declares the extension in that very request. A task belongs to the connection that made its call,
as an approval does; of any other one's a client learns nothing, not even that it exists.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from skillhouse.approval import AWAITED, ApprovalError, ApprovalRequest, ApprovalState
from skillhouse.floor import SkillhouseError
from skillhouse.floor.paths import sendable
from skillhouse.floor.threads import finish_in_thread, in_thread
from skillhouse.frontends.mcp.approval_bridge import ApprovalBridge, Call, DeniedError
from skillhouse.frontends.mcp.call_result import call_result, guarded, text_answer
from skillhouse.frontends.mcp.elicitation import (
    Elicitation,
    ElicitationClient,
    answer_of,
    elicitation_channel,
)
from skillhouse.house import Skillhouse
from skillhouse.house.call_tasks import ARGUMENTS_MAX, KEEP_MS, CallTask, CallTasks, TaskState
from skillhouse.tools import (
    Progress,
    ProgressHandler,
    ToolResult,
)

EXTENSION = "io.modelcontextprotocol/tasks"
AFTER_SECONDS = 5.0
"""How long a call is waited for before it becomes a task (docs/reference/limits.md)."""
POLL_MS = 1_000
"""The interval at which clients should poll."""
OUTCOME_MAX = 1_048_576
"""Characters of a result that is kept, as JSON; of a longer one it is known that the call ran."""

Context = ServerRequestContext[None]
MakeCall = Callable[[Context, str, Mapping[str, Any], ProgressHandler | None], Call]
"""Returns a call for a request's client, by tool and arguments; progress goes to the handler."""

logger = logging.getLogger(__name__)


class TaskParams(types.RequestParams):
    task_id: str


class UpdateParams(TaskParams):
    input_responses: dict[str, Any]


class TaskRun:
    """A call that this server makes now."""

    def __init__(self, tool: str, arguments: str, task_id: str = "") -> None:
        self.tool = tool
        self.arguments = arguments
        self.task_id = task_id
        """Empty while its client waits for the result itself."""
        self.message = ""
        """Its last progress, in the words of what runs: untrusted."""
        self.result: ToolResult | None = None
        self.error: MCPError | None = None
        self.is_cancelled = False
        self.awaited: list[str] = []
        """The ids of the questions that it waits for inside of this server, newest last."""
        self.scope = anyio.CancelScope()
        self.done = anyio.Event()

    def listener(self, report: ProgressHandler | None) -> ProgressHandler:
        """Return what hears the progress: the request of the call while that is open."""

        async def heard(now: Progress) -> None:
            self.message = now.message
            if report is not None and not self.task_id:
                await report(now)

        return heard


class TaskRequests:
    """The tasks of one server's clients."""

    def __init__(
        self, house: Skillhouse, who: Mapping[str, str], bridge: ApprovalBridge, make: MakeCall
    ) -> None:
        self._house = house
        self._who = who
        self._bridge = bridge
        self._make = make
        self._connections = house.approvals.connections
        self._store = CallTasks(house.config.state_directory, self._connections)
        self._group: TaskGroup | None = None
        self._runs: dict[str, TaskRun] = {}
        self.after_seconds = AFTER_SECONDS

    def register(self, server: Server[None]) -> None:
        server.extensions[EXTENSION] = {}
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/update", UpdateParams, self._update)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Hold the calls that run in the background; they end with the block."""
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                try:
                    yield
                finally:
                    self._group = None
                    group.cancel_scope.cancel()
        finally:
            self._store.close()

    def is_for(self, context: Context, params: types.CallToolRequestParams) -> bool:
        """Whether a call may become a task: its client declares it, and repeats no earlier call."""
        return self._group is not None and is_declared(context) and params.request_state is None

    async def call(
        self,
        context: Context,
        params: types.CallToolRequestParams,
        report: ProgressHandler | None,
    ) -> ToolResult | types.InputRequiredResult | dict[str, Any]:
        """Make a call, and return its result, or its task if it takes long or needs approval."""
        if self._group is None:
            raise RuntimeError("the server has ended")
        caller = self._bridge.fields(context)
        given = params.arguments or {}
        run = TaskRun(params.name, json.dumps(given))
        call = self._make(context, params.name, given, run.listener(report))
        self._group.start_soon(self._run, run, caller, "", call)
        try:
            return await self._first_answer(context, caller, run)
        except anyio.get_cancelled_exc_class():
            # Whoever made the request gave it up, and knows of no task.
            with anyio.CancelScope(shield=True):
                run.is_cancelled = True
                run.scope.cancel()
                await run.done.wait()
                if run.task_id:
                    with suppress(SkillhouseError, OSError):
                        await in_thread(lambda: self._store.cancel(run.task_id))
            raise

    async def _first_answer(
        self, context: Context, caller: Mapping[str, str], run: TaskRun
    ) -> ToolResult | types.InputRequiredResult | dict[str, Any]:
        with anyio.move_on_after(self.after_seconds):
            await run.done.wait()
        if not run.done.is_set():
            await self._open(caller, run, "running")
            if run.task_id:
                self._runs[run.task_id] = run
                if run.done.is_set():
                    await self._keep(run)
                return await self._created(context, run.task_id)
            await run.done.wait()
        if run.error is not None:
            raise run.error
        if run.result is None:
            raise MCPError(types.INTERNAL_ERROR, "the call was cancelled")
        if run.result.status == "pending" and run.result.approval_id:
            await self._open(caller, run, "asking", run.result.approval_id)
            if run.task_id:
                return await self._created(context, run.task_id)
        client = self._bridge.client_of(context, caller["session_id"])
        return await self._bridge.question_or_result(run.result, client)

    async def _open(
        self, caller: Mapping[str, str], run: TaskRun, state: TaskState, approval: str = ""
    ) -> None:
        """Keep a new task for a call; it gets no id where there can be none."""
        if len(run.arguments) > ARGUMENTS_MAX:
            return
        task = CallTask(
            agent=self._who["agent"],
            user=self._who["user"],
            channel=self._who["channel"],
            client=caller["client"],
            connection=caller["connection"],
            tool=run.tool,
            arguments=run.arguments if state == "asking" else "",
            state=state,
            approval=approval,
        )
        # A task that is kept is known here, whatever comes meanwhile.
        with anyio.CancelScope(shield=True):
            try:
                run.task_id = await in_thread(lambda: self._store.open(task))
            except (SkillhouseError, OSError):
                # The call goes on, and its client waits for it.
                logger.exception("keeping a task")

    async def _run(
        self, run: TaskRun, caller: Mapping[str, str], approval_id: str, call: Call
    ) -> None:
        """Make a call to its end, and keep what became of it if it is a task by then."""
        # Its task in this event loop is its own, so no other call is seen in the list.
        AWAITED.set(run.awaited)
        try:
            with run.scope:
                run.result = await guarded(self._bridge.make(caller, approval_id, call))
        except MCPError as error:
            run.error = error
        finally:
            run.done.set()
            if run.task_id:
                await self._keep(run)

    async def _keep(self, run: TaskRun) -> None:
        self._runs.pop(run.task_id, None)
        try:
            await finish_in_thread(lambda: self._kept(run))
        except (SkillhouseError, OSError):
            # The task stays as it is, and is lost once this server ends.
            logger.exception("keeping what became of a task")

    def _kept(self, run: TaskRun) -> None:
        result = run.result
        if run.error is not None:
            wire = json.dumps({"code": run.error.code, "message": run.error.message})
            self._store.end(run.task_id, "failed", wire)
        elif result is None:
            self._store.end(run.task_id, "cancelled" if run.is_cancelled else "lost", "")
        elif (
            result.status == "pending"
            and not run.is_cancelled
            and result.approval_id
            and len(run.arguments) <= ARGUMENTS_MAX
        ):
            self._store.ask(run.task_id, result.approval_id, run.arguments)
        else:
            self._store.end(run.task_id, "done", _wire(result))

    async def _get(self, context: Context, params: TaskParams) -> dict[str, Any]:
        _check_header(context, params.task_id)
        return await self.described(context, params.task_id)

    async def described(self, context: Context, task_id: str) -> dict[str, Any]:
        """Return a task as `tasks/get` does, and make its call if its question is answered.

        Raises:
            MCPError: it is no task of the client of this request.
        """
        task = await self._own(context, task_id)
        task = await self._advanced(context, task_id, task)
        return await in_thread(lambda: self._described(context, task_id, task))

    async def _update(self, context: Context, params: UpdateParams) -> dict[str, Any]:
        _check_header(context, params.task_id)
        task = await self._own(context, params.task_id)
        caller = self._bridge.fields(context)
        client = self._bridge.client_of(context, caller["session_id"])
        if client is not None and task.state in ("asking", "running"):
            try:
                await in_thread(lambda: self._answered(task, client, params))
            except DeniedError as error:
                why = str(error)
                # A call that runs was approved elsewhere before, and has gone on.
                await in_thread(lambda: self._denied(params.task_id, task, why))
                return {}
            await self._advanced(context, params.task_id, task)
        return {}

    def _denied(self, task_id: str, task: CallTask, why: str) -> None:
        """End a task whose user denied what was approved elsewhere before the call began."""
        if self._store.begin(task_id, task.approval):
            result = ToolResult(content=f"not approved: refused; {why}", status="denied")
            self._store.end(task_id, "done", _wire(result))

    async def _cancel(self, context: Context, params: TaskParams) -> dict[str, Any]:
        _check_header(context, params.task_id)
        task = await self._own(context, params.task_id)
        if await in_thread(lambda: self._store.cancel(params.task_id)):
            message = "the client cancelled the call"
            await in_thread(lambda: self._house.approvals.withdraw(task.approval, message))
        elif run := self._runs.get(params.task_id):
            run.is_cancelled = True
            run.scope.cancel()
        return {}

    async def look(self) -> None:
        """End the calls here whose cancellation another server of this state was asked for."""
        for task_id, run in tuple(self._runs.items()):
            task = await in_thread(partial(self._store.get, task_id))
            if task is not None and task.state == "cancelling":
                run.is_cancelled = True
                run.scope.cancel()

    async def _own(self, context: Context, task_id: str) -> CallTask:
        """Return a task of the client of a request; raises MCPError for any other."""
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found", context.method)
        if not is_declared(context):
            raise undeclared()
        caller = self._bridge.fields(context)

        def found() -> CallTask | None:
            task = self._store.get(task_id)
            if task is None or any(self._who[name] != getattr(task, name) for name in self._who):
                return None
            is_own = self._connections.own(task, caller["client"], caller["connection"])
            return task if is_own else None

        task = await in_thread(found)
        if task is None:
            # The same words for a task of another client, which must not learn that it is there.
            raise MCPError(types.INVALID_PARAMS, "no such task")
        return task

    async def _advanced(self, context: Context, task_id: str, task: CallTask) -> CallTask:
        """Make the call of a task whose question is answered, or has ended; return the task."""
        if task.state != "asking" or self._group is None:
            return task
        if await in_thread(lambda: self._is_asked(task)):
            return task
        # A call that was taken is made, even if this request is given up meanwhile.
        with anyio.CancelScope(shield=True):
            if await in_thread(lambda: self._store.begin(task_id, task.approval)):
                run = TaskRun(task.tool, task.arguments, task_id)
                call = self._make(
                    context, task.tool, json.loads(task.arguments), run.listener(None)
                )
                self._runs[task_id] = run
                caller = self._bridge.fields(context)
                self._group.start_soon(self._run, run, caller, task.approval, call)
        return await in_thread(lambda: self._store.get(task_id)) or task

    def _is_asked(self, task: CallTask) -> bool:
        return self._open_question(task.approval) is not None

    def _open_question(self, approval_id: str) -> ApprovalRequest | None:
        """Return the question that has to be answered for an approval; None if none is open."""
        try:
            approval = self._house.approvals.get(approval_id)
            if approval.waits_for and approval.state is ApprovalState.APPROVED:
                # The call is approved, and a question inside of it may not be answered yet.
                approval = self._house.approvals.get(approval.waits_for)
        except ApprovalError:
            return None
        return approval.request if approval.state is ApprovalState.OPEN else None

    def _awaited(self, task_id: str, task: CallTask) -> str:
        """Return the id of the approval that a task waits for; of a call that waits inside of a
        server, that server alone knows it. Empty if there is none."""
        if task.state == "asking":
            return task.approval
        run = self._runs.get(task_id)
        return next(reversed(tuple(run.awaited)), "") if run is not None else ""

    def _question(
        self, approval_id: str, client: ElicitationClient | None
    ) -> tuple[str, ApprovalRequest, Elicitation] | None:
        """Return the key, the question and how its client asks it; None if it cannot."""
        if not approval_id or client is None or not (client.form or client.url):
            return None
        request = self._open_question(approval_id)
        if request is None:
            return None
        wanted = elicitation_channel(self._house.approvals).question(request, client)
        # Another one for each question: an answer to an earlier one answers no later one.
        key = hashlib.sha256(f"{request.id}\0{request.nonce}".encode()).hexdigest()[:32]
        return None if wanted is None else (key, request, wanted)

    def _answered(self, task: CallTask, client: ElicitationClient, params: UpdateParams) -> None:
        asked = self._question(self._awaited(params.task_id, task), client)
        if asked is None or asked[0] not in params.input_responses:
            return
        key, request, wanted = asked
        try:
            given = types.ElicitResult.model_validate(params.input_responses[key])
        except ValidationError:
            return
        if given.action != "accept":
            elicitation_channel(self._house.approvals).mark_unanswered(request.id)
        elif isinstance(wanted, types.ElicitRequestFormParams):
            answer = answer_of(given)
            if answer is not None:
                self._bridge.flow.take_answer(request.id, request.nonce, answer)

    async def _created(self, context: Context, task_id: str) -> dict[str, Any]:
        task = await in_thread(lambda: self._store.get(task_id))
        if task is None:
            raise MCPError(types.INTERNAL_ERROR, "the task was not kept")
        described = await in_thread(lambda: self._described(context, task_id, task))
        seed = {name: described[name] for name in described if name not in _DETAILS}
        return {**seed, "resultType": "task"}

    def _described(self, context: Context, task_id: str, task: CallTask) -> dict[str, Any]:
        """Return a task as `tasks/get` does."""
        status, more = self._status(context, task_id, task)
        return {
            "taskId": task_id,
            "status": status,
            "createdAt": _time(task.opened_ms),
            "lastUpdatedAt": _time(task.updated_ms),
            "ttlMs": KEEP_MS,
            "pollIntervalMs": POLL_MS,
            **more,
        }

    def _status(self, context: Context, task_id: str, task: CallTask) -> tuple[str, dict[str, Any]]:
        match task.state:
            case "done":
                return "completed", {"result": json.loads(task.outcome)}
            case "cancelled":
                return "cancelled", {"statusMessage": "the client cancelled the call"}
            case "failed":
                error = json.loads(task.outcome)
                return "failed", {"statusMessage": error["message"], "error": error}
            case "lost":
                error = {"code": types.INTERNAL_ERROR, "message": LOST}
                return "failed", {"statusMessage": LOST, "error": error}
            case "running" | "cancelling" if not self._awaited(task_id, task):
                run = self._runs.get(task_id)
                message = sendable(run.message) if run is not None else ""
                return "working", {"statusMessage": message} if message else {}
        session_id = self._bridge.fields(context)["session_id"]
        approval = self._awaited(task_id, task)
        asked = self._question(approval, self._bridge.client_of(context, session_id))
        page = self._house.approvals.page
        where = f" ({page}/approvals/{approval})" if page else ""
        message = f"waits for the user's approval {approval}{where}, and runs once it is given"
        if asked is None:
            return "working", {"statusMessage": message}
        wanted = types.ElicitRequest(params=asked[2])
        wire = wanted.model_dump(by_alias=True, mode="json", exclude_none=True)
        return "input_required", {"statusMessage": message, "inputRequests": {asked[0]: wire}}


LOST = (
    "the server ended while the call ran: whether it took effect is not known, and it is not made "
    "again; the audit log has its record"
)
_DETAILS = ("inputRequests", "result", "error")
"""What only `tasks/get` returns of a task."""


def is_declared(context: Context) -> bool:
    """Whether the client of a request declares the extension in it (2026-07-28 only)."""
    declared = context.session.client_capabilities
    extensions = None if declared is None else declared.extensions
    is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
    return is_modern and EXTENSION in (extensions or {})


def undeclared() -> MCPError:
    """Return the error of a request about tasks whose client does not declare them."""
    needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
    message = f"declare the extension `{EXTENSION}` in the request's capabilities"
    return MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, message, needed)


def _check_header(context: Context, task_id: str) -> None:
    """Raise MCPError over HTTP if `Mcp-Name`, by which a balancer goes, is another than the id."""
    headers = getattr(context.request, "headers", None)
    if headers is not None and headers.get("mcp-name") != task_id:
        message = "the header `Mcp-Name` is not the request's `taskId`"
        raise MCPError(types.HEADER_MISMATCH, message)


def _wire(result: ToolResult) -> str:
    text = _json(call_result(result))
    if len(text) <= OUTCOME_MAX:
        return text
    long = f"the call ran, and its result is too long to keep ({len(result.content)} characters)"
    return _json(text_answer(long, is_error=result.is_error or result.returns is not None))


def _json(answered: types.CallToolResult) -> str:
    return json.dumps(answered.model_dump(by_alias=True, mode="json", exclude_none=True))


def _time(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
