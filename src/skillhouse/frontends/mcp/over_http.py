"""The same server over streamable HTTP, as an application behind the guard of `frontends.http`.

The SDK is imported at the first request, so the page does not wait for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup, TaskStatus

from skillhouse.floor import MissingExtraError
from skillhouse.frontends.mcp.http_messages import MessageFilter
from skillhouse.frontends.mcp.messages import MESSAGE_MAX
from skillhouse.frontends.mcp.tool_list import ToolListing
from skillhouse.runtime import Skillhouse

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

MCP_PATH = "/mcp"
MCP_METHODS = ("GET", "HEAD", "POST", "DELETE")


class McpOverHttp:
    """An ASGI application; it checks neither key nor origin, so it needs a guard in front."""

    def __init__(
        self,
        house: Skillhouse,
        *,
        agent: str = "default",
        user: str = "local",
        needs_key: bool = True,
    ) -> None:
        """Store the dependencies; nothing is imported or started.

        If the guard needs no key, the client's user is unknown, so no answer of a client counts.
        """
        self._house = house
        self._needs_key = needs_key
        self._agent = agent
        self._user = user
        self._tasks: TaskGroup | None = None
        self._manager: Any = None
        self._server: Any = None
        self._starting = anyio.Lock()
        self._checked = MessageFilter(self._answer)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Hold the tasks that requests start; the application's lifespan wraps this."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; raises MissingExtraError without the packages of the extra `mcp`."""
        if self._needs_key and not any(name == b"authorization" for name, _ in scope["headers"]):
            # The guard has checked the header if present; a browser's cookie opens pages only.
            await _refuse(send)
            return
        await self._checked(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._starting:
            if self._manager is None:
                if self._tasks is None:
                    raise RuntimeError("the application runs without its lifespan")
                self._manager = await self._tasks.start(self._run)
        await self._manager.asgi_app(scope, receive, self._watched(scope, send))

    def _watched(self, scope: Scope, send: Send) -> Send:
        """Return a `send` that ends the session's connection once an answer ends the session."""
        from skillhouse.frontends.mcp.approval_bridge import SESSION_HEADER  # noqa: PLC0415 - the SDK.

        headers = dict(scope["headers"]) if scope["type"] == "http" else {}
        session = headers.get(SESSION_HEADER.encode(), b"").decode("latin-1")
        if not session:
            return send
        ends = (404, 200, 204) if scope["method"] == "DELETE" else (404,)

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in ends:
                self._server.connections.end_session(session)
            await send(message)

        return watched

    async def _run(self, *, task_status: TaskStatus[Any] = anyio.TASK_STATUS_IGNORED) -> None:
        if find_spec("mcp") is None:
            raise MissingExtraError("mcp", "mcp")
        # In a thread, since importing the SDK takes a while.
        stores = await anyio.to_thread.run_sync(
            import_module, "skillhouse.frontends.mcp.event_store"
        )
        from skillhouse.frontends.mcp.server import SkillhouseServer  # noqa: PLC0415 - the SDK.

        server = SkillhouseServer(
            self._house,
            ToolListing(self._house, self._agent),
            agent=self._agent,
            user=self._user,
            is_persons=self._needs_key,
        )
        self._server = server
        manager = stores.ResumableSessions(app=server.sdk, max_request_body_size=MESSAGE_MAX)
        async with manager.run():
            task_status.started(manager)
            await anyio.sleep_forever()


async def _refuse(send: Send) -> None:
    body = b"send the token as `Authorization: Bearer TOKEN`\n"
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"www-authenticate", b"Bearer"),
    ]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": body})
