"""Calls that were handed to a client and whose outcome is not known yet, one small file each, and
the records of what came of them.

A process that judges may end at any time, and the next one records what came of them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from skillhouse.audit import AuditDraft
from skillhouse.floor import DecodeError, decode, encode, make_private
from skillhouse.frontends.hooks.hook_clients import HookCall
from skillhouse.frontends.hooks.tickets import RunEnd

if TYPE_CHECKING:
    from skillhouse.approval import ApprovedScript
    from skillhouse.house import Skillhouse

CHANNEL = "hooks"
NO_ANSWER = "not run: the client's person or the client itself refused it"
NO_RESULT = "the client says nothing: it failed, or the client did not run it"
KEPT_SECONDS = 7 * 86_400
"""How long a call without an outcome is kept; its record stays, and its outcome is unknown."""


class OpenCall(Struct, frozen=True, kw_only=True):
    """A call with an intent in the log."""

    intent: str
    tool: str
    agent: str
    client: str
    began_ms: int
    user: str = "local"
    channel: str = CHANNEL
    is_asked: bool = False
    """Whether the client asks its person about it."""
    subagent: str = ""
    is_background: bool = False
    left: str = ""
    """Why it runs as it is, where others are run in our sandbox."""
    has_ticket: bool = False
    has_begun: bool = False
    """Whether a runner of ours has begun it, which records its end."""
    skills: tuple[str, ...] = ()
    """The SKILL.md files that it gives the client's model."""
    outlasts: bool = False
    """Whether it may go on when the turn has ended, so that its end may come later, or never."""


class OpenCalls:
    """The open calls of a state directory, by the client's session and its id of the call."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, session: str, call: str, opened: OpenCall) -> None:
        place = self._place(session)
        make_private(place)
        name = name_of(call)
        (place / f".{name}").write_bytes(encode(opened))
        os.replace(place / f".{name}", place / name)

    def get(self, session: str, call: str) -> OpenCall | None:
        return self._read(self._place(session) / name_of(call))

    def take(self, session: str, call: str) -> OpenCall | None:
        """Return and forget a call; None for one that is not open."""
        return self._taken(self._place(session) / name_of(call))

    def take_all(
        self, session: str, subagent: str, *, left: Callable[[str], bool] = lambda _: False
    ) -> Iterator[OpenCall]:
        """Return and forget the open calls of an agent of a session, but those of which `left` is
        so, by the names of their files."""
        place = self._place(session)
        with suppress(FileNotFoundError):
            for file in sorted(place.iterdir()):
                found = self._read(file)
                # Of this agent first: `left` takes the tickets of those that it leaves not.
                if found is None or found.subagent != subagent or left(file.name):
                    continue
                if not (found.outlasts and not found.is_asked) and self._taken(file):
                    yield found
            with suppress(OSError):  # Calls of subagents are open.
                place.rmdir()

    def sweep(self) -> None:
        """Forget sessions that nothing was heard of for long."""
        oldest = time.time() - KEPT_SECONDS
        with suppress(FileNotFoundError):
            for place in self._directory.iterdir():
                if place.stat().st_mtime < oldest:
                    shutil.rmtree(place, ignore_errors=True)

    def _place(self, session: str) -> Path:
        return self._directory / name_of(session)

    def _taken(self, file: Path) -> OpenCall | None:
        found = self._read(file)
        try:
            # Whoever removes it has it: two events about one call record one outcome.
            file.unlink()
        except FileNotFoundError:
            return None
        return found

    def _read(self, file: Path) -> OpenCall | None:
        if file.name.startswith("."):
            return None
        with suppress(FileNotFoundError, DecodeError):
            return decode(file.read_bytes(), OpenCall)
        return None


def name_of(text: str) -> str:
    """Return the name of a file for a text that a client gives."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def end(
    house: Skillhouse,
    opened: OpenCall,
    call: HookCall,
    moment: str,
    *,
    has_failures: bool = True,
    approved: Sequence[ApprovedScript] = (),
) -> None:
    """Record what a client reports of a call; `approved` is what its person approved with it."""
    status, reason = {
        "after": ("ok", ""),
        "failed": ("error", "the client says that it failed"),
    }.get(moment, ("denied", NO_ANSWER))
    if moment == "next" and not opened.is_asked and not has_failures:
        status, reason = "error", NO_RESULT
    detail: dict[str, object] = {}
    if opened.is_asked:
        detail["asked_by"] = "the client"
    if approved:
        detail["approved"] = [f"{one.path} sha256:{one.digest}"[-200:] for one in approved]
    if opened.is_background and moment == "after":
        detail["background"] = "it began; its end is not seen"
    if opened.left:
        detail["not_sandboxed"] = opened.left[:500]
    if opened.has_ticket and not opened.has_begun and moment != "next":
        status, reason = "error", "not run: its runner did not come with a valid ticket"
    error = reason if status == "error" else ""
    _record(house, opened, call, status=status, reason=reason, error=error, detail=detail)


def end_of_run(house: Skillhouse, opened: OpenCall, call: HookCall, end: RunEnd) -> None:
    """Record how a command ended that our runner ran."""
    _record(
        house,
        opened,
        call,
        status="ok" if end.code == 0 else "error",
        reason=end.reason,
        error=end.reason or (f"exit code {end.code}" if end.code else ""),
        detail={**end.detail, "exit_code": end.code},
    )


def _record(
    house: Skillhouse,
    opened: OpenCall,
    call: HookCall,
    *,
    status: str,
    reason: str,
    error: str,
    detail: Mapping[str, Any],
) -> None:
    house.audit_log.write_or_keep(
        AuditDraft(
            kind="outcome",
            tool=opened.tool,
            agent=opened.agent,
            user=opened.user,
            channel=opened.channel,
            client=opened.client,
            workspace=house.policy.place,
            status=status,
            reason=reason,
            error=error,
            intent=opened.intent,
            duration_ms=max(0, time.time_ns() // 1_000_000 - opened.began_ms),
            session=call.session,
            trace=opened.subagent,
            detail=detail,
        )
    )
