"""The protocol's requests, each answered by the house."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError

import skillhouse
from skillhouse.floor import SkillhouseError
from skillhouse.frontends.mcp.approval_bridge import ApprovalBridge
from skillhouse.frontends.mcp.listing import ToolListing, sendable
from skillhouse.frontends.mcp.progress import listener_of
from skillhouse.frontends.mcp.prompts import PromptRequests
from skillhouse.frontends.mcp.skills import SkillRequests
from skillhouse.frontends.presentation.service_log import AuditNews
from skillhouse.runtime import Skillhouse
from skillhouse.tools import UnknownToolError

CHANNEL = "mcp"
OPEN_CHANNEL = "mcp-open"
"""Of clients that nobody knows: what a person allowed a client of theirs is not for these."""
POLL_SECONDS = 2.0
"""How long a change of the skills may go unnoticed while no call arrives."""

SESSIONS_MAX = 100
"""Clients of a handshake that are told of changes; over HTTP there may be several."""
TOLD_SECONDS = 1.0
"""How long a client may take to be told: calls of others wait meanwhile."""

logger = logging.getLogger(__name__)


CHANGES = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)


class HouseServer:
    """One connection's view of the house, as handlers for the SDK."""

    def __init__(
        self,
        house: Skillhouse,
        listing: ToolListing,
        *,
        agent: str,
        user: str,
        is_persons: bool = True,
    ) -> None:
        """Take what is served.

        Args:
            house: Answers.
            listing: What the agent's client was shown.
            agent: Whose skills and rules hold.
            user: On whose behalf calls are made.
            is_persons: Whether a client is known to be its person's own; else nothing that it
                brings is that person's answer.
        """
        self._house = house
        self._listing = listing
        self._audit_news = AuditNews(house.audit_log)
        who = {"agent": agent, "user": user, "channel": CHANNEL if is_persons else OPEN_CHANNEL}
        self._asking = ApprovalBridge(house, who, is_persons=is_persons)
        self.connections = self._asking.connections
        """The connections of its clients."""
        self._bus = InMemorySubscriptionBus()
        self._sessions: deque[ServerSession] = deque(maxlen=SESSIONS_MAX)
        self.sdk = _TellingServer(
            listing,
            version=skillhouse.__version__,
            lifespan=self._watching,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        self.sdk.middleware.append(self._asking.rounds.boundary())
        SkillRequests(house, agent, self._asking).register(self.sdk)
        PromptRequests(house, listing, self._asking, is_persons=is_persons).register(self.sdk)
        self.sdk.add_notification_handler(
            "notifications/initialized", types.NotificationParams, self._initialized
        )

    def options(self) -> InitializationOptions:
        """Return what the handshake tells a client."""
        return self.sdk.create_initialization_options()

    async def _list_tools(
        self, _: ServerRequestContext[None], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        # The client learns of a change by this very answer.
        self._listing.changed_lately()
        tools = [types.Tool.model_validate(tool) for tool in self._listing.tools()]
        return types.ListToolsResult(tools=tools)

    async def _call_tool(
        self, context: ServerRequestContext[None], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        if self._listing.changed_lately():
            await self._announce()
        try:
            result = await self._asking.through(
                context,
                params,
                lambda who: self._house.call(
                    params.name, params.arguments or {}, listener=listener_of(context), **who
                ),
            )
        except UnknownToolError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error
        except MCPError:
            raise
        except SkillhouseError as error:
            return _answer(str(error), is_error=True)
        except Exception:
            # The edge of the process: a traceback is for our log, never for a model.
            logger.exception("tools/call %s", params.name)
            return _answer("the call failed inside skillhouse", is_error=True)
        if isinstance(result, types.InputRequiredResult):
            return result
        return _answer(result.content, is_error=result.is_error)

    async def _initialized(
        self, context: ServerRequestContext[None], _: types.NotificationParams
    ) -> None:
        # The connection begins here, whenever its first call comes.
        self.connections.caller(context)
        # Only a handshake has this; since 2026-07-28 clients subscribe, and the bus serves them.
        self._sessions.append(context.session)

    @asynccontextmanager
    async def _watching(self, _: Server[None]) -> AsyncIterator[None]:
        """Look for changes while a client is connected."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
                self.connections.end()
                with anyio.CancelScope(shield=True):
                    await self._house.release_loop()

    async def _watch(self) -> None:
        while True:
            await anyio.sleep(POLL_SECONDS)
            try:
                self._audit_news.look()
                changed = self._listing.changed()
            except (SkillhouseError, OSError, ValueError, RecursionError):
                # The next call says what is wrong; a half-written state file is whole again soon.
                logger.exception("looking for changes")
                continue
            if changed:
                await self._announce()

    async def _announce(self) -> None:
        await self._bus.publish(ToolsListChanged())
        await self._bus.publish(ResourcesListChanged())
        await self._bus.publish(PromptsListChanged())
        async with anyio.create_task_group() as tasks:
            for session in tuple(self._sessions):
                tasks.start_soon(self._tell, session)

    async def _tell(self, session: ServerSession) -> None:
        """Tell one client; one that has gone or takes nothing is told no more."""
        with anyio.move_on_after(TOLD_SECONDS) as waiting:
            try:
                await session.send_tool_list_changed()
                await session.send_resource_list_changed()
                await session.send_prompt_list_changed()
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, MCPError):
                waiting.cancel()
        if waiting.cancel_called:
            with suppress(ValueError):
                self._sessions.remove(session)


class _TellingServer(Server[None]):
    """A server that tells of changes on every transport; the SDK's own options say it does not.

    Its instructions are those of the moment at which a client asks.
    """

    def __init__(self, listing: ToolListing, **options: Any) -> None:
        """Take what knows the skills, and the options of the SDK's server."""
        self._listing = listing
        super().__init__("skillhouse", **options)

    @property
    def instructions(self) -> str | None:
        """What is said of the skills."""
        return self._listing.instructions() or None

    @instructions.setter
    def instructions(self, _: str | None) -> None:
        """Pass over what the SDK sets."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Return what the handshake tells a client."""
        return super().create_initialization_options(
            notification_options or CHANGES, experimental_capabilities, extensions
        )


def _answer(text: str, *, is_error: bool) -> types.CallToolResult:
    """Return a text as it is, since clients hand a model structured content as JSON."""
    content = types.TextContent(type="text", text=sendable(text))
    return types.CallToolResult(content=[content], is_error=is_error)
