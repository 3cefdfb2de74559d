"""What every client says first, answered while the SDK is still being imported.

That import takes the better part of a second, and a client that waits longer starts its first turn
without our tools (ecosystem.md, fact 7; Codex waits about a second for `tools/list`). The SDK gets
the handshake later and negotiates the same; its own answer is then left out. Tests compare both.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import skillhouse

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions that begin with `initialize`, oldest first; later ones do without it."""


class Greeter:
    """Answers `initialize` and the `tools/list` that follows it.

    It runs in the reader's thread, and is told the tools by another.
    """

    def __init__(self) -> None:
        self.handshake: list[bytes] = []
        """The lines of the handshake so far; the SDK has to see them too."""
        self.request_id: int | str | None = None
        """Of the `initialize` that was answered."""
        self._tools: Sequence[Mapping[str, Any]] | None = None
        self._has_tools = threading.Event()

    def learn(self, tools: Sequence[Mapping[str, Any]] | None) -> None:
        """Take the tools to list; None leaves the listing to the SDK."""
        self._tools = tools
        self._has_tools.set()

    def answer(self, line: bytes) -> bytes | None:
        """Return the line to write, empty for a notification; None leaves the message to the SDK.

        >>> Greeter().answer(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}')
        """
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return None
        match len(self.handshake), message:
            case 0, {"method": "initialize"} if _is_plain(message):
                self.handshake.append(line)
                self.request_id = message["id"]
                return _answer(message["id"], _initialized(message["params"]["protocolVersion"]))
            case 1, {"method": "notifications/initialized"} if "id" not in message:
                self.handshake.append(line)
                return b""
            case 2, {"jsonrpc": "2.0", "id": int() | str() as request_id, "method": "tools/list"}:
                return self._listed(request_id, message.get("params"))
        return None

    def _listed(self, request_id: int | str, params: Any) -> bytes | None:
        if isinstance(request_id, bool) or not (params is None or set(params) <= {"_meta"}):
            return None
        self._has_tools.wait()
        return None if self._tools is None else _answer(request_id, {"tools": list(self._tools)})


def _answer(request_id: int | str, result: Mapping[str, Any]) -> bytes:
    return f"{json.dumps({'jsonrpc': '2.0', 'id': request_id, 'result': result})}\n".encode()


def _initialized(wanted: str) -> Mapping[str, Any]:
    return {
        "protocolVersion": wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1],
        "capabilities": {
            "prompts": {"listChanged": True},
            "resources": {"subscribe": False, "listChanged": True},
            "tools": {"listChanged": True},
        },
        "serverInfo": {"name": "skillhouse", "version": skillhouse.__version__},
    }


def _is_plain(message: Any) -> bool:
    """Whether this is an `initialize` that the SDK is sure to accept."""
    match message:
        case {
            "jsonrpc": "2.0",
            "id": int() | str() as request_id,
            "params": {
                "protocolVersion": str(),
                "capabilities": dict() as capabilities,
                "clientInfo": {"name": str(), "version": str()},
            },
        }:
            return not isinstance(request_id, bool) and all(
                isinstance(value, dict) for value in capabilities.values()
            )
    return False
