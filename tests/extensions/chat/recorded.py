"""Serves the streams of recordings/ as their providers do, whole or broken off.

They were made after the providers' documentation of their protocols; no provider was asked.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.extensions.chat.providers import Provider, Request, provider

RECORDINGS = Path(__file__).with_name("recordings")
MODELS = {
    "openai-chat": "openai-chat:gpt-5",
    "openai-responses": "openai-responses:gpt-5",
    "anthropic": "anthropic:claude-sonnet-5",
    "gemini": "google:gemini-3-pro",
}
"""The option `--model` for each protocol."""
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY")
TEXT = "The tide turns at **six**.\n\n- Boats leave at five."
"""The answer of each recording named `text` and `thinking`."""


def events(protocol: str, name: str) -> list[bytes]:
    """Return the events of a recording; joined they are its bytes."""
    data = (RECORDINGS / protocol / f"{name}.sse").read_bytes()
    end = b"\r\n\r\n" if b"\r\n\r\n" in data else b"\n\n"
    return [event + end for event in data.split(end) if event]


def address(protocol: str, server: Provider) -> str:
    """Return the option `--base-url`; only OpenAI's addresses have the version in them."""
    return server.url if protocol.startswith("openai") else server.url.removesuffix("/v1")


def whole(*bodies: list[bytes]) -> Callable[[Request], None]:
    """Return a provider's answer: the next of the bodies for each request, the last one again."""
    return broken(*bodies, how="closed")


def broken(*bodies: list[bytes], how: str) -> Callable[[Request], None]:
    """Return an answer whose connection ends after the body.

    `how` is `closed` (which without a length is how HTTP/1.0 ends a body), `cut` (chunks without
    the last one), `reset` (TCP's RST), or `silent` (nothing more is sent while the client waits).
    """
    left = list(bodies)

    def answer(request: Request) -> None:
        body = left.pop(0) if len(left) > 1 else left[0]
        is_chunked = how != "closed"
        request.protocol_version = "HTTP/1.1"
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        if is_chunked:
            request.send_header("Transfer-Encoding", "chunked")
        request.send_header("Connection", "close")
        request.end_headers()
        for event in body:
            size = f"{len(event):x}\r\n".encode()
            request.wfile.write(size + event + b"\r\n" if is_chunked else event)
        request.wfile.flush()
        request.close_connection = True
        if how == "reset":
            time.sleep(0.05)  # What was sent would be lost with the connection.
            request.connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            request.connection.close()
        elif how == "silent":
            request.rfile.read(1)  # Until the client goes away.

    return answer


@contextmanager
def recorded(protocol: str, *names: str) -> Iterator[Provider]:
    """Run a provider that answers with these recordings in turn."""
    with provider(whole(*(events(protocol, name) for name in names))) as server:
        yield server
