"""The same server over streamable HTTP, as an application behind a guard of the HTTP service.

The SDK is imported at the first request, so the page does not wait for it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup, TaskStatus
from msgspec import Struct

from skillhouse.floor import MissingExtraError, SkillhouseError
from skillhouse.floor.threads import in_thread
from skillhouse.frontends.mcp.http_messages import MessageFilter
from skillhouse.frontends.mcp.messages import MESSAGE_MAX
from skillhouse.frontends.mcp.tool_list import ToolListing
from skillhouse.house import Skillhouse
from skillhouse.house.access_tokens import OWNER_NAME, Access, AccessScope

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

logger = logging.getLogger(__name__)

MCP_PATH = "/mcp"
MCP_METHODS = ("GET", "HEAD", "POST", "DELETE")
SERVERS_MAX = 32
"""Tokens whose servers run at one moment; the one that was used longest ago is ended first."""
ENDED_SECONDS = 2.0
"""Time after which the open connections of a token that was revoked end."""


class SessionScope(Struct, frozen=True, kw_only=True):
    """Whose calls a server of `/mcp` makes; what belongs to one is unknown to the others."""

    id: str = ""
    """Of the named token; empty for the owner's own key, and where no key is needed."""
    agent: str = "default"
    user: str = OWNER_NAME


class McpOverHttp:
    """An ASGI application; it checks neither key nor origin, so it needs a guard in front."""

    def __init__(
        self,
        house: Skillhouse,
        *,
        access: Callable[[Scope], Access],
        holds: Callable[[str], bool],
        needs_key: bool = True,
        challenge: Callable[[], str] = lambda: "Bearer",
    ) -> None:
        """Store the dependencies; nothing is imported or started.

        Args:
            access: Returns whose key a request has, as the guard found out.
            holds: Whether the named token with an id has not ended.
            needs_key: If the guard needs no key, the client's user is unknown, so no answer of a
                client counts.
            challenge: Returns the `WWW-Authenticate` of a request without a key.
        """
        self._house = house
        self._access = access
        self._holds = holds
        self._needs_key = needs_key
        self._challenge = challenge
        self._tasks: TaskGroup | None = None
        self._servers: dict[SessionScope, _ScopedServer] = {}
        self._starting = anyio.Lock()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Hold the tasks that requests start; the application's lifespan wraps this."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._end_lost)
            try:
                yield
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; raises MissingExtraError without the packages of the extra `mcp`."""
        if self._needs_key and not any(name == b"authorization" for name, _ in scope["headers"]):
            # The guard has checked the header if present; a browser's cookie opens pages only.
            await _refuse(send, self._challenge())
            return
        server = await self._server(self._scope_of(self._access(scope)))
        await server.answer(scope, receive, send)

    def _scope_of(self, access: Access) -> SessionScope:
        if access.kind != "token" or AccessScope.CALL not in access.scopes:
            # The guard lets such a token in only where no key is needed, as if it were none.
            return SessionScope()
        return SessionScope(id=access.id, agent=access.agent, user=access.user)

    async def _server(self, caller: SessionScope) -> _ScopedServer:
        async with self._starting:
            server = self._servers.pop(caller, None)
            if server is None:
                if self._tasks is None:
                    raise RuntimeError("the application runs without its lifespan")
                while len(self._servers) >= SERVERS_MAX:
                    self._servers.pop(next(iter(self._servers))).end()
                is_open = not self._needs_key and not caller.id
                made = _ScopedServer(self._house, caller, is_open=is_open)
                await self._tasks.start(made.run)
                server = made
            # The one that was used last is the last to be ended for another.
            self._servers[caller] = server
            return server

    async def _end_lost(self) -> None:
        """End the open connections of tokens that were revoked or ended."""
        while True:
            await anyio.sleep(ENDED_SECONDS)
            # Those of now: each request changes the order of the servers, also during a look.
            for caller in tuple(self._servers):
                if not caller.id or await self._still_holds(caller.id):
                    continue
                if caller in self._servers:
                    self._servers.pop(caller).end()

    async def _still_holds(self, token: str) -> bool:
        try:
            return await in_thread(lambda: self._holds(token))
        except SkillhouseError:
            # The state cannot be read: the guard refuses requests meanwhile.
            logger.exception("looking whether a token has ended")
            return True


class _ScopedServer:
    """The server of one scope, with sessions of its own."""

    def __init__(self, house: Skillhouse, caller: SessionScope, *, is_open: bool) -> None:
        """With `is_open` it is for clients without a key, whose user is not known."""
        self._house = house
        self._caller = caller
        self._is_open = is_open
        self._manager: Any = None
        self._server: Any = None
        self._scope = anyio.CancelScope()
        self.answer = MessageFilter(self._answer)

    def end(self) -> None:
        """End it with all of its connections."""
        self._scope.cancel()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
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
                await self._end_session(session)
            await send(message)

        return watched

    async def _end_session(self, session: str) -> None:
        try:
            # Files and rows are removed.
            await in_thread(lambda: self._server.connections.end_session(session))
        except (OSError, SkillhouseError):
            # The client's session has ended all the same, and its answer says so.
            logger.exception("removing what a session of a client kept")

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        if find_spec("mcp") is None:
            raise MissingExtraError("mcp", "mcp")
        # In a thread, since importing the SDK takes a while.
        stores = await anyio.to_thread.run_sync(
            import_module, "skillhouse.frontends.mcp.event_store"
        )
        from skillhouse.frontends.mcp.server import (  # noqa: PLC0415 - the SDK.
            CHANNEL,
            OPEN_CHANNEL,
            SkillhouseServer,
        )

        caller = self._caller
        self._server = SkillhouseServer(
            self._house,
            ToolListing(self._house, caller.agent),
            agent=caller.agent,
            user=caller.user,
            channel=OPEN_CHANNEL if self._is_open else CHANNEL,
            # A program must not answer its own questions: what the client of a named token says
            # about them is no answer of the user's.
            is_of_user=not self._is_open and not caller.id,
            identity=f"token {caller.id}" if caller.id else "open" if self._is_open else "owner",
        )
        self._manager = stores.ResumableSessions(
            app=self._server.sdk, max_request_body_size=MESSAGE_MAX
        )
        with self._scope:
            async with self._manager.run():
                task_status.started()
                await anyio.sleep_forever()


async def _refuse(send: Send, challenge: str) -> None:
    message = "send the token as `Authorization: Bearer TOKEN`"
    body = json.dumps({"error": {"code": "unauthorized", "message": message}}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"www-authenticate", challenge.encode()),
    ]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": body})
