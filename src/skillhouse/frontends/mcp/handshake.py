"""Reads stdin, and answers a client's first requests while the SDK is still being imported.

That import takes most of a second, and a client that waits longer starts its first turn without
our tools (Codex waits about a second for `tools/list`). The SDK gets the
handshake later and negotiates the same; its own answer is then dropped. Tests compare both.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import skillhouse
from skillhouse.frontends.mcp.closed_pipe import ClosedPipeWatch
from skillhouse.frontends.mcp.messages import (
    MESSAGE_MAX,
    EnvelopeScan,
    RefusedMessage,
    read_message,
    too_long,
)
from skillhouse.frontends.mcp.tool_list import as_listed_in
from skillhouse.frontends.mcp.tried_clients import Places, places_of

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions that begin with `initialize`, oldest first; later ones do not."""
MODERN_VERSIONS = ("2026-07-28",)
"""Revisions without a handshake: each request names its version and the client's capabilities in
`_meta`, and `server/discover` returns the server's."""
META = "io.modelcontextprotocol/"
"""Prefix of the protocol's own keys in `_meta`."""

ICON: Mapping[str, Any] = {
    "src": (
        "data:image/svg+xml;base64,"
        "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHZpZXdCb3g9IjAgMCAyNCAyNCI+PHJlY3Qg"
        "d2lkdGg9IjI0IiBoZWlnaHQ9IjI0IiByeD0iNiIgZmlsbD0iIzBmNmI1ZiIvPjxwYXRoIGQ9Ik01LjUgMTEuNiAx"
        "MiA2bDYuNSA1LjZNNy42IDExLjRWMThoOC44di02LjYiIGZpbGw9Im5vbmUiIHN0cm9rZT0iI2ZmZiIgc3Ryb2tl"
        "LXdpZHRoPSIxLjgiLz48L3N2Zz4="
    ),
    "mimeType": "image/svg+xml",
    "sizes": ["any"],
}
"""Ours, as `icons` of `serverInfo` has it."""
INSTRUCTIONS_SECONDS = 1.0
"""How long `initialize` waits for the skills at most (decision 0154). `tools/list`, which follows,
waits for them in any case."""


