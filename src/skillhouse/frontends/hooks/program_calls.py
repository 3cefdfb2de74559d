"""Puts the calls of a client that runs inside a program to the gate of that program's house."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from skillhouse.floor.structs import replace
from skillhouse.floor.threads import in_thread
from skillhouse.frontends.hooks.hook_clients import HookCall, HookEventError, hook_client
from skillhouse.frontends.hooks.open_calls import OpenCall, end
from skillhouse.tools import Caller, NativeTool, Session, ToolCall, ToolResult

if TYPE_CHECKING:
    from skillhouse.house import Skillhouse

PutCall = Callable[[ToolCall, Session], Awaitable[ToolResult]]


class ProgramCalls:
    """The calls of a client's own tools, judged for one caller; its hooks are functions."""

    def __init__(self, client: str, house: Skillhouse) -> None:
        self.client = hook_client(client)
        self._house = house
        self._open: dict[str, OpenCall] = {}

    def call(self, event: Mapping[str, Any]) -> HookCall:
        """Return what an event says; HookEventError for one that cannot be judged."""
        data = json.dumps(event).encode()
        return self.client.call(data, directory=str(event["cwd"]), own_servers=frozenset)

    async def answer(self, call: HookCall, caller: Caller, approval_id: str = "") -> ToolResult:
        """Put a call to the gate; `ok` says that the client may run it. Raises HookEventError."""
        await self._house.config_reload.check_in_thread()
        put, made, session = await in_thread(partial(self._gated, call, caller))
        result = await put(replace(made, approval_id=approval_id), session)
        if result.status == "ok":
            self._open[call.call] = OpenCall(
                intent=result.intent,
                tool=call.tool,
                agent=made.agent,
                user=made.user,
                channel=made.channel,
                client=made.client_info,
                began_ms=time.time_ns() // 1_000_000,
                subagent=call.agent,
                is_background=call.is_background,
                outlasts=call.outlasts,
            )
        return result

    async def ended(self, event: Mapping[str, Any]) -> None:
        """Record what came of a call, or, where a turn ends, of those that did not run."""
        call, moment = self.call(event), self.client.events[str(event["hook_event_name"])]
        of_turn = [key for key, one in self._open.items() if one.subagent == call.agent]
        for key in of_turn if moment == "next" else [call.call]:
            if (opened := self._open.pop(key, None)) is not None:
                await in_thread(partial(end, self._house, opened, call, moment))

    def _gated(self, call: HookCall, caller: Caller) -> tuple[PutCall, ToolCall, Session]:
        """Return what puts the call to the gate, with the call and its conversation."""
        services, native = self._house.services, call.native
        if native is None or not call.tool:
            raise HookEventError("expected the name of the tool")
        ids = {"session_id": call.session, "message_id": call.turn, "call_id": call.call}
        made = services.caller(replace(caller, trace=call.agent, **ids), {}).tool_call(
            call.tool, call.arguments
        )
        view = self._house.view(made.agent)
        plans = services.gates.native_plans(view)
        tool = NativeTool(call.tool, lambda session: plans.plan(native, session))
        return services.gates.for_client(tool).call, made, services.sessions.of(made, view.visible)
