"""Providers on loopback that answer as a test wants: streams without an end, redirects, faults."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer

from tests.loopback_http import QuietHandler, serving_http


@dataclass
class Provider:
    """One that runs, with what it was sent."""

    port: int = 0
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


class Request(QuietHandler):
    """One request; an answer writes to it."""

    body = b""

    def status(self, code: int, **headers: str) -> None:
        """Answer without a stream."""
        self.answer(code, headers.pop("body", "").encode(), headers)

    def stream(self) -> None:
        """Begin a stream."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()

    def say(self, text: str, finish: str | None = None) -> None:
        """Send a piece of an answer."""
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
        chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        self.wfile.write(f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n".encode())


@contextmanager
def provider(answer: Callable[[Request], None]) -> Iterator[Provider]:
    """Run a provider that gives this answer to every request."""
    made = Provider()

    class Handler(Request):
        def do_POST(self) -> None:
            body = self.body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            made.requests.append((headers, body))
            with suppress(OSError):  # Whoever asked went away, as they should.
                answer(self)

    with serving_http(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        made.port = server.server_port
        yield made