class FastHandshake:
    """Answers `initialize` or `server/discover`, and the `tools/list` that follows it.

    `server/discover` changes no state, so the SDK need not see it, and `initialize` may still
    follow: a client sends it when the first took too long (Claude Code 2.1.330). The reader's
    thread asks; another one sets the tools.
    """

    def __init__(self, without_list: str = "") -> None:
        """Store the instructions for a client that asks before the skills are known."""
        self.handshake: list[Mapping[str, Any]] = []
        """The messages of the handshake so far, which the SDK needs as well."""
        self.request_id: int | str | None = None
        """Id of the `initialize` that was answered."""
        self.places = Places.EACH
        """Where the client that got instructions shows a model the list."""
        self._instructions: Mapping[Places, str] = {Places.EACH: without_list}
        self._has_instructions = threading.Event()
        self._tools: Mapping[Places, Sequence[Mapping[str, Any]]] = {}
        self._has_tools = threading.Event()

    def set_instructions(self, instructions: Mapping[Places, str]) -> None:
        """Set the instructions for each kind of client."""
        self._instructions = instructions
        self._has_instructions.set()

    def set_tools(self, tools: Mapping[Places, Sequence[Mapping[str, Any]]]) -> None:
        """Set the tools to list for each kind of client; nothing leaves them to the SDK."""
        self._tools = tools
        self._has_tools.set()

    def answer(self, message: Mapping[str, Any]) -> bytes | None:
        """Return the line to write, empty for a notification; None leaves the message to the SDK.

        >>> FastHandshake().answer({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        b'{"jsonrpc": "2.0", "id": 1, "result": {}}\\n'
        """
        match len(self.handshake), message:
            case _, {"method": "ping", "id": request_id} if is_plain_ping(message):
                return _answer(request_id, {})
            case 0, {"method": "server/discover"} if _is_enveloped(message):
                return _answer(message["id"], _discovered(self._instructions_field(message)))
            case 0, {"method": "tools/list"} if _is_enveloped(message):
                return self._listed(message["id"], _modern)
            case 0, {"method": "initialize"} if _is_plain(message):
                self.handshake.append(message)
                self.request_id = message["id"]
                wanted = message["params"]["protocolVersion"]
                return _answer(
                    message["id"], _initialized(wanted, self._instructions_field(message))
                )
            case 1, {"method": "notifications/initialized"} if "id" not in message:
                self.handshake.append(message)
                return b""
            case 2, {"jsonrpc": "2.0", "id": int() | str() as request_id, "method": "tools/list"}:
                params = message.get("params")
                if isinstance(request_id, bool) or not (params is None or set(params) <= {"_meta"}):
                    return None
                return self._listed(request_id, dict)
        return None

    def _instructions_field(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        self._has_instructions.wait(INSTRUCTIONS_SECONDS)
        known, places = self._instructions, places_of(_client_name(message))
        # One half without the other is no list.
        is_half = places is Places.HALVES and places not in known
        self.places = Places.EACH if is_half else places
        text = known.get(places, known[Places.EACH])
        return {"instructions": text} if text else {}

    def _listed(
        self, request_id: int | str, shaped: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    ) -> bytes | None:
        self._has_tools.wait()
        tools = self._tools.get(self.places, self._tools.get(Places.EACH))
        if tools is None:
            return None
        # A client without a handshake has the newest revision.
        wanted = self.handshake[0]["params"]["protocolVersion"] if self.handshake else ""
        return _answer(request_id, shaped({"tools": as_listed_in(wanted, tools)}))


def is_plain_ping(message: Mapping[str, Any]) -> bool:
    """Whether this is a ping of a revision with a handshake, which may come before it."""
    match message:
        case {"method": "ping", "id": _, "params": {"_meta": {**meta}}}:
            return f"{META}protocolVersion" not in meta
        case {"method": "ping", "id": _}:
            return True
    return False


def _answer(request_id: int | str, result: Mapping[str, Any]) -> bytes:
    return f"{json.dumps({'jsonrpc': '2.0', 'id': request_id, 'result': result})}\n".encode()


def _initialized(wanted: str, introduction: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "protocolVersion": wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1],
        "capabilities": {
            "completions": {},
            "prompts": {"listChanged": True},
            "resources": {"subscribe": False, "listChanged": True},
            "tools": {"listChanged": True},
        },
        "serverInfo": _server_info(),
        **introduction,
    }


def _discovered(introduction: Mapping[str, Any]) -> Mapping[str, Any]:
    capabilities = {
        "completions": {},
        "extensions": {f"{META}skills": {"directoryRead": True}, f"{META}tasks": {}},
        "prompts": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "tools": {"listChanged": True},
    }
    versions = list(MODERN_VERSIONS)
    return _modern({"supportedVersions": versions, "capabilities": capabilities, **introduction})


