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
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from skillhouse.frontends.hooks.entry_text import SCRIPT
from skillhouse.frontends.hooks.hook_clients import HookCall, HookClient
from skillhouse.frontends.hooks.open_calls import OpenCall
from skillhouse.frontends.hooks.tickets import ProcessId, is_alive

if TYPE_CHECKING:
    from skillhouse.approval import ApprovedScript

ASKED_MAX = 500
"""Calls without an answer that are kept."""


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
        process_of: Callable[[str], ProcessId | None],
    ) -> tuple[ApprovedScript, ...]:
        """Forget a call, and return what a person approved with it. `process_of` gives the process
        of a session's client, if it is known."""
        with self._lock:
            asked = self._calls.pop((session, call.call), None)
        if asked is None or moment != "after":
            return ()
        is_same = (asked.tool, asked.arguments) == (call.tool, _digest(call))
        modes = {asked.permission_mode, call.permission_mode}
        if not is_same or not modes <= {*client.answered_modes}:
            return ()
        process = process_of(session)
        if process is None or process.pid == 1 or not is_alive(process):
            return ()
        return asked.scripts if process in asked.above and process in above else ()


def client_above(above: Sequence[ProcessId]) -> ProcessId | None:
    """Return the client of what is above a hook: the nearest process that is no shell of the hook's
    own line; None where that is not to be seen."""
    with suppress(OSError):
        for one in above:
            if SCRIPT.name.encode() not in Path(f"/proc/{one.pid}/cmdline").read_bytes():
                return one
    return None


def _digest(call: HookCall) -> str:
    text = json.dumps(call.given, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _shorten(kept: OrderedDict[Any, Any]) -> None:
    while len(kept) > ASKED_MAX:
        kept.popitem(last=False)
