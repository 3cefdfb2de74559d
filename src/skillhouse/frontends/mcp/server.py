"""Handles the protocol's requests."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
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
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

import skillhouse
from skillhouse.floor import SkillhouseError
from skillhouse.floor.paths import sendable
from skillhouse.floor.threads import in_thread
from skillhouse.frontends.mcp.approval_bridge import ApprovalBridge, Call
from skillhouse.frontends.mcp.call_result import call_result, guarded, report_of
from skillhouse.frontends.mcp.completion import CompletionRequests
from skillhouse.frontends.mcp.handshake import ICON
from skillhouse.frontends.mcp.skills import PromptRequests, SkillRequests
from skillhouse.frontends.mcp.task_news import TaskNews
from skillhouse.frontends.mcp.tasks import TaskRequests
from skillhouse.frontends.mcp.tool_list import UNSTRUCTURED, ToolListing, as_listed_in
from skillhouse.house import Caller, Skillhouse
from skillhouse.presentation.service_log import AuditNews
from skillhouse.tools import FIND_AND_INSTALL, Progress, ProgressHandler, ToolResult

CHANNEL = "mcp"
OPEN_CHANNEL = "mcp-open"
"""Channel of clients without a key: approvals given to a user's own client do not apply here."""
POLL_SECONDS = 2.0
"""Interval of looks for changed skills; calls look as well."""

SESSIONS_MAX = 100
"""Clients with a handshake that are notified of changes; over HTTP there may be several."""
NOTIFY_SECONDS = 1.0
"""Timeout of one client's notification; other clients' calls wait meanwhile."""

logger = logging.getLogger(__name__)


_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, MCPError)
"""What a notification raises whose client has gone or reads no more."""
CHANGES = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)


