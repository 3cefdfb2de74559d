"""What calls are about that a client asks its own person about, until events say that they ran.

That such a call ran is the only sign that the person approved it, and any process of this user can
write an event. So it is taken for no more than these bytes in this session, and only from a process
below the client of the session: what runs there could run these bytes itself (decision 0473).
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from skillhouse.frontends.hooks.hook_clients import HookCall, HookClient
from skillhouse.frontends.hooks.open_calls import OpenCall
from skillhouse.frontends.hooks.tickets import ProcessId, is_alive

if TYPE_CHECKING:
    from skillhouse.approval import ApprovedScript

ASKED_MAX = 500
"""Calls without an answer that are kept, and sessions whose client is known."""


class _AskedCall(Struct, frozen=True, kw_only=True):
    tool: str
    arguments: str
    """Their digest: an event may be large."""
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
        self._clients: dict[str, tuple[ProcessId, ...]] = {}

    def seen(self, session: str, above: tuple[ProcessId, ...], *, is_first: bool) -> None:
        """Note which processes the first event of a session came from: the client is above it, and
        none of its commands has run yet. Of a session that is not new, or one too many, nothing is
        known, and no yes counts."""
        with self._lock:
            known = self._clients.get(session)
            if known is not None:
                if len(known) > 1 and known[0] in above:
                    self._clients[session] = known[:1]
                elif len(known) > 1 and not is_alive(known[0]):
                    self._clients[session] = known[1:]
            elif above and is_first:
                if len(self._clients) >= ASKED_MAX:
                    alive = {k: v for k, v in self._clients.items() if any(map(is_alive, v))}
                    self._clients = alive
                if len(self._clients) < ASKED_MAX:
                    # The hook's shell, if it has one, and the client. What is above them is above
                    # other programs too.
                    self._clients[session] = above[:2]

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
                    arguments=_digest(call),
                    permission_mode=call.permission_mode,
                    scripts=tuple(scripts),
                    above=above,
                )
                _shorten(self._calls)

    def forget(self, session: str) -> None:
        """Forget the calls of a session whose turn has ended."""
        with self._lock:
            for key in [key for key in self._calls if key[0] == session]:
                del self._calls[key]

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
        is_same = (asked.tool, asked.arguments) == (call.tool, _digest(call))
        modes = {asked.permission_mode, call.permission_mode}
        if not is_same or not modes <= {*client.answered_modes}:
            return ()
        process = next(filter(is_alive, first), None)
        is_below = process is not None and process in asked.above and process in above
        return asked.scripts if is_below and process and process.pid != 1 else ()


def _digest(call: HookCall) -> str:
    text = json.dumps(call.given, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _shorten(kept: OrderedDict[Any, Any]) -> None:
    while len(kept) > ASKED_MAX:
        kept.popitem(last=False)
