"""Calls of tools through the gate, and the seven management operations by their channels."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any

from anyio import CancelScope

from skillhouse.answers.json_form import ListAnswer, json_text, listed
from skillhouse.answers.service import ProgressAnswer
from skillhouse.answers.skills import OperationAnswer, OperationResultAnswer
from skillhouse.answers.tools import CallResultAnswer, ForecastAnswer, result_answer
from skillhouse.approval import caller_connection
from skillhouse.extensions.server.api.api_services import ApiServices
from skillhouse.extensions.server.api.problems import ApiProblem
from skillhouse.extensions.server.api.route_table import (
    ApiRequest,
    Body,
    Endpoint,
    RouteParameter,
    RouteResponse,
)
from skillhouse.extensions.server.api.schemas import listing, record, ref
from skillhouse.floor import ConfigError, digest
from skillhouse.floor.threads import in_thread
from skillhouse.house import Access, AccessScope, Caller
from skillhouse.presentation.operations import (
    OPERATIONS,
    READS,
    answer,
    operation_answers,
)
from skillhouse.skill import SKILL_FILE_MAX
from skillhouse.tools import Progress, ToolResult, UnknownToolError

CHANNEL = "api"
CALL_MAX = 2_097_152
"""Bytes of a call: a whole file for `write`, with the escapes of JSON."""
KEY = RouteParameter(
    name="idempotency-key",
    schema={"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$"},
    what="The same key and call get the answer of the first; nothing is done again (24 hours).",
    example="7f0c3a52-order-17",
    place="header",
)
REPLAYED = "idempotency-replayed"


def caller_of(access: Access, asked: dict[str, Any], request_id: str) -> Caller:
    """Return who calls: a named token has an agent and a user of its own.

    Raises:
        ApiProblem: a named token asks to be another agent.
    """
    agent = asked.get("agent", access.agent)
    if not access.is_owner and agent != access.agent:
        raise ApiProblem(403, "scope-wanted", f"this token is of the agent `{access.agent}`")
    client = f"{CHANNEL}:{access.id or access.kind}"
    return Caller(
        agent=agent,
        user=access.user,
        channel=CHANNEL,
        client=client,
        # A request has no connection: its key is the caller, at each server of the state.
        connection=caller_connection(client, agent, access.user),
        session_id=asked.get("session_id", ""),
        message_id=request_id,
        call_id=asked.get("call_id", ""),
        model=asked.get("model", ""),
    )


def _forecast(api: ApiServices, request: ApiRequest) -> ForecastAnswer:
    asked = request.body
    caller = caller_of(request.access, asked, "")
    found = api.house.forecast(asked["tool"], asked.get("arguments", {}), caller=caller)
    return ForecastAnswer(effect=found.effect.value, reasons=found.reasons, title=found.title)


async def _call(api: ApiServices, request: ApiRequest) -> RouteResponse:
    if not request.body.get("ends_on_disconnect"):
        return await _replied(api, request)
    with CancelScope() as scope:
        watch = asyncio.ensure_future(_cancel_when_left(request, scope))
        try:
            return await _replied(api, request)
        finally:
            watch.cancel()
    raise ApiProblem(400, "cancelled", "the client left before the call ended")


async def _cancel_when_left(request: ApiRequest, scope: CancelScope) -> None:
    await request.left()
    scope.cancel()


async def _replied(api: ApiServices, request: ApiRequest) -> RouteResponse:
    asked, access = request.body, request.access
    request_id = secrets.token_hex(8)
    caller = caller_of(access, asked, request_id)
    key = request.query.get("idempotency-key", "")
    if not key:
        return _answered(await _made(api, caller, asked), request_id)
    keys, owner = api.call_keys, access.id or access.kind
    # The approval is not part of it: a call that waited for a person is repeated with its id.
    same = {name: value for name, value in asked.items() if name != "approval_id"}
    content = digest(json.dumps([same, caller.agent], sort_keys=True).encode())
    known = await in_thread(lambda: keys.begin(owner, key, content))
    if known is not None:
        return RouteResponse(content=known.encode(), headers={REPLAYED: "true"})
    try:
        result = await _made(api, caller, asked)
    except (UnknownToolError, ConfigError):
        await in_thread(lambda: keys.forget(owner, key))
        raise
    except BaseException:
        keys.failed(owner, key)
        raise
    reply = _answered(result, request_id)
    if result.status in ("pending", "denied"):
        await in_thread(lambda: keys.forget(owner, key))
    else:
        await in_thread(lambda: keys.end(owner, key, json_text(reply.value)))
    return reply


async def _made(api: ApiServices, caller: Caller, asked: dict[str, Any]) -> ToolResult:
    async def tell(progress: Progress) -> None:
        value = ProgressAnswer(
            request=caller.message_id,
            tool=asked["tool"],
            progress=progress.progress,
            total=progress.total,
            message=progress.message,
        )
        api.events.publish("progress", value, user=caller.user)

    return await api.house.call(
        asked["tool"],
        asked.get("arguments", {}),
        caller=caller,
        approval_id=asked.get("approval_id"),
        listener=tell,
    )


def _answered(result: ToolResult, request_id: str) -> RouteResponse:
    return RouteResponse(value=CallResultAnswer(result=result_answer(result), request=request_id))


def _operations(_: ApiServices, __: ApiRequest) -> ListAnswer:
    return listed("operations", operation_answers())


def _operation(api: ApiServices, request: ApiRequest) -> OperationResultAnswer:
    name = request.path["operation"]
    if name not in OPERATIONS:
        raise ApiProblem(404, "unknown-operation", f"there is no operation `{name[:80]}`")
    if name not in READS:
        # One address for all seven, so the scope is that of the operation.
        if AccessScope.MANAGE not in request.access.scopes:
            text = f"`{name}` needs the scope `manage`"
            raise ApiProblem(403, "scope-wanted", text, scope=AccessScope.MANAGE.value)
        if api.read_only:
            text = f"nothing is changed here: {api.read_only}"
            raise ApiProblem(403, "read-only", text)
    with api.fresh() as house:
        found = answer(house, name, request.body)
    api.reader.expire()
    return found


_SHORT = {"type": "string", "minLength": 1, "maxLength": 200}
_ID = {"type": "string", "maxLength": 200}

ROUTES = (
    Endpoint(
        name="call",
        method="POST",
        path="/calls",
        tag="calls",
        what="Makes one gated tool call. A refusal is a result; `pending` waits for a person.",
        run=_call,
        scope=AccessScope.CALL,
        query=(KEY,),
        body=Body(
            schema=record(
                {"tool": _SHORT},
                optional={
                    "arguments": {"type": "object"},
                    "agent": _SHORT,
                    "session_id": _ID,
                    "call_id": _ID,
                    "model": _ID,
                    "approval_id": _ID,
                    "ends_on_disconnect": {"type": "boolean"},
                },
                closed=True,
            ),
            example={"tool": "skill", "arguments": {"name": "weather"}},
            max_bytes=CALL_MAX,
        ),
        answer=ref(CallResultAnswer),
        example={
            "status": "ok",
            "content": "# Weather",
            "data": None,
            "approval_id": None,
            "request": "3fa9c1d25e6f7a8b",
        },
        problems=(404, 409, 422),
    ),
    Endpoint(
        name="forecastCall",
        method="POST",
        path="/calls/forecast",
        tag="calls",
        what="What the gate would answer to a call now; nothing is done, recorded or asked.",
        run=_forecast,
        scope=AccessScope.CALL,
        is_change=False,
        body=Body(
            schema=record(
                {"tool": _SHORT},
                optional={"arguments": {"type": "object"}, "agent": _SHORT, "session_id": _ID},
                closed=True,
            ),
            example={"tool": "exec", "arguments": {"command": "git push"}},
            max_bytes=CALL_MAX,
        ),
        answer=ref(ForecastAnswer),
        example={
            "effect": "ask",
            "reasons": ["no rule matches; `exec` defaults to ask"],
            "title": "run git push",
        },
        problems=(404,),
    ),
    Endpoint(
        name="listOperations",
        method="GET",
        path="/operations",
        tag="operations",
        what="The seven management operations of the published design, with their arguments.",
        run=_operations,
        answer=listing("operations", OperationAnswer),
        example={
            "list": "operations",
            "total": 1,
            "operations": [{"operation": "SKILLS_GET_ALL", "arguments": {}}],
        },
    ),
    Endpoint(
        name="runOperation",
        method="POST",
        path="/operations/{operation}",
        tag="operations",
        what="Runs one of them; a refusal is `success: false` in the published words.",
        run=_operation,
        is_change=False,
        body=Body(
            schema={"type": "object"},
            example={"skillId": "user:notes", "fileName": "SKILL.md"},
            max_bytes=2 * SKILL_FILE_MAX,
        ),
        answer=ref(OperationResultAnswer),
        example={"success": True, "content": "---\nname: notes\n---\n"},
    ),
)
