"""Who makes a tool call: as one value, and as keywords."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from skillhouse.tools import ToolCall


class CallerFields(TypedDict, total=False):
    """The fields of `Caller` as keywords."""

    agent: str
    user: str
    channel: str
    client: str
    connection: str
    session_id: str
    message_id: str
    call_id: str
    trace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who makes a call.

    An approval belongs to the connection that asked, and when that has ended to the next one of the
    same client; `session` answers end with the connection. A program that serves several clients
    with one `Skillhouse` names each of them.
    """

    agent: str = "default"
    user: str = "local"
    """On whose behalf."""
    channel: str = "library"
    """Where the call comes from."""
    client: str = ""
    """Name of the client; the channel when empty."""
    connection: str = ""
    """Which connection of that client; that of the `Skillhouse` itself when empty."""
    session_id: str = ""
    """Separates conversations."""
    message_id: str = ""
    call_id: str = ""
    trace: str = ""

    def tool_call(
        self, name: str, arguments: Mapping[str, Any], *, approval_id: str | None = None
    ) -> ToolCall:
        """Return a call that this caller makes."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return ToolCall(name=name, arguments=arguments, approval_id=approval_id or "", **fields)