def _modern(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a result with the fields required since 2026-07-28; it must not be cached."""
    return {
        **result,
        "resultType": "complete",
        "cacheScope": "private",
        "ttlMs": 0,
        "_meta": {f"{META}serverInfo": _server_info()},
    }


def _client_name(message: Mapping[str, Any]) -> str:
    """Return what a client calls itself in a request that was checked; empty if it does not."""
    params = message["params"]
    info = params.get("clientInfo") or params.get("_meta", {}).get(f"{META}clientInfo") or {}
    name: str = info.get("name", "")
    return name


def _server_info() -> Mapping[str, Any]:
    return {"name": "skillhouse", "version": skillhouse.__version__, "icons": [ICON]}


def _is_enveloped(message: Any) -> bool:
    """Whether this is a request of 2026-07-28 without parameters that the SDK accepts for sure."""
    match message:
        case {
            "jsonrpc": "2.0",
            "id": int() | str() as request_id,
            "params": {"_meta": dict() as meta, **others},
        } if not others and not isinstance(request_id, bool):
            version, capabilities = (
                meta.get(f"{META}{key}") for key in ("protocolVersion", "clientCapabilities")
            )
            return (
                version in MODERN_VERSIONS
                and _is_capabilities(capabilities)
                and _is_info(meta.get(f"{META}clientInfo"))
            )
    return False


def _is_info(info: Any) -> bool:
    match info:
        case None | {"name": str(), "version": str()}:
            return True
    return False


def _is_capabilities(capabilities: Any) -> bool:
    return isinstance(capabilities, dict) and all(
        isinstance(value, dict) for value in capabilities.values()
    )


def _is_plain(message: Any) -> bool:
    """Whether this is an `initialize` that the SDK accepts for sure."""
    match message:
        case {
            "jsonrpc": "2.0",
            "id": int() | str() as request_id,
            "params": {
                "protocolVersion": str(),
                "capabilities": capabilities,
                "clientInfo": {"name": str(), "version": str()},
            },
        }:
            return not isinstance(request_id, bool) and _is_capabilities(capabilities)
    return False


CHUNK = 65_536


@contextmanager
def claimed() -> Iterator[tuple[int, int]]:
    """Reserve stdin and stdout for the protocol: other prints go to stderr, other reads get EOF.

    The descriptors stay open afterwards, since a thread may still block on one.
    """
    sys.stdout.flush()
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield source, sink
    finally:
        os.dup2(source, 0)
        os.dup2(sink, 1)


Incoming = Mapping[str, Any] | RefusedMessage | None
"""A message, or one to answer with an error; None at the end."""


class MessageReader:
    """Reads messages in a thread of its own; the fast handshake answers the first ones at once.

    The thread is never joined, since a blocking read cannot be cancelled. Only it writes to `sink`
    until `end_fast_handshake` returns.
    """

    def __init__(
        self, source: int, sink: int, fast_handshake: FastHandshake, watch: ClosedPipeWatch
    ) -> None:
        self._source = source
        self._sink = sink
        self._fast_handshake: FastHandshake | None = fast_handshake
        self._watch = watch
        self._answering = threading.Lock()
        self._take: Callable[[Incoming], object] | None = None
        self._taken = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="mcp-reader", daemon=True).start()

    def end_fast_handshake(self) -> None:
        """Queue every message from now on for `hand_over`."""
        with self._answering:
            self._fast_handshake = None

    def hand_over(self, take: Callable[[Incoming], object]) -> None:
        """Pass all messages that were not answered to `take`, in the reader's thread."""
        self._take = take
        self._taken.set()

    def stop(self) -> None:
        """Pass on nothing more: what follows is read and dropped."""
        self._take = None

    def _run(self) -> None:
        for line in lines(self._source):
            message = line if isinstance(line, RefusedMessage) else read_message(line)
            if not self._answered_fast(message):
                self._deliver(message)
        self._watch.source_is_read()
        self._deliver(None)

    def _answered_fast(self, message: Mapping[str, Any] | RefusedMessage) -> bool:
        """Answer a message by the fast handshake; the first that it cannot answer ends it."""
        with self._answering:
            if self._fast_handshake is None:
                return False
            if isinstance(message, RefusedMessage):
                answer: bytes | None = b"".join(each + b"\n" for each in message.answers())
            else:
                answer = self._fast_handshake.answer(message)
            if answer is None:
                self._fast_handshake = None
                return False
            # The watch notices that the client is gone.
            with suppress(OSError):
                write_all(self._sink, answer)
            return True

    def _deliver(self, message: Incoming) -> None:
        self._taken.wait()
        take = self._take
        if take is not None:
            take(message)


def lines(source: int) -> Iterator[bytes | RefusedMessage]:
    """Yield the non-blank lines of a descriptor; one that is too long as a refused message."""
    held = bytearray()
    scan: EnvelopeScan | None = None
    while chunk := os.read(source, CHUNK):
        *ends, rest = chunk.split(b"\n")
        for part, is_end in (*((end, True) for end in ends), (rest, False)):
            held += part
            if scan is None and len(held) > MESSAGE_MAX:
                scan = EnvelopeScan()
            if scan is not None:
                scan.feed(bytes(held))
                held.clear()
            if not is_end:
                continue
            if scan is not None:
                yield too_long(scan)
            elif held.strip():
                yield bytes(held)
            held.clear()
            scan = None
    if scan is not None:
        yield too_long(scan)
    elif held.strip():
        yield bytes(held)


def write_all(sink: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(sink, rest) :]
