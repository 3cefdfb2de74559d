"""The published `POST /rpc` of the service: tools of skills by JSON-RPC 2.0, through the gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skillhouse.answers.service import failures, loaded_names, untried_names
from skillhouse.approval import caller_connection
from skillhouse.extensions.cells.rpc import (
    FRAME_BYTES,
    INVALID_PARAMS,
    REFUSED,
    Method,
    full_name,
    respond,
)
from skillhouse.extensions.server.guard import access_of
from skillhouse.floor.threads import in_thread
from skillhouse.house import Access, AccessScope, Caller
from skillhouse.manage import reload_code
from skillhouse.sandbox.code_call import METHOD_NOT_FOUND, RpcError, wrap_result
from skillhouse.tools import SkillCodeTool, UnknownToolError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from skillhouse.extensions.server.status import StatusReader
    from skillhouse.house import Skillhouse

RPC_PATH = "/rpc"
RPC_METHODS = ("POST",)
CHANNEL = "rpc"
_JSON = b"application/json"


class RpcEndpoint:
    """An ASGI application; the guard has found out whose request it is."""

    def __init__(self, house: Skillhouse, reader: StatusReader, *, read_only: str = "") -> None:
        """`read_only` is why nothing is reloaded here; empty if it may be."""
        self._house = house
        self._reader = reader
        self._read_only = read_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        if b"authorization" not in headers:
            # A page of another server can make the browser send its cookie, but no such header.
            await _send(send, 401)
            return
        if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != _JSON:
            await _send(send, 415)
            return
        body = await _body(receive)
        if body is None:
            await _send(send, 413)
            return
        answer = await respond(body, self._methods(access_of(scope)))
        await _send(send, 204 if answer is None else 200, answer or b"")

    def _methods(self, access: Access) -> Mapping[str, Method]:
        async def execute(params: Any) -> Any:
            return await self._execute(access, params)

        async def listed(_: Any) -> Any:
            return await in_thread(lambda: self._listed(access))

        async def reload(_: Any) -> Any:
            return await self._reload(access)

        async def health(_: Any) -> Any:
            return {"status": "ok"}

        return {
            "tool.execute": execute,
            "tool.list": listed,
            "skill.reload": reload,
            "health": health,
        }

    def _tools(self, access: Access) -> list[SkillCodeTool]:
        found = self._house.tools(agent=access.agent, every=True)
        return [tool for tool in found if isinstance(tool, SkillCodeTool)]

    def _names(self, access: Access) -> list[str]:
        with self._reader.using():
            return [tool.full_name for tool in self._tools(access)]

    def _listed(self, access: Access) -> list[dict[str, Any]]:
        self._reader.scan()
        with self._reader.using():
            return [
                {
                    "name": tool.full_name,
                    "skill": tool.skill.manifest.name,
                    "description": tool.description,
                    "parameters": dict(tool.schema),
                    "security": {"level": tool.level},
                }
                for tool in self._tools(access)
            ]

    async def _execute(self, access: Access, params: Any) -> Any:
        named = params if isinstance(params, dict) else {}
        name, arguments = named.get("tool"), named.get("args", {})
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise RpcError(INVALID_PARAMS, "expected {tool, args, context}")
        asked = str(name)
        tool = await in_thread(lambda: full_name(asked, self._names(access)))
        if ":" not in tool:
            raise RpcError(INVALID_PARAMS, f"unknown tool `{tool[:80]}`: expected SKILL:TOOL")
        client = f"{CHANNEL}:{access.id or access.kind}"
        caller = Caller(
            agent=access.agent,
            user=access.user,
            channel=CHANNEL,
            client=client,
            connection=caller_connection(client, access.agent, access.user),
        )
        try:
            result = await self._house.call(tool, arguments, caller=caller)
        except UnknownToolError as error:
            raise RpcError(INVALID_PARAMS, str(error)) from error
        if result.status == "ok":
            return wrap_result(result.content if result.data is None else dict(result.data))
        if result.status == "error":
            return {"success": False, "error": result.content}
        raise RpcError(REFUSED, result.content, reason=result.status)

    async def _reload(self, access: Access) -> Any:
        if AccessScope.MANAGE not in access.scopes or self._read_only:
            raise RpcError(METHOD_NOT_FOUND, "`skill.reload` needs the scope `manage`")
        done = await reload_code(self._house, agent=access.agent)
        self._reader.expire()
        problems = self._house.services.skill_code.problems
        failed = failures(done.loaded, problems)
        untried = untried_names(done.loaded)
        return {
            "loaded": loaded_names(done.loaded),
            "failed": [{"name": name, "error": error} for name, error in failed],
            # Not in the published answer: code that is asked about before it runs.
            **({"not_tried": untried} if untried else {}),
        }


async def _body(receive: Receive) -> bytes | None:
    data, more = bytearray(), True
    while more:
        message = await receive()
        data += message.get("body", b"")
        more = message.get("more_body", False)
        if len(data) > FRAME_BYTES:
            return None
    return bytes(data)


async def _send(send: Send, status: int, body: bytes = b"") -> None:
    headers = [(b"content-length", str(len(body)).encode())] if status != 204 else []
    if status == 200:
        headers.append((b"content-type", _JSON))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
