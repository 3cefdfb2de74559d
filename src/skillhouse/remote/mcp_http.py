"""The SDK's way over HTTP to an MCP server, with a bound on what one answer may hold.

The SDK bounds an event of a stream and reads a JSON body to its end, whatever comes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

ANSWER_MAX = 24 * 1_048_576
"""Bytes of one answer: a file of 16 MiB (SEP-2640, "Limits") as base64, in its message."""

SILENT_SECONDS = 30.0
"""How long a server may say nothing; the whole answer has a bound of its own, `ANSWER_SECONDS`."""


class TooLargeError(httpx2.StreamError):
    """An answer is over `ANSWER_MAX`; of this kind, since the SDK makes an error of it that ends
    the request and not the program."""


@asynccontextmanager
async def bounded_http(url: str) -> AsyncIterator[Any]:
    """Give the SDK's client the streams of a server at an address."""
    async with (
        httpx2.AsyncClient(
            # What is packed may be a thousand times as large when it is unpacked.
            headers={"accept-encoding": "identity"},
            timeout=SILENT_SECONDS,
            event_hooks={"response": [_Bound(ANSWER_MAX)]},
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=ANSWER_MAX) as streams,
    ):
        yield streams


class _Bound:
    """Puts itself between a response and its body."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes

    async def __call__(self, response: httpx2.Response) -> None:
        encoding = response.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise TooLargeError(f"expected an answer as it is, got one in {encoding[:40]!r}")
        stream = response.stream
        if isinstance(stream, httpx2.AsyncByteStream):
            response.stream = _BoundedStream(stream, self._max_bytes)


class _BoundedStream(httpx2.AsyncByteStream):
    """The bytes of a body, up to a bound.

    That of a stream of events counts, too: nothing that we ask for is said in more.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, max_bytes: int) -> None:
        self._stream = stream
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        seen = 0
        async for part in self._stream:
            seen += len(part)
            if seen > self._max_bytes:
                raise TooLargeError(f"the answer is larger than {self._max_bytes} bytes")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()
