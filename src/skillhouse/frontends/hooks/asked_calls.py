"""What calls are about that a client asks its own person about, until events say that they ran.

That such a call ran is the only sign that the person approved it, and any process of this user can
write an event. So it is taken for no more than these bytes in this session, and only from a process
below the client of the session: what runs there could run these bytes itself (decision 0473).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from skillhouse.frontends.hooks.hook_clients import HookCall, HookClient
from skillhouse.frontends.hooks.open_calls import OpenCall
from skillhouse.frontends.hooks.tickets import ProcessId, is_alive

if TYPE_CHECKING:
    from skillhouse.approval import ApprovedScript

ASKED_MAX = 500
"""Calls without an answer that are kept, and sessions whose client is."""


class _AskedCall(Struct, frozen=True, kw_only=True):
    tool: str
    arguments: Mapping[str, Any]
    permission_mode: str
    scripts: tuple[ApprovedScript, ...]
    """What was asked about, and may be approved."""
    above: tuple[ProcessId, ...]


class AskedCalls:
    """The asked calls of one judge, in its memory alone: another one asks again."""

    def __init__(self) -> None:
        # INVARIANT: held to read or change; events come on several threads.
        self._lock = threading.Lock()
        self._calls: OrderedDict[tuple[str, str], _AskedCall | None] = OrderedDict()
        self._clients: OrderedDict[str, tuple[ProcessId, ...]] = OrderedDict()

    def seen(self, session: str, above: tuple[ProcessId, ...]) -> None:
        """Note which processes the first event of a session came from: the client is above it, and
        none of its commands has run yet."""
        with self._lock:
            if above and session not in self._clients:
                self._clients[session] = above
                _shorten(self._clients)

    def put(
        self,
        session: str,
        call: HookCall,
        opened: OpenCall,
        scripts: Sequence[ApprovedScript],
        above: tuple[ProcessId, ...],
    ) -> None:
        """Note what a call is asked about, if it is asked; `scripts` may be none."""
        key = (session, call.call)
        with self._lock:
            if key in self._calls:
                # Two calls by one id: which of them a person approves is not known.
                self._calls[key] = None
            elif opened.is_asked and scripts:
                self._calls[key] = _AskedCall(
                    tool=call.tool,
                    arguments=call.given,
                    permission_mode=call.permission_mode,
                    scripts=tuple(scripts),
                    above=above,
                )
                _shorten(self._calls)

    def ended(
        self,
        client: HookClient,
        session: str,
        call: HookCall,
        moment: str,
        above: tuple[ProcessId, ...],
    ) -> tuple[ApprovedScript, ...]:
        """Forget a call, and return what a person approved with it."""
        with self._lock:
            asked = self._calls.pop((session, call.call), None)
            first = self._clients.get(session, ())
        if asked is None or moment != "after":
            return ()
        is_same = (asked.tool, asked.arguments) == (call.tool, call.given)
        modes = {asked.permission_mode, call.permission_mode}
        if not is_same or not modes <= {*client.answered_modes}:
            return ()
        process = next(filter(is_alive, first), None)
        is_below = process is not None and process in asked.above and process in above
        return asked.scripts if is_below and process and process.pid != 1 else ()


def _shorten(kept: OrderedDict[Any, Any]) -> None:
    while len(kept) > ASKED_MAX:
        kept.popitem(last=False)
