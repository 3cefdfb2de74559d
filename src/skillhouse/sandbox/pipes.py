"""The pipes between this process and one that it starts, none of which blocks it."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterator

import anyio

CHUNK = 65_536
"""Bytes of one read or write: the capacity of a pipe (pipe(7))."""


class Pipes:
    def __init__(self) -> None:
        self._ours: dict[str, int] = {}
        self._theirs: list[int] = []
        self._names: dict[int, str] = {}
        """Those that are waited for, by descriptor."""
        self._epoll = select.epoll()

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
        if (descriptor := self._ours.get(name)) is not None:
            self.unwatch(name)
            del self._ours[name]
            os.close(descriptor)

    def close_all(self) -> None:
        self.close_theirs()
        for name in tuple(self._ours):
            self.close(name)
        self._epoll.close()

    def ours(self, name: str) -> int:
        return self._ours[name]

    def is_open(self, name: str) -> bool:
        return name in self._ours

    def watch(self, *names: str) -> None:
        """Let `ready` report when there is something to read, or its end."""
        self._watch(names, select.EPOLLIN)

    def watch_writing(self, *names: str) -> None:
        """Let `ready` report when the child has read enough for more, or has closed its end."""
        self._watch(names, select.EPOLLOUT)

    def _watch(self, names: tuple[str, ...], events: int) -> None:
        for name in names:
            descriptor = self._ours[name]
            self._epoll.register(descriptor, events)
            self._names[descriptor] = name

    def unwatch(self, name: str) -> None:
        descriptor = self._ours[name]
        if self._names.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    async def ready(self) -> Iterator[str]:
        """Wait for those that are watched, and return the names of some that have something.

        The event loop waits for one descriptor, whatever their number: each that it is given and
        that is taken from it again costs as much as reading a small output.
        """
        await anyio.wait_readable(self._epoll.fileno())
        return (self._names[one] for one, _ in self._epoll.poll(0) if one in self._names)

    async def until_readable(self, name: str, *, seconds: float | None = None) -> None:
        """Wait until there is something to read, at most so long, or the end of a process."""
        descriptor = self._ours[name]
        now = select.poll()
        now.register(descriptor, select.POLLIN)
        if now.poll(0):
            return
        with anyio.CancelScope() as scope:
            if seconds is not None:
                scope.deadline = anyio.current_time() + seconds
            await anyio.wait_readable(descriptor)

    def send(self, name: str, data: memoryview) -> memoryview:
        """Write what the pipe takes at once, close it after all of it, and return the rest; a child
        that has stopped reading is no error."""
        try:
            while data:
                data = data[os.write(self._ours[name], data[:CHUNK]) :]
        except BlockingIOError:
            return data
        except BrokenPipeError:
            data = data[:0]
        self.close(name)
        return data

    def chunk(self, name: str) -> bytes | None:
        """Return the next part of the child's output, b"" at its end; None where there is none."""
        try:
            return os.read(self._ours[name], CHUNK)
        except BlockingIOError:
            return None

    def rest(self, name: str) -> bytes:
        data = bytearray()
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._ours[name], CHUNK):
                data += chunk
        return bytes(data)
