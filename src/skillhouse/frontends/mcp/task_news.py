"""Sends `notifications/tasks` (SEP-2663) to clients that listen for tasks of theirs.

The SDK's handler serves the stream and knows no tasks: here the acknowledgement gets the ids, and
what becomes of those tasks goes out on the same stream. Like the tasks it ends once the SDK has it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, cast

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY, ListenHandler
from mcp.shared.exceptions import MCPError

from skillhouse.frontends.mcp.tasks import TaskRequests, is_declared, undeclared
from skillhouse.house.call_tasks import KEPT_MAX

LOOK_MS = 500
"""Interval at which the tasks of a stream are looked at."""
ENDED = frozenset({"completed", "failed", "cancelled"})

Context = ServerRequestContext[None]


class TaskNotification(types.Notification[dict[str, Any], Literal["notifications/tasks"]]):
    """A task as `tasks/get` returns it."""

    method: Literal["notifications/tasks"] = "notifications/tasks"
    params: dict[str, Any]


class TaskNews:
    """Serves `subscriptions/listen`, whose filter may have `taskIds`."""

    def __init__(self, tasks: TaskRequests, listened: ListenHandler) -> None:
        self._tasks = tasks
        self._listened = listened

    async def __call__(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve one stream. MCPError for one about tasks whose client does not declare them."""
        wanted = (params.notifications.model_extra or {}).get("taskIds")
        if not isinstance(wanted, list) or not wanted:
            return await self._listened(context, params)
        if not is_declared(context):
            raise undeclared()
        found: dict[str, dict[str, Any]] = {}
        for task_id in dict.fromkeys(one for one in wanted[:KEPT_MAX] if isinstance(one, str)):
            try:
                found[task_id] = await self._tasks.described(context, task_id)
            except MCPError:
                # Not even that it is there is said of another client's task.
                continue
        session = AcknowledgedTasks(context.session, list(found))
        failed: MCPError | None = None
        result = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._send, context, session, found)
            try:
                listening = replace(context, session=cast("ServerSession", session))
                result = await self._listened(listening, params)
            except MCPError as error:
                # Raised below: the group would wrap it.
                failed = error
            group.cancel_scope.cancel()
        if result is None:
            raise failed or MCPError(types.INTERNAL_ERROR, "the stream ended")
        return result

    async def _send(
        self, context: Context, session: AcknowledgedTasks, found: dict[str, dict[str, Any]]
    ) -> None:
        """Send each task as it is now, and then whenever it is another, up to its end."""
        await session.begun.wait()
        for task in found.values():
            await _sent(context, task)
        while open_ones := [one for one in found if found[one]["status"] not in ENDED]:
            await anyio.sleep(LOOK_MS / 1000)
            for task_id in open_ones:
                try:
                    # As with a poll, the call of an answered question is made by this.
                    now = await self._tasks.described(context, task_id)
                except MCPError:
                    del found[task_id]  # Too old, or taken over by a successor of its client.
                    continue
                if now != found[task_id]:
                    found[task_id] = now
                    await _sent(context, now)


class AcknowledgedTasks:
    """The session of a stream as the SDK's handler uses it; adds the ids to what it honours."""

    def __init__(self, session: ServerSession, task_ids: list[str]) -> None:
        self._session = session
        self._task_ids = task_ids
        self.begun = anyio.Event()
        """Set once the acknowledgement is sent, which is the first message of a stream."""

    async def send_notification(
        self,
        notification: types.ServerNotification,
        related_request_id: types.RequestId | None = None,
    ) -> None:
        """Send a notification on the stream."""
        if isinstance(notification, types.SubscriptionsAcknowledgedNotification):
            honoured = notification.params.notifications.model_dump(by_alias=True)
            ids = types.SubscriptionFilter.model_validate({**honoured, "taskIds": self._task_ids})
            params = notification.params.model_copy(update={"notifications": ids})
            notification = notification.model_copy(update={"params": params})
        await self._session.send_notification(notification, related_request_id)
        self.begun.set()


async def _sent(context: Context, task: dict[str, Any]) -> None:
    params = {**task, "_meta": {SUBSCRIPTION_ID_META_KEY: context.request_id}}
    # The union of the SDK has no notification of an extension.
    notification = cast("types.ServerNotification", TaskNotification(params=params))
    await context.session.send_notification(notification, context.request_id)
