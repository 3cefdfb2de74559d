"""Processes of calls that have loaded the skill's code before their call arrives.

Each one serves one call, as any other process of a call, and is in the same confinement from its
first instruction on. It has got nothing of a call until then, so it cannot pass on anything of one.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct, field

from skillhouse.extensions.cells.call_channel import CHUNK, CellOutput
from skillhouse.extensions.cells.rpc import Frames, RpcRequest, framed, message, parse
from skillhouse.floor.regex import regex
from skillhouse.sandbox import SandboxError
from skillhouse.sandbox.code_call import CellSpec, RpcError

PREPARE, PREPARED = "cell.prepare", "cell.prepared"
READY_MAX = 4
"""Ready processes of one cell."""
READY_SECONDS = 120.0
"""Time of a call up to which a process of another call's time fits, by its processor time."""
LOADING_MAX = 2
"""Those of them that load at one time."""
QUIET_SECONDS = 10.0
"""After this time in which no call found none, one ready process is enough again."""
LOAD_SECONDS = 30.0
"""Longest time to load a skill's code ahead of a call; numpy and pandas take some seconds where
other processes work too."""
FAILURES_MAX = 3
"""Processes in a row that did not load; then none is started ahead in this cell."""
NAMES_MAX = 256
"""Modules of the standard library that a cell imports for one skill."""
SKILLS_MAX = 256
"""Skills whose imports are remembered."""
_NAME = regex(r"[A-Za-z_]\w{0,63}(\.[A-Za-z_]\w{0,63}){0,5}", re.ASCII)


def prepare_order(env: Mapping[str, str], *, loads: bool) -> bytes:
    """Return the message that makes a process report and wait, with or without the skill's code."""
    params = {"env": dict(env), "load": loads}
    return framed({"jsonrpc": "2.0", "method": PREPARE, "params": params})


def module_names(value: object) -> tuple[str, ...]:
    """Return what looks like names of modules in a cell's report, of which nothing is trusted.

    >>> module_names(["json", "xml.etree.ElementTree", "../x", 7])
    ('json', 'xml.etree.ElementTree')
    """
    if not isinstance(value, list):
        return ()
    names = (name for name in value[:NAMES_MAX] if isinstance(name, str) and _NAME.fullmatch(name))
    return tuple(dict.fromkeys(names))


class Learned(Struct, frozen=True):
    """What a process that has loaded a skill's code, and nothing of a call, reported of it."""

    names: tuple[str, ...] = ()
    """Modules of the standard library that the code imports, or may import."""
    size: int = 0
    """Bytes of memory that loading it took."""
    is_loaded: bool = True
    """False: loading it raised an exception."""


