"""What a Python skill's tool may use: its `context`, over the call's connection to the core.

Loaded by cell_python.py in a cell, with the standard library only. Any thread and any task may call
`context`: where an event loop runs, a call is a coroutine; elsewhere it waits and returns its
value. A waiting thread reads the answers for all; when it has its own and others still wait, a
thread of the link's own reads on.
"""

from __future__ import annotations

import _socket
import _thread
import itertools
import json
import os
import struct
import sys
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:  # The modules themselves would cost a megabyte.
    from collections.abc import Callable, Generator
    from typing import Any, NoReturn

FRAME_BYTES = 8 << 20
LENGTH = struct.Struct("!I")
AT_ONCE = 16
"""Requests of one call that the core answers at once; more wait here for their turn."""
RESOURCE_LIMIT = -32002
TEXTS = (("datetime", "date"), ("datetime", "time"), ("decimal", "Decimal"), ("uuid", "UUID"))
"""Types with one obvious text, which JSON lacks: `isoformat()` of the first two, else `str()`."""


def text_of(value: Any) -> str:
    """Return a date, a time, a Decimal or a UUID as text; a TypeError for anything else."""
    for name, kind_name in TEXTS:
        # A module that was never imported made no value.
        kind: Any = getattr(sys.modules.get(name), kind_name, None)
        if isinstance(kind, type) and isinstance(value, kind):
            moment: Any = value
            return str(moment.isoformat() if name == "datetime" else value)
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        plain = (str, int, float, type(None))
        made = {
            key if isinstance(key, plain) else text_of(key): with_text_keys(one)
            for key, one in value.items()
        }
        if len(made) != len(value):
            raise ValueError("two keys of an object have the same text")
        return made
    return [with_text_keys(one) for one in value] if isinstance(value, list | tuple) else value


def json_bytes(value: Any) -> bytes:
    """Return a tool's result as JSON; TypeError or ValueError if it is none."""

    def dumped(value: Any) -> str:
        return json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=text_of
        )

    try:
        return dumped(value).encode()
    except TypeError:
        return dumped(with_text_keys(value)).encode()


def output_params(name: str, data: bytes, left_out: str) -> dict[str, Any]:
    """Return the params of `core.output` for a piece of a file, or for one that is left out."""
    if left_out:
        return {"name": name, "left_out": left_out}
    from binascii import b2a_base64  # noqa: PLC0415 - most calls write no file.

    return {"name": name, "data": b2a_base64(data, newline=False).decode("ascii")}


def running_loop() -> Any:
    found = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    return found() if found else None


