"""The descriptors of the stdio transport, without the SDK."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from skillhouse.frontends.mcp.handshake import FastHandshake

MESSAGE_MAX = 8 * 1_048_576
"""Bytes of one message (DESIGN, bounds: RPC frame 8 MiB)."""
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


class MessageReader:
    """Reads messages in a thread of its own; the fast handshake answers the first ones at once.

    The thread is never joined, since a blocking read cannot be cancelled.
    """

    def __init__(self, source: int, sink: int, fast_handshake: FastHandshake) -> None:
        """Only the reader writes to `sink` until `end_fast_handshake` returns."""
        self._source = source
        self._sink = sink
        self._fast_handshake: FastHandshake | None = fast_handshake
        self._answering = threading.Lock()
        self._take: Callable[[bytes | None], object] | None = None
        self._taken = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="mcp-reader", daemon=True).start()

    def end_fast_handshake(self) -> None:
        """Queue every message from now on for `hand_over`."""
        with self._answering:
            self._fast_handshake = None

    def hand_over(self, take: Callable[[bytes | None], object]) -> None:
        """Pass all messages that were not answered to `take`, in the reader's thread.

        `take` gets b"" at the end, and None for a message of more than `MESSAGE_MAX` bytes.
        """
        self._take = take
        self._taken.set()

    def _run(self) -> None:
        for line in lines(self._source):
            if not self._answered_fast(line):
                self._deliver(line)
        self._deliver(b"")

    def _answered_fast(self, line: bytes | None) -> bool:
        """Answer a message by the fast handshake; the first that it cannot answer ends it."""
        with self._answering:
            if self._fast_handshake is None:
                return False
            answer = None if line is None else self._fast_handshake.answer(line)
            if answer is None:
                self._fast_handshake = None
                return False
            # The next read notices that the client is gone.
            with suppress(OSError):
                write_all(self._sink, answer)
            return True

    def _deliver(self, line: bytes | None) -> None:
        self._taken.wait()
        if self._take is not None:
            self._take(line)


def lines(source: int) -> Iterator[bytes | None]:
    """Yield the non-blank lines of a descriptor; None for one that is too long."""
    held = bytearray()
    too_long = False
    while chunk := os.read(source, CHUNK):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            held += end
            if too_long or len(held) > MESSAGE_MAX:
                yield None
            elif held.strip():
                yield bytes(held)
            held.clear()
            too_long = False
        held += rest
        if len(held) > MESSAGE_MAX:
            held.clear()
            too_long = True
    if held.strip():
        yield bytes(held)


def write_all(sink: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(sink, rest) :]