class LearnedImports:
    """What is known of each skill's code, for all cells of an executor.

    It never comes from a process that has got a call, so no call can leave a sign to a later one
    by what it imports.
    """

    def __init__(self) -> None:
        self._learned: OrderedDict[tuple[str, ...], Learned] = OrderedDict()

    def known(self, spec: CellSpec) -> Learned | None:
        return self._learned.get(_code_of(spec))

    def learn(self, spec: CellSpec, report: Mapping[str, Any]) -> tuple[str, ...]:
        """Add a report, of which nothing is trusted; return the names that are new."""
        key = _code_of(spec)
        before = self._learned.pop(key, Learned())
        names = dict.fromkeys((*before.names, *module_names(report.get("modules"))))
        size = report.get("bytes")
        is_loaded = report.get("loaded") is True and type(size) is int and size >= 0
        found = self._learned[key] = Learned(
            tuple(names)[:NAMES_MAX],
            max(before.size, size if isinstance(size, int) else 0),
            is_loaded,
        )
        while len(self._learned) > SKILLS_MAX:
            self._learned.popitem(last=False)
        return found.names[len(before.names) :]

    def fitting(self, spec: CellSpec, max_bytes: int) -> int:
        """Return how many processes that have loaded the code fit into so much memory."""
        found = self.known(spec)
        if found is None or not found.is_loaded:
            return 0
        return min(READY_MAX, max_bytes // max(1, found.size))


def _code_of(spec: CellSpec) -> tuple[str, ...]:
    packages = (str(path) for path in (spec.dependencies or "", *spec.shared))
    python = "" if spec.python is None else str(spec.python.program)
    return (spec.digest, spec.entry, python, " ".join(sorted(spec.env)), *packages)


class Demand:
    """How many processes wait for calls: one, and more while calls come faster than those."""

    def __init__(self, *, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._wanted = 1
        self._at = clock()

    def miss(self) -> None:
        """Count a call that found no process, or had to wait for one."""
        self._wanted = min(self._most, self.wanted + 1)
        self._at = self._clock()

    @property
    def wanted(self) -> int:
        if self._clock() - self._at >= QUIET_SECONDS:
            self._wanted = 1
        return self._wanted


class Ending(Struct):
    """How the process of one call ended, once it has."""

    done: asyncio.Event = field(default_factory=asyncio.Event)
    status: int | None = None
    """Exit code, negative for a signal; None when it was not started or is unknown."""
    failed: str = ""
    way: socket.socket | None = None
    """The bound socket of its way out, once the cell has sent it."""
    has_way: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self) -> None:
        """Mark it as ended, so that nothing waits for it."""
        self.done.set()
        self.has_way.set()


class Fork(Struct, eq=False):
    """A process of one call, and our ends of what connects it."""

    number: int
    ending: Ending
    link: socket.socket
    output: CellOutput
    seconds: float
    """Time of a call that its limit of processor time fits."""
    env: Mapping[str, str] = field(default_factory=dict)
    """What it was loaded with."""
    frames: Frames = field(default_factory=Frames)
    """What has been read of its link."""
    is_stopped: bool = False
    credentials: str = ""
    """`user:password` of its way out; "" where it has none."""

    @property
    def is_gone(self) -> bool:
        return self.ending.done.is_set()

    def close(self) -> None:
        if self.ending.way is not None:
            self.ending.way.close()
        self.output.close()
        self.link.close()


class Waiting(Protocol):
    """A process of one call, without its call."""

    link: socket.socket
    frames: Frames
    env: Mapping[str, str]
    is_stopped: bool

    @property
    def is_gone(self) -> bool: ...

    @property
    def seconds(self) -> float: ...


P = TypeVar("P", bound=Waiting)


class Owner(Protocol[P]):
    """The cell, which starts and ends the processes."""

    def start_ready(self, seconds: float) -> P: ...

    def discard_ready(self, process: P) -> None:
        """End one that gets no call."""
        ...

    def watch_ready(self, process: P, *, closely: bool) -> None:
        """Check its limits as those of a call, while it loads the code."""
        ...

    def stop_ready(self, process: P) -> None:
        """Give it no processor time until `resume_ready`."""
        ...

    def resume_ready(self, process: P) -> None: ...

    def start_learner(self) -> P | None:
        """Start one that loads the code to report of it, and gets no call; None if it has."""
        ...

    def take_report(self, report: Mapping[str, Any]) -> None: ...

    def max_ready(self) -> int:
        """Return how many may wait."""
        ...


class ReadyCalls(Generic[P]):
    """The processes of one cell that wait for calls."""

    def __init__(self, owner: Owner[P], *, loads: bool = True) -> None:
        """
        Args:
            loads: Whether they load the skill's code ahead.
        """
        self._owner = owner
        self._loads = loads
        self._loop = asyncio.get_running_loop()
        self._demand = Demand(most=READY_MAX)
        self._waiting: list[P] = []
        self._learner: P | None = None
        self._loading: dict[P, asyncio.TimerHandle] = {}
        self._trim: asyncio.TimerHandle | None = None
        self._failures = 0
        self._seconds = 0.0
        self._has_begun = False

    @property
    def count(self) -> int:
        """How many wait, ready for a call."""
        return sum(process.is_stopped for process in self._waiting)

    def take(self, seconds: float, env: Mapping[str, str]) -> P | None:
        """Return a process for a call of so many seconds; None where none fits."""
        found = None
        while self._waiting and found is None:
            process = self._waiting.pop(0)
            self._settle(process)
            fits = process.seconds >= seconds and process.env == env and not process.is_gone
            if fits:
                found = process
            else:
                self._owner.discard_ready(process)
        if found is not None and found.is_stopped:
            self._owner.resume_ready(found)
        elif self._has_begun:
            self._demand.miss()
        return found

    def refill(self, seconds: float, env: Mapping[str, str]) -> None:
        """Start what loads the code, if too few processes do or have."""
        if seconds <= READY_SECONDS:
            self._seconds = max(self._seconds, seconds)
        # Without descriptors, say; the next call starts its own process and says so.
        with contextlib.suppress(OSError, SandboxError):
            while self._failures < FAILURES_MAX and len(self._loading) < LOADING_MAX:
                if not self._loading and (learner := self._owner.start_learner()) is not None:
                    self._learner = learner
                    self._begin(learner, env)
                    return
                if len(self._waiting) >= min(self._demand.wanted, self._owner.max_ready()):
                    return
                self._has_begun = True
                process = self._owner.start_ready(self._seconds)
                self._waiting.append(process)
                self._begin(process, env)

    def _begin(self, process: P, env: Mapping[str, str]) -> None:
        process.env = dict(env)
        self._loading[process] = self._loop.call_later(LOAD_SECONDS, self._fail, process)
        self._owner.watch_ready(process, closely=True)
        self._loop.add_reader(process.link, self._read, process)
        try:
            process.link.send(prepare_order(env, loads=self._loads))
        except OSError:
            self._fail(process)

    def _read(self, process: P) -> None:
        try:
            data = process.link.recv(CHUNK)
            process.frames.feed(data)
            frame = process.frames.next()
            report = None if frame is None else message(parse(frame))
        except BlockingIOError:
            return
        except (OSError, RpcError):
            self._fail(process)
            return
        if data and report is None:
            return
        if not isinstance(report, RpcRequest) or report.method != PREPARED:
            self._fail(process)
            return
        self._prepared(process, report.params if isinstance(report.params, dict) else {})

    def _prepared(self, process: P, report: Mapping[str, Any]) -> None:
        self._settle(process)
        self._failures = 0
        self._owner.take_report(report)
        if process is self._learner:
            self._remove(process)
            self.refill(self._seconds, process.env)
            return
        if len(self._waiting) > self._owner.max_ready():
            self._remove(process)
            return
        # It has no processor time until its call arrives.
        process.is_stopped = True
        self._owner.stop_ready(process)
        self._watch_demand()
        self.refill(self._seconds, process.env)

    def _watch_demand(self) -> None:
        if len(self._waiting) > 1 and self._trim is None:
            self._trim = self._loop.call_later(QUIET_SECONDS, self._trimmed)

    def _trimmed(self) -> None:
        self._trim = None
        while len(self._waiting) > self._demand.wanted:
            self._remove(self._waiting[-1])
        self._watch_demand()

    def _fail(self, process: P) -> None:
        self._failures += 1
        self._remove(process)

    def _remove(self, process: P) -> None:
        self._settle(process)
        if process is self._learner:
            self._learner = None
        else:
            self._waiting.remove(process)
        self._owner.discard_ready(process)

    def _settle(self, process: P) -> None:
        """Stop to wait for its report."""
        timer = self._loading.pop(process, None)
        if timer is not None:
            timer.cancel()
            self._loop.remove_reader(process.link)
            self._owner.watch_ready(process, closely=False)

    def close(self) -> None:
        """Drop all; none is started any more."""
        self._failures = FAILURES_MAX
        if self._trim is not None:
            self._trim.cancel()
        for process in {*self._waiting, *self._loading}:
            self._remove(process)