class Slot:
    """Where one answer is awaited, by a thread or by a future of a running loop."""

    def __init__(self, loop: Any = None) -> None:
        self.answer: Any = None
        self.loop = loop
        self.future: Any = loop.create_future() if loop else None
        self.lock = _thread.allocate_lock()
        self.lock.acquire()

    def resolve(self, answer: Any) -> None:
        self.answer = answer
        if self.loop is None:
            self.lock.release()
            return
        try:
            self.loop.call_soon_threadsafe(self._set)
        except RuntimeError:
            return  # Its loop is closed, so nothing awaits it.

    def _set(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def result(self) -> Any:
        if "error" in self.answer:
            raise CapabilityError(self.answer["error"])
        return self.answer["result"]


class Link:
    def __init__(self, descriptor: int) -> None:
        self.socket = _socket.socket(fileno=descriptor)
        self.token = ""
        self.pid = os.getpid()
        self.held = bytearray()
        self.numbers = itertools.count(1)
        self.outgoing: deque[bytes] = deque()
        self.sending = _thread.allocate_lock()
        self.is_finished = False
        # Reentrant, for the handlers of signals; it guards all below.
        self.state = _thread.RLock()
        self.slots: dict[int, Slot] = {}
        self.unsent: dict[int, bytes] = {}
        self.open = 0
        self.is_read = False

    def receive(self) -> Any:
        held, size = self.held, LENGTH.size
        while len(held) < size or len(held) < size + LENGTH.unpack_from(held)[0]:
            try:
                chunk = self.socket.recv(1 << 16)
            except ConnectionError:
                # Not every OSError: a signal's handler may raise TimeoutError here.
                chunk = b""
            if not chunk:
                os._exit(0)  # The core no longer waits for this call.
            held += chunk
        end = size + LENGTH.unpack_from(held)[0]
        data = bytes(held[size:end])
        del held[:end]
        return json.loads(data)

    def framed(self, value: Any) -> bytes:
        data = json_bytes(value)
        if len(data) > FRAME_BYTES:
            raise ValueError(f"expected at most {FRAME_BYTES} bytes of JSON, got {len(data)}")
        return LENGTH.pack(len(data)) + data

    def push(self, data: bytes) -> None:
        self.outgoing.append(data)
        # Whoever holds the lock sends this too, be it the same thread below a signal's handler.
        while self.outgoing and self.sending.acquire(False):  # noqa: FBT003 - it has no name.
            try:
                for _ in range(len(self.outgoing)):
                    self.write(self.outgoing.popleft())
            finally:
                self.sending.release()

    def write(self, data: bytes) -> None:
        if self.is_finished:
            return
        try:
            self.socket.sendall(data)
        except ConnectionError:
            os._exit(0)  # The core is gone.

    def finish(self, answer: Any) -> None:
        """Send the call's answer; what threads send after it is dropped."""
        data = self.framed(answer)
        with self.sending:
            # Not until it is empty: another thread may fill it for ever.
            for _ in range(len(self.outgoing)):
                self.write(self.outgoing.popleft())
            self.write(data)
            self.is_finished = True

    def tell(self, method: str, params: dict[str, Any]) -> None:
        params = {**params, "capability": self.token}
        self.push(self.framed({"jsonrpc": "2.0", "method": method, "params": params}))

    def begin(self, slot: Slot, method: str, params: dict[str, Any]) -> tuple[int, bool]:
        """Return the request's number, and True if its answer has no reader yet."""
        if os.getpid() != self.pid:
            raise RuntimeError("`context` works only in the tool's own process: use threads")
        number = next(self.numbers)
        params = {**params, "capability": self.token}
        data = self.framed({"jsonrpc": "2.0", "method": method, "params": params, "id": number})
        with self.state:
            self.slots[number] = slot
            is_first, self.is_read = not self.is_read, True
            if self.open >= AT_ONCE:
                self.unsent[number] = data
                return number, is_first
            self.open += 1
        self.push(data)
        return number, is_first

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        slot = Slot()
        number, is_first = self.begin(slot, method, params)
        try:
            if is_first:
                self.read_until(slot, number)
            else:
                slot.lock.acquire()
        finally:
            self.cancel(number)
        return slot.result()

    async def wait(self, method: str, params: dict[str, Any]) -> Any:
        slot = Slot(running_loop())
        number, is_first = self.begin(slot, method, params)
        try:
            if is_first:
                self.start_reader()
            await slot.future
        finally:
            self.cancel(number)
        return slot.result()

    def read_until(self, slot: Slot, number: int) -> None:
        try:
            while slot.answer is None:
                self.take(self.receive())
        finally:
            with self.state:
                self.is_read = bool(self.slots.keys() - {number})
            if self.is_read:
                self.start_reader()

    def start_reader(self) -> None:
        try:
            _thread.start_new_thread(self.read, ())
        except RuntimeError as error:
            failure = {"error": {"code": RESOURCE_LIMIT, "message": str(error)}}
            with self.state:
                self.is_read = False
                numbers = tuple(self.slots)
            for number in numbers:
                self.take({"id": number, **failure})

    def read(self) -> NoReturn:
        while True:
            self.take(self.receive())

    def take(self, answer: Any) -> None:
        with self.state:
            slot = self.slots.pop(answer.get("id"), None)
            if slot is None:
                return  # It was cancelled.
            following = self.following()
        slot.resolve(answer)
        if following:
            self.push(following)

    def following(self) -> bytes:
        """Return the next request that waits for its turn; b"" when there is none."""
        if not self.unsent:
            self.open -= 1
            return b""
        return self.unsent.pop(next(iter(self.unsent)))

    def cancel(self, number: int) -> None:
        """End a request that is still open, in the core too."""
        with self.state:
            if self.slots.pop(number, None) is None or self.unsent.pop(number, None) is not None:
                return
            following = self.following()
        self.tell("core.cancel", {"id": number})
        if following:
            self.push(following)


class CapabilityError(Exception):
    def __init__(self, error: Any) -> None:
        super().__init__(error.get("message", ""))
        self.code = error.get("code")
        data = error.get("data")
        self.reason = data.get("reason", "") if isinstance(data, dict) else ""


class Done:
    """A finished value that can also be awaited."""

    def __await__(self) -> Generator[Any, None, Any]:
        yield from ()
        return self


class Text(str, Done):
    pass


class Values(dict, Done):  # type: ignore[type-arg] # `Any` is not there when it runs.
    pass


class FetchAnswer(Done):
    def __init__(self, value: Any) -> None:
        self.status = value["status"]
        self.headers = {name.lower(): text for name, text in value["headers"].items()}
        self.body = value["body"]
        self.ok = 200 <= self.status < 300

    def text(self) -> Text:
        return Text(self.body)

    def json(self) -> Any:
        return json.loads(self.body)


class Context:
    """What a skill's tool may use.

    In an event loop, `fetch`, `sign` and `read_file` must be awaited; elsewhere they can be.
    """

    def __init__(self, link: Link, context: Any, output: str = "") -> None:
        self._link = link
        self._output = output
        self.env = dict(context["env"])
        self.meta = dict(context["meta"])

    @property
    def output(self) -> Any:
        """The folder of which the core keeps the files, as a `pathlib.Path`."""
        from pathlib import Path  # noqa: PLC0415 - most calls write no file.

        return Path(self._output)

    def fetch(self, url: str, options: Any = None, **more: Any) -> Any:
        given = {**(options or {}), **more}
        names = ("method", "headers", "body")
        request = {name: given[name] for name in names if given.get(name) is not None}
        return self._asked("core.fetch", {"url": url, **request}, FetchAnswer)

    def sign(self, request: Any) -> Any:
        return self._asked("core.sign", {"request": request}, Values)

    def read_file(self, path: str) -> Any:
        return self._asked("core.readFile", {"path": path}, lambda got: Text(got["content"]))

    readFile = read_file  # noqa: N815 - as the published design names it.

    def log(self, *words: object) -> None:
        self._link.tell("core.log", {"text": " ".join(map(str, words))})

    def progress(self, fraction: float, text: str = "") -> None:
        self._link.tell("core.progress", {"fraction": fraction, "text": text})

    def _asked(self, method: str, params: dict[str, Any], made: Callable[[Any], Any]) -> Any:
        if running_loop() is None:
            return made(self._link.ask(method, params))

        async def awaited() -> Any:
            return made(await self._link.wait(method, params))

        coroutine: Any = awaited()
        # For Python's warning, where nothing awaits it.
        coroutine.__qualname__ = method.replace("core.", "context.")
        return coroutine