class SkillhouseServer:
    """The server of one agent and one user: registers what answers each request of the protocol."""

    def __init__(
        self,
        house: Skillhouse,
        listing: ToolListing,
        *,
        agent: str,
        user: str,
        channel: str = "",
        is_of_user: bool = True,
        identity: str = "",
    ) -> None:
        """Register the handlers; calls are made for `agent` and `user`.

        `identity` is what clients proved to be, where requests have no connection (HTTP).

        Without `is_of_user` a client is not known to belong to the user, so no answer of a client
        counts as the user's.
        """
        self._house = house
        self._listing = listing
        self._audit_news = AuditNews(house.audit_log)
        # INVARIANT: whoever is not known to be the user never shares the channel of the user's
        # client, where an approval waits to be used, unless the caller says so.
        channel = channel or (CHANNEL if is_of_user else OPEN_CHANNEL)
        who = {"agent": agent, "user": user, "channel": channel}
        self._bridge = ApprovalBridge(house, who, is_of_user=is_of_user, identity=identity)
        self.connections = self._bridge.connections
        self._bus = InMemorySubscriptionBus()
        self._sessions: deque[ServerSession] = deque(maxlen=SESSIONS_MAX)
        self.sdk = _NotifyingServer(
            listing,
            version=skillhouse.__version__,
            icons=[types.Icon.model_validate(ICON)],
            lifespan=self._watching,
            on_list_tools=self._list_tools,
        )
        # Not by the keyword, whose type knows no result of an extension.
        self.sdk.add_request_handler("tools/call", types.CallToolRequestParams, self._call_tool)
        self.sdk.middleware.insert(0, _answer_faults)
        self.sdk.middleware.append(self._bridge.flow.boundary())
        skills = SkillRequests(house, agent, self._bridge)
        skills.register(self.sdk)
        CompletionRequests(skills.resources, listing, is_of_user=is_of_user).register(self.sdk)
        self.tasks = TaskRequests(house, who, self._bridge, self._prepared_call)
        self.tasks.register(self.sdk)
        listen = TaskNews(self.tasks, ListenHandler(self._bus))
        self.sdk.add_request_handler(
            "subscriptions/listen", types.SubscriptionsListenRequestParams, listen
        )
        PromptRequests(house, listing, self._bridge, is_of_user=is_of_user).register(self.sdk)
        self.sdk.add_notification_handler(
            "notifications/initialized", types.NotificationParams, self._initialized
        )

    def options(self) -> InitializationOptions:
        return self.sdk.create_initialization_options()

    def is_idle(self) -> bool:
        """Whether no call runs that still has to record its outcome."""
        return self._bridge.running == 0

    async def _list_tools(
        self, context: ServerRequestContext[None], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        if params is not None and params.cursor is not None:
            # All tools are on the first page, so no cursor is ours.
            raise MCPError(types.INVALID_PARAMS, "unknown cursor")
        # This answer itself shows the client a change.
        self._listing.changed_lately()
        client = context.session.client_params
        got = self._listing.list_for("" if client is None else client.client_info.name)
        listed = self._listing.tools(got, self._bridge.caller(context))
        shown = as_listed_in(context.session.protocol_version or "", listed)
        tools = [types.Tool.model_validate(tool) for tool in shown]
        return types.ListToolsResult(tools=tools)

    async def _call_tool(
        self, context: ServerRequestContext[None], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult | dict[str, Any]:
        if self._listing.changed_lately():
            await self._announce()
        report = progress_handler(context)
        if self.tasks.is_for(context, params):
            answer = self.tasks.call(context, params, report)
        else:
            call = self._prepared_call(context, params.name, params.arguments or {}, report)
            answer = self._bridge.call_with_approval(context, params, call)
        result = await guarded(answer)
        if not isinstance(result, ToolResult):
            return result
        is_structured = context.session.protocol_version not in UNSTRUCTURED
        return call_result(result, is_structured=is_structured)

    def _prepared_call(
        self,
        context: ServerRequestContext[None],
        name: str,
        arguments: Mapping[str, Any],
        report: ProgressHandler | None,
    ) -> Call:
        """Return the call, for the bridge to make; its client hears of tools that it listed."""

        async def call(caller: Caller, approval_id: str) -> ToolResult:
            before = self._listing.in_use(caller)
            result = await self._house.call(
                name, arguments, caller=caller, approval_id=approval_id, listener=report
            )
            if name == FIND_AND_INSTALL and self._listing.changed():
                # The model goes on with the skill at once, and need not wait for another call.
                await self._announce()
            elif self._listing.in_use(caller) != before:
                await self._announce_tools(context.session)
            return result

        return call

    async def _initialized(
        self, context: ServerRequestContext[None], _: types.NotificationParams
    ) -> None:
        # The connection begins now, not with its first call.
        self.connections.caller(context)
        # Only a handshake has this; since 2026-07-28 clients subscribe, and the bus serves them.
        self._sessions.append(context.session)

    @asynccontextmanager
    async def _watching(self, _: Server[None]) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch)
            try:
                async with self.tasks.serving():
                    yield
            finally:
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    # Files and rows are removed, of a state that may be away.
                    await in_thread(self.connections.end)
                    await self._house.release_loop()

    async def _watch(self) -> None:
        while True:
            await anyio.sleep(POLL_SECONDS)
            try:
                self._audit_news.look()
                await self.tasks.look()
                changed = self._listing.changed()
            except (SkillhouseError, OSError, ValueError, RecursionError):
                # The next call reports the fault; a half-written state file is complete soon.
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
                tasks.start_soon(self._notify, session)

    async def _announce_tools(self, session: ServerSession) -> None:
        """Notify one client that its list of tools is another, since it loaded a skill.

        Since 2026-07-28 clients subscribe, and all that did are notified.
        """
        if session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            await self._bus.publish(ToolsListChanged())
            return
        with anyio.move_on_after(NOTIFY_SECONDS), suppress(*_GONE):
            await session.send_tool_list_changed()

    async def _notify(self, session: ServerSession) -> None:
        """Notify one client; drop it if it is gone or does not read in time."""
        with anyio.move_on_after(NOTIFY_SECONDS) as waiting:
            try:
                await session.send_tool_list_changed()
                await session.send_resource_list_changed()
                await session.send_prompt_list_changed()
            except _GONE:
                waiting.cancel()
        if waiting.cancel_called:
            with suppress(ValueError):
                self._sessions.remove(session)


class _NotifyingServer(Server[None]):
    """Declares notifications of changes on every transport, which the SDK's own options do not.

    Its instructions are those of the time at which a client asks.
    """

    def __init__(self, listing: ToolListing, **options: Any) -> None:
        self._listing = listing
        super().__init__("skillhouse", **options)

    @property
    def instructions(self) -> str | None:
        return self._listing.instructions() or None

    @instructions.setter
    def instructions(self, _: str | None) -> None:
        """Ignore the SDK's value."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        return super().create_initialization_options(
            notification_options or CHANGES, experimental_capabilities, extensions
        )


async def _answer_faults(ctx: ServerRequestContext[Any], call_next: CallNext) -> HandlerResult:
    """Answer a request at which something went wrong; the server goes on."""
    try:
        return await call_next(ctx)
    except (MCPError, ValidationError):
        raise
    except SkillhouseError as error:
        raise MCPError(types.INTERNAL_ERROR, sendable(str(error))) from error
    except Exception as error:
        message = f"the request failed inside skillhouse{report_of(error)}"
        raise MCPError(types.INTERNAL_ERROR, message) from error


def progress_handler(context: ServerRequestContext[None]) -> ProgressHandler | None:
    """Return what sends `notifications/progress`; None if the request has no token.

    The gate makes sure that progress increases, and limits how often it is reported.
    """
    if progress_token_from_params(context.params) is None:
        return None
    session = context.session

    async def report(now: Progress) -> None:
        message = sendable(now.message) or None
        await session.report_progress(now.progress, now.total, message)

    return report
