"""The pipes between this process and one that it starts, none of which blocks it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

import anyio

CHUNK = 65_536
"""Bytes of one read or write: the capacity of a pipe (pipe(7))."""


class Pipes:
    def __init__(self) -> None:
        self._ours: dict[str, int] = {}
        self._theirs: list[int] = []

    def to_child(self, name: str) -> int:
        theirs, ours = os.pipe()
        return self._keep(name, ours, theirs)

    def from_child(self, name: str) -> int:
        ours, theirs = os.pipe()
        return self._keep(name, ours, theirs)

    def _keep(self, name: str, ours: int, theirs: int) -> int:
        os.set_blocking(ours, False)
        self._ours[name] = ours
        self._theirs.append(theirs)
        return theirs

    def filled(self, data: bytes) -> int:
        if len(data) > CHUNK // 2:
            return self._in_memory(data)
        theirs, ours = os.pipe()
        self._theirs.append(theirs)
        try:
            os.write(ours, data)
        finally:
            os.close(ours)
        return theirs

    def _in_memory(self, data: bytes) -> int:
        """Return the descriptor of a file in memory: more than a pipe is sure to hold."""
        theirs = os.memfd_create("data", os.MFD_CLOEXEC)
        self._theirs.append(theirs)
        with os.fdopen(theirs, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(theirs, 0, os.SEEK_SET)
        return theirs

    def adopt(self, name: str, descriptor: int) -> int:
        self._ours[name] = descriptor
        return descriptor

    def close_theirs(self) -> None:
        """Close the child's ends in this process, after the child has inherited them."""
        while self._theirs:
            os.close(self._theirs.pop())

    def close(self, name: str) -> None:
        if (descriptor := self._ours.pop(name, None)) is not None:
            os.close(descriptor)

    def close_all(self) -> None:
        self.close_theirs()
        for name in tuple(self._ours):
            self.close(name)

    def ours(self, name: str) -> int:
        return self._ours[name]

    def is_open(self, name: str) -> bool:
        return name in self._ours

    async def send(self, name: str, data: bytes) -> None:
        """Write `data` and close; a child that has stopped reading is no error."""
        rest = memoryview(data)
        with contextlib.suppress(BrokenPipeError):
            while rest:
                try:
                    rest = rest[os.write(self._ours[name], rest[:CHUNK]) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._ours[name])
        self.close(name)

    def begin(self, name: str, data: bytes) -> bytes:
        """Write what an empty pipe takes at once, and return the rest, which `send` may write."""
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            data = data[os.write(self._ours[name], data[:CHUNK]) :]
        return data

    async def chunks(self, name: str) -> AsyncIterator[bytes]:
        """Yield the child's output until all copies of the other end are closed."""
        descriptor = self._ours[name]
        while True:
            await anyio.wait_readable(descriptor)
            with contextlib.suppress(BlockingIOError):
                chunk = os.read(descriptor, CHUNK)
                if not chunk:
                    return
                yield chunk

    def rest(self, name: str) -> bytes:
        data = bytearray()
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._ours[name], CHUNK):
                data += chunk
        return bytes(data)
